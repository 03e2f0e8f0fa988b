//! Runs the benchmark programs of informer and, if Go is installed, client-go against the embedded server.
#![allow(clippy::unwrap_used)]

#[path = "../../protocol/tests/common/mod.rs"]
mod common;

use std::process::Command;

use common::Delivers;

fn strategies(delivers: Delivers) -> [(&'static str, u64, Delivers); 3] {
    [("default", 1, delivers), ("list", 3, delivers), ("watch-list", 1, delivers)]
}

#[tokio::test]
async fn informer_syncs_and_follows() {
    common::check(env!("CARGO_BIN_EXE_peer-informer"), &strategies(Delivers::Last), "json").await;
    common::check(env!("CARGO_BIN_EXE_peer-informer"), &strategies(Delivers::Last), "protobuf").await;
}

#[tokio::test]
async fn client_go_syncs_and_follows() {
    let program = format!("{}/peer-client-go", env!("CARGO_TARGET_TMPDIR"));
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-go");
    // Only downloaded modules are used, so that the test never waits for a network; `cargo xtask ci`
    // downloads them before.
    let built = Command::new("go")
        .current_dir(module)
        .args(["build", "-o", &program, "."])
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOPROXY", "off")
        .output();
    match built {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            // Go's message for a missing module that may not be downloaded; anything else is an error of the
            // program.
            assert!(error.contains("GOPROXY=off"), "building client-go failed: {error}");
            return eprintln!("skipping client-go, its modules are not downloaded: {error}");
        }
        Err(_) => return eprintln!("skipping client-go: `go` is not on the PATH"),
    }
    common::check(&program, &strategies(Delivers::Each), "json").await;
    common::check(&program, &strategies(Delivers::Each), "protobuf").await;
}
