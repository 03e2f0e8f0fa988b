//! Blocks: the rows of the table of objects. A block contains the records of consecutive keys.
//!
//! redb rounds the space of a large row up to a power of two, and reads each row separately. With one row per
//! object, the file of a cache of pods would be 1.7 times as large as the cache. A block fills its space, and a
//! change rewrites one block.
//!
//! The key of a row is the start of its range of keys; the range ends at the start of the next row. The first range
//! starts with the empty key. A block is a sequence of keys and records, each preceded by its length as a `u32`.

use informer_core::image::RecordEncoder;
use informer_core::{Entry, Key, StoreSnapshot};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

/// Upper bound on the size of a block with several objects. With its key and the overhead of redb it must be below a
/// power of two.
const MAX_BLOCK_BYTES: usize = (16 << 10) - 640;
/// A block that is smaller is merged with the next one.
const MIN_BLOCK_BYTES: usize = MAX_BLOCK_BYTES / 4;

/// The starts of all ranges except the first one.
#[derive(Debug, Default)]
pub(super) struct Layout(BTreeSet<Box<[u8]>>);

/// A change of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowChange<'a> {
    Insert(&'a [u8], &'a [u8]),
    Remove(&'a [u8]),
}

impl Layout {
    /// Creates the layout of a table with rows of these keys.
    pub(super) fn from_rows(starts: impl IntoIterator<Item = Box<[u8]>>) -> Self {
        Self(starts.into_iter().filter(|start| !start.is_empty()).collect())
    }

    /// Returns the start of the range that contains a key.
    fn start_of(&self, key: &[u8]) -> Box<[u8]> {
        let range = (Bound::Unbounded, Bound::Included(key));
        self.0.range::<[u8], _>(range).next_back().cloned().unwrap_or_default()
    }

    /// Returns the start of the next range.
    fn after(&self, start: &[u8]) -> Option<Box<[u8]>> {
        self.0.range::<[u8], _>((Bound::Excluded(start), Bound::Unbounded)).next().cloned()
    }

    /// Writes the blocks of all ranges with changed keys; returns their number. After an error, the layout no
    /// longer matches the table.
    pub(super) fn update<E>(
        &mut self,
        changed: &BTreeSet<Key>,
        snapshot: &StoreSnapshot,
        encoder: &mut RecordEncoder,
        mut write: impl FnMut(RowChange<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let (mut written, mut keys) = (0, changed.iter().peekable());
        while let Some(key) = keys.next() {
            let start = self.start_of(key.as_bytes());
            let mut end = self.after(&start);
            let mut block = Block { start, bytes: Vec::new(), record: Vec::new() };
            let mut entries = snapshot.starting_at(&block.start).peekable();
            loop {
                let is_inside =
                    |entry: &&Arc<Entry>| end.as_deref().is_none_or(|end| entry.key().as_bytes() < end);
                while let Some(entry) = entries.next_if(is_inside) {
                    encoder.encode(entry, &mut block.record);
                    if !block.fits(entry.key()) {
                        written += 1;
                        write(RowChange::Insert(&block.start, &block.bytes))?;
                        block.begin(entry.key());
                        self.0.insert(block.start.clone());
                    }
                    block.push(entry.key());
                }
                // Whatever else has changed in this range was written, too.
                while keys.next_if(|key| end.as_deref().is_none_or(|end| key.as_bytes() < end)).is_some() {}
                let Some(next) = end.take_if(|_| block.bytes.len() < MIN_BLOCK_BYTES) else { break };
                write(RowChange::Remove(&next))?;
                end = self.after(&next);
                self.0.remove(&next);
            }
            written += 1;
            if block.bytes.is_empty() {
                write(RowChange::Remove(&block.start))?;
                self.0.remove(&block.start);
            } else {
                write(RowChange::Insert(&block.start, &block.bytes))?;
            }
        }
        Ok(written)
    }
}

/// A block that is being filled.
struct Block {
    start: Box<[u8]>,
    bytes: Vec<u8>,
    /// The record of the next object.
    record: Vec<u8>,
}

impl Block {
    /// Returns whether the next object fits, or is the first.
    fn fits(&self, key: &Key) -> bool {
        let added = 2 * size_of::<u32>() + key.as_bytes().len() + self.record.len();
        self.bytes.is_empty() || self.bytes.len() + added <= MAX_BLOCK_BYTES
    }

    /// Begins another block.
    fn begin(&mut self, first: &Key) {
        self.start = first.as_bytes().into();
        self.bytes.clear();
    }

    fn push(&mut self, key: &Key) {
        for part in [key.as_bytes(), &self.record] {
            // Parts of one object, far less than 4 GiB.
            let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
            self.bytes.extend_from_slice(&length.to_le_bytes());
            self.bytes.extend_from_slice(part);
        }
    }
}

/// Returns the keys and records of a block; `None` for one that is malformed.
pub(super) fn records(mut block: &[u8]) -> impl Iterator<Item = Option<(&[u8], &[u8])>> {
    std::iter::from_fn(move || {
        if block.is_empty() {
            return None;
        }
        let record = take(&mut block).and_then(|key| Some((key, take(&mut block)?)));
        if record.is_none() {
            block = &[];
        }
        Some(record)
    })
}

fn take<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (length, rest) = input.split_first_chunk()?;
    let (part, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    *input = rest;
    Some(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_core::{Object, Scope, StoreReader, StoreWriter};
    use k8s_openapi::api::core::v1::ConfigMap;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    fn object(name: u8, version: u32, size: usize) -> Arc<Entry> {
        let mut map = ConfigMap::default();
        map.metadata.name = Some(format!("m{name:03}"));
        map.metadata.resource_version = Some(version.to_string());
        map.data = Some(BTreeMap::from([("v".to_owned(), "x".repeat(size))]));
        Arc::clone(Object::from_typed(map).unwrap().entry())
    }

    /// A table in memory.
    #[derive(Default)]
    struct Table {
        rows: BTreeMap<Box<[u8]>, Vec<u8>>,
        layout: Layout,
    }

    impl Table {
        fn save(&mut self, changed: &BTreeSet<Key>, reader: &StoreReader) {
            let Self { rows, layout } = self;
            let mut encoder = RecordEncoder::default();
            let result = layout.update(changed, &reader.snapshot(), &mut encoder, |change| {
                match change {
                    RowChange::Insert(start, block) => drop(rows.insert(start.into(), block.to_vec())),
                    RowChange::Remove(start) => drop(rows.remove(start)),
                }
                Ok::<(), Infallible>(())
            });
            result.unwrap();
        }

        fn keys(&self) -> Vec<String> {
            let records = self.rows.values().flat_map(|block| records(block));
            records.map(|record| Key::from_bytes(record.unwrap().0).unwrap().to_string()).collect()
        }
    }

    proptest! {
        /// However objects change, the table contains exactly the objects of the store, in order.
        #[test]
        fn table_equals_the_store(
            saves in prop::collection::vec(
                prop::collection::vec((0_u8..120, prop::option::of(0_usize..9000)), 0..60), 1..12),
        ) {
            let (mut writer, reader) = StoreWriter::new([Scope::All]);
            let (mut table, mut version) = (Table::default(), 0);
            for changes in saves {
                let mut changed = BTreeSet::new();
                for (name, size) in changes {
                    version += 1;
                    let entry = object(name, version, size.unwrap_or(0));
                    changed.insert(entry.key().clone());
                    match size {
                        Some(_) => drop(writer.insert_unversioned([entry])),
                        None => drop(writer.remove_unversioned([entry.key()])),
                    }
                }
                table.save(&changed, &reader);
                let expected: Vec<String> =
                    reader.snapshot().list().map(|entry| entry.key().to_string()).collect();
                prop_assert_eq!(table.keys(), expected);
                for (start, block) in &table.rows {
                    let count = records(block).count();
                    prop_assert!(count == 1 || block.len() <= MAX_BLOCK_BYTES, "{count} objects");
                    let first = records(block).next().unwrap().unwrap().0;
                    prop_assert!(**start <= *first, "a block starts before its first key");
                }
                let starts = table.rows.keys().filter(|start| !start.is_empty()).cloned().collect();
                prop_assert_eq!(&table.layout.0, &starts);
            }
        }

        #[test]
        fn malformed_blocks_end(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(records(&bytes).count() <= 100);
        }
    }

    #[test]
    fn change_writes_one_block() {
        let (mut writer, reader) = StoreWriter::new([Scope::All]);
        writer.insert_unversioned((0..100).map(|name| object(name, 1, 3000)));
        let mut table = Table::default();
        let all = reader.snapshot().list().map(|entry| entry.key().clone()).collect();
        table.save(&all, &reader);
        assert!(table.rows.len() < 30, "{} blocks of five objects", table.rows.len());
        let before = table.rows.clone();
        let changed = object(50, 2, 3000);
        let keys = BTreeSet::from([changed.key().clone()]);
        writer.insert_unversioned([changed]);
        table.save(&keys, &reader);
        let differing = table.rows.iter().filter(|(start, block)| before.get(*start) != Some(block)).count();
        assert_eq!(differing, 1);
    }
}
