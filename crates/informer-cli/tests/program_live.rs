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

/// Bug: after Ctrl-Z, the shell was on the alternate screen without a cursor, and `fg` did not draw the table at once.
/// The default action of the signal stopped the process without restoring the terminal. No test sent the signal.
#[test]
fn live_leaves_the_screen_while_it_is_stopped() {
    // With job control, the shell goes on when the program is stopped, and resumes it.
    let command = "set -m; $INFORMER watch pods --live --demo; echo stopped; fg; echo ended";
    let Some(mut session) = TerminalSession::start(command) else { return };
    session.wait_for("more pods", 2);
    session.press(CTRL_Z);
    session.wait_for("stopped", 1);
    session.wait_for(ENTER_SCREEN, 2);
    session.press(CTRL_C);
    session.wait_for("ended", 1);
    let output = session.end();
    // Four times the screen is entered or left; the rest is what the user sees on either screen.
    let parts: Vec<&str> = output.split(ENTER_SCREEN).flat_map(|part| part.split(LEAVE_SCREEN)).collect();
    let [_, first, while_stopped, second, after] = parts[..] else { panic!("{output:?}") };
    assert!(first.contains("more pods") && second.contains("more pods"), "{output:?}");
    assert!(while_stopped.contains("stopped") && !while_stopped.contains("NAME"), "{while_stopped:?}");
    assert!(after.contains("watched pods for ") && after.contains("ended"), "{after:?}");
}

/// Waits until a process of the group of this script is stopped: a program that the script runs.
fn wait_until_stopped(script: &str) {
    let is_stopped = |entry: std::fs::DirEntry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        stat.contains(&format!("(informer) T {script} {script} "))
    };
    let started = std::time::Instant::now();
    while !std::fs::read_dir("/proc").unwrap().flatten().any(is_stopped) {
        assert!(started.elapsed() < TIMEOUT, "not stopped in time");
        std::thread::yield_now();
    }
}

/// Bugs: after Ctrl-Z in a script, the program went on and drew over the prompt of the shell: it took the script, which
/// is in the same process group, for a sign that no shell could resume it. After `bg`, it drew over the prompt, too: it
/// did not check whether it had the terminal. The test ran the program without a script, and resumed it with `fg`.
#[test]
fn live_in_a_script_stops_and_stays_stopped_in_the_background() {
    if !std::path::Path::new("/proc/self/stat").exists() {
        println!("not tested: no /proc");
        return;
    }
    // The trap: a shell ends with a script that Ctrl-C ends.
    let script = "sh -c 'trap : INT; echo script=$$.; $INFORMER watch pods --live --demo; :'";
    let command =
        format!("set -m; {script}; echo stopped; read go; bg; echo continued; read go; fg; echo ended");
    let Some(mut session) = TerminalSession::start(&command) else { return };
    session.wait_for("more pods", 1);
    let output = text(&session.output);
    let script = output.split_once("script=").unwrap().1.split_once('.').unwrap().0;
    session.press(CTRL_Z);
    session.wait_for("stopped", 1);
    wait_until_stopped(script);
    session.press(b"\n");
    // Before the shell writes this, the program runs again.
    session.wait_for("continued", 1);
    wait_until_stopped(script);
    session.press(b"\n");
    session.wait_for(ENTER_SCREEN, 2);
    session.press(CTRL_C);
    let output = session.end();
    let (while_stopped, second) = output.rsplit_once(ENTER_SCREEN).unwrap();
    let (first, while_stopped) = while_stopped.split_once(LEAVE_SCREEN).expect("the screen is left");
    assert_eq!(first.matches(ENTER_SCREEN).count(), 1, "{output:?}");
    assert!(!while_stopped.contains("NAME") && !while_stopped.contains(ENTER_SCREEN), "{while_stopped:?}");
    assert!(second.contains("more pods") && second.contains(LEAVE_SCREEN), "{second:?}");
}

/// Without a shell that could resume it, the program does not stop, as programs without a handler do not.
#[test]
fn live_goes_on_after_ctrl_z_without_job_control() {
    let Some(mut session) = TerminalSession::start("exec $INFORMER watch pods --live --demo") else { return };
    session.wait_for("more pods", 1);
    session.press(CTRL_Z);
    let drawn = String::from_utf8_lossy(&session.output).matches("more pods").count();
    session.wait_for("more pods", drawn + 3);
    session.press(CTRL_C);
    let output = session.end();
    // It leaves the screen to try.
    assert_eq!((output.matches(ENTER_SCREEN).count(), output.matches(LEAVE_SCREEN).count()), (2, 2));
}
