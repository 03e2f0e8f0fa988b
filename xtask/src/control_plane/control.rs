//! The control socket: lets a test suite kill and restart the API server, and restore etcd to an older state.
//!
//! The socket is in the state folder and exists only if the servers were started for this run. A connection
//! carries one command line and one response line. Started processes are recorded as in `up`, so that `down`
//! ends them.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::build::Programs;
use super::failed;
use super::interrupt::Interrupt;
use super::state::{DATA, StateFolder};
use super::up::Start;
use crate::failure::Failure;

/// Folder with the copy of etcd's data, in the state folder.
const COPY: &str = "etcd.saved";

/// Time limit for reading a command.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(5);

/// A command of a suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command {
    /// Kills the API server.
    Kill,
    /// Starts the API server again at its old address.
    Start,
    /// Copies etcd's data; both servers are stopped meanwhile.
    Save,
    /// Restores that copy.
    Restore,
}

impl Command {
    fn parse(line: &str) -> Option<Self> {
        match line.trim_end() {
            "kill" => Some(Self::Kill),
            "start" => Some(Self::Start),
            "save" => Some(Self::Save),
            "restore" => Some(Self::Restore),
            _ => None,
        }
    }
}

/// The socket and the control plane that its commands affect.
pub(super) struct Control<'a> {
    listener: UnixListener,
    path: PathBuf,
    folder: &'a StateFolder,
    programs: &'a Programs,
    interrupt: &'a Interrupt,
}

impl<'a> Control<'a> {
    pub(super) fn open(
        folder: &'a StateFolder,
        programs: &'a Programs,
        interrupt: &'a Interrupt,
    ) -> Result<Self, Failure> {
        let path = folder.file("control");
        let listen = || {
            let listener = UnixListener::bind(&path)?;
            listener.set_nonblocking(true)?;
            Ok::<_, io::Error>(listener)
        };
        let listener =
            listen().map_err(|error| failed(&format!("cannot listen at {}", path.display()), &error))?;
        Ok(Self { listener, path, folder, programs, interrupt })
    }

    /// Returns the path of the socket.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Executes the commands that arrived since the last call. Errors are sent to the client.
    pub(super) fn serve(&self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // A client that disconnected does not need a response.
            let _ = self.respond(stream);
        }
    }

    fn respond(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(COMMAND_TIMEOUT))?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let outcome = match Command::parse(&line) {
            Some(command) => self.execute(command).map_err(Failure::message),
            None => Err(format!("unknown command: {line:?}")),
        };
        match outcome {
            Ok(()) => writeln!(stream, "done"),
            Err(reason) => writeln!(stream, "failed: {reason}"),
        }
    }

    fn execute(&self, command: Command) -> Result<(), Failure> {
        let state = self.folder.load()?.unwrap_or_default();
        let mut start = Start::resumed(self.folder, self.programs, self.interrupt, state);
        match command {
            Command::Kill => start.kill_apiserver(),
            Command::Start => start.restart_apiserver(),
            Command::Save => self.copy_stopped(&mut start, DATA, COPY),
            Command::Restore => self.copy_stopped(&mut start, COPY, DATA),
        }
    }

    /// Replaces a folder by a copy of another while both servers are stopped.
    fn copy_stopped(&self, start: &mut Start<'_>, from: &str, to: &str) -> Result<(), Failure> {
        start.kill_apiserver()?;
        start.stop_etcd()?;
        let (from, to) = (self.folder.file(from), self.folder.file(to));
        let copy = || {
            match fs::remove_dir_all(&to) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            copy_folder(&from, &to)
        };
        copy().map_err(|error| failed(&format!("cannot copy {}", from.display()), &error))?;
        start.restart_etcd()?;
        start.restart_apiserver()
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    // etcd checks the permissions of its folder.
    fs::set_permissions(to, fs::metadata(from)?.permissions())?;
    for entry in fs::read_dir(from)? {
        let (path, to) = {
            let entry = entry?;
            (entry.path(), to.join(entry.file_name()))
        };
        if path.is_dir() {
            copy_folder(&path, &to)?;
        } else {
            fs::copy(&path, &to)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_one_word() {
        assert_eq!(Command::parse("kill\n"), Some(Command::Kill));
        assert_eq!(Command::parse("restore"), Some(Command::Restore));
        for line in ["", "\n", "kill start", "stop\n"] {
            assert_eq!(Command::parse(line), None, "{line}");
        }
    }

    #[test]
    fn folder_is_copied_recursively() {
        let root = std::env::temp_dir().join(format!("informer-control-test-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "text").unwrap();
        copy_folder(&root.join("a"), &root.join("c")).unwrap();
        assert_eq!(fs::read_to_string(root.join("c/b/file")).unwrap(), "text");
        fs::remove_dir_all(root).unwrap();
    }
}
