//! A watch in steady state allocates only what it stores.
//!
//! One test, because allocations of the whole process are counted.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

#[path = "protobuf/bytes.rs"]
mod bytes;

use bytes::{data, envelope, frame};
use informer_core::reflector::{Action, Config, Reflector, ResponseHead, StreamId};
use informer_core::wire::TypeMeta;
use informer_core::{DeltaFifo, Index, Moment, Scope, StoreWriter};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: usize = 1000;
/// Number of frames per chunk, as a busy server sends them.
const CHUNK: usize = 16;
const CHUNKS: usize = 200;

/// Allocations per change: the entry, its bytes, its labels, its owners.
const MAX_PER_CHANGE: usize = 4;
/// Allocations per chunk: the lists of its deltas and changes, the published state, and the changed pages of
/// the cache.
const MAX_PER_CHUNK: usize = 16;

fn text(number: u32, text: &str) -> Vec<u8> {
    data(number, text.as_bytes())
}

fn pod(number: usize, version: usize) -> Vec<u8> {
    let label = |name, value: &str| data(11, &[text(1, name), text(2, value)].concat());
    let owner = [text(1, "ReplicaSet"), text(3, &format!("set-{number}")), text(5, "apps/v1")].concat();
    let metadata = [
        text(1, &format!("pod-{number:05}")),
        text(3, "default"),
        text(5, "0c1b6a5e-2b6c-4c5e-9d2e-7a5b1c3d9e8f"),
        text(6, &version.to_string()),
        label("app", "web"),
        label("pod-template-hash", &number.to_string()),
        data(13, &owner),
        data(17, &[0; 700]),
    ];
    let spec = [data(2, &[7; 1500]), text(10, &format!("node-{}", number % 10))].concat();
    [data(1, &metadata.concat()), data(2, &spec), data(3, &[7; 900])].concat()
}

struct Cache {
    types: TypeMeta,
    machine: Reflector,
    stream: StreamId,
    fifo: DeltaFifo,
    writer: StoreWriter,
}

impl Cache {
    /// Creates a cache with an index and a watch that waits for its initial events.
    fn new() -> Self {
        let types = TypeMeta::new("v1", "Pod");
        let (mut writer, reader) = StoreWriter::new([Scope::All]);
        writer.add_index(Index::field("spec.nodeName").build().unwrap());
        let mut machine = Reflector::new(Config::new(types.clone(), Scope::All), 7, Some(reader));
        machine.start(Moment::default());
        let stream = std::iter::from_fn(|| machine.poll_action()).find_map(|action| match action {
            Action::Watch(id, _) => Some(id),
            _ => None,
        });
        let mut head = ResponseHead::new(200);
        head.content_type = Some("application/vnd.kubernetes.protobuf;stream=watch".into());
        machine.handle_response(Moment::default(), stream.unwrap(), head);
        Self { types, machine, stream: stream.unwrap(), fifo: DeltaFifo::default(), writer }
    }

    fn frame(&self, kind: &str, object: &[u8]) -> Vec<u8> {
        frame(kind, &envelope(&self.types, object))
    }

    /// Processes a chunk. Returns the number of changes.
    fn take(&mut self, chunk: &[u8]) -> usize {
        self.machine.handle_bytes(Moment::default(), self.stream, chunk);
        for delta in self.machine.deltas().drain(..) {
            self.fifo.push(delta).unwrap();
        }
        while self.machine.poll_action().is_some() {}
        let mut changes = 0;
        while let Some(batch) = self.fifo.pop(256) {
            let end = batch.end();
            changes += self.writer.apply(&Scope::All, batch.deltas).changes.len();
            self.fifo.record_applied(end);
        }
        changes
    }
}

#[test]
fn change_allocates_only_what_is_stored() {
    let mut cache = Cache::new();
    let end = data(12, &[text(1, "k8s.io/initial-events-end"), text(2, "true")].concat());
    let bookmark = data(1, &[text(6, "2000"), end].concat());
    let first: Vec<u8> =
        (0..PODS).flat_map(|number| cache.frame("ADDED", &pod(number, 1000 + number))).collect();
    assert_eq!(cache.take(&[first, cache.frame("BOOKMARK", &bookmark)].concat()), PODS);

    let mut version = 2000;
    let mut chunk = |at: usize| -> Vec<u8> {
        let frames = (0..CHUNK).map(|step| {
            version += 1;
            cache.frame("MODIFIED", &pod((at * CHUNK + step) % PODS, version))
        });
        frames.flatten().collect()
    };
    let chunks: Vec<Vec<u8>> = (0..2 * CHUNKS).map(&mut chunk).collect();
    let (warm_up, measured) = chunks.split_at(CHUNKS);
    for chunk in warm_up {
        assert_eq!(cache.take(chunk), CHUNK);
    }
    let region = Region::new(ALLOCATOR);
    let changes: usize = measured.iter().map(|chunk| cache.take(chunk)).sum();
    let took = region.change();

    assert_eq!(changes, CHUNKS * CHUNK);
    let max_allocations = MAX_PER_CHANGE * changes + MAX_PER_CHUNK * CHUNKS;
    let allocations = took.allocations + took.reallocations;
    assert!(
        allocations <= max_allocations,
        "{changes} changes made {allocations} allocations, more than {max_allocations}"
    );
    let growth = took.bytes_allocated.abs_diff(took.bytes_deallocated);
    assert!(growth < 64 * 1024, "the cache grew by {growth} bytes");
}
