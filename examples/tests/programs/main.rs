//! Every example on a real kube-apiserver: the one that `INFORMER_REAL_KUBECONFIG` names (`cargo xtask real test`). Without one, nothing is
//! checked.
//!
//! Each statement runs one example as its `main` does, in a namespace of its own, and holds what it prints or does against what was done to the
//! server. In bad weather and in every corner the examples are tried beside this folder, on the embedded server.

#![allow(clippy::unwrap_used, reason = "a statement says what is wrong by panicking")]

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
