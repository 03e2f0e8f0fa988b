//! kube-rs as an independent client of the embedded server, over HTTPS: responses must be those of
//! kube-apiserver.
//!
//! kube-rs was written for kube-apiserver and does not know this server, so its failures are bugs of this
//! server. Faults of kube-rs itself (P1 to P16, see CONTRIBUTING.md) are named in the tests, which pin its
//! current behaviour: `faults.rs` shows P5, P8, P11, P14, P15 and P16. P1, P2 and P13 are in its controller
//! and P3, P4, P6, P7, P9, P10 and P12 in its cache and backoff; no response of a server causes or prevents
//! them.
//!
//! With a kubeconfig in `PEER_KUBECONFIG`, the tests run on that server instead, in new namespaces; only
//! tests that need faults or compaction stay with the embedded server. `cargo xtask control-plane up` prints
//! such a kubeconfig.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod calls;
mod controller;
mod discovery;
mod errors;
mod faults;
mod helpers;
mod patches;
mod site;
mod watching;
mod world;
