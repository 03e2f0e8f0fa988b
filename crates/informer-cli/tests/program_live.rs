//! `--live` run as a process, on a pseudo terminal and without one.

#![allow(clippy::unwrap_used)]

mod common;

use common::{TIMEOUT, check, read_all, text};
use std::io::{Read as _, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
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

/// A shell command on a pseudo terminal, which the program `script` of util-linux provides.
struct TerminalSession {
    child: Child,
    stdin: ChildStdin,
    chunks: mpsc::Receiver<Vec<u8>>,
    errors: mpsc::Receiver<Vec<u8>>,
    output: Vec<u8>,
}

impl TerminalSession {
    /// Returns `None` if the machine has no `script`.
    fn start(command: &str) -> Option<Self> {
        if let Err(error) = Command::new("script").arg("--version").output() {
            println!("not tested: script: {error}");
            return None;
        }
        let mut child = Command::new("script")
            .args(["-qec", &format!("stty rows 12 cols 80; {command}"), "/dev/null"])
            .env("TERM", "xterm")
            .env("HOME", "/nonexistent")
            .env("SHELL", "/bin/sh")
            .env("INFORMER", env!("CARGO_BIN_EXE_informer"))
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
        let stdin = child.stdin.take().unwrap();
        Some(Self { child, stdin, chunks, errors, output: Vec::new() })
    }

    /// Waits until the output contains a text this many times.
    fn wait_for(&mut self, text: &str, times: usize) {
        while String::from_utf8_lossy(&self.output).matches(text).count() < times {
            assert!(self.read(), "ended: {}", String::from_utf8_lossy(&self.output));
        }
    }

    /// Reads more output; returns false at its end.
    fn read(&mut self) -> bool {
        match self.chunks.recv_timeout(TIMEOUT) {
            Ok(chunk) => self.output.extend(chunk),
            Err(mpsc::RecvTimeoutError::Disconnected) => return false,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                self.child.kill().unwrap();
                panic!("not in time: {}", String::from_utf8_lossy(&self.output));
            }
        }
        true
    }

    fn press(&mut self, keys: &[u8]) {
        self.stdin.write_all(keys).unwrap();
    }

    /// Waits for the end of a successful command; returns all output.
    fn end(mut self) -> String {
        while self.read() {}
        let status = self.child.wait().unwrap();
        assert_eq!(status.code(), Some(0), "{}", text(&self.errors.recv_timeout(TIMEOUT).unwrap()));
        text(&self.output)
    }
}

const CTRL_C: &[u8] = b"\x03";
const CTRL_Z: &[u8] = b"\x1a";
const ENTER_SCREEN: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE_SCREEN: &str = "\x1b[?25h\x1b[?1049l";

#[test]
fn live_redraws_in_place_and_restores_the_terminal() {
    let Some(mut session) = TerminalSession::start("exec $INFORMER watch pods nodes --live --demo") else {
        return;
    };
    session.wait_for("more pods", 2);
    session.press(CTRL_C);
    let output = session.end();
    let (_, live) = output.split_once(ENTER_SCREEN).expect("the alternate screen is entered");
    let (live, after) = live.split_once(LEAVE_SCREEN).expect("the terminal is restored");
    assert!(!after.contains("NAME"), "{after:?}");
    assert!(after.contains("watched pods, nodes for ") && after.contains("3 nodes"), "{after:?}");
    for screen in live.split("\x1b[H").skip(1) {
        assert!(screen.matches("\r\n").count() < 12, "{screen}");
        assert!(screen.ends_with("\x1b[J") || screen.ends_with("\x1b[0m"), "{screen:?}");
    }
}

/// Bug: after Ctrl-Z, the shell was on the alternate screen without a cursor. The default action of the signal stopped the
/// process without restoring the terminal. No test sent the signal.
#[test]
fn ctrl_z_has_no_effect_on_the_live_table() {
    let Some(mut session) = TerminalSession::start("set -m; $INFORMER watch pods --live --demo; echo ended")
    else {
        return;
    };
    session.wait_for("more pods", 1);
    session.press(CTRL_Z);
    let drawn = String::from_utf8_lossy(&session.output).matches("more pods").count();
    session.wait_for("more pods", drawn + 3);
    session.press(CTRL_C);
    let output = session.end();
    assert_eq!((output.matches(ENTER_SCREEN).count(), output.matches(LEAVE_SCREEN).count()), (1, 1));
}
