//! The client programs of the benchmark against the embedded server, by their protocol: ours, and client-go where there is a Go.
#![allow(clippy::unwrap_used)]

#[path = "../../protocol/tests/common/mod.rs"]
mod common;

use std::process::Command;

const STRATEGIES: [(&str, u64); 3] = [("default", 1), ("list", 3), ("watch-list", 1)];

#[tokio::test]
async fn ours_syncs_and_follows() {
    common::check(env!("CARGO_BIN_EXE_peer-ours"), &STRATEGIES, "json").await;
}

#[tokio::test]
async fn client_go_syncs_and_follows() {
    let program = format!("{}/peer-client-go", env!("CARGO_TARGET_TMPDIR"));
    let module = concat!(env!("CARGO_MANIFEST_DIR"), "/../client-go");
    // Only what is there already, so that a test never waits for a network; `cargo xtask ci` fetches it before.
    let built = Command::new("go")
        .current_dir(module)
        .args(["build", "-o", &program, "."])
        .env("GOFLAGS", "-buildvcs=false")
        .env("GOPROXY", "off")
        .output();
    match built {
        Ok(output) if output.status.success() => {}
        Ok(output) => {
            eprintln!(
                "client-go cannot be built here, so it is left out: {}",
                String::from_utf8_lossy(&output.stderr)
            );
            return;
        }
        Err(_) => return eprintln!("there is no `go` on the PATH, so client-go is left out"),
    }
    common::check(&program, &STRATEGIES, "json").await;
    common::check(&program, &STRATEGIES, "protobuf").await;
}
