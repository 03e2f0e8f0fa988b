//! The client programs of the benchmark against the embedded server, by their protocol: ours, and client-go where there is a Go.
#![allow(clippy::unwrap_used)]

#[path = "../../protocol/tests/common/mod.rs"]
mod common;

use std::process::Command;

use common::Tells;

fn strategies(tells: Tells) -> [(&'static str, u64, Tells); 3] {
    [("default", 1, tells), ("list", 3, tells), ("watch-list", 1, tells)]
}

#[tokio::test]
async fn ours_syncs_and_follows() {
    common::check(env!("CARGO_BIN_EXE_peer-ours"), &strategies(Tells::Last), "json").await;
    common::check(env!("CARGO_BIN_EXE_peer-ours"), &strategies(Tells::Last), "protobuf").await;
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
            let why = String::from_utf8_lossy(&output.stderr);
            // What Go says of a module that is not there and may not be fetched; anything else is a mistake of the program.
            assert!(why.contains("GOPROXY=off"), "client-go cannot be built: {why}");
            return eprintln!("what client-go is built from is not there, so it is left out: {why}");
        }
        Err(_) => return eprintln!("there is no `go` on the PATH, so client-go is left out"),
    }
    common::check(&program, &strategies(Tells::Each), "json").await;
    common::check(&program, &strategies(Tells::Each), "protobuf").await;
}
