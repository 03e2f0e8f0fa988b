//! What is learnt, from what, and when.

use crate::objects::{ENGINE, SHELF, Shape, compressed, list, rewrite, store, widget};
use informer_core::{Compressor, Delta, Scope, StoreReader, StoreWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn empty() -> (StoreWriter, StoreReader) {
    StoreWriter::new([Scope::All])
}

/// Gives it these widgets, and says how much memory the last hundred take.
fn feed(compressor: &Compressor, count: usize, shape: Shape) -> usize {
    let mut costs = Vec::new();
    for number in 0..count {
        costs.push(compressed(compressor, widget(&format!("f{number}"), 7, "n1", shape)).cost());
    }
    costs.iter().rev().take(100).sum()
}

/// One that has learnt from shelves.
fn knows_shelves() -> Compressor {
    let compressor = Compressor::learning();
    feed(&compressor, 256, SHELF);
    assert!(compressor.learn(&empty().1.snapshot()));
    compressor
}

#[test]
fn it_is_due_when_it_has_seen_enough_or_all_there_is() {
    let compressor = Compressor::learning();
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    compressor.on_due(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (mut writer, reader) = empty();
    feed(&compressor, 255, SHELF);
    assert!(!compressor.is_due(&reader.snapshot()), "more is coming");
    assert_eq!(called.load(Ordering::Relaxed), 0);
    writer.apply(&Scope::All, [list(1, Vec::new())]);
    assert!(compressor.is_due(&reader.snapshot()), "that was all");
    feed(&compressor, 1, SHELF);
    assert_eq!(called.load(Ordering::Relaxed), 1);
    assert!(compressor.is_due(&empty().1.snapshot()));
    assert!(compressor.learn(&reader.snapshot()));
    assert!(!compressor.is_due(&reader.snapshot()));
}

#[test]
fn what_comes_after_it_learnt_is_compressed_at_once() {
    let compressor = Compressor::learning();
    let before = feed(&compressor, 256, SHELF);
    compressor.learn(&empty().1.snapshot());
    let after = feed(&compressor, 512, SHELF);
    assert!(before - after > 100 * 300, "{before} before, {after} after");
}

#[test]
fn what_comes_while_it_learns_is_compressed_by_itself() {
    // A list that was read faster than the first dictionary was learnt held ten thousand plain pods, and its peak was 1.8 times what was left.
    let compressor = Compressor::learning();
    let plain = feed(&compressor, 256, SHELF);
    let (mut writer, reader) = store(&compressor, (0..100).map(|number| (number, SHELF)));
    let meanwhile = reader.snapshot().bytes();
    assert!(meanwhile + 100 * 50 < plain, "{meanwhile} meanwhile, {plain} plain");
    assert!(compressor.learn(&reader.snapshot()));
    assert_eq!(rewrite(&mut writer, &reader, &compressor, 256), 100);
    assert!(reader.snapshot().bytes() < meanwhile);
}

#[test]
fn from_a_handful_of_objects_nothing_is_learnt_until_there_are_more() {
    let compressor = Compressor::learning();
    let (mut writer, reader) = store(&compressor, (0..3).map(|number| (number, SHELF)));
    assert!(compressor.is_due(&reader.snapshot()));
    assert!(compressor.learn(&reader.snapshot()), "from now on each is compressed by itself");
    let alone = feed(&compressor, 100, SHELF);
    assert!(!compressor.is_due(&reader.snapshot()));
    let more = (0..100).map(|number| widget(&format!("more-{number:03}"), 9100 + number, "n1", SHELF));
    writer.apply(&Scope::All, more.map(|widget| Delta::Added(compressed(&compressor, widget))));
    assert!(compressor.is_due(&reader.snapshot()), "the cache has grown");
    assert!(compressor.learn(&reader.snapshot()));
    let together = feed(&compressor, 100, SHELF);
    assert!(together < alone, "{together}, alone {alone}");
}

#[test]
fn it_learns_again_when_objects_change_their_shape() {
    let compressor = knows_shelves();
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    compressor.on_due(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (mut writer, reader) = store(&compressor, (0..1200).map(|number| (number, SHELF)));
    assert!(!compressor.is_due(&reader.snapshot()), "all is as it was");
    let engines = (0..1200_u32).map(|number| widget(&format!("w{number:04}"), 9500, "n1", ENGINE));
    writer.apply(&Scope::All, engines.map(|widget| Delta::Updated(compressed(&compressor, widget))));
    assert_eq!(called.load(Ordering::Relaxed), 1, "once, not once a window");
    assert!(compressor.is_due(&reader.snapshot()));
    let before = reader.snapshot().bytes();
    assert!(compressor.learn(&reader.snapshot()));
    assert_eq!(rewrite(&mut writer, &reader, &compressor, 256), 1200);
    let after = reader.snapshot().bytes();
    assert!(after + 1200 * 50 < before, "{after} after, {before} before");
    feed(&compressor, 2000, ENGINE);
    assert!(!compressor.is_due(&reader.snapshot()), "they shrink as they did");
}

#[test]
fn it_learns_again_when_a_cache_has_grown_and_the_first_objects_were_not_like_the_rest() {
    // Lists come in the order of their namespaces, so the first objects may be the work of one team.
    let compressor = knows_shelves();
    let mixed = |number| (number, if number % 3 == 0 { ENGINE } else { SHELF });
    let (mut writer, reader) = store(&compressor, (0..2000).map(mixed));
    assert!(!compressor.is_due(&reader.snapshot()), "they shrink nearly as they did, and are few");
    let more = (0..2000).map(|number| {
        let (number, shape) = mixed(number);
        widget(&format!("x{number:04}"), 9500, "n1", shape)
    });
    writer.apply(&Scope::All, more.map(|widget| Delta::Added(compressed(&compressor, widget))));
    assert!(compressor.is_due(&reader.snapshot()), "the cache has grown");
}

#[test]
fn what_was_learnt_in_vain_is_not_taken_over() {
    let compressor = knows_shelves();
    let (_writer, reader) = store(&compressor, (0..5000).map(|number| (number, SHELF)));
    assert!(!compressor.is_due(&reader.snapshot()), "the cache has grown, and all shrank as they did");
    assert!(!compressor.learn(&reader.snapshot()), "whoever learns all the same finds nothing");
    assert!(reader.snapshot().list().all(|entry| compressor.is_current(entry)));
    assert!(!compressor.is_due(&reader.snapshot()));
}

/// > It quotes what it was learnt from; nothing is learnt from Secrets, which are compressed one by one.
#[test]
fn nothing_is_learnt_from_secrets() {
    let compressor = Compressor::unlearning();
    compressor.on_due(|| panic!("never"));
    let (mut writer, reader) = store(&compressor, (0..2000).map(|number| (number, SHELF)));
    assert!(!compressor.is_due(&reader.snapshot()));
    assert!(!compressor.learn(&reader.snapshot()));
    assert_eq!(rewrite(&mut writer, &reader, &compressor, 256), 0);
    assert_eq!(format!("{compressor:?}"), "never learns");
    let [alone, together] = [compressor, knows_shelves()].map(|compressor| feed(&compressor, 100, SHELF));
    assert!(together < alone, "no dictionary was used: {alone}, with one {together}");
}
