//! Every example against the kube-apiserver that `INFORMER_REAL_KUBECONFIG` names (`cargo xtask real test`).
//! Without one, nothing is checked.
//!
//! Each test runs one example as its `main` does, in a namespace of its own, and compares its output with the
//! changes made on the server. Faults and special cases are tested on the embedded server, in the files next
//! to this folder.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "../../../crates/informer/tests/real/apart.rs"]
mod apart;
#[path = "../../../crates/informer/tests/real/arm.rs"]
mod arm;
#[path = "../common/mod.rs"]
mod common;
#[path = "../../../crates/informer-apiserver/tests/conformance/runner.rs"]
mod runner;
mod watching;
mod working;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    runner::run(arm::Arms::open().await, &[watching::ALL, working::ALL].concat(), &[]).await
}
