//! What goes in comes out, or an error does.

use super::dictionary::Codec;
use super::samples::Samples;
use super::{CorruptedBytes, Retention, StoredBytes};
use crate::object::{Entry, Object};
use crate::wire::{Frame, Limits, ScannedObject, TypeMeta, WatchReader};
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn text(number: u32) -> String {
    let random = number.wrapping_mul(2_654_435_761);
    format!(
        r#"{{"metadata":{{"name":"widget-{number}","namespace":"shop","resourceVersion":"{number}"}},"spec":{{"colour":"blue","place":"shelf-{random:08x}","tags":["fragile","this side up","keep dry"]}}}}"#
    )
}

fn scanned(number: u32) -> ScannedObject {
    let mut found = None;
    let frame = format!(r#"{{"type":"ADDED","object":{}}}"#, text(number));
    let mut reader = WatchReader::new(TypeMeta::new("v1", "Widget"), Limits::default());
    reader.read(frame.as_bytes(), |frame| found = Some(frame)).unwrap();
    match found {
        Some(Frame::Added(scanned)) => scanned,
        other => panic!("{other:?}"),
    }
}

fn entry(number: u32) -> Entry {
    Entry::new(scanned(number), Retention::Compressed)
}

fn learnt() -> Codec {
    let mut samples = Samples::default();
    (0..200).for_each(|number| samples.add(text(number).as_bytes()));
    Codec::train(&samples).unwrap()
}

#[test]
fn what_was_compressed_reads_as_it_was() {
    for coder in [learnt(), Codec::without_dictionary()] {
        for number in 0..300 {
            let plain = text(number).into_bytes();
            let packed = coder.compress(plain.clone().into());
            assert_eq!(packed.bytes().unwrap(), plain);
        }
        let long = text(1).repeat(5000).into_bytes();
        assert_eq!(coder.compress(long.clone().into()).bytes().unwrap(), long);
        assert!(coder.compress(Box::default()).bytes().unwrap().is_empty());
    }
}

#[test]
fn a_dictionary_makes_small_objects_smaller() {
    let plain = text(777).into_bytes();
    let [with, without] =
        [learnt(), Codec::without_dictionary()].map(|coder| coder.compress(plain.clone().into()).len());
    assert!(2 * with < without && without <= plain.len(), "{with} with, {without} without, {}", plain.len());
}

#[test]
fn what_does_not_shrink_stays_as_it_is() {
    // Random enough: every byte of a long number in base 256.
    let mut seed = 1_u64;
    let noise: Box<[u8]> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed.to_be_bytes()[0]
    })
    .take(3000)
    .collect();
    let packed = learnt().compress(noise.clone());
    assert_eq!(packed.len(), noise.len());
    assert!(matches!(packed.bytes().unwrap(), std::borrow::Cow::Borrowed(bytes) if bytes == &*noise));
}

#[test]
fn from_too_few_objects_nothing_is_learnt() {
    let mut samples = Samples::default();
    (0..15).for_each(|number| samples.add(text(number).as_bytes()));
    assert!(Codec::train(&samples).is_none());
}

#[test]
fn samples_are_bounded() {
    let mut samples = Samples::default();
    let large = vec![b'x'; 1 << 20];
    let mut count = 0;
    while !samples.is_full() {
        samples.add(&large);
        count += 1;
    }
    assert!(count < 200, "{count}");
    assert!(samples.training_set().0.len() <= (1 << 20) + (16 << 10));
}

// C9

#[test]
fn c9_damaged_bytes_are_an_error_for_whoever_looks_and_a_panic_for_nobody() {
    let coder = learnt();
    let whole = coder.compress(entry(7).bytes().into());
    let mut failed = 0;
    for at in 0..whole.len() {
        for bit in [1, 16, 128] {
            let mut packed = coder.compress(entry(7).bytes().into());
            packed.damage(|bytes| bytes[at] ^= bit);
            // Not every damage shows: zstd keeps no checksum of what is inside here.
            failed += u32::from(packed.bytes() == Err(CorruptedBytes));
        }
    }
    assert!(failed > 50, "{failed}");
    for length in 0..whole.len() {
        let mut packed = coder.compress(entry(7).bytes().into());
        packed.damage(|bytes| *bytes = bytes[..length].into());
        assert_eq!(packed.bytes(), Err(CorruptedBytes), "cut at {length}");
    }
}

#[test]
fn c9_an_entry_whose_bytes_are_damaged_has_no_bytes_and_no_views() {
    let coder = learnt();
    let errors = Arc::new(AtomicU64::new(0));
    let damaged = || {
        let entry = entry(7).counting(Some(Arc::clone(&errors))).with_stored(|plain| {
            let mut packed = coder.compress(plain);
            packed.damage(|bytes| *bytes = bytes[..10].into());
            StoredBytes::Compressed(packed)
        });
        Object::<Value>::new(Arc::new(entry))
    };
    let object = damaged();
    assert!(object.raw_bytes().is_empty());
    let expected = "shop/widget-7 at version 7 does not decode as serde_json::value::Value: the compressed bytes are damaged";
    assert_eq!(object.typed().unwrap_err().to_string(), expected);
    assert_eq!(object.metadata::<Value>().unwrap_err().to_string(), expected);
    assert_eq!(object.to_json().unwrap_err().to_string(), expected);
    assert_eq!(errors.load(Ordering::Relaxed), 3, "each is counted");
    assert!(!object.entry().is_same_state(&entry(7)) && !entry(7).is_same_state(object.entry()));
    assert!(object.entry().recompressed(StoredBytes::Plain).is_none(), "it stays as it is");
}

#[test]
fn entries_are_equal_in_whichever_form_they_are_kept() {
    let (coder, other) = (learnt(), Codec::without_dictionary());
    let pack = |number: u32, coder: &Codec| {
        entry(number).with_stored(|plain| StoredBytes::Compressed(coder.compress(plain)))
    };
    let forms = [entry(7), pack(7, &coder), pack(7, &coder), pack(7, &other)];
    for left in &forms {
        for right in &forms {
            assert!(left.is_same_state(right));
        }
        assert!(!left.is_same_state(&entry(8)));
    }
    let (plain, packed) = (&forms[0], &forms[1]);
    assert!(packed.memory_size() + 100 < plain.memory_size(), "the cost is that of what is kept");
}
