//! A store of compressed entries against one of uncompressed entries, with the same random deltas.
//!
//! Dictionaries are trained at random times, and entries are recompressed slice by slice in between, some of
//! them late. Both stores report the same changes and return the same results.

use super::objects::{ENGINE, SHELF, Shape, compressed, list, plain, widget};
use informer_core::random::Random;
use informer_core::{
    Change, Compressor, Deleted, Delta, Entry, Index, IndexHandle, Key, ResourceVersion, Rewrite, Scope,
    StoreReader, StoreSnapshot, StoreWriter,
};
use std::sync::Arc;

#[test]
fn compressed_store_behaves_as_a_plain_one() {
    for seed in 0..100 {
        let run = std::panic::catch_unwind(|| Run::new(seed).go(60));
        assert!(run.is_ok(), "seed {seed}");
    }
}

struct Run {
    random: Random,
    compressor: Compressor,
    indexes: [IndexHandle; 2],
    plain: (StoreWriter, StoreReader),
    compressed_store: (StoreWriter, StoreReader),
    /// Earlier snapshots of both stores.
    snapshots: Vec<(StoreSnapshot, StoreSnapshot)>,
    /// Recompressed entries that are not applied yet.
    late: Vec<Rewrite>,
    /// Slot at which recompression continues.
    from: u32,
    version: u64,
    shape: Shape,
}

impl Run {
    fn new(seed: u64) -> Self {
        let indexes = [Index::field("spec.node"), Index::label("app")].map(|index| index.build().unwrap());
        let store = || {
            let (mut writer, reader) = StoreWriter::new([Scope::All]);
            for index in &indexes {
                writer.add_index(index.clone());
            }
            (writer, reader)
        };
        let (plain, compressed_store) = (store(), store());
        Self {
            random: Random::new(seed),
            compressor: Compressor::with_training(),
            indexes,
            plain,
            compressed_store,
            snapshots: Vec::new(),
            late: Vec::new(),
            from: 0,
            version: 1,
            shape: SHELF,
        }
    }

    fn go(mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.below(10) {
                0 => drop(self.compressor.train(&self.compressed_store.1.snapshot())),
                1..4 => self.recompress(),
                4 if self.random.below(4) == 0 => {
                    self.shape = if self.shape == SHELF { ENGINE } else { SHELF }
                }
                5 => self.snapshots.push((self.plain.1.snapshot(), self.compressed_store.1.snapshot())),
                _ => self.batch(),
            }
        }
        self.snapshots.push((self.plain.1.snapshot(), self.compressed_store.1.snapshot()));
        for (plain, compressed_store) in &self.snapshots {
            self.compare(plain, compressed_store);
        }
    }

    /// Recompresses a slice, to be applied now or later.
    fn recompress(&mut self) {
        let max_slots = 1 + u32::try_from(self.random.below(20)).unwrap();
        let slice = self
            .compressed_store
            .1
            .snapshot()
            .rewrite(self.from, max_slots, |entry| self.compressor.recompressed(entry));
        self.from = slice.next_slot().unwrap_or(0);
        self.late.push(slice);
        if self.random.below(3) > 0 {
            for slice in std::mem::take(&mut self.late) {
                self.compressed_store.0.install_rewritten(slice);
            }
            self.compressed_store.0.check_invariants();
        }
    }

    fn batch(&mut self) {
        let deltas: Vec<(Delta, Delta)> = (0..=self.random.below(6)).map(|_| self.delta()).collect();
        let (plain, compressed_store): (Vec<Delta>, Vec<Delta>) = deltas.into_iter().unzip();
        let applied = self.plain.0.apply(&Scope::All, plain);
        let others = self.compressed_store.0.apply(&Scope::All, compressed_store);
        assert_eq!(reported(&applied.changes), reported(&others.changes));
        let counts = [&applied, &others].map(|applied| {
            (
                applied.stale_deltas,
                applied.deletes_of_unknown,
                applied.duplicates,
                applied.server_rewound,
                applied.drift,
            )
        });
        assert_eq!(counts[0], counts[1]);
        self.compressed_store.0.check_invariants();
        self.compare(&self.plain.1.snapshot(), &self.compressed_store.1.snapshot());
    }

    fn delta(&mut self) -> (Delta, Delta) {
        match self.random.below(12) {
            0 => self.relist(),
            1..3 => self.deletion(),
            _ => {
                let (plain, compressed_store) = self.object();
                (Delta::Updated(plain), Delta::Updated(compressed_store))
            }
        }
    }

    /// A relist with most of the objects unchanged: a reflector reuses cached entries or reads them again.
    fn relist(&mut self) -> (Delta, Delta) {
        let (mut plain_entries, mut compressed_entries) = (Vec::new(), Vec::new());
        let (left, right) = (self.plain.1.snapshot(), self.compressed_store.1.snapshot());
        for (left, right) in left.list().zip(right.list()) {
            match self.random.below(5) {
                0 => {}
                1 => {
                    let scanned = || read_again(left);
                    plain_entries.push(plain(scanned()));
                    compressed_entries.push(compressed(&self.compressor, scanned()));
                }
                _ => {
                    plain_entries.push(Arc::clone(left));
                    compressed_entries.push(Arc::clone(right));
                }
            }
        }
        let (new, same) = self.object();
        plain_entries.push(new);
        compressed_entries.push(same);
        self.version += 1;
        (list(self.version, plain_entries), list(self.version, compressed_entries))
    }

    fn deletion(&mut self) -> (Delta, Delta) {
        let (plain, compressed_store) = self.object();
        let deleted = |last: Arc<Entry>| {
            let version = Some(last.head().version.clone());
            Delta::Deleted(Deleted { key: last.key().clone(), version, last: Some(last) })
        };
        (deleted(plain), deleted(compressed_store))
    }

    fn object(&mut self) -> (Arc<Entry>, Arc<Entry>) {
        let (name, node) = (format!("w{}", self.random.below(60)), format!("n{}", self.random.below(3)));
        self.version += self.random.below(3);
        let scanned = || widget(&name, self.version, &node, self.shape);
        (plain(scanned()), compressed(&self.compressor, scanned()))
    }

    fn compare(&self, plain: &StoreSnapshot, compressed_store: &StoreSnapshot) {
        assert_eq!(
            (plain.resource_version(), plain.len()),
            (compressed_store.resource_version(), compressed_store.len())
        );
        for (left, right) in plain.list().zip(compressed_store.list()) {
            assert_eq!((left.head(), left.bytes()), (right.head(), right.bytes()));
            assert_eq!(left, right);
            assert_eq!(compressed_store.get(left.key()), Some(left));
        }
        for index in &self.indexes {
            assert!(plain.index_values(index).eq(compressed_store.index_values(index)));
            for value in plain.index_values(index) {
                assert_eq!(plain.index_keys(index, &value), compressed_store.index_keys(index, &value));
            }
        }
    }
}

/// A cached object as another list returns it.
fn read_again(entry: &Entry) -> informer_core::wire::ScannedObject {
    let types = informer_core::TypeMeta::new("example.com/v1", "Widget");
    let bytes = entry.bytes();
    super::objects::scanned(&types, std::str::from_utf8(&bytes).unwrap())
}

type Reported = (char, Key, ResourceVersion, Vec<u8>);

/// Comparable form of the reported changes.
fn reported(changes: &[Change]) -> Vec<Reported> {
    let seen = |what, entry: &Arc<Entry>| {
        (what, entry.key().clone(), entry.head().version.clone(), entry.bytes().into_owned())
    };
    let each = |change: &Change| match change {
        Change::Added(entry) => vec![seen('+', entry)],
        Change::Updated { old, new } => vec![seen('<', old), seen('>', new)],
        Change::Deleted { last, observed } => vec![seen(if *observed { '-' } else { '?' }, last)],
        Change::Released(last) => panic!("{last:?} released without sharding"),
    };
    changes.iter().flat_map(each).collect()
}
