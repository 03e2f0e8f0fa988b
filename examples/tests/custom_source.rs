//! The custom source example, which needs no server.
#![allow(clippy::unwrap_used)]

use crate::common::{Program, output};
use crate::programs::custom_source;
use std::path::PathBuf;

fn new_directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    // A previous run may have left it.
    let _ = std::fs::remove_dir_all(&directory);
    std::fs::create_dir(&directory).unwrap();
    directory
}

#[tokio::test(start_paused = true)]
async fn files_are_objects() {
    let directory = new_directory("custom_source");
    let write = |name: &str, text: &str| std::fs::write(directory.join(name), text).unwrap();
    write("theme.json", r#"{"color": "blue"}"#);
    write("notes.txt", "not an object");
    let (print, mut lines) = output();
    let path = directory.clone();
    let program = Program::start(|stopped| async move {
        custom_source::run(&path, print, async { drop(stopped.await) }).await
    });
    lines.expect(&[r#"+ theme {"color":"blue"}"#]).await;
    write("theme.json", r#"{"color": "#); // half written
    write("limits.json", r#"{"requests": "10"}"#);
    lines.expect(&[r#"+ limits {"requests":"10"}"#]).await;
    write("theme.json", r#"{"color": "red"}"#);
    lines.expect(&[r#"~ theme {"color":"red"}"#]).await;
    std::fs::remove_file(directory.join("limits.json")).unwrap();
    lines.expect(&["- limits"]).await;
    // The directory disappears and returns: the informer keeps its objects and retries.
    let elsewhere = directory.with_extension("moved");
    let _ = std::fs::remove_dir_all(&elsewhere);
    std::fs::rename(&directory, &elsewhere).unwrap();
    crate::common::cluster::advance_time(std::time::Duration::from_secs(120)).await;
    assert_eq!(lines.take(), [""; 0]);
    std::fs::rename(&elsewhere, &directory).unwrap();
    std::fs::remove_file(directory.join("theme.json")).unwrap();
    lines.expect(&["- theme"]).await;
    program.stop().await;
}

#[tokio::test(start_paused = true)]
async fn missing_directory_is_an_error_with_its_reason() {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("no such directory");
    let error = custom_source::run(&directory, |_| {}, async {}).await.unwrap_err().to_string();
    assert!(error.contains("No such file or directory"), "{error}");
}
