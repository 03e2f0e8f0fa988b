//! The client program of the benchmark against the embedded server: it must sync and follow correctly, by its protocol.
#![allow(clippy::unwrap_used)]

#[path = "../../protocol/tests/common/mod.rs"]
mod common;

use common::Tells;

/// With several handlers nothing is deleted: a subscriber of a shared reflector sleeps for ever if an object is deleted before it has
/// looked at it (its `poll_next` is then pending, and nobody wakes it).
#[tokio::test]
async fn it_syncs_and_follows() {
    let strategies = [
        ("default", 1, Tells::Each),
        ("list", 1, Tells::Each),
        ("watch-list", 1, Tells::Each),
        ("default", 3, Tells::NoDeletion),
    ];
    common::check(env!("CARGO_BIN_EXE_peer-kube-rs"), &strategies, "json").await;
}
