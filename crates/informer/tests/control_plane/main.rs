//! Tests of this library against the kube-apiserver that `INFORMER_CONTROL_PLANE_KUBECONFIG` names (`cargo xtask control-plane
//! test`). Without one, nothing is checked.
//!
//! Delivered events are folded into a map; the map, the cache and a list must be equal in the end. Tests that
//! damage the control plane run only if `INFORMER_CONTROL_PLANE_CONTROL` names the control socket, one at a time and
//! last; before them, also one at a time, those that need a server without other load.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod apart;
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
#[path = "../common/shard_members.rs"]
mod shard_members;
mod shards;
mod targets;
#[path = "../common/types.rs"]
mod types;
#[cfg(feature = "persistence")]
mod warm_start;

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    let tests = [
        controllers::ALL,
        definitions::ALL,
        gaps::ALL,
        kinds::ALL,
        leaders::ALL,
        rights::ALL,
        shards::ALL,
        #[cfg(feature = "persistence")]
        warm_start::ALL,
        outage::ALL,
        rewind::ALL,
    ];
    runner::run(targets::Targets::open().await, &tests.concat(), &[]).await
}
