//! Ctrl-Z while `--live` draws: the process stops on the normal screen, and draws again when it is resumed.
//!
//! A handler of SIGTSTP replaces the default action, so the process has to stop itself. It does so with SIGTTOU, whose
//! default action is the same. Unlike SIGSTOP, the system ignores this signal if no shell could resume the process
//! (`ssh -t HOST informer …`): such a process must not stop, and only the system knows exactly whether it is one. It
//! leaves the screen for a moment and goes on.

use crate::terminal::Terminal;
use futures::FutureExt as _;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTSTP and SIGCONT. tokio has no constants for them.
const STOP: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 20 } else { 18 };
const RESUME: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 18 } else { 19 };

/// Time after which a process that still runs cannot be stopped.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The signals of job control.
pub(super) struct JobControl {
    stop: Signal,
    resumed: Signal,
}

impl JobControl {
    pub(super) fn listen() -> std::io::Result<Self> {
        Ok(Self { stop: signal(SignalKind::from_raw(STOP))?, resumed: signal(SignalKind::from_raw(RESUME))? })
    }

    /// Waits for Ctrl-Z.
    pub(super) async fn stop_requested(&mut self) {
        self.stop.recv().await;
    }

    /// Restores the terminal and stops the process. Returns when the process is resumed in the foreground, or cannot
    /// be stopped.
    pub(super) async fn stop(&mut self, terminal: &Terminal) {
        let screen = terminal.clone();
        // Without a result, the runtime is shutting down.
        drop(tokio::task::spawn_blocking(move || screen.suspend_screen()).await);
        // The terminal has sent Ctrl-Z to the other processes of the job, too.
        let mut is_stopped = self.stop_by("kill -TTOU $PPID").await;
        // Resumed by `bg`: the terminal is the shell's. Like the system after output to a terminal that forbids it, this
        // stops the whole job: a shell that watches only a script around this program has to notice, or `fg` would
        // resume nothing.
        while is_stopped && is_in_background() {
            is_stopped = self.stop_by("kill -TTOU 0").await;
        }
    }

    /// Runs a command that stops the process. Returns whether the process was stopped, and is resumed now.
    async fn stop_by(&mut self, command: &'static str) -> bool {
        // An older signal does not mean that the process was stopped.
        while let Some(Some(())) = self.resumed.recv().now_or_never() {}
        let run = move || std::process::Command::new("sh").args(["-c", command]).status();
        // The shell's own command: not every system has a program `kill`. Its status is irrelevant, because it may be
        // stopped and ended together with this process.
        drop(tokio::task::spawn_blocking(run).await);
        // The stop may take effect a little later than the command. A drawing in between would enter the screen again.
        tokio::time::timeout(STOP_TIMEOUT, self.resumed.recv()).await.is_ok()
    }
}

/// Returns whether another job is in the foreground of the terminal. `false` if that is unknown, as on a system without
/// `/proc`.
fn is_in_background() -> bool {
    std::fs::read_to_string("/proc/self/stat").is_ok_and(|stat| is_background(&stat).unwrap_or(false))
}

/// Returns whether another job is in the foreground, given the contents of `/proc/ID/stat`: `ID (NAME) STATE PARENT GROUP
/// SESSION TERMINAL FOREGROUND …`. The name may contain spaces and parentheses; the group in the foreground is -1
/// without a terminal.
fn is_background(stat: &str) -> Option<bool> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(2);
    let group: i32 = fields.next()?.parse().ok()?;
    let foreground: i32 = fields.nth(2)?.parse().ok()?;
    Some(foreground > 0 && foreground != group)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_is_in_the_background_if_another_group_has_the_terminal() {
        assert_eq!(is_background("71 (a (b) c) S 12 71 12 34816 71 4194560"), Some(false));
        assert_eq!(
            is_background("72 (informer) S 71 71 12 34816 71 4194560"),
            Some(false),
            "started by a script"
        );
        assert_eq!(is_background("71 (informer) S 12 71 12 34816 12 4194560"), Some(true));
        assert_eq!(is_background("71 (informer) S 12 71 12 0 -1 4194560"), Some(false), "without a terminal");
        assert_eq!(is_background("71 (informer) S 12 71 12"), None);
    }
}
