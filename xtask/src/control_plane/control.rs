//! What a suite may ask for while it runs: that the API server is killed and started again, and that etcd goes back to an older state.
//!
//! It asks through a socket in the state folder, one line and one answer at a time, and only for servers that were started for this run.
//! Whatever is started is recorded like everything that `up` starts, so that `down` ends it.

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

/// Where a copy of etcd's data is kept, below the state folder.
const COPY: &str = "etcd.saved";

/// How long whoever has connected may take to say what for.
const QUESTION: Duration = Duration::from_secs(5);

/// One thing to do with the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Ends the API server without asking it.
    Kill,
    /// Starts the API server again, where it was.
    Start,
    /// Keeps a copy of etcd's data. Both servers are away meanwhile.
    Save,
    /// Goes back to that copy.
    Restore,
}

impl Order {
    fn read(line: &str) -> Option<Self> {
        match line.trim_end() {
            "kill" => Some(Self::Kill),
            "start" => Some(Self::Start),
            "save" => Some(Self::Save),
            "restore" => Some(Self::Restore),
            _ => None,
        }
    }
}

/// The socket, and what is done for those who ask.
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

    /// Where it listens.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Does what was asked for since the last call. What fails is the asker's business.
    pub(super) fn serve(&self) {
        while let Ok((stream, _)) = self.listener.accept() {
            // Whoever has hung up wants no answer.
            let _ = self.answer(stream);
        }
    }

    fn answer(&self, mut stream: UnixStream) -> io::Result<()> {
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(QUESTION))?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let outcome = match Order::read(&line) {
            Some(order) => self.obey(order).map_err(Failure::message),
            None => Err(format!("no such order: {line:?}")),
        };
        match outcome {
            Ok(()) => writeln!(stream, "done"),
            Err(reason) => writeln!(stream, "failed: {reason}"),
        }
    }

    fn obey(&self, order: Order) -> Result<(), Failure> {
        let state = self.folder.load()?.unwrap_or_default();
        let mut start = Start::resumed(self.folder, self.programs, self.interrupt, state);
        match order {
            Order::Kill => start.kill_apiserver(),
            Order::Start => start.restart_apiserver(),
            Order::Save => self.away(&mut start, DATA, COPY),
            Order::Restore => self.away(&mut start, COPY, DATA),
        }
    }

    /// Copies one folder over the other while nobody uses them.
    fn away(&self, start: &mut Start<'_>, from: &str, to: &str) -> Result<(), Failure> {
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
    // etcd looks at who may read its folder.
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
    fn an_order_is_one_word() {
        assert_eq!(Order::read("kill\n"), Some(Order::Kill));
        assert_eq!(Order::read("restore"), Some(Order::Restore));
        for line in ["", "\n", "kill start", "stop\n"] {
            assert_eq!(Order::read(line), None, "{line}");
        }
    }

    #[test]
    fn a_folder_is_copied_with_what_is_below_it() {
        let root = std::env::temp_dir().join(format!("informer-control-test-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "text").unwrap();
        copy_folder(&root.join("a"), &root.join("c")).unwrap();
        assert_eq!(fs::read_to_string(root.join("c/b/file")).unwrap(), "text");
        fs::remove_dir_all(root).unwrap();
    }
}
