//! kube-rs as an independent client of the embedded server, over HTTPS: whatever it asks, it must be answered as by a real server.
//!
//! kube-rs was written against real servers and knows nothing of this one, so what it stumbles over is ours to mend. Where it stumbles
//! by itself (faults P1 to P16, see CONTRIBUTING.md), the test says so and holds it fast: `faults.rs` shows P5, P8, P11, P14, P15 and P16.
//! P1, P2 and P13 are the controller's own and P3, P4, P6, P7, P9, P10 and P12 the cache's and the back-off's; no answer of a server
//! makes or mends them.
//!
//! With a kubeconfig in `PEER_KUBECONFIG` the same statements are made of that server instead, in namespaces of their own; only what needs
//! faults or compaction stays with the embedded one. `cargo xtask real up` prints such a kubeconfig.
#![allow(clippy::unwrap_used, reason = "tests say what is wrong by panicking")]

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
