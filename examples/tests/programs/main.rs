//! Every example against the kube-apiserver that `INFORMER_CONTROL_PLANE_KUBECONFIG` names (`cargo xtask control-plane test`).
//! Without one, nothing is checked.
//!
//! Each test runs one example as its `main` does, in a namespace of its own, and compares its output with the
//! changes made on the server. Faults and special cases are tested on the embedded server, in the files next
//! to this folder.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "../../../crates/informer/tests/control_plane/apart.rs"]
mod apart;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../crates/informer-apiserver/tests/conformance/runner.rs"]
mod runner;
#[path = "../../../crates/informer/tests/control_plane/targets.rs"]
mod targets;
mod watching;
mod working;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    runner::run(targets::Targets::open().await, &[watching::ALL, working::ALL].concat(), &[]).await
}
