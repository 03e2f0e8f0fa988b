//! This library on a real kube-apiserver, story by story: the one that `INFORMER_REAL_KUBECONFIG` names (`cargo xtask real test`). Without
//! one, nothing is checked.
//!
//! What handlers were told is folded into a map; that map, the cache and a fresh list must be the same in the end: nothing lost, nothing
//! invented. Stories that harm the control plane run only where `INFORMER_REAL_CONTROL` says whom to ask for it, alone and last.

#![allow(clippy::unwrap_used, reason = "a story says what is wrong by panicking")]

mod apart;
mod arm;
mod control;
mod controllers;
mod definitions;
#[path = "../../../informer-apiserver/tests/conformance/etcd.rs"]
mod etcd;
mod gaps;
mod kinds;
mod leaders;
mod model;
mod outage;
mod proxy;
mod rewind;
mod rights;
#[path = "../../../informer-apiserver/tests/conformance/runner.rs"]
mod runner;
#[path = "../common/types.rs"]
mod types;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let stories = [
        controllers::ALL,
        definitions::ALL,
        gaps::ALL,
        kinds::ALL,
        leaders::ALL,
        outage::ALL,
        rewind::ALL,
        rights::ALL,
    ];
    runner::run(arm::Arms::open().await, &stories.concat(), &[]).await
}
