//! Random crashes of a file of checked pages, against a model of what was committed.
//!
//! Found by review: the tests of crashes used files with one table, and no process ended while it opened its file. So a
//! second table that the last process had not written any more was taken for the current one.

use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const SECTOR_BYTES: usize = 512;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }
}

#[derive(Debug, Clone)]
enum Operation {
    Write(usize, Vec<u8>),
    SetLen(usize),
}

impl Operation {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            Self::SetLen(len) => content.resize(*len, 0),
            Self::Write(offset, data) => {
                content.resize(content.len().max(offset + data.len()), 0);
                content[*offset..offset + data.len()].copy_from_slice(data);
            }
        }
    }
}

/// A file of which a crash loses or tears what was not synced.
#[derive(Debug, Default)]
struct Disk {
    durable: Vec<u8>,
    current: Vec<u8>,
    unsynced: Vec<Operation>,
    /// The number of operations after which the process is dead.
    operations_left: usize,
}

#[derive(Debug, Clone, Default)]
struct File(Arc<Mutex<Disk>>);

impl File {
    fn operate<R>(&self, operation: impl FnOnce(&mut Disk) -> R) -> io::Result<R> {
        let mut disk = self.0.lock().unwrap();
        disk.operations_left = disk.operations_left.checked_sub(1).ok_or(ErrorKind::Other)?;
        Ok(operation(&mut disk))
    }

    fn change(&self, operation: Operation) -> io::Result<()> {
        self.operate(|disk| {
            operation.apply(&mut disk.current);
            disk.unsynced.push(operation);
        })
    }

    fn crash(&self, random: &mut Random) {
        let mut disk = self.0.lock().unwrap();
        let is_killed = random.below(2) == 0;
        for operation in std::mem::take(&mut disk.unsynced) {
            match (if is_killed { 0 } else { random.below(3) }, operation) {
                (0, operation) => operation.apply(&mut disk.durable),
                (1, Operation::Write(offset, data)) => {
                    for (index, sector) in data.chunks(SECTOR_BYTES).enumerate() {
                        if random.below(2) == 0 {
                            let write = Operation::Write(offset + index * SECTOR_BYTES, sector.to_vec());
                            write.apply(&mut disk.durable);
                        }
                    }
                }
                _ => {}
            }
        }
        disk.current = disk.durable.clone();
    }
}

impl StorageBackend for File {
    fn len(&self) -> io::Result<u64> {
        self.operate(|disk| disk.current.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let offset = usize::try_from(offset).unwrap();
        self.operate(|disk| out.copy_from_slice(&disk.current[offset..offset + out.len()]))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.change(Operation::SetLen(usize::try_from(len).unwrap()))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.operate(|disk| {
            let Disk { durable, unsynced, .. } = disk;
            unsynced.drain(..).for_each(|operation| operation.apply(durable));
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.change(Operation::Write(usize::try_from(offset).unwrap(), data.to_vec()))
    }
}

/// The content of each page that a transaction refers to.
type Live = BTreeMap<usize, u8>;

/// A database that, like redb, writes to free pages, and then a header that refers to them.
#[derive(Default)]
struct Database {
    /// The pages of each transaction that may be found in the file.
    transactions: BTreeMap<u64, Live>,
    number: u64,
    /// Whether a commit has returned.
    is_committed: bool,
}

impl Database {
    /// Checks that the file contains a transaction that may be there.
    fn open(&mut self, file: &File) -> io::Result<Option<CheckedPages>> {
        let pages = match CheckedPages::open(Box::new(file.clone())) {
            Ok(pages) => pages,
            Err(ColdStartReason::Inaccessible { .. }) => return Err(ErrorKind::Other.into()),
            // A file that was never committed.
            Err(_) if !self.is_committed => return Ok(None),
            Err(reason) => panic!("transaction {}: {reason}", self.number),
        };
        let mut header = [0; 8];
        pages.read(0, &mut header)?;
        self.number = u64::from_le_bytes(header);
        let live = self.transactions.get(&self.number).cloned().unwrap_or_default();
        self.transactions.retain(|number, _| *number == self.number);
        for (page, value) in live {
            let mut content = vec![0; PAGE_BYTES];
            match pages.read(((page + 1) * PAGE_BYTES) as u64, &mut content) {
                Ok(()) => assert!(content.iter().all(|byte| *byte == value), "page {page}"),
                Err(error) if error.kind() == ErrorKind::InvalidData => panic!("page {page}: {error}"),
                Err(error) => return Err(error),
            }
        }
        Ok(Some(pages))
    }

    fn commit(&mut self, pages: &CheckedPages, random: &mut Random) -> io::Result<()> {
        let before = self.transactions.get(&self.number).cloned().unwrap_or_default();
        let mut len = page_count(pages.len()?);
        if len == 0 || random.below(4) == 0 {
            len = (len + 1 + random.below(9)).min(24);
            pages.set_len(((len + 1) * PAGE_BYTES) as u64)?;
        }
        let mut live = before.clone();
        for _ in 0..random.below(4) {
            let (first, count) = (random.below(len), 1 + random.below(6));
            let run: Vec<usize> =
                (first..len.min(first + count)).take_while(|page| !before.contains_key(page)).collect();
            if run.is_empty() {
                continue;
            }
            let value = u8::try_from(random.below(255)).unwrap();
            pages.write(((first + 1) * PAGE_BYTES) as u64, &vec![value; run.len() * PAGE_BYTES])?;
            live.extend(run.into_iter().map(|page| (page, value)));
        }
        live.retain(|_, _| random.below(3) > 0);
        self.number += 1;
        self.transactions.insert(self.number, live.clone());
        pages.write(0, &self.number.to_le_bytes())?;
        pages.sync_data()?;
        self.is_committed = true;
        let needed = live.keys().next_back().map_or(1, |last| last + 1);
        if needed < len && random.below(4) == 0 {
            pages.set_len(((needed + 1) * PAGE_BYTES) as u64)?;
        }
        Ok(())
    }

    /// A life of the process: it opens the file, perhaps writes the same header, and commits until it dies or ends.
    fn live(&mut self, file: &File, random: &mut Random) -> io::Result<()> {
        let Some(pages) = self.open(file)? else {
            *file.0.lock().unwrap() = Disk { operations_left: 1000, ..Disk::default() };
            return Ok(());
        };
        if random.below(2) == 0 && !pages.is_new() {
            pages.write(0, &self.number.to_le_bytes())?;
            pages.sync_data()?;
        }
        for _ in 0..random.below(6) {
            self.commit(&pages, random)?;
        }
        Ok(())
    }
}

#[test]
fn crash_at_any_operation_leads_to_a_committed_state() {
    let mut committed = 0;
    for seed in 0..1_500 {
        let (mut random, file, mut database) = (Random(seed), File::default(), Database::default());
        for _ in 0..12 {
            let operations = if random.below(3) == 0 { 1_000 } else { random.below(60) };
            file.0.lock().unwrap().operations_left = operations;
            let _died = database.live(&file, &mut random).is_err();
            file.crash(&mut random);
        }
        committed += database.number;
    }
    assert!(committed > 5_000, "{committed} transactions");
}
