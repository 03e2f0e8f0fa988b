//! Recompression: equal objects in another representation.
//!
//! > Recompression is invisible: no change is reported, indexes are unaffected, and existing snapshots keep
//! > their entries.

use super::objects::{SHELF, compressed, recompress, store, widget};
use informer_core::wire::{BodyLocation, ObjectError, UnreadableObject};
use informer_core::{
    Compressor, Delta, Index, Key, Object, ResourceVersion, Scope, StoreReader, StoreWriter,
};
use serde_json::Value;
use std::sync::Arc;

/// A hundred shelves cached before training, and a compressor trained on them.
fn cached() -> (Compressor, StoreWriter, StoreReader) {
    let compressor = Compressor::with_training();
    let (writer, reader) = store(&compressor, (0..100).map(|number| (number, SHELF)));
    assert!(compressor.train(&reader.snapshot()));
    (compressor, writer, reader)
}

fn key(number: usize) -> Key {
    Key::new("a", &format!("w{number:04}"))
}

#[test]
fn recompressed_entries_are_equal_and_smaller() {
    let (compressor, mut writer, reader) = cached();
    let index = Index::field("spec.node").build().unwrap();
    writer.add_index(index.clone());
    let before = reader.snapshot();
    assert_eq!(recompress(&mut writer, &reader, &compressor, 7), 100);
    let after = reader.snapshot();
    assert_eq!(after.resource_version(), before.resource_version());
    assert!(before.list().eq(after.list()), "entries are equal");
    assert!(
        after
            .list()
            .zip(before.list())
            .all(|(after, before)| after.memory_size() < before.memory_size() - 200)
    );
    assert_eq!(after.index_keys(&index, "n1"), before.index_keys(&index, "n1"));
    assert_eq!(recompress(&mut writer, &reader, &compressor, 7), 0, "nothing is left to recompress");
}

/// C5
#[test]
fn c5_snapshot_keeps_its_entries() {
    let (compressor, mut writer, reader) = cached();
    let snapshot = reader.snapshot();
    let entries: Vec<_> = snapshot.list().cloned().collect();
    recompress(&mut writer, &reader, &compressor, 256);
    assert!(snapshot.list().zip(&entries).all(|(now, then)| Arc::ptr_eq(now, then)));
    assert!(writer.release(), "a snapshot holds the old state");
    drop((snapshot, entries));
    assert!(!writer.release());
}

#[test]
fn replaced_entries_are_not_recompressed() {
    let (compressor, mut writer, reader) = cached();
    let late = reader.snapshot().rewrite(0, 256, |entry| compressor.recompressed(entry));
    let newer = compressed(&compressor, widget("w0003", 9500, "n2", SHELF));
    let applied = writer.apply(&Scope::All, [Delta::Updated(Arc::clone(&newer))]);
    assert_eq!(applied.changes.len(), 1);
    let gone = informer_core::Deleted { key: key(4), version: None, last: None };
    writer.apply(&Scope::All, [Delta::Deleted(gone)]);
    // Another object reuses the free slot.
    let other = compressed(&compressor, widget("other", 9600, "n2", SHELF));
    writer.apply(&Scope::All, [Delta::Added(Arc::clone(&other))]);
    assert_eq!(writer.install_rewritten(late), 98);
    writer.check_invariants();
    assert!(Arc::ptr_eq(&reader.get(&key(3)).unwrap(), &newer));
    assert!(Arc::ptr_eq(&reader.get(&Key::new("a", "other")).unwrap(), &other));
    assert!(reader.get(&key(4)).is_none());
}

/// C9
#[test]
fn c9_a_stale_entry_stays_stale() {
    let (compressor, mut writer, reader) = cached();
    let late = reader.snapshot().rewrite(0, 256, |entry| compressor.recompressed(entry));
    let unreadable = UnreadableObject {
        key: Some(key(5)),
        version: Some(ResourceVersion::new("9500")),
        location: BodyLocation { index: 0, byte: 0 },
        error: ObjectError::NotAnObject,
    };
    writer.apply(&Scope::All, [Delta::Unreadable(unreadable)]);
    writer.install_rewritten(late);
    writer.check_invariants();
    assert!(reader.get(&key(5)).unwrap().is_stale() && !reader.get(&key(6)).unwrap().is_stale());
}

#[test]
fn typed_object_in_use_is_shared_after_recompression() {
    let (compressor, mut writer, reader) = cached();
    let object = Object::<Value>::new(reader.get(&key(1)).unwrap());
    let snapshot = object.typed().unwrap();
    recompress(&mut writer, &reader, &compressor, 256);
    let rewritten = Object::<Value>::new(reader.get(&key(1)).unwrap());
    assert!(!Arc::ptr_eq(object.entry(), rewritten.entry()));
    assert!(informer_core::Typed::ptr_eq(&rewritten.typed().unwrap(), &snapshot));
}

#[test]
fn relist_concurrent_with_recompression_reports_no_change() {
    let (compressor, mut writer, reader) = cached();
    // As a reflector does: equal entries are reused from the cache and are still in transit while the cache
    // is recompressed.
    let known: Vec<_> = reader.snapshot().list().cloned().collect();
    recompress(&mut writer, &reader, &compressor, 256);
    let rewritten = reader.snapshot();
    let applied = writer.apply(&Scope::All, [super::objects::list(9900, known)]);
    assert!(applied.changes.is_empty(), "{applied:?}");
    assert!(reader.snapshot().list().zip(rewritten.list()).all(|(now, then)| Arc::ptr_eq(now, then)));
}
