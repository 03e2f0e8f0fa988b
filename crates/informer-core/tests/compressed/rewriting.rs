//! Rewriting: the same objects in another form.
//!
//! > Nothing changes for anybody: there is nothing to tell, indexes stay as they are, and a snapshot that somebody holds keeps what it had.

use crate::objects::{SHELF, compressed, rewrite, store, widget};
use informer_core::wire::{ObjectProblem, Place, Unreadable};
use informer_core::{
    Compressor, Delta, Index, Key, Object, ResourceVersion, Scope, StoreReader, StoreWriter,
};
use serde_json::Value;
use std::sync::Arc;

/// A hundred shelves that were cached before anything was learnt, and a compressor that has learnt from them.
fn cached() -> (Compressor, StoreWriter, StoreReader) {
    let compressor = Compressor::learning();
    let (writer, reader) = store(&compressor, (0..100).map(|number| (number, SHELF)));
    assert!(compressor.learn(&reader.snapshot()));
    (compressor, writer, reader)
}

fn key(number: usize) -> Key {
    Key::new("a", &format!("w{number:04}"))
}

#[test]
fn what_is_rewritten_is_equal_and_takes_less() {
    let (compressor, mut writer, reader) = cached();
    let index = Index::field("spec.node").into_handle().unwrap();
    writer.add_index(index.clone());
    let before = reader.snapshot();
    assert_eq!(rewrite(&mut writer, &reader, &compressor, 7), 100);
    let after = reader.snapshot();
    assert_eq!(after.version(), before.version());
    assert!(before.list().eq(after.list()), "entries are equal");
    assert!(after.list().zip(before.list()).all(|(after, before)| after.cost() < before.cost() - 200));
    assert_eq!(after.index_keys(&index, "n1"), before.index_keys(&index, "n1"));
    assert_eq!(rewrite(&mut writer, &reader, &compressor, 7), 0, "once is enough");
}

/// C5
#[test]
fn c5_a_held_snapshot_keeps_what_it_had() {
    let (compressor, mut writer, reader) = cached();
    let held = reader.snapshot();
    let entries: Vec<_> = held.list().cloned().collect();
    rewrite(&mut writer, &reader, &compressor, 256);
    assert!(held.list().zip(&entries).all(|(now, then)| Arc::ptr_eq(now, then)));
    assert!(writer.release(), "somebody holds the old state");
    drop((held, entries));
    assert!(!writer.release());
}

#[test]
fn what_made_way_for_something_newer_is_left_out() {
    let (compressor, mut writer, reader) = cached();
    let late = reader.snapshot().rewrite(&compressor, 0, 256);
    let newer = compressed(&compressor, widget("w0003", 9500, "n2", SHELF));
    let applied = writer.apply(&Scope::All, [Delta::Updated(Arc::clone(&newer))]);
    assert_eq!(applied.changes.len(), 1);
    let gone = informer_core::Deleted { key: key(4), version: None, last: None };
    writer.apply(&Scope::All, [Delta::Deleted(gone)]);
    // Another object takes the place that became free.
    let other = compressed(&compressor, widget("other", 9600, "n2", SHELF));
    writer.apply(&Scope::All, [Delta::Added(Arc::clone(&other))]);
    assert_eq!(writer.rewrite(late), 98);
    writer.check_invariants();
    assert!(Arc::ptr_eq(&reader.get(&key(3)).unwrap(), &newer));
    assert!(Arc::ptr_eq(&reader.get(&Key::new("a", "other")).unwrap(), &other));
    assert!(reader.get(&key(4)).is_none());
}

/// C9
#[test]
fn c9_a_stale_entry_stays_stale() {
    let (compressor, mut writer, reader) = cached();
    let late = reader.snapshot().rewrite(&compressor, 0, 256);
    let unreadable = Unreadable {
        key: Some(key(5)),
        version: Some(ResourceVersion::new("9500")),
        place: Place { index: 0, byte: 0 },
        problem: ObjectProblem::NotAnObject,
    };
    writer.apply(&Scope::All, [Delta::Unreadable(unreadable)]);
    writer.rewrite(late);
    writer.check_invariants();
    assert!(reader.get(&key(5)).unwrap().is_stale() && !reader.get(&key(6)).unwrap().is_stale());
}

#[test]
fn a_view_that_is_held_is_shared_on() {
    let (compressor, mut writer, reader) = cached();
    let object = Object::<Value>::new(reader.get(&key(1)).unwrap());
    let held = object.typed().unwrap();
    rewrite(&mut writer, &reader, &compressor, 256);
    let rewritten = Object::<Value>::new(reader.get(&key(1)).unwrap());
    assert!(!Arc::ptr_eq(object.entry(), rewritten.entry()));
    assert!(informer_core::Typed::ptr_eq(&rewritten.typed().unwrap(), &held));
}

#[test]
fn a_relist_that_overtook_the_rewriting_finds_nothing_changed() {
    let (compressor, mut writer, reader) = cached();
    // As a reflector does: what is equal is taken from the cache, and is on its way while the cache is rewritten.
    let known: Vec<_> = reader.snapshot().list().cloned().collect();
    rewrite(&mut writer, &reader, &compressor, 256);
    let rewritten = reader.snapshot();
    let applied = writer.apply(&Scope::All, [crate::objects::list(9900, known)]);
    assert!(applied.changes.is_empty(), "{applied:?}");
    assert!(reader.snapshot().list().zip(rewritten.list()).all(|(now, then)| Arc::ptr_eq(now, then)));
}
