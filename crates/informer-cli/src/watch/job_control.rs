//! Ctrl-Z while `--live` draws: the process stops on the normal screen, and draws again when it is resumed.
//!
//! A handler of SIGTSTP replaces the default action, so the process stops itself, with SIGSTOP. Unlike SIGTSTP, that
//! also stops a process that no shell can resume (`ssh -t HOST informer …`); such a process ignores Ctrl-Z, as it
//! would without a handler.

use crate::terminal::Terminal;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTSTP and SIGCONT. tokio has no constants for them.
const STOP: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 20 } else { 18 };
const RESUME: i32 = if cfg!(any(target_os = "linux", target_os = "android")) { 18 } else { 19 };

/// Time after which a process that still runs cannot be stopped, for example as the first process of a container.
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

    /// Restores the terminal and stops the process. Returns when the process is resumed.
    pub(super) async fn stop(&mut self, terminal: &Terminal) {
        if is_orphaned() {
            return;
        }
        let terminal = terminal.clone();
        let stopped = tokio::task::spawn_blocking(move || {
            terminal.suspend_screen();
            // The shell's own command: not every system has a program `kill`.
            std::process::Command::new("sh").args(["-c", "kill -STOP $PPID"]).status()
        });
        // The stop may take effect a little later than the command. A drawing in between would enter the screen again.
        if let Ok(Ok(status)) = stopped.await
            && status.success()
        {
            drop(tokio::time::timeout(STOP_TIMEOUT, self.resumed.recv()).await);
        }
    }
}

/// Returns whether no shell can resume this process. `false` if that is unknown.
fn is_orphaned() -> bool {
    let of = |id: u32| group_and_session(&std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?);
    let groups = (of(std::process::id()), of(std::os::unix::process::parent_id()));
    matches!(groups, (Some(own), Some(parent)) if !is_job_of(own, parent))
}

/// Returns whether a process is a job of its parent, given group and session of both: the shell is in the same session
/// and has given the job a group of its own.
fn is_job_of((group, session): (u32, u32), (parent_group, parent_session): (u32, u32)) -> bool {
    session == parent_session && group != parent_group
}

/// Returns process group and session from the contents of `/proc/ID/stat`: `ID (NAME) STATE PARENT GROUP SESSION …`. The
/// name may contain spaces and parentheses.
fn group_and_session(stat: &str) -> Option<(u32, u32)> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_jobs_of_a_shell_can_be_resumed() {
        assert_eq!(group_and_session("71 (a (b) c) S 12 71 12 34816 71"), Some((71, 12)));
        assert_eq!(group_and_session("71 (informer) S"), None);
        assert!(is_job_of((71, 12), (12, 12)), "started by an interactive shell");
        assert!(!is_job_of((71, 71), (60, 60)), "in a session of its own, as with `ssh -t` or `xterm -e`");
        assert!(!is_job_of((71, 71), (71, 71)), "started by a shell script that is the session leader");
    }
}
