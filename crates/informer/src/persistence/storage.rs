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

    /// Renames the file, so that a new one can be created.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be renamed.
    fn set_aside(&self, name: &str) -> io::Result<()>;

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

    fn set_aside(&self, name: &str) -> io::Result<()> {
        fs::rename(self.path(name), self.path(&format!("{name}.discarded")))
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

/// A backend of any type, as redb accepts it.
#[derive(Debug)]
pub(super) struct AnyBackend(pub(super) Box<dyn StorageBackend>);

impl StorageBackend for AnyBackend {
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(offset, out)
    }

    /// Syncs the new length. The database writes a header that refers to it before it syncs both, and could not open
    /// the file if only the header had reached the disk.
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)?;
        self.0.sync_data()
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}
