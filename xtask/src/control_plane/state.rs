//! What `up` leaves for later: one folder per checkout that holds the record of the processes, their data and logs, and
//! the kubeconfig.
//!
//! A process is recorded as soon as it is started, and the record is replaced in one step, so that at any moment
//! whatever runs can be found and ended. Only the holder of the folder's [`super::Lock`] touches it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::process::Process;
use super::{failed, info, module};
use crate::failure::Failure;

/// The names of files in the folder.
pub(super) const KUBECONFIG: &str = "kubeconfig";
const RECORD: &str = "state.json";

/// The folder of etcd's data, below the state folder.
pub(super) const DATA: &str = "etcd";

/// What runs, in the order in which it was started.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// The name of the build that it is.
    pub(super) build: String,
    /// Whether the server has answered; before that, `up` is at work or was killed at it.
    pub(super) ready: bool,
    pub(super) processes: Vec<Process>,
}

/// What a state amounts to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Up,
    /// With the reason.
    Stale(String),
}

impl State {
    pub(super) fn condition(&self, is_alive: impl Fn(&Process) -> bool) -> Condition {
        if !self.ready {
            return Condition::Stale("it was never ready".to_owned());
        }
        let gone: Vec<String> = self
            .processes
            .iter()
            .filter(|process| !is_alive(process))
            .map(|process| format!("{} (pid {}) is gone", process.name, process.pid))
            .collect();
        if gone.is_empty() { Condition::Up } else { Condition::Stale(gone.join(", ")) }
    }

    fn render(&self) -> String {
        let processes: Vec<Value> = self
            .processes
            .iter()
            .map(|Process { name, pid, started }| json!({"name": name, "pid": pid, "started": started}))
            .collect();
        format!("{:#}\n", json!({"build": self.build, "ready": self.ready, "processes": processes}))
    }

    fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let process = |value: &Value| {
            Some(Process {
                name: value["name"].as_str()?.to_owned(),
                pid: u32::try_from(value["pid"].as_u64()?).ok()?,
                started: value["started"].as_str()?.to_owned(),
            })
        };
        Some(Self {
            build: value["build"].as_str()?.to_owned(),
            ready: value["ready"].as_bool()?,
            processes: value["processes"].as_array()?.iter().map(process).collect::<Option<_>>()?,
        })
    }
}

/// The folder of this checkout; it exists from `up` to `down`.
pub(super) struct StateFolder {
    name: String,
    path: PathBuf,
}

impl StateFolder {
    pub(super) fn of(checkout: &Path) -> Self {
        let name = format!("informer-real-{}", module::short_name(&checkout.to_string_lossy()));
        Self { path: std::env::temp_dir().join(&name), name }
    }

    /// Also the name of its lock.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where a file of that name lies in it.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.file(KUBECONFIG)
    }

    /// Makes it, for this user only. It must not be there yet.
    pub(super) fn create(&self) -> Result<(), Failure> {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&self.path)
            .map_err(|error| self.failed("cannot make", &error))
    }

    /// The state in it; `None` without a folder.
    pub(super) fn load(&self) -> Result<Option<State>, Failure> {
        let metadata = match fs::symlink_metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("cannot read", &error)),
        };
        // Anybody may make folders and links in the folder for temporary files; the pids in theirs are not for us.
        if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.failed("cannot use", &"it is not a folder of yours"));
        }
        match fs::read_to_string(self.file(RECORD)) {
            Ok(text) => match State::parse(&text) {
                Some(state) => Ok(Some(state)),
                None => Err(self.failed("cannot use", &"its record is not one of ours")),
            },
            // The folder comes first, then the record, then the processes.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(State::default())),
            Err(error) => Err(self.failed("cannot read", &error)),
        }
    }

    pub(super) fn save(&self, state: &State) -> Result<(), Failure> {
        self.write(RECORD, &state.render())
    }

    /// Ends what is recorded, what was started last first, and removes the folder.
    pub(super) fn clear(&self, state: &State) -> Result<(), Failure> {
        for process in state.processes.iter().rev().filter(|process| process.is_alive()) {
            info(&format!("stopping {} (pid {})", process.name, process.pid));
            process.stop()?;
        }
        fs::remove_dir_all(&self.path).map_err(|error| self.failed("cannot remove", &error))
    }

    /// Writes a file that only this user can read, in one step: it is there whole or not at all.
    pub(super) fn write(&self, name: &str, text: &str) -> Result<(), Failure> {
        let (path, new) = (self.file(name), self.file(&format!("{name}.new")));
        let write = || -> io::Result<()> {
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&new)?;
            file.write_all(text.as_bytes())?;
            fs::rename(&new, &path)
        };
        write().map_err(|error| failed(&format!("cannot write {}", path.display()), &error))
    }

    fn failed(&self, what: &str, reason: &dyn std::fmt::Display) -> Failure {
        failed(&format!("{what} {}", self.path.display()), reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(ready: bool) -> State {
        let process = |name: &str, pid| Process { name: name.to_owned(), pid, started: format!("{pid}0") };
        State {
            build: "1.36.4-a".to_owned(),
            ready,
            processes: vec![process("etcd", 1), process("kube-apiserver", 2)],
        }
    }

    #[test]
    fn a_record_is_read_as_it_was_written() {
        for state in [State::default(), state(false), state(true)] {
            assert_eq!(State::parse(&state.render()), Some(state));
        }
    }

    #[test]
    fn what_is_not_a_record_is_not_read() {
        for text in [
            "",
            "[]",
            "{}",
            r#"{"build": "a", "ready": true}"#,
            r#"{"build": "a", "ready": true, "processes": [{"name": "etcd", "pid": -1, "started": "1"}]}"#,
            r#"{"build": "a", "ready": true, "processes": [{"name": "etcd", "pid": 5000000000, "started": "1"}]}"#,
        ] {
            assert_eq!(State::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_state_is_up_while_all_of_it_lives() {
        let stale = |reason: &str| Condition::Stale(reason.to_owned());
        assert_eq!(state(true).condition(|_| true), Condition::Up);
        assert_eq!(state(false).condition(|_| true), stale("it was never ready"));
        assert_eq!(
            state(true).condition(|process| process.pid == 1),
            stale("kube-apiserver (pid 2) is gone")
        );
        let both = "etcd (pid 1) is gone, kube-apiserver (pid 2) is gone";
        assert_eq!(state(true).condition(|_| false), stale(both));
    }

    #[test]
    fn each_checkout_has_its_own_folder() {
        let (one, other) = (StateFolder::of(Path::new("/a")), StateFolder::of(Path::new("/b")));
        assert_ne!(one.path(), other.path());
        assert_eq!(one.path(), StateFolder::of(Path::new("/a")).path());
    }

    #[test]
    fn a_folder_lives_from_create_to_clear_and_is_private() {
        let folder = StateFolder::of(Path::new(&format!("/test/{}", std::process::id())));
        assert!(matches!(folder.load(), Ok(None)));
        assert!(folder.create().is_ok());
        assert!(folder.create().is_err());
        assert!(matches!(folder.load(), Ok(Some(state)) if state == State::default()));
        // Replaced, not added to.
        let record = State { processes: Vec::new(), ..state(true) };
        for ready in [false, true] {
            assert!(
                folder.save(&State { ready, build: record.build.clone(), processes: Vec::new() }).is_ok()
            );
        }
        assert!(matches!(folder.load(), Ok(Some(state)) if state == record));
        assert_eq!(fs::metadata(folder.path()).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(folder.file(RECORD)).unwrap().mode() & 0o777, 0o600);
        assert!(folder.clear(&record).is_ok());
        assert!(matches!(folder.load(), Ok(None)));
    }
}
