//! Background processes that outlive this program: they are started, recognized later, and ended.
//!
//! A process is identified by its pid and its start time, because pids are reused and a signal must never
//! reach another process. This file does not know the purpose of the processes.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::failed;
use crate::failure::Failure;

/// Time limit for the end of a process after SIGTERM, and again after SIGKILL.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// A recorded process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// Name for messages.
    pub(super) name: String,
    pub(super) pid: u32,
    /// Start time in the format of the system; empty if the process ended before it was read.
    pub(super) started: String,
}

impl Process {
    /// Starts a program in its own process group, so that Ctrl-C in a terminal does not reach it. Its output
    /// is appended to `log`.
    pub(crate) fn start(name: &str, mut command: Command, log: &Path) -> Result<(Self, Child), Failure> {
        let open = || -> io::Result<(File, File)> {
            let log = File::options().create(true).append(true).open(log)?;
            Ok((log.try_clone()?, log))
        };
        let (out, err) =
            open().map_err(|error| failed(&format!("cannot write {}", log.display()), &error))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(|error| failed(&format!("cannot start {name}"), &error))?;
        let started = start_time(child.id()).unwrap_or_default();
        Ok((Self { name: name.to_owned(), pid: child.id(), started }, child))
    }

    /// Returns whether this process is still running.
    pub(super) fn is_alive(&self) -> bool {
        start_time(self.pid).is_some_and(|started| started == self.started)
    }

    /// Ends the process group with SIGTERM, then with SIGKILL. Succeeds if the process has already ended.
    pub(crate) fn stop(&self) -> Result<(), Failure> {
        self.end(&[Signal::TERM, Signal::KILL])
    }

    /// Ends the process group with SIGKILL.
    pub(super) fn kill(&self) -> Result<(), Failure> {
        self.end(&[Signal::KILL])
    }

    fn end(&self, signals: &[Signal]) -> Result<(), Failure> {
        for &signal in signals {
            if !self.is_alive() {
                return Ok(());
            }
            self.signal(signal)?;
            let sent = Instant::now();
            while self.is_alive() && sent.elapsed() < STOP_TIMEOUT {
                thread::sleep(Duration::from_millis(20));
            }
        }
        if self.is_alive() {
            return Err(Failure::Failed(format!("{} (pid {}) did not end", self.name, self.pid)));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let group = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(group) = group else {
            return Err(Failure::Failed(format!(
                "{} is recorded with the invalid pid {}",
                self.name, self.pid
            )));
        };
        match rustix::process::kill_process_group(group, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(failed(&format!("cannot end {} (pid {})", self.name, self.pid), &error)),
        }
    }
}

/// Returns the start time of a process; `None` if it does not exist or is a zombie.
fn start_time(pid: u32) -> Option<String> {
    if Path::new("/proc/self/stat").exists() {
        return start_in_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    }
    let output =
        Command::new("ps").args(["-o", "stat=", "-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
    start_in_ps(&String::from_utf8_lossy(&output.stdout))
}

/// Parses `/proc/PID/stat`: `pid (name) state …`; the start time is field 22. The name may contain spaces and
/// brackets.
fn start_in_stat(stat: &str) -> Option<String> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| started.to_owned())
}

/// Parses the output of `ps -o stat= -o lstart=`: `Ss   Thu Jan  1 00:00:00 1970`.
fn start_in_ps(line: &str) -> Option<String> {
    let (state, started) = line.trim().split_once(' ')?;
    (!state.starts_with('Z')).then(|| started.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_time_is_parsed_after_any_name() {
        let stat = |name: &str, state: &str| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4711 99 100\n")
        };
        assert_eq!(start_in_stat(&stat("etcd", "S")).as_deref(), Some("4711"));
        assert_eq!(start_in_stat(&stat("a) Z (b", "R")).as_deref(), Some("4711"));
        assert_eq!(start_in_stat(&stat("etcd", "Z")), None);
        for malformed in ["", ")", "7 (etcd", "7 (etcd) S 1 2"] {
            assert_eq!(start_in_stat(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn start_time_is_parsed_from_ps() {
        let line = "Ss   Thu Jan  1 00:00:00 1970\n";
        assert_eq!(start_in_ps(line).as_deref(), Some("Thu Jan  1 00:00:00 1970"));
        assert_eq!(start_in_ps("Z    Thu Jan  1 00:00:00 1970\n"), None);
        assert_eq!(start_in_ps(""), None);
    }

    #[test]
    fn reused_pid_is_another_process() {
        let pid = std::process::id();
        let process = |started: String| Process { name: "self".to_owned(), pid, started };
        assert!(process(start_time(pid).unwrap()).is_alive());
        let other = process("long ago".to_owned());
        assert!(!other.is_alive());
        // Stopping it must not end this process.
        assert!(other.stop().is_ok());
        assert!(!process(String::new()).is_alive());
    }

    #[test]
    fn started_process_is_stopped() {
        let log = std::env::temp_dir().join(format!("informer-process-test-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo started; exec sleep 600"]);
        let Ok((process, mut child)) = Process::start("sleep", command, &log) else { panic!("cannot start") };
        assert!(process.is_alive());
        assert!(process.stop().is_ok());
        assert!(!process.is_alive());
        assert!(!child.wait().unwrap().success());
        fs::remove_file(log).unwrap();
    }
}
