//! A simulated disk: it loses what was not synced, tears writes, can be full, read-only or stopped.

use informer::persistence::{DatabaseError, FileId, Storage, StorageBackend};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The unit that a disk writes as a whole.
const SECTOR_BYTES: usize = 512;
const PAGE_BYTES: usize = 4096;

#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    state: Arc<Mutex<State>>,
    /// The life of the process that uses this handle; `None` for the test.
    life: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<String, File>,
    /// Deleted files that are still open, which occupy space, by id.
    deleted: BTreeMap<u64, File>,
    next_id: u64,
    /// The number of operations after which the process is dead; every later one fails.
    stops_after: Option<u64>,
    operations: u64,
    /// The limit of the space of all files.
    capacity: Option<u64>,
    /// Whether a write failed for lack of space while a deleted file was open.
    was_full_of_deleted_files: bool,
    read_only: bool,
    panics: bool,
    /// The number of reads before the ones that fail, and of these.
    failing_reads: (u64, u64),
    /// Increases with each crash; files that were opened before are unusable.
    life: u64,
}

#[derive(Debug, Default)]
struct File {
    id: u64,
    durable: Vec<u8>,
    /// What the process sees.
    current: Vec<u8>,
    /// Operations that were not synced.
    unsynced: Vec<Operation>,
    /// Whether the start was written while something else was not synced.
    is_start_early: bool,
    /// The pages that occupy space: a file has none where nothing was written.
    pages: BTreeSet<usize>,
    /// The life in which the file is open.
    open_in: Option<u64>,
}

#[derive(Debug, Clone)]
enum Operation {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl Operation {
    /// Returns the pages that it writes.
    fn pages(&self) -> Range<usize> {
        match self {
            Self::Write(offset, data) => offset / PAGE_BYTES..(offset + data.len()).div_ceil(PAGE_BYTES),
            Self::SetLen(_) => 0..0,
        }
    }

    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::Write(offset, data) => {
                let end = offset + data.len();
                if content.len() < end {
                    content.resize(end, 0);
                }
                content[*offset..end].copy_from_slice(data);
            }
            Self::SetLen(length) => content.resize(*length, 0),
        }
    }
}

impl Disk {
    /// Returns the disk as the process sees it that starts now. It cannot use it after a crash.
    pub(super) fn for_process(&self) -> Self {
        Self { life: Some(self.lock().life), ..self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes every operation fail after this number of further ones, as if the process were dead.
    pub(super) fn stop_after(&self, operations: u64) {
        let mut state = self.lock();
        state.stops_after = Some(state.operations + operations);
    }

    /// Returns whether operations fail because of [`Disk::stop_after`].
    pub(super) fn is_stopped(&self) -> bool {
        let state = self.lock();
        state.stops_after.is_some_and(|limit| state.operations >= limit)
    }

    /// Ends the life of the process, and loses a random part of what was not synced.
    pub(super) fn crash(&self, mut random: impl FnMut(usize) -> usize) {
        let mut state = self.lock();
        state.life += 1;
        state.stops_after = None;
        state.deleted.clear();
        for file in state.files.values_mut() {
            for operation in std::mem::take(&mut file.unsynced) {
                match (random(3), operation) {
                    (0, _) => {}
                    (1, operation) => operation.apply(&mut file.durable),
                    (_, Operation::Write(offset, data)) => {
                        for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                            if random(2) == 0 {
                                let offset = offset + index * SECTOR_BYTES;
                                Operation::Write(offset, sector.to_vec()).apply(&mut file.durable);
                            }
                        }
                    }
                    (_, operation) => operation.apply(&mut file.durable),
                }
            }
            file.current.clone_from(&file.durable);
            file.open_in = None;
        }
    }

    /// Ends the life of the process; the operating system keeps what was written.
    pub(super) fn kill(&self) {
        self.crash(|_| 1);
    }

    /// Returns whether the start of a file was written while something else was not synced.
    pub(super) fn was_start_written_early(&self) -> bool {
        self.lock().files.values().any(|file| file.is_start_early)
    }

    /// Returns the space that all files occupy.
    pub(super) fn used(&self) -> u64 {
        self.lock().used()
    }

    /// Returns whether a write failed for lack of space while a deleted file was open, which occupies space until it is closed.
    pub(super) fn was_full_of_deleted_files(&self) -> bool {
        self.lock().was_full_of_deleted_files
    }

    pub(super) fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    pub(super) fn set_read_only(&self, read_only: bool) {
        self.lock().read_only = read_only;
    }

    /// Makes `count` reads fail after a number of further ones.
    pub(super) fn fail_reads(&self, after: u64, count: u64) {
        self.lock().failing_reads = (after, count);
    }

    /// Returns the number of reads that are still to fail.
    pub(super) fn failing_reads(&self) -> u64 {
        self.lock().failing_reads.1
    }

    pub(super) fn set_panics(&self, panics: bool) {
        self.lock().panics = panics;
    }

    /// Returns the names of the files.
    pub(super) fn files(&self) -> Vec<String> {
        self.lock().files.keys().cloned().collect()
    }

    /// Returns the content of the only file.
    pub(super) fn content(&self) -> Vec<u8> {
        let state = self.lock();
        assert_eq!(state.files.len(), 1, "one file");
        state.files.values().next().unwrap().current.clone()
    }

    /// Adds a file, in place of the one with this name.
    pub(super) fn insert(&self, name: &str, content: Vec<u8>) {
        let file = File { id: 1, durable: content.clone(), current: content, ..File::default() };
        self.lock().files.insert(name.to_owned(), file);
    }

    /// Changes the content of each file.
    pub(super) fn change(&self, change: impl Fn(&mut Vec<u8>)) {
        for file in self.lock().files.values_mut() {
            change(&mut file.durable);
            file.current.clone_from(&file.durable);
        }
    }

    /// Deletes all files, also while they are open.
    pub(super) fn delete_files(&self) {
        self.lock().files.clear();
    }
}

impl State {
    fn used(&self) -> u64 {
        self.files
            .values()
            .chain(self.deleted.values())
            .map(|file| (file.pages.len() * PAGE_BYTES) as u64)
            .sum()
    }

    /// Removes a file from the directory.
    fn unlink(&mut self, name: &str) {
        if let Some(file) = self.files.remove(name)
            && file.open_in == Some(self.life)
        {
            self.deleted.insert(file.id, file);
        }
    }

    /// Counts an operation; fails if the process is dead.
    fn operate(&mut self, life: u64) -> io::Result<()> {
        self.operations += 1;
        assert!(!self.panics, "the disk panics");
        let is_stopped = self.stops_after.is_some_and(|limit| self.operations > limit);
        if is_stopped || life != self.life { Err(io::Error::other("the process is dead")) } else { Ok(()) }
    }
}

impl Storage for Disk {
    fn id(&self, name: &str) -> Option<FileId> {
        self.lock().files.get(name).map(|file| (0, file.id))
    }

    fn open(&self, name: &str) -> Result<Box<dyn StorageBackend>, DatabaseError> {
        let mut state = self.lock();
        if self.life.is_some_and(|life| life != state.life) {
            return Err(io::Error::other("the process is dead").into());
        }
        if state.read_only {
            return Err(io::Error::from(io::ErrorKind::ReadOnlyFilesystem).into());
        }
        state.next_id += 1;
        let (life, id) = (state.life, state.next_id);
        let file = state.files.entry(name.to_owned()).or_insert_with(|| File { id, ..File::default() });
        if file.open_in == Some(life) {
            return Err(DatabaseError::DatabaseAlreadyOpen);
        }
        file.open_in = Some(life);
        let id = file.id;
        Ok(Box::new(OpenFile { disk: self.clone(), name: name.to_owned(), id, life }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.lock();
        let life = self.life.unwrap_or(state.life);
        state.operate(life)?;
        let file = state.files.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.unlink(to);
        state.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut state = self.lock();
        let life = self.life.unwrap_or(state.life);
        state.operate(life)?;
        state.unlink(name);
        Ok(())
    }
}

/// A file that is open in one life of the process.
#[derive(Debug)]
struct OpenFile {
    disk: Disk,
    name: String,
    id: u64,
    life: u64,
}

impl OpenFile {
    /// Runs an operation on the content; a file that was deleted is a file without a name.
    fn operate<R>(&self, operation: impl FnOnce(&mut File) -> io::Result<R>) -> io::Result<R> {
        let mut state = self.disk.lock();
        state.operate(self.life)?;
        match state.files.get_mut(&self.name).filter(|file| file.id == self.id) {
            Some(file) => operation(file),
            None => Err(io::Error::other("deleted")),
        }
    }

    fn change(&self, operation: Operation) -> io::Result<()> {
        let (used, capacity, is_any_deleted) = {
            let state = self.disk.lock();
            (state.used(), state.capacity, !state.deleted.is_empty())
        };
        let changed = self.operate(|file| {
            let added = operation.pages().filter(|page| !file.pages.contains(page)).count();
            if added > 0 && capacity.is_some_and(|capacity| used + (added * PAGE_BYTES) as u64 > capacity) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            file.pages.extend(operation.pages());
            match &operation {
                Operation::SetLen(length) => drop(file.pages.split_off(&length.div_ceil(PAGE_BYTES))),
                Operation::Write(offset, _) => {
                    file.is_start_early |= *offset == 0 && !file.unsynced.is_empty();
                }
            }
            operation.apply(&mut file.current);
            file.unsynced.push(operation);
            Ok(())
        });
        if is_any_deleted && changed.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::StorageFull) {
            self.disk.lock().was_full_of_deleted_files = true;
        }
        changed
    }
}

impl StorageBackend for OpenFile {
    fn len(&self) -> io::Result<u64> {
        self.operate(|file| Ok(file.current.len() as u64))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        match &mut self.disk.lock().failing_reads {
            (_, 0) => {}
            (0, left) => {
                *left -= 1;
                return Err(io::Error::other("a read failed"));
            }
            (before, _) => *before -= 1,
        }
        self.operate(|file| {
            let offset = usize::try_from(offset).unwrap();
            let bytes = file.current.get(offset..offset + out.len());
            out.copy_from_slice(bytes.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Operation::SetLen(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operate(|file| {
            for operation in std::mem::take(&mut file.unsynced) {
                operation.apply(&mut file.durable);
            }
            Ok(())
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Operation::Write(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        let mut state = self.disk.lock();
        if self.life == state.life {
            state.deleted.remove(&self.id);
        }
        if let Some(file) = state.files.get_mut(&self.name).filter(|file| file.id == self.id)
            && file.open_in == Some(self.life)
        {
            file.open_in = None;
        }
    }
}
