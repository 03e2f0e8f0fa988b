//! A relist without changes: replacing 50,000 objects by equal ones keeps every entry and allocates nothing
//! permanently.
//!
//! `cargo bench -p informer-core --bench relist`. Separate from `store`, whose results a counting allocator
//! would affect.
#![allow(clippy::unwrap_used)]

use bench_data::pods::{Pod, Random};
use informer_core::wire::{Limits, ListItem, ListReader};
use informer_core::{
    Delta, Entry, Index, Replaced, ResourceVersion, Retention, Scope, StoreWriter, TypeMeta,
};
use peak_alloc::PeakAlloc;
use std::sync::Arc;
use std::time::Instant;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const OBJECTS: usize = 50_000;

fn main() {
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    writer.add_index(Index::label("app").build().unwrap());
    writer.add_index(Index::field("spec.nodeName").build().unwrap());
    let empty = MEMORY.current_usage();
    let first = list();
    let listed = MEMORY.current_usage() - empty;
    assert_eq!(writer.apply(&Scope::All, [first]).changes.len(), OBJECTS);
    let stored = MEMORY.current_usage() - empty;
    let before = reader.snapshot();

    let again = list();
    let memory_before = MEMORY.current_usage();
    MEMORY.reset_peak_usage();
    let start = Instant::now();
    let applied = writer.apply(&Scope::All, [again]);
    let took = start.elapsed();
    let peak = MEMORY.peak_usage() - memory_before;
    let after = reader.snapshot();

    assert!(applied.changes.is_empty(), "no change is reported");
    assert_eq!(after.len(), OBJECTS);
    let same = before.list().zip(after.list()).filter(|(old, new)| Arc::ptr_eq(old, new)).count();
    drop((applied, before, after));
    writer.release();
    let growth = MEMORY.current_usage().saturating_sub(empty + stored);

    println!(
        "{OBJECTS} objects, {} KB of entries, {} KB with store and two indexes",
        listed / 1024,
        stored / 1024
    );
    println!("an equal list: {same} entries are reused, {took:.1?}");
    println!("memory while applying: +{} KB; afterwards: +{growth} bytes", peak / 1024);
    let is_met = same == OBJECTS && growth < 1024 && peak < listed / 20;
    println!(
        "target: no new entries (all reused, nothing allocated permanently, less than 5 % temporarily): {}",
        if is_met { "met" } else { "MISSED" }
    );
}

/// Reads all objects again.
fn list() -> Delta {
    let mut random = Random::new(1);
    let mut entries = Vec::with_capacity(OBJECTS);
    let mut reader = ListReader::new(TypeMeta::new("v1", "Pod"), Limits::default());
    let mut read = |bytes: &[u8]| {
        let on = |item| match item {
            ListItem::Object(object) => {
                entries.push(Arc::new(Entry::new(object, Retention::Bytes)));
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
