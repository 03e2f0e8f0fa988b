//! A watch in its steady state takes memory for what it keeps, and for nothing else.
//!
//! One test, because the whole program is counted.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

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
/// So many frames come together, as they do from a busy server.
const CHUNK: usize = 16;
const CHUNKS: usize = 200;

/// What is kept of each change: the entry, its bytes, its labels, its owners.
const EACH: usize = 4;
/// What each chunk takes: the lists of its deltas and changes, the state that is published, and the pages of the cache that differ in it.
const EACH_CHUNK: usize = 16;

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
    /// With a watch whose initial events are awaited, and an index.
    fn new() -> Self {
        let types = TypeMeta::new("v1", "Pod");
        let (mut writer, reader) = StoreWriter::new([Scope::All]);
        writer.add_index(Index::field("spec.nodeName").into_handle().unwrap());
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

    /// Takes a chunk in; returns how many changes came of it.
    fn take(&mut self, chunk: &[u8]) -> usize {
        self.machine.handle_bytes(Moment::default(), self.stream, chunk);
        while let Some(action) = self.machine.poll_action() {
            if let Action::Push(delta) = action {
                self.fifo.push(delta).unwrap();
            }
        }
        let mut changes = 0;
        while let Some(batch) = self.fifo.pop(256) {
            let end = batch.end();
            changes += self.writer.apply(&Scope::All, batch.deltas).changes.len();
            self.fifo.applied(end);
        }
        changes
    }
}

#[test]
fn a_change_takes_memory_for_what_is_kept_of_it() {
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
    let most = EACH * changes + EACH_CHUNK * CHUNKS;
    let taken = took.allocations + took.reallocations;
    assert!(taken <= most, "{changes} changes took memory {taken} times, which may be {most} at most");
    let kept = took.bytes_allocated.abs_diff(took.bytes_deallocated);
    assert!(kept < 64 * 1024, "the cache is as large as before, but for {kept} bytes");
}
