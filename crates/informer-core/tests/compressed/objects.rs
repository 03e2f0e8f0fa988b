//! Widgets of several shapes, and how they become entries of a store.

use informer_core::wire::{Limits, ListItem, ListReader, ScannedObject};
use informer_core::{
    Compressor, Delta, Entry, Replaced, ResourceVersion, Retention, Scope, StoreReader, StoreWriter, TypeMeta,
};
use std::sync::Arc;

/// The shape of a widget: words that widgets of one shape have in common.
pub(crate) type Shape = [&'static str; 4];

pub(crate) const SHELF: Shape =
    ["a shelf of solid oak", "varnished", "screws included", "two brackets of steel"];
pub(crate) const ENGINE: Shape =
    ["four cylinders", "unleaded only", "serviced yearly", "the manual is in the glovebox"];

/// A widget as the server encodes it. A small part is unique, most belongs to its shape.
pub(crate) fn widget(name: &str, version: u64, node: &str, shape: Shape) -> ScannedObject {
    let own = name.bytes().fold(version, |sum, byte| sum.wrapping_mul(31) + u64::from(byte));
    let own = own.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words: Vec<String> =
        shape.iter().map(|word| format!(r#"{{"of":"{word}","like":"{word}"}}"#)).collect();
    let object = format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"a","uid":"u-{name}","resourceVersion":"{version}","labels":{{"app":"{}"}}}},"spec":{{"node":"{node}","own":"{own:016x}","parts":[{}]}}}}"#,
        shape[1],
        words.join(",")
    );
    scanned(&TypeMeta::new("example.com/v1", "Widget"), &object)
}

/// Scans an item of a list.
pub(crate) fn scanned(types: &TypeMeta, item: &str) -> ScannedObject {
    let body = format!(r#"{{"metadata":{{"resourceVersion":"9"}},"items":[{item}]}}"#);
    let mut found = None;
    let mut reader = ListReader::new(types.clone(), Limits::default());
    let on = |item| {
        if let ListItem::Object(scanned) = item {
            found = Some(scanned);
        }
    };
    reader.read(body.as_bytes(), on).unwrap();
    found.unwrap()
}

/// The entry as a reflector creates it.
pub(crate) fn compressed(compressor: &Compressor, scanned: ScannedObject) -> Arc<Entry> {
    Arc::new(compressor.compress(Entry::new(scanned, Retention::Compressed)))
}

pub(crate) fn plain(scanned: ScannedObject) -> Arc<Entry> {
    Arc::new(Entry::new(scanned, Retention::Bytes))
}

/// A complete list.
pub(crate) fn list(version: u64, entries: Vec<Arc<Entry>>) -> Delta {
    let version = ResourceVersion::new(&version.to_string());
    Delta::Replaced(Replaced { scope: Scope::All, version, entries, unreadable: Vec::new(), audit: false })
}

/// A store with these widgets, compressed with the current dictionary of the compressor.
pub(crate) fn store(
    compressor: &Compressor,
    widgets: impl Iterator<Item = (usize, Shape)>,
) -> (StoreWriter, StoreReader) {
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    let entries = widgets.map(|(number, shape)| {
        compressed(compressor, widget(&format!("w{number:04}"), 1 + number as u64, "n1", shape))
    });
    writer.apply(&Scope::All, [list(9000, entries.collect())]);
    (writer, reader)
}

/// Recompresses everything in slices of `max_slots` slots. Returns the number of recompressed entries.
pub(crate) fn recompress(
    writer: &mut StoreWriter,
    reader: &StoreReader,
    by: &Compressor,
    max_slots: u32,
) -> usize {
    let (mut from, mut count) = (Some(0), 0);
    while let Some(begin) = from {
        let slice = reader.snapshot().rewrite(begin, max_slots, |entry| by.recompressed(entry));
        from = slice.next_slot();
        count += writer.install_rewritten(slice);
    }
    writer.check_invariants();
    count
}
