//! Runs the benchmark program against the embedded server: it must sync and follow changes correctly.
#![allow(clippy::unwrap_used)]

#[path = "../../protocol/tests/common/mod.rs"]
mod common;

use common::Delivers;

/// With several handlers nothing is deleted: a subscriber of a shared reflector never wakes up if an object
/// is deleted before it was read (its `poll_next` returns pending without registering a waker).
#[tokio::test]
async fn program_syncs_and_follows() {
    let strategies = [
        ("default", 1, Delivers::Each),
        ("list", 1, Delivers::Each),
        ("watch-list", 1, Delivers::Each),
        ("default", 3, Delivers::NoDeletion),
    ];
    common::check(env!("CARGO_BIN_EXE_peer-kube-rs"), &strategies, "json").await;
}
