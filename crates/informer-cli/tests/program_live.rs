//! `--live` run as a process, on a pseudo terminal and without one.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TIMEOUT, check, read_all, text};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::mpsc;

#[test]
fn live_needs_a_terminal_and_a_table() {
    for command in ["watch", "get"] {
        let (stdout, stderr) = check(&[command, "pods", "--live", "--demo"], 2);
        assert!(stdout.is_empty());
        assert!(stderr.starts_with("error: --live needs a terminal as standard output ("), "{stderr}");
        let (_, stderr) = check(&[command, "pods", "--live", "-o", "json", "--demo"], 2);
        assert!(stderr.starts_with("error: --live shows a table ("), "{stderr}");
        let (_, stderr) = check(&[command, "pods", "--live", "--once", "--demo"], 2);
        assert!(stderr.contains("cannot be used with"), "{stderr}");
    }
}

/// Uses the program `script` of util-linux as the terminal.
#[test]
fn live_redraws_in_place_and_restores_the_terminal() {
    if let Err(error) = Command::new("script").arg("--version").output() {
        println!("not tested: script: {error}");
        return;
    }
    let command = format!(
        "stty rows 12 cols 80; exec {} watch pods nodes --live --demo",
        env!("CARGO_BIN_EXE_informer")
    );
    let mut child = Command::new("script")
        .args(["-qec", &command, "/dev/null"])
        .env("TERM", "xterm")
        .env("HOME", "/nonexistent")
        .env("SHELL", "/bin/sh")
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let errors = read_all(child.stderr.take().unwrap());
    let mut stdout = child.stdout.take().unwrap();
    let (send, chunks) = mpsc::channel();
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        while let Ok(count @ 1..) = stdout.read(&mut chunk) {
            drop(send.send(chunk[..count].to_vec()));
        }
    });
    let mut output = Vec::new();
    let mut stdin = child.stdin.take().unwrap();
    let mut is_stopped = false;
    loop {
        match chunks.recv_timeout(TIMEOUT) {
            Ok(chunk) => output.extend(chunk),
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                child.kill().unwrap();
                panic!("no end in time: {}", String::from_utf8_lossy(&output));
            }
        }
        let screens = String::from_utf8_lossy(&output);
        // Two drawings, then Ctrl-C.
        if !is_stopped && screens.matches("more pods").count() >= 2 {
            is_stopped = true;
            stdin.write_all(b"\x03").unwrap();
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "{}", text(&errors.recv_timeout(TIMEOUT).unwrap()));
    let output = text(&output);
    let (_, live) = output.split_once("\x1b[?1049h\x1b[?25l").expect("the alternate screen is entered");
    let (live, after) = live.split_once("\x1b[?25h\x1b[?1049l").expect("the terminal is restored");
    assert!(!after.contains("NAME"), "{after:?}");
    assert!(after.contains("watched pods, nodes for ") && after.contains("3 nodes"), "{after:?}");
    for screen in live.split("\x1b[H").skip(1) {
        assert!(screen.matches("\r\n").count() < 12, "{screen}");
        assert!(screen.ends_with("\x1b[J") || screen.ends_with("\x1b[0m"), "{screen:?}");
    }
}
