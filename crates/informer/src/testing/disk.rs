//! A disk in memory.

use crate::persistence::{DatabaseError, FileId, Persistence, Storage, StorageBackend};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A disk in memory, for tests of programs that [save their caches](crate::InformerOptions::persist). Its files exist
/// as long as a clone of it does, so that the next process of a test finds them.
///
/// Saving uses no other thread, so that a simulation with this disk is deterministic. A save is never interrupted: the
/// disk shows what a program does after a restart, not what it does after a power failure.
///
/// ```
/// use informer::{InformerOptions, testing};
///
/// let disk = testing::MemoryDisk::default();
/// let options = InformerOptions::default().persist(disk.persistence());
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryDisk(Arc<Mutex<Files>>);

#[derive(Debug, Default)]
struct Files {
    by_name: BTreeMap<String, File>,
    next_id: u64,
}

#[derive(Debug)]
struct File {
    id: u64,
    content: Vec<u8>,
    is_open: bool,
}

impl MemoryDisk {
    /// Returns the setting that saves caches on this disk.
    pub fn persistence(&self) -> Persistence {
        Persistence::with_storage(Arc::new(self.clone()), "test")
    }

    fn lock(&self) -> MutexGuard<'_, Files> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for MemoryDisk {
    fn id(&self, name: &str) -> Option<FileId> {
        self.lock().by_name.get(name).map(|file| (0, file.id))
    }

    fn open(&self, name: &str) -> Result<Box<dyn StorageBackend>, DatabaseError> {
        let mut files = self.lock();
        files.next_id += 1;
        let id = files.next_id;
        let new = || File { id, content: Vec::new(), is_open: false };
        let file = files.by_name.entry(name.to_owned()).or_insert_with(new);
        if std::mem::replace(&mut file.is_open, true) {
            return Err(DatabaseError::DatabaseAlreadyOpen);
        }
        Ok(Box::new(OpenFile { disk: self.clone(), name: name.to_owned(), id: file.id }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut files = self.lock();
        let file = files.by_name.remove(from).ok_or(io::ErrorKind::NotFound)?;
        files.by_name.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.lock().by_name.remove(name);
        Ok(())
    }

    fn may_block(&self) -> bool {
        false
    }
}

#[derive(Debug)]
struct OpenFile {
    disk: MemoryDisk,
    name: String,
    id: u64,
}

impl OpenFile {
    fn with_content<R>(&self, operation: impl FnOnce(&mut Vec<u8>) -> io::Result<R>) -> io::Result<R> {
        let mut files = self.disk.lock();
        let file = files.by_name.get_mut(&self.name).filter(|file| file.id == self.id);
        operation(&mut file.ok_or(io::ErrorKind::NotFound)?.content)
    }
}

impl StorageBackend for OpenFile {
    fn len(&self) -> io::Result<u64> {
        self.with_content(|content| Ok(content.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.with_content(|content| {
            let start = usize::try_from(offset).map_err(io::Error::other)?;
            let bytes = content.get(start..).and_then(|rest| rest.get(..out.len()));
            out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).map_err(io::Error::other)?;
        self.with_content(|content| {
            content.resize(length, 0);
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.with_content(|content| {
            let start = usize::try_from(offset).map_err(io::Error::other)?;
            let end = start + data.len();
            if content.len() < end {
                content.resize(end, 0);
            }
            content[start..end].copy_from_slice(data);
            Ok(())
        })
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut files = self.disk.lock();
        let file = files.by_name.values_mut().find(|file| file.id == self.id);
        if let Some(file) = file {
            file.is_open = false;
        }
    }
}
