//! Training: when a dictionary is trained, and on which samples.

use super::objects::{ENGINE, SHELF, Shape, compressed, list, recompress, store, widget};
use informer_core::{Compressor, Delta, Scope, StoreReader, StoreWriter};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn empty() -> (StoreWriter, StoreReader) {
    StoreWriter::new([Scope::All])
}

/// Compresses these widgets and returns the memory used by the last hundred.
fn compress_widgets(compressor: &Compressor, count: usize, shape: Shape) -> usize {
    let mut costs = Vec::new();
    for number in 0..count {
        costs.push(compressed(compressor, widget(&format!("f{number}"), 7, "n1", shape)).memory_size());
    }
    costs.iter().rev().take(100).sum()
}

/// A compressor trained on shelves.
fn trained_on_shelves() -> Compressor {
    let compressor = Compressor::with_training();
    compress_widgets(&compressor, 256, SHELF);
    assert!(compressor.train(&empty().1.snapshot()));
    compressor
}

#[test]
fn training_is_due_after_enough_samples_or_the_whole_list() {
    let compressor = Compressor::with_training();
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    compressor.on_training_needed(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (mut writer, reader) = empty();
    compress_widgets(&compressor, 255, SHELF);
    assert!(!compressor.needs_training(&reader.snapshot()), "the list is not complete");
    assert_eq!(called.load(Ordering::Relaxed), 0);
    writer.apply(&Scope::All, [list(1, Vec::new())]);
    assert!(compressor.needs_training(&reader.snapshot()), "the list is complete");
    compress_widgets(&compressor, 1, SHELF);
    assert_eq!(called.load(Ordering::Relaxed), 1);
    assert!(compressor.needs_training(&empty().1.snapshot()));
    assert!(compressor.train(&reader.snapshot()));
    assert!(!compressor.needs_training(&reader.snapshot()));
}

#[test]
fn objects_after_training_are_compressed_immediately() {
    let compressor = Compressor::with_training();
    let before = compress_widgets(&compressor, 256, SHELF);
    compressor.train(&empty().1.snapshot());
    let after = compress_widgets(&compressor, 512, SHELF);
    assert!(before - after > 100 * 300, "{before} before, {after} after");
}

#[test]
fn objects_during_training_are_compressed_without_dictionary() {
    // Regression: a list that was read faster than the first dictionary was trained contained ten thousand
    // uncompressed pods, and its peak was 1.8 times the final size.
    let compressor = Compressor::with_training();
    let plain = compress_widgets(&compressor, 256, SHELF);
    let (mut writer, reader) = store(&compressor, (0..100).map(|number| (number, SHELF)));
    let meanwhile = reader.snapshot().bytes();
    assert!(meanwhile + 100 * 50 < plain, "{meanwhile} meanwhile, {plain} plain");
    assert!(compressor.train(&reader.snapshot()));
    assert_eq!(recompress(&mut writer, &reader, &compressor, 256), 100);
    assert!(reader.snapshot().bytes() < meanwhile);
}

#[test]
fn few_objects_train_no_dictionary_until_there_are_more() {
    let compressor = Compressor::with_training();
    let (mut writer, reader) = store(&compressor, (0..3).map(|number| (number, SHELF)));
    assert!(compressor.needs_training(&reader.snapshot()));
    assert!(compressor.train(&reader.snapshot()), "from now on each is compressed without dictionary");
    let without_dictionary = compress_widgets(&compressor, 100, SHELF);
    assert!(!compressor.needs_training(&reader.snapshot()));
    let more = (0..100).map(|number| widget(&format!("more-{number:03}"), 9100 + number, "n1", SHELF));
    writer.apply(&Scope::All, more.map(|widget| Delta::Added(compressed(&compressor, widget))));
    assert!(compressor.needs_training(&reader.snapshot()), "the cache has grown");
    assert!(compressor.train(&reader.snapshot()));
    let with_dictionary = compress_widgets(&compressor, 100, SHELF);
    assert!(with_dictionary < without_dictionary, "{with_dictionary}, alone {without_dictionary}");
}

#[test]
fn training_is_repeated_when_objects_change_shape() {
    let compressor = trained_on_shelves();
    let called = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&called);
    compressor.on_training_needed(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let (mut writer, reader) = store(&compressor, (0..1200).map(|number| (number, SHELF)));
    assert!(!compressor.needs_training(&reader.snapshot()), "nothing has changed");
    let engines = (0..1200_u32).map(|number| widget(&format!("w{number:04}"), 9500, "n1", ENGINE));
    writer.apply(&Scope::All, engines.map(|widget| Delta::Updated(compressed(&compressor, widget))));
    assert_eq!(called.load(Ordering::Relaxed), 1, "once, not once per window");
    assert!(compressor.needs_training(&reader.snapshot()));
    let before = reader.snapshot().bytes();
    assert!(compressor.train(&reader.snapshot()));
    assert_eq!(recompress(&mut writer, &reader, &compressor, 256), 1200);
    let after = reader.snapshot().bytes();
    assert!(after + 1200 * 50 < before, "{after} after, {before} before");
    compress_widgets(&compressor, 2000, ENGINE);
    assert!(!compressor.needs_training(&reader.snapshot()), "the compression ratio is unchanged");
}

#[test]
fn training_is_repeated_when_the_cache_grew_and_the_first_objects_were_atypical() {
    // Lists are ordered by namespace, so the first objects may belong to one team.
    let compressor = trained_on_shelves();
    let mixed = |number| (number, if number % 3 == 0 { ENGINE } else { SHELF });
    let (mut writer, reader) = store(&compressor, (0..2000).map(mixed));
    assert!(
        !compressor.needs_training(&reader.snapshot()),
        "the compression ratio is similar, and there are few objects"
    );
    let more = (0..2000).map(|number| {
        let (number, shape) = mixed(number);
        widget(&format!("x{number:04}"), 9500, "n1", shape)
    });
    writer.apply(&Scope::All, more.map(|widget| Delta::Added(compressed(&compressor, widget))));
    assert!(compressor.needs_training(&reader.snapshot()), "the cache has grown");
}

#[test]
fn useless_dictionary_is_discarded() {
    let compressor = trained_on_shelves();
    let (_writer, reader) = store(&compressor, (0..5000).map(|number| (number, SHELF)));
    assert!(
        !compressor.needs_training(&reader.snapshot()),
        "the cache has grown, but the compression ratio is unchanged"
    );
    assert!(!compressor.train(&reader.snapshot()), "training anyway brings no better dictionary");
    assert!(reader.snapshot().list().all(|entry| compressor.is_current(entry)));
    assert!(!compressor.needs_training(&reader.snapshot()));
}

/// > It contains parts of its samples; it is never trained on Secrets, which are compressed one by one.
#[test]
fn secrets_train_no_dictionary() {
    let compressor = Compressor::without_training();
    compressor.on_training_needed(|| panic!("never"));
    let (mut writer, reader) = store(&compressor, (0..2000).map(|number| (number, SHELF)));
    assert!(!compressor.needs_training(&reader.snapshot()));
    assert!(!compressor.train(&reader.snapshot()));
    assert_eq!(recompress(&mut writer, &reader, &compressor, 256), 0);
    assert_eq!(format!("{compressor:?}"), "training disabled");
    let [without_dictionary, with_dictionary] =
        [compressor, trained_on_shelves()].map(|compressor| compress_widgets(&compressor, 100, SHELF));
    assert!(
        with_dictionary < without_dictionary,
        "no dictionary was used: {without_dictionary}, with one {with_dictionary}"
    );
}
