//! Files of the suites: the folder that contains them, and copies of sources.

use std::env;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// The folder `suites` beside this program, used by one run at a time.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locked until the folder is dropped. The system releases the lock if the process is killed.
    _lock: File,
}

impl Folder {
    pub(super) fn create() -> Result<Self, Failure> {
        let own = env::current_exe()
            .map_err(|error| Failure::Failed(format!("cannot find the path of this program: {error}")))?;
        Self::lock(own.with_file_name("suites"))
    }

    /// Fails if another run uses the folder: the runs would overwrite each other's sources, kubeconfigs and reports.
    fn lock(path: PathBuf) -> Result<Self, Failure> {
        fs::create_dir_all(&path).map_err(|error| cannot("create", &path, &error))?;
        let file = path.join("lock");
        let lock = open(&file)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(Failure::Failed(format!(
                "another `cargo xtask suites` uses {} (wait for its end, or set another CARGO_TARGET_DIR)",
                path.display()
            ))),
            Err(TryLockError::Error(error)) => Err(cannot("lock", &file, &error)),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Returns the failure of an operation on a file or folder.
pub(super) fn cannot(operation: &str, path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Failed(format!("cannot {operation} {}: {error}", path.display()))
}

/// Opens an empty file for the output of a program.
pub(super) fn open(path: &Path) -> Result<File, Failure> {
    File::create(path).map_err(|error| cannot("write", path, &error))
}

/// Removes a folder if it exists.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Copies a folder, without its permissions: downloaded sources are read-only.
pub(super) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::write(&to, fs::read(entry.path())?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: two runs at the same time used the same files; one of them read the other's kubeconfig and failed with
    /// tests that pass. No test started two runs.
    #[test]
    fn folder_is_used_by_one_run_at_a_time() {
        let path = std::env::temp_dir().join(format!("informer-suites-lock-{}", std::process::id()));
        let lock = || Folder::lock(path.clone()).map_err(Failure::message);
        let first = lock().unwrap();
        let message = lock().unwrap_err();
        assert!(message.starts_with("another `cargo xtask suites` uses "), "{message}");
        drop(first);
        drop(lock().unwrap());
        remove(&path).unwrap();
    }

    #[test]
    fn copy_of_a_read_only_folder_is_writable() {
        let root = std::env::temp_dir().join(format!("informer-suites-test-{}", std::process::id()));
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::write(root.join("a/b/file"), "text").unwrap();
        let mut permissions = fs::metadata(root.join("a/b/file")).unwrap().permissions();
        permissions.set_readonly(true);
        fs::set_permissions(root.join("a/b/file"), permissions).unwrap();
        copy(&root.join("a"), &root.join("c")).unwrap();
        assert_eq!(fs::read_to_string(root.join("c/b/file")).unwrap(), "text");
        assert!(!fs::metadata(root.join("c/b/file")).unwrap().permissions().readonly());
        remove(&root).unwrap();
    }
}
