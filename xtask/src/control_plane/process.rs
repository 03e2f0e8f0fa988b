//! Processes that outlive this program: started in the background, recognised later, and ended.
//!
//! A process is its number and its start time together: numbers are given again, and a signal must never reach whoever
//! got the number next. Nothing here knows what the processes are for.

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

/// How long a process may take to end when asked to, and how long when made to.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// A process as it is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Process {
    /// What it is, for people.
    pub(super) name: String,
    pub(super) pid: u32,
    /// When it was started, in whatever way this system tells; empty if it had ended before anybody could look.
    pub(super) started: String,
}

impl Process {
    /// Starts a program in a process group of its own, so that a terminal's Ctrl-C does not reach it, with everything it
    /// says in `log`, behind what is there.
    pub(super) fn start(name: &str, mut command: Command, log: &Path) -> Result<(Self, Child), Failure> {
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

    /// Whether this very process still runs.
    pub(super) fn is_alive(&self) -> bool {
        start_time(self.pid).is_some_and(|started| started == self.started)
    }

    /// Ends it with its group: asks first, then makes it. One that is gone already is no failure.
    pub(super) fn stop(&self) -> Result<(), Failure> {
        self.end(&[Signal::TERM, Signal::KILL])
    }

    /// Ends it with its group without asking.
    pub(super) fn kill(&self) -> Result<(), Failure> {
        self.end(&[Signal::KILL])
    }

    fn end(&self, signals: &[Signal]) -> Result<(), Failure> {
        for &signal in signals {
            if !self.is_alive() {
                return Ok(());
            }
            self.signal(signal)?;
            let begun = Instant::now();
            while self.is_alive() && begun.elapsed() < STOP_TIMEOUT {
                thread::sleep(Duration::from_millis(20));
            }
        }
        if self.is_alive() {
            return Err(Failure::Failed(format!("{} (pid {}) does not end", self.name, self.pid)));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), Failure> {
        let group = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(group) = group else {
            return Err(Failure::Failed(format!(
                "{} is recorded with the impossible pid {}",
                self.name, self.pid
            )));
        };
        match rustix::process::kill_process_group(group, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(failed(&format!("cannot end {} (pid {})", self.name, self.pid), &error)),
        }
    }
}

/// When the process of that number was started; `None` if there is none, or only its remains that nobody collected.
fn start_time(pid: u32) -> Option<String> {
    if Path::new("/proc/self/stat").exists() {
        return start_in_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?);
    }
    let output =
        Command::new("ps").args(["-o", "stat=", "-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
    start_in_ps(&String::from_utf8_lossy(&output.stdout))
}

/// From `/proc/PID/stat`: `pid (name) state …`, the start time being field 22. The name may hold blanks and brackets.
fn start_in_stat(stat: &str) -> Option<String> {
    let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_ascii_whitespace();
    let state = fields.next()?;
    let started = fields.nth(18)?;
    (!matches!(state, "Z" | "X")).then(|| started.to_owned())
}

/// From `ps -o stat= -o lstart=`: `Ss   Thu Jan  1 00:00:00 1970`.
fn start_in_ps(line: &str) -> Option<String> {
    let (state, started) = line.trim().split_once(' ')?;
    (!state.starts_with('Z')).then(|| started.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let stat = |name: &str, state: &str| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4711 99 100\n")
        };
        assert_eq!(start_in_stat(&stat("etcd", "S")).as_deref(), Some("4711"));
        assert_eq!(start_in_stat(&stat("a) Z (b", "R")).as_deref(), Some("4711"));
        assert_eq!(start_in_stat(&stat("etcd", "Z")), None);
        for broken in ["", ")", "7 (etcd", "7 (etcd) S 1 2"] {
            assert_eq!(start_in_stat(broken), None, "{broken}");
        }
    }

    #[test]
    fn the_start_time_is_found_in_the_words_of_ps() {
        let line = "Ss   Thu Jan  1 00:00:00 1970\n";
        assert_eq!(start_in_ps(line).as_deref(), Some("Thu Jan  1 00:00:00 1970"));
        assert_eq!(start_in_ps("Z    Thu Jan  1 00:00:00 1970\n"), None);
        assert_eq!(start_in_ps(""), None);
    }

    #[test]
    fn a_number_given_again_is_another_process() {
        let pid = std::process::id();
        let process = |started: String| Process { name: "self".to_owned(), pid, started };
        assert!(process(start_time(pid).unwrap()).is_alive());
        let other = process("long ago".to_owned());
        assert!(!other.is_alive());
        // It ends nobody: this test is still here to say so.
        assert!(other.stop().is_ok());
        assert!(!process(String::new()).is_alive());
    }

    #[test]
    fn what_was_started_is_ended() {
        let log = std::env::temp_dir().join(format!("informer-process-test-{}", std::process::id()));
        let mut command = Command::new("sh");
        command.args(["-c", "echo begun; exec sleep 600"]);
        let Ok((process, mut child)) = Process::start("sleep", command, &log) else { panic!("not started") };
        assert!(process.is_alive());
        assert!(process.stop().is_ok());
        assert!(!process.is_alive());
        assert!(!child.wait().unwrap().success());
        fs::remove_file(log).unwrap();
    }
}
