//! The state folder of a running control plane: one per checkout, with the record of the processes, their
//! data and logs, and the kubeconfig.
//!
//! A process is recorded immediately after its start, and the record is replaced atomically, so that every
//! running process can be found and ended at any time. Only the holder of the folder's [`super::Lock`]
//! accesses it.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::process::Process;
use super::{failed, info, module};
use crate::failure::Failure;

/// File with the kubeconfig, in the state folder.
pub(super) const KUBECONFIG: &str = "kubeconfig";
/// File with the record, in the state folder.
const RECORD: &str = "state.json";

/// Folder with etcd's data, in the state folder.
pub(super) const DATA: &str = "etcd";

/// The record of a control plane; processes are in the order of their start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct State {
    /// Name of the build.
    pub(super) build: String,
    /// Whether the server became ready. If not, `up` is still running or was killed.
    pub(super) ready: bool,
    pub(super) processes: Vec<Process>,
}

/// The condition of a recorded control plane.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Up,
    /// Not usable, with the reason.
    Stale(String),
}

impl State {
    pub(super) fn condition(&self, is_alive: impl Fn(&Process) -> bool) -> Condition {
        if !self.ready {
            return Condition::Stale("the server never became ready".to_owned());
        }
        let ended: Vec<String> = self
            .processes
            .iter()
            .filter(|process| !is_alive(process))
            .map(|process| format!("{} (pid {}) has ended", process.name, process.pid))
            .collect();
        if ended.is_empty() { Condition::Up } else { Condition::Stale(ended.join(", ")) }
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

/// The state folder of a checkout; it exists from `up` to `down`.
pub(super) struct StateFolder {
    name: String,
    path: PathBuf,
}

impl StateFolder {
    pub(super) fn of(checkout: &Path) -> Self {
        let name = format!("informer-control-plane-{}", module::short_name(&checkout.to_string_lossy()));
        Self { path: std::env::temp_dir().join(&name), name }
    }

    /// Returns the name of the folder, which is also the name of its lock.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file in the folder.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.file(KUBECONFIG)
    }

    /// Creates the folder, accessible only to this user. Fails if it exists.
    pub(super) fn create(&self) -> Result<(), Failure> {
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&self.path)
            .map_err(|error| self.failed("cannot create", &error))
    }

    /// Reads the record; `None` if the folder does not exist.
    pub(super) fn load(&self) -> Result<Option<State>, Failure> {
        let metadata = match fs::symlink_metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("cannot read", &error)),
        };
        // Other users can create folders and links among temporary files; pids recorded there must not be
        // used.
        if !metadata.is_dir() || metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.failed("cannot use", &"not a folder owned by this user"));
        }
        match fs::read_to_string(self.file(RECORD)) {
            Ok(text) => match State::parse(&text) {
                Some(state) => Ok(Some(state)),
                None => Err(self.failed("cannot use", &"the record is invalid")),
            },
            // The folder is created first, then the record, then the processes.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(State::default())),
            Err(error) => Err(self.failed("cannot read", &error)),
        }
    }

    pub(super) fn save(&self, state: &State) -> Result<(), Failure> {
        self.write(RECORD, &state.render())
    }

    /// Ends the recorded processes in reverse order and removes the folder.
    pub(super) fn clear(&self, state: &State) -> Result<(), Failure> {
        for process in state.processes.iter().rev().filter(|process| process.is_alive()) {
            info(&format!("stopping {} (pid {})", process.name, process.pid));
            process.stop()?;
        }
        fs::remove_dir_all(&self.path).map_err(|error| self.failed("cannot remove", &error))
    }

    /// Writes a file atomically; only this user can read it.
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
    fn record_is_parsed_as_rendered() {
        for state in [State::default(), state(false), state(true)] {
            assert_eq!(State::parse(&state.render()), Some(state));
        }
    }

    #[test]
    fn invalid_record_is_rejected() {
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
    fn state_is_up_while_all_processes_run() {
        let stale = |reason: &str| Condition::Stale(reason.to_owned());
        assert_eq!(state(true).condition(|_| true), Condition::Up);
        assert_eq!(state(false).condition(|_| true), stale("the server never became ready"));
        assert_eq!(
            state(true).condition(|process| process.pid == 1),
            stale("kube-apiserver (pid 2) has ended")
        );
        let both = "etcd (pid 1) has ended, kube-apiserver (pid 2) has ended";
        assert_eq!(state(true).condition(|_| false), stale(both));
    }

    #[test]
    fn each_checkout_has_its_own_folder() {
        let (one, other) = (StateFolder::of(Path::new("/a")), StateFolder::of(Path::new("/b")));
        assert_ne!(one.path(), other.path());
        assert_eq!(one.path(), StateFolder::of(Path::new("/a")).path());
    }

    #[test]
    fn folder_is_private_and_removed_by_clear() {
        let folder = StateFolder::of(Path::new(&format!("/test/{}", std::process::id())));
        assert!(matches!(folder.load(), Ok(None)));
        assert!(folder.create().is_ok());
        assert!(folder.create().is_err());
        assert!(matches!(folder.load(), Ok(Some(state)) if state == State::default()));
        // Saving replaces the record.
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
