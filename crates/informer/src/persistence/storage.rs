//! The files of saved caches, in a directory or elsewhere.

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// The identity of a file, by which a file that was deleted or replaced is recognised.
pub type FileId = (u64, u64);

/// Where saved caches are stored. For tests that simulate a disk; programs use a directory.
pub trait Storage: fmt::Debug + Send + Sync + 'static {
    /// Returns the identity of the file with this name; `None` if there is none.
    fn id(&self, name: &str) -> Option<FileId>;

    /// Opens the file with this name, and creates it if necessary. Only one process can have it open.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened, created or locked.
    fn open(&self, name: &str) -> Result<Box<dyn StorageBackend>, DatabaseError>;

    /// Renames a file, which replaces the file that has the other name. Returns when a crash cannot undo it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be renamed.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Deletes a file, if it exists.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be deleted.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns whether operations may block their thread.
    fn may_block(&self) -> bool {
        true
    }
}

/// A directory of files that only the user of the process can read.
#[derive(Debug)]
pub(super) struct Directory(pub(super) PathBuf);

impl Directory {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Storage for Directory {
    fn id(&self, name: &str) -> Option<FileId> {
        fs::metadata(self.path(name)).ok().map(|metadata| file_id(&metadata))
    }

    fn open(&self, name: &str) -> Result<Box<dyn StorageBackend>, DatabaseError> {
        create_directory(&self.0)?;
        Ok(Box::new(FileBackend::new(open_private(&self.path(name))?)?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))?;
        #[cfg(unix)]
        File::open(&self.0)?.sync_all()?;
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }
}

#[cfg(unix)]
fn file_id(metadata: &fs::Metadata) -> FileId {
    use std::os::unix::fs::MetadataExt as _;
    (metadata.dev(), metadata.ino())
}

#[cfg(not(unix))]
fn file_id(_: &fs::Metadata) -> FileId {
    (0, 0)
}

fn create_directory(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)
}

/// Opens or creates a file that only its owner can read. An existing file gets the same permissions.
fn open_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    #[cfg(unix)]
    {
        use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
        let file = options.mode(0o600).open(path)?;
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
        }
        Ok(file)
    }
    #[cfg(not(unix))]
    options.open(path)
}
