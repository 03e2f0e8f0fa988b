//! A relist that finds nothing changed: replacing 50,000 objects by an equal set keeps every entry, and takes no memory for keeps.
//!
//! `cargo bench -p informer-core --bench relist`. Apart from `store`, whose numbers a counting allocator would touch.
#![allow(clippy::unwrap_used)]

use bench_data::pods::{Pod, Random};
use informer_core::wire::{Limits, ListItem, ListReader};
use informer_core::{
    Delta, Encoding, Entry, Index, Replaced, ResourceVersion, Retention, Scope, StoreWriter, TypeMeta,
};
use peak_alloc::PeakAlloc;
use std::sync::Arc;
use std::time::Instant;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const OBJECTS: usize = 50_000;

fn main() {
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    writer.add_index(Index::label("app").into_handle().unwrap());
    writer.add_index(Index::field("spec.nodeName").into_handle().unwrap());
    let empty = MEMORY.current_usage();
    let first = list();
    let listed = MEMORY.current_usage() - empty;
    assert_eq!(writer.apply(&Scope::All, [first]).changes.len(), OBJECTS);
    let stored = MEMORY.current_usage() - empty;
    let before = reader.snapshot();

    let again = list();
    let held = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let start = Instant::now();
    let applied = writer.apply(&Scope::All, [again]);
    let took = start.elapsed();
    let peak = MEMORY.peak_usage() - held;
    let after = reader.snapshot();

    assert!(applied.changes.is_empty(), "nothing to tell");
    assert_eq!(after.len(), OBJECTS);
    let same = before.list().zip(after.list()).filter(|(old, new)| Arc::ptr_eq(old, new)).count();
    drop((applied, before, after));
    writer.release();
    let kept = MEMORY.current_usage().saturating_sub(empty + stored);

    println!(
        "{OBJECTS} objects, {} KB of entries, {} KB with store and two indexes",
        listed / 1024,
        stored / 1024
    );
    println!("an equal list: {same} entries are the very same, {took:.1?}");
    println!("memory while it is applied: {} KB more; afterwards: {kept} bytes more", peak / 1024);
    let met = same == OBJECTS && kept < 1024 && peak < listed / 20;
    println!(
        "bar: no new entries (all the same, nothing kept, under 5 % in passing): {}",
        if met { "met" } else { "MISSED" }
    );
}

/// All objects, read anew.
fn list() -> Delta {
    let mut random = Random::new(1);
    let mut entries = Vec::with_capacity(OBJECTS);
    let mut reader = ListReader::new(TypeMeta::new("v1", "Pod"), Limits::default());
    let mut read = |bytes: &[u8]| {
        let on = |item| match item {
            ListItem::Object(object) => {
                entries.push(Arc::new(Entry::new(object, Encoding::Json, Retention::Bytes)));
            }
            other => panic!("{other:?}"),
        };
        reader.read(bytes, on).unwrap();
    };
    read(b"{\"items\":[");
    for number in 0..OBJECTS {
        read(if number > 0 { b"," } else { b"" });
        read(Pod::new(number, 1000).small(&mut random).as_bytes());
    }
    let version = ResourceVersion::new("1000");
    Delta::Replaced(Replaced { scope: Scope::All, version, entries, unreadable: Vec::new(), audit: false })
}
