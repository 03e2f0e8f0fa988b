//! Checked pages: the file below the database, which contains checksums of everything.
//!
//! redb panics if a page is not as it has written it. So it reads and writes pages through [`CheckedPages`], which
//! returns an error for each page that is not what was committed: damaged, older, newer, or beyond the end of a file that
//! was truncated. This file does not know what the pages contain.
//!
//! | bytes | content |
//! |---|---|
//! | 4096 | the start. Its first 512 bytes: `informer`, version of the format (4), number of times that the start was written (8), length of the database (8), checksum of all tables (4), header of the database (476), checksum of all that (4) |
//! | 4096 | a table: the checksums of the following 1024 pages, if the start was written an even number of times |
//! | 4096 | the same table, if the start was written an odd number of times |
//! | 1024 × 4096 | pages of the database, from the second one on; the first one contains only the header |
//! | … | further tables with their pages |
//!
//! Invariants: the start is written when everything else is synced, and is one sector, which a disk writes as a whole. The
//! tables and pages to which it refers are not overwritten before the next start: the tables because there are two of
//! each, the pages because redb writes a transaction to free pages. `changed_groups` contains each group of which a stored
//! table may differ from the one in memory. A checksum is a CRC-32: forged files are not recognised.

use crate::status::ColdStartReason;
use informer_core::image::{FORMAT_VERSION, checksum};
use redb::StorageBackend;
use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::sync::{Mutex, MutexGuard, PoisonError};

const MAGIC: &[u8; 8] = b"informer";
/// The start of files of version 1, which were databases without checksums of pages.
const MAGIC_OF_VERSION_1: &[u8] = b"redb";

const PAGE_BYTES: usize = 4096;
const CHECKSUM_BYTES: usize = size_of::<u32>();
/// Fewer in tests of this file, so that small files have several tables.
const PAGES_PER_TABLE: usize = if cfg!(test) { 4 } else { PAGE_BYTES / CHECKSUM_BYTES };
/// Both copies of a table, and its pages.
const GROUP_BYTES: u64 = ((2 + PAGES_PER_TABLE) * PAGE_BYTES) as u64;
const START_BYTES: usize = 512;
const HEADER_BYTES: usize = 476;

/// A file of which every page is checked when it is read.
#[derive(Debug)]
pub(super) struct CheckedPages {
    file: Box<dyn StorageBackend>,
    state: Mutex<State>,
}

/// What the next start will refer to.
#[derive(Debug)]
struct State {
    /// The number of times that the start was written.
    writes: u64,
    /// The length of the database.
    len: u64,
    header: [u8; HEADER_BYTES],
    is_header_changed: bool,
    /// The checksum of each page from the second one on; of a page that was never written, any number.
    table: Vec<u32>,
    /// The groups whose first or second stored table differs.
    changed_groups: [BTreeSet<usize>; 2],
}

impl CheckedPages {
    /// Opens a file, which may be empty. What was added to it without being committed is cut off.
    ///
    /// # Errors
    ///
    /// Returns the reason why the file cannot be used.
    pub(super) fn open(file: Box<dyn StorageBackend>) -> Result<Self, ColdStartReason> {
        let inaccessible = |error: io::Error| ColdStartReason::inaccessible(&error);
        let stored = file.len().map_err(inaccessible)?;
        let mut start = [0; START_BYTES];
        let start = &mut start[..START_BYTES.min(usize::try_from(stored).unwrap_or(START_BYTES))];
        file.read(0, start).map_err(inaccessible)?;
        let mut state = State {
            writes: 0,
            len: 0,
            header: [0; HEADER_BYTES],
            is_header_changed: false,
            table: Vec::new(),
            changed_groups: Default::default(),
        };
        if stored > 0 {
            let table_checksum = state.read_start(start)?;
            let needed = stored_len(state.len).filter(|needed| *needed <= stored);
            let needed = needed.ok_or_else(|| ColdStartReason::damaged("it is truncated"))?;
            let table = state.read_table(&*file).map_err(inaccessible)?;
            if checksum(&[], &table) != table_checksum {
                return Err(ColdStartReason::damaged("the checksums of its pages are damaged"));
            }
            if needed < stored {
                file.set_len(needed).map_err(inaccessible)?;
            }
            // The last process may have ended while it wrote the other tables.
            state.changed_groups[copy(state.writes.wrapping_add(1))] =
                (0..groups(state.table.len())).collect();
        }
        Ok(Self { file, state: Mutex::new(state) })
    }

    /// Returns the size of all pages that were ever written. A file may have gaps where nothing was written.
    pub(super) fn used_bytes(&self) -> u64 {
        let pages = self.lock().table.iter().filter(|checksum| **checksum != 0).count();
        (pages * PAGE_BYTES) as u64
    }

    /// Returns whether the file is empty.
    pub(super) fn is_new(&self) -> bool {
        self.lock().len == 0
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Reads the start, without the table; returns the checksum of the table.
    fn read_start(&mut self, bytes: &[u8]) -> Result<u32, ColdStartReason> {
        if bytes.starts_with(MAGIC_OF_VERSION_1) {
            return Err(ColdStartReason::OtherFormat { found: "1".into() });
        }
        let mut rest =
            bytes.strip_prefix(MAGIC).ok_or_else(|| ColdStartReason::damaged("it is no saved cache"))?;
        let damaged = || ColdStartReason::damaged("its start is damaged");
        let version = u32::from_le_bytes(take(&mut rest).ok_or_else(damaged)?);
        if version != FORMAT_VERSION {
            return Err(ColdStartReason::OtherFormat { found: version.to_string().into() });
        }
        let mut fields = || {
            let (checked, stored) = bytes.split_last_chunk()?;
            let is_valid =
                bytes.len() == START_BYTES && checksum(&[], checked) == u32::from_le_bytes(*stored);
            self.writes = u64::from_le_bytes(take(&mut rest)?);
            self.len = u64::from_le_bytes(take(&mut rest)?);
            let table_checksum = u32::from_le_bytes(take(&mut rest)?);
            self.header = take(&mut rest)?;
            is_valid.then_some(table_checksum)
        };
        fields().ok_or_else(damaged)
    }

    /// Reads the table; returns its bytes.
    fn read_table(&mut self, file: &dyn StorageBackend) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; page_count(self.len) * CHECKSUM_BYTES];
        for (group, table) in bytes.chunks_mut(PAGES_PER_TABLE * CHECKSUM_BYTES).enumerate() {
            file.read(table_offset(group, self.writes), table)?;
        }
        let (numbers, _) = bytes.as_chunks();
        self.table = numbers.iter().map(|number| u32::from_le_bytes(*number)).collect();
        Ok(bytes)
    }

    /// Writes the tables, then the start, which thereby refers to everything that was written before.
    fn write_start(&mut self, file: &dyn StorageBackend) -> io::Result<()> {
        let writes = self.writes.wrapping_add(1);
        let table: Vec<u8> = self.table.iter().flat_map(|checksum| checksum.to_le_bytes()).collect();
        let tables: Vec<&[u8]> = table.chunks(PAGES_PER_TABLE * CHECKSUM_BYTES).collect();
        for group in &self.changed_groups[copy(writes)] {
            file.write(table_offset(*group, writes), tables[*group])?;
        }
        file.sync_data()?;
        let mut start = Vec::with_capacity(START_BYTES);
        start.extend_from_slice(MAGIC);
        start.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        start.extend_from_slice(&writes.to_le_bytes());
        start.extend_from_slice(&self.len.to_le_bytes());
        start.extend_from_slice(&checksum(&[], &table).to_le_bytes());
        start.extend_from_slice(&self.header);
        start.extend_from_slice(&checksum(&[], &start).to_le_bytes());
        file.write(0, &start)?;
        file.sync_data()?;
        self.changed_groups[copy(writes)].clear();
        (self.writes, self.is_header_changed) = (writes, false);
        Ok(())
    }

    /// Returns the index of the first page of a range, if it is a range of pages of the database.
    fn first_page(&self, offset: u64, bytes: usize) -> io::Result<usize> {
        let end = offset.checked_add(bytes as u64).filter(|end| *end <= self.len);
        let is_aligned = offset.is_multiple_of(PAGE_BYTES as u64) && bytes.is_multiple_of(PAGE_BYTES);
        let is_valid = offset > 0 && is_aligned && end.is_some();
        if is_valid { Ok(page_count(offset)) } else { Err(ErrorKind::UnexpectedEof.into()) }
    }
}

impl StorageBackend for CheckedPages {
    fn len(&self) -> io::Result<u64> {
        Ok(self.lock().len)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let state = self.lock();
        if offset == 0 && out.len() <= HEADER_BYTES {
            out.copy_from_slice(&state.header[..out.len()]);
            return Ok(());
        }
        let first = state.first_page(offset, out.len())?;
        let expected = state.table[first..first + out.len() / PAGE_BYTES].to_vec();
        drop(state);
        for_each_run(first, expected.len(), |page, pages| {
            self.file.read(page_offset(page), &mut out[(pages.start) * PAGE_BYTES..pages.end * PAGE_BYTES])
        })?;
        let mut pages = out.chunks_exact(PAGE_BYTES).zip(expected).zip(first..);
        match pages.find(|((page, expected), _)| checksum(&[], page) != *expected) {
            None => Ok(()),
            Some((_, page)) => Err(io::Error::new(ErrorKind::InvalidData, format!("page {page} is damaged"))),
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let stored = stored_len(len).ok_or(ErrorKind::InvalidInput)?;
        let mut state = self.lock();
        let (is_shorter, last_group) = (len < state.len, state.table.len() / PAGES_PER_TABLE);
        state.len = len;
        state.table.resize(page_count(len), 0);
        let groups = groups(state.table.len());
        for changed in &mut state.changed_groups {
            // The stored tables may contain checksums of pages that existed before.
            changed.insert(last_group);
            changed.retain(|group| *group < groups);
        }
        if is_shorter {
            state.write_start(&*self.file)?;
        }
        self.file.set_len(stored)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.lock();
        if state.is_header_changed { state.write_start(&*self.file) } else { self.file.sync_data() }
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if offset == 0 && data.len() <= HEADER_BYTES {
            state.header[..data.len()].copy_from_slice(data);
            state.is_header_changed = true;
            return Ok(());
        }
        let first = state.first_page(offset, data.len())?;
        for (index, page) in (first..).zip(data.chunks_exact(PAGE_BYTES)) {
            state.table[index] = checksum(&[], page);
            for changed in &mut state.changed_groups {
                changed.insert(index / PAGES_PER_TABLE);
            }
        }
        drop(state);
        for_each_run(first, data.len() / PAGE_BYTES, |page, pages| {
            self.file.write(page_offset(page), &data[pages.start * PAGE_BYTES..pages.end * PAGE_BYTES])
        })
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }
}

/// Calls `visit` for each run of pages of one group, with its first page and its place among all `count` pages.
fn for_each_run(
    first: usize,
    count: usize,
    mut visit: impl FnMut(usize, std::ops::Range<usize>) -> io::Result<()>,
) -> io::Result<()> {
    let mut done = 0;
    while done < count {
        let page = first + done;
        let end = count.min(done + PAGES_PER_TABLE - page % PAGES_PER_TABLE);
        visit(page, done..end)?;
        done = end;
    }
    Ok(())
}

fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*taken)
}

/// Returns the number of pages of a database, without the first one.
fn page_count(len: u64) -> usize {
    usize::try_from(len / PAGE_BYTES as u64).unwrap_or(usize::MAX).saturating_sub(1)
}

/// Returns the number of groups of this many pages.
fn groups(pages: usize) -> usize {
    pages.div_ceil(PAGES_PER_TABLE)
}

/// Returns which copy of the tables belongs to a start.
fn copy(writes: u64) -> usize {
    usize::from(!writes.is_multiple_of(2))
}

fn table_offset(group: usize, writes: u64) -> u64 {
    (1 + copy(writes)) as u64 * PAGE_BYTES as u64 + group as u64 * GROUP_BYTES
}

fn page_offset(page: usize) -> u64 {
    let (group, page) = (page / PAGES_PER_TABLE, page % PAGES_PER_TABLE);
    (3 + page) as u64 * PAGE_BYTES as u64 + group as u64 * GROUP_BYTES
}

/// Returns the length of the file for a length of the database.
fn stored_len(len: u64) -> Option<u64> {
    let is_valid = len > 0 && len.is_multiple_of(PAGE_BYTES as u64) && len < u64::MAX / 2;
    let pages_end = |last| page_offset(last) + PAGE_BYTES as u64;
    is_valid.then(|| page_count(len).checked_sub(1).map_or(PAGE_BYTES as u64, pages_end))
}

#[cfg(test)]
#[path = "pages_tests.rs"]
mod tests;
