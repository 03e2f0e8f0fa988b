//! A store of compressed entries and its twin of plain ones, through the same random deltas.
//!
//! Dictionaries arrive at random moments, are learnt anew, and rewriting goes on slice by slice beside everything else, some of it late. Both
//! stores tell the same and answer the same.

use crate::objects::{ENGINE, SHELF, Shape, compressed, list, plain, widget};
use informer_core::reflector::Random;
use informer_core::{
    Change, Compressor, Deleted, Delta, Entry, Index, IndexHandle, Key, ResourceVersion, Rewrite, Scope,
    Snapshot, StoreReader, StoreWriter,
};
use std::sync::Arc;

#[test]
fn a_compressed_store_and_a_plain_one_cannot_be_told_apart() {
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
    packed: (StoreWriter, StoreReader),
    /// Snapshots of both from before.
    held: Vec<(Snapshot, Snapshot)>,
    /// Rewritten entries that are not in yet.
    late: Vec<Rewrite>,
    /// Where the rewriting is.
    from: u32,
    version: u64,
    shape: Shape,
}

impl Run {
    fn new(seed: u64) -> Self {
        let indexes =
            [Index::field("spec.node"), Index::label("app")].map(|index| index.into_handle().unwrap());
        let store = || {
            let (mut writer, reader) = StoreWriter::new([Scope::All]);
            for index in &indexes {
                writer.add_index(index.clone());
            }
            (writer, reader)
        };
        let (plain, packed) = (store(), store());
        Self {
            random: Random::new(seed),
            compressor: Compressor::learning(),
            indexes,
            plain,
            packed,
            held: Vec::new(),
            late: Vec::new(),
            from: 0,
            version: 1,
            shape: SHELF,
        }
    }

    fn go(mut self, steps: usize) {
        for _ in 0..steps {
            match self.random.below(10) {
                0 => drop(self.compressor.learn(&self.packed.1.snapshot())),
                1..4 => self.rewrite(),
                4 if self.random.below(4) == 0 => {
                    self.shape = if self.shape == SHELF { ENGINE } else { SHELF }
                }
                5 => self.held.push((self.plain.1.snapshot(), self.packed.1.snapshot())),
                _ => self.batch(),
            }
        }
        self.held.push((self.plain.1.snapshot(), self.packed.1.snapshot()));
        for (plain, packed) in &self.held {
            self.compare(plain, packed);
        }
    }

    /// A slice is made now, and put in now or later.
    fn rewrite(&mut self) {
        let most = 1 + u32::try_from(self.random.below(20)).unwrap();
        let slice = self.packed.1.snapshot().rewrite(&self.compressor, self.from, most);
        self.from = slice.next().unwrap_or(0);
        self.late.push(slice);
        if self.random.below(3) > 0 {
            for slice in std::mem::take(&mut self.late) {
                self.packed.0.rewrite(slice);
            }
            self.packed.0.check_invariants();
        }
    }

    fn batch(&mut self) {
        let deltas: Vec<(Delta, Delta)> = (0..=self.random.below(6)).map(|_| self.delta()).collect();
        let (plain, packed): (Vec<Delta>, Vec<Delta>) = deltas.into_iter().unzip();
        let applied = self.plain.0.apply(&Scope::All, plain);
        let others = self.packed.0.apply(&Scope::All, packed);
        assert_eq!(told(&applied.changes), told(&others.changes));
        let counts = [&applied, &others].map(|applied| {
            (applied.outdated, applied.unknown_deletes, applied.duplicates, applied.rewound, applied.drift)
        });
        assert_eq!(counts[0], counts[1]);
        self.packed.0.check_invariants();
        self.compare(&self.plain.1.snapshot(), &self.packed.1.snapshot());
    }

    fn delta(&mut self) -> (Delta, Delta) {
        match self.random.below(12) {
            0 => self.relist(),
            1..3 => self.deletion(),
            _ => {
                let (plain, packed) = self.object();
                (Delta::Updated(plain), Delta::Updated(packed))
            }
        }
    }

    /// Most of what there is, as it is: a reflector takes it from the cache, or reads it anew.
    fn relist(&mut self) -> (Delta, Delta) {
        let (mut plains, mut packeds) = (Vec::new(), Vec::new());
        let (left, right) = (self.plain.1.snapshot(), self.packed.1.snapshot());
        for (left, right) in left.list().zip(right.list()) {
            match self.random.below(5) {
                0 => {}
                1 => {
                    let scanned = || read_again(left);
                    plains.push(plain(scanned()));
                    packeds.push(compressed(&self.compressor, scanned()));
                }
                _ => {
                    plains.push(Arc::clone(left));
                    packeds.push(Arc::clone(right));
                }
            }
        }
        let (new, same) = self.object();
        plains.push(new);
        packeds.push(same);
        self.version += 1;
        (list(self.version, plains), list(self.version, packeds))
    }

    fn deletion(&mut self) -> (Delta, Delta) {
        let (plain, packed) = self.object();
        let deleted = |last: Arc<Entry>| {
            let version = Some(last.head().version.clone());
            Delta::Deleted(Deleted { key: last.key().clone(), version, last: Some(last) })
        };
        (deleted(plain), deleted(packed))
    }

    fn object(&mut self) -> (Arc<Entry>, Arc<Entry>) {
        let (name, node) = (format!("w{}", self.random.below(60)), format!("n{}", self.random.below(3)));
        self.version += self.random.below(3);
        let scanned = || widget(&name, self.version, &node, self.shape);
        (plain(scanned()), compressed(&self.compressor, scanned()))
    }

    fn compare(&self, plain: &Snapshot, packed: &Snapshot) {
        assert_eq!((plain.version(), plain.len()), (packed.version(), packed.len()));
        for (left, right) in plain.list().zip(packed.list()) {
            assert_eq!((left.head(), left.bytes()), (right.head(), right.bytes()));
            assert_eq!(left, right);
            assert_eq!(packed.get(left.key()), Some(left));
        }
        for index in &self.indexes {
            assert_eq!(plain.index_values(index), packed.index_values(index));
            for value in plain.index_values(index) {
                assert_eq!(plain.index_keys(index, &value), packed.index_keys(index, &value));
            }
        }
    }
}

/// A cached object as a list brings it once more.
fn read_again(entry: &Entry) -> informer_core::wire::Scanned {
    let types = informer_core::TypeMeta::new("example.com/v1", "Widget");
    let bytes = entry.bytes();
    crate::objects::scanned(&types, std::str::from_utf8(&bytes).unwrap())
}

type Told = (char, Key, ResourceVersion, Vec<u8>);

/// What is told, as far as anybody can see it.
fn told(changes: &[Change]) -> Vec<Told> {
    let seen = |what, entry: &Arc<Entry>| {
        (what, entry.key().clone(), entry.head().version.clone(), entry.bytes().into_owned())
    };
    let each = |change: &Change| match change {
        Change::Added(entry) => vec![seen('+', entry)],
        Change::Updated { old, new } => vec![seen('<', old), seen('>', new)],
        Change::Deleted { last, observed } => vec![seen(if *observed { '-' } else { '?' }, last)],
    };
    changes.iter().flat_map(each).collect()
}
