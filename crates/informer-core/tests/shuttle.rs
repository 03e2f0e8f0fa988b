//! Publishing and reading under the schedules of a model checker: `cargo test -p informer-core --features
//! shuttle --test shuttle`.
//!
//! One writer applies batches and installs an index that another thread built; two threads read. The cell of
//! `src/sync.rs` then uses the checker's primitives. The model is small: all objects change together, so a
//! snapshot that mixes two states is detected immediately.
#![cfg(feature = "shuttle")]
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use informer_core::wire::{Limits, ListItem, ListReader};
use informer_core::{
    Delta, Entry, Index, IndexHandle, Key, Object, Projection, Projections, Replaced, ResourceVersion,
    Retention, Scope, StoreReader, StoreSnapshot, StoreWriter, TypeMeta,
};
use serde::Deserialize;
use shuttle::sync::mpsc;
use shuttle::thread;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const SCHEDULES: usize = 2000;
const NAMES: [&str; 3] = ["x", "y", "z"];

/// The objects in the state of this round: all with its number as version, field and label.
fn entries(round: u64, retention: Retention) -> Vec<Arc<Entry>> {
    let item = |name: &&str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"a","uid":"u","resourceVersion":"{round}","labels":{{"round":"{round}"}}}},"spec":{{"round":{round}}}}}"#
        )
    };
    let items = NAMES.iter().map(item).collect::<Vec<_>>().join(",");
    let body = format!(r#"{{"metadata":{{"resourceVersion":"{round}"}},"items":[{items}]}}"#);
    let mut entries = Vec::new();
    let on = |item| {
        if let ListItem::Object(object) = item {
            entries.push(Arc::new(Entry::new(object, retention)));
        }
    };
    ListReader::new(TypeMeta::new("v1", "Thing"), Limits::default()).read(body.as_bytes(), on).unwrap();
    entries
}

fn list(round: u64, retention: Retention) -> Delta {
    let (scope, version) = (Scope::All, ResourceVersion::new(&round.to_string()));
    Delta::Replaced(Replaced {
        scope,
        version,
        entries: entries(round, retention),
        unreadable: Vec::new(),
        audit: false,
    })
}

fn batch(round: u64, retention: Retention) -> Vec<Delta> {
    entries(round, retention).into_iter().map(Delta::Updated).collect()
}

/// C5: checks that all results of one snapshot agree with each other and with its version. Returns its round.
#[track_caller]
fn check(snapshot: &StoreSnapshot, indexes: &[IndexHandle]) -> u64 {
    let Some(version) = snapshot.resource_version() else {
        assert!(snapshot.is_empty(), "objects without a version");
        return 0;
    };
    let keys = NAMES.map(|name| Key::new("a", name));
    assert_eq!(snapshot.len(), keys.len());
    for (entry, key) in snapshot.list().zip(&keys) {
        assert_eq!((entry.key(), &entry.head().version), (key, version), "object and version");
        assert!(Arc::ptr_eq(entry, snapshot.get(key).unwrap()), "iteration and lookup");
    }
    for index in indexes {
        assert!(snapshot.index_values(index).eq([version.as_str()]), "values of {}", index.name());
        assert_eq!(snapshot.index_keys(index, version.as_str()), keys, "keys in {}", index.name());
    }
    version.as_str().parse().unwrap()
}

/// Reads the store a few times: its state never goes back, and snapshots never change.
fn watch(reader: &StoreReader, indexes: &[IndexHandle]) {
    let mut newest = 0;
    for _ in 0..3 {
        let snapshot = reader.snapshot();
        let round = check(&snapshot, indexes);
        assert!(round >= newest, "C5: {round} behind {newest}");
        let one =
            reader.get(&Key::new("a", "y")).map_or(0, |entry| entry.head().version.as_str().parse().unwrap());
        assert!(one >= round, "C5: a lookup returned {one} after {round}");
        thread::yield_now();
        assert_eq!(check(&snapshot, indexes), round, "a snapshot changed");
        newest = round;
    }
}

fn publish_and_read() {
    let label = Index::label("round").build().unwrap();
    let field = Index::field("spec.round").build().unwrap();
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    writer.add_index(label.clone());
    let indexes = [label, field.clone()];

    let readers = [(); 2].map(|()| {
        let (reader, indexes) = (reader.clone(), indexes.clone());
        thread::spawn(move || watch(&reader, &indexes))
    });
    let (built, to_install) = mpsc::channel();
    let builder = thread::spawn({
        let reader = reader.clone();
        move || built.send(reader.build_index(field)).unwrap()
    });

    writer.apply(&Scope::All, [list(1, Retention::Bytes)]);
    writer.apply(&Scope::All, batch(2, Retention::Bytes));
    // Built from any state up to the newest.
    writer.install_index(to_install.recv().unwrap());
    writer.apply(&Scope::All, batch(3, Retention::Bytes));
    writer.apply(&Scope::All, [list(4, Retention::Bytes)]);
    writer.check_invariants();

    assert_eq!(check(&reader.snapshot(), &indexes), 4);
    assert!(reader.snapshot().has_index(&indexes[1]));
    for thread in readers {
        thread.join().unwrap();
    }
    builder.join().unwrap();
    assert!(!writer.release(), "no old state is in use");
}

/// Number of views dropped by the writer's thread, and by other threads.
static BY_WRITER: AtomicUsize = AtomicUsize::new(0);
static BY_OTHERS: AtomicUsize = AtomicUsize::new(0);

/// A decoded object that records which thread drops it. It is owned by its entry and dropped with it.
#[derive(Deserialize)]
struct DropRecorder {}

impl Drop for DropRecorder {
    fn drop(&mut self) {
        let by_writer = thread::current().name() == Some("writer");
        if by_writer { &BY_WRITER } else { &BY_OTHERS }.fetch_add(1, Ordering::Relaxed);
    }
}

/// Retired states live while a reader uses them, and only the writer drops them.
fn retire() {
    BY_WRITER.store(0, Ordering::Relaxed);
    BY_OTHERS.store(0, Ordering::Relaxed);
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    let seen = |deltas: Vec<Delta>| {
        for delta in &deltas {
            if let Delta::Updated(entry) = delta {
                Object::<DropRecorder>::new(Arc::clone(entry)).typed().unwrap();
            }
        }
        deltas
    };
    let readers = [(); 2].map(|()| {
        let reader = reader.clone();
        thread::spawn(move || {
            for _ in 0..2 {
                let snapshot = reader.snapshot();
                thread::yield_now();
                check(&snapshot, &[]);
            }
        })
    });
    let writing = thread::Builder::new().name("writer".to_owned()).spawn(move || {
        writer.apply(&Scope::All, [list(1, Retention::Decoded)]);
        for round in 2..5 {
            writer.apply(&Scope::All, seen(batch(round, Retention::Decoded)));
        }
        writer
    });
    for thread in readers {
        thread.join().unwrap();
    }
    let mut writer = writing.unwrap().join().unwrap();
    let last = thread::Builder::new().name("writer".to_owned()).spawn(move || {
        assert!(!writer.release(), "no old state is in use");
        writer
    });
    let writer = last.unwrap().join().unwrap();
    assert_eq!(BY_OTHERS.load(Ordering::Relaxed), 0, "an old state was dropped by a reader");
    assert_eq!(BY_WRITER.load(Ordering::Relaxed), 2 * NAMES.len(), "only the newest state is left");
    assert_eq!(check(&reader.snapshot(), &[]), 4);
    drop(writer);
}

/// A value of a projection, or a decoded object.
#[derive(Deserialize)]
struct Lite {
    spec: Spec,
}

#[derive(Deserialize)]
struct Spec {
    round: u64,
}

/// A projection that is added and dropped while others read.
#[derive(Deserialize)]
struct Other {}

/// C4, C5: checks that the values of each object belong to its state.
fn watch_values(reader: &StoreReader, lite: &Projection<Lite>) {
    for _ in 0..3 {
        let snapshot = reader.snapshot();
        for entry in snapshot.list() {
            let object = Object::<Lite>::from_ref(entry);
            let expected: u64 = entry.head().version.as_str().parse().unwrap();
            assert_eq!(object.projected(lite).unwrap().spec.round, expected, "value of the projection");
            thread::yield_now();
            assert_eq!(object.typed_ref().unwrap().spec.round, expected, "decoded object");
        }
        check(&snapshot, &[]);
    }
}

/// Entries are prepared, published, rewritten and read, while projections come and go.
fn publish_and_read_values() {
    let projections = Arc::new(Projections::default());
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    let lite = projections.add::<Lite>(usize::MAX, || {});
    let ahead = projections.decode_ahead::<Lite>();
    let readers = [(); 2].map(|()| {
        let (reader, lite) = (reader.clone(), lite.clone());
        thread::spawn(move || watch_values(&reader, &lite))
    });
    let other = thread::spawn({
        let (projections, reader) = (Arc::clone(&projections), reader.clone());
        move || {
            let other = projections.add::<Other>(usize::MAX, || {});
            for entry in reader.snapshot().list() {
                assert!(Object::<()>::from_ref(entry).projected(&other).is_ok());
                thread::yield_now();
            }
        }
    });
    let prepared = |deltas: Vec<Delta>| {
        for delta in &deltas {
            if let Delta::Updated(entry) = delta {
                projections.prepare(entry);
                thread::yield_now();
            }
        }
        deltas
    };
    writer.apply(&Scope::All, [list(1, Retention::Decoded)]);
    for round in 2..4 {
        writer.apply(&Scope::All, prepared(batch(round, Retention::Decoded)));
        let (reader, projections) = (reader.clone(), Arc::clone(&projections));
        let rewritten = thread::spawn(move || {
            reader.snapshot().rewrite(0, 8, |entry| projections.without_released(entry).map(Arc::new))
        });
        writer.install_rewritten(rewritten.join().unwrap());
    }
    for thread in readers {
        thread.join().unwrap();
    }
    other.join().unwrap();
    drop(ahead);
    let snapshot = reader.snapshot();
    assert_eq!(check(&snapshot, &[]), 3);
    let values = projections.metrics();
    assert!(values.iter().all(|metrics| metrics.decode_errors == 0), "{values:?}");
    // Entries that were read through `Other` before it was dropped are rewritten, and no other.
    let rest = snapshot.rewrite(0, 8, |entry| projections.without_released(entry).map(Arc::new));
    writer.install_rewritten(rest);
    drop(snapshot);
    assert!(!writer.release(), "no old state is in use");
    let released =
        projections.metrics().iter().find(|one| one.type_name.ends_with("Other")).map(|one| one.values);
    assert_eq!(released.unwrap_or(0), 0, "the values of the dropped projection are freed");
    watch_values(&reader, &lite);
}

#[test]
fn c4_c5_values_belong_to_their_states() {
    shuttle::check_random(publish_and_read_values, SCHEDULES / 2);
    shuttle::check_pct(publish_and_read_values, SCHEDULES / 2, 3);
}

#[test]
fn c5_snapshots_are_consistent_and_never_go_back() {
    shuttle::check_random(publish_and_read, SCHEDULES);
    shuttle::check_pct(publish_and_read, SCHEDULES, 3);
}

#[test]
fn c5_only_the_writer_drops_old_states() {
    shuttle::check_random(retire, SCHEDULES);
    shuttle::check_pct(retire, SCHEDULES, 3);
}
