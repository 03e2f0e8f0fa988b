//! Applies the same random operations to a delta queue and its model.

use crate::objects::{Plain, listed, version, watched};
use informer_core::random::Random;
use informer_core::{Batch, Deleted, Delta, DeltaFifo, FifoCapacity, Key, QueueClosed, Replaced, Scope};
use std::collections::VecDeque;

/// A delta in the model's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    /// Distinguishes it from every other delta.
    label: String,
    cost: usize,
    alone: bool,
    /// Whether it is the first complete list.
    first_list: bool,
}

#[derive(Debug, Default)]
struct Model {
    queue: VecDeque<Waiting>,
    /// Popped batches that are not applied yet, and whether each contains the first complete list.
    popped: VecDeque<(Batch, bool)>,
    closed: bool,
    saw_list: bool,
    synced: bool,
}

pub(crate) fn run(seed: u64) {
    let mut random = Random::new(seed);
    let limits = FifoCapacity::new(1 + index(&mut random, 8), 1 + index(&mut random, 4000));
    let (mut fifo, mut model) = (DeltaFifo::new(limits), Model::default());
    for serial in 0..60 {
        match random.below(40) {
            0..20 => push(&mut fifo, &mut model, &mut random, serial),
            20..30 => pop(&mut fifo, &mut model, &mut random),
            30..39 => apply(&mut fifo, &mut model),
            _ if random.below(4) == 0 => {
                fifo.close();
                model.closed = true;
            }
            _ => {}
        }
        check(&fifo, &model, limits);
    }
}

fn check(fifo: &DeltaFifo, model: &Model, limits: FifoCapacity) {
    let (count, bytes) = (model.queue.len(), model.queue.iter().map(|delta| delta.cost).sum::<usize>());
    assert_eq!((fifo.len(), fifo.bytes(), fifo.is_empty()), (count, bytes, count == 0), "queued deltas");
    assert_eq!(fifo.has_capacity(), count < limits.count && bytes < limits.bytes, "has_room");
    assert_eq!(fifo.is_closed(), model.closed, "closed");
    assert_eq!(fifo.has_synced(), model.synced, "synced");
    fifo.check_invariants();
}

/// Pushes even without space, which the caller is responsible for.
fn push(fifo: &mut DeltaFifo, model: &mut Model, random: &mut Random, serial: u64) {
    let delta = delta(random, serial);
    let alone = matches!(delta, Delta::Replaced(_));
    let first_list = matches!(delta, Delta::Replaced(_)) && !model.saw_list;
    let waiting = Waiting { label: label(&delta), cost: delta.memory_size(), alone, first_list };
    let pushed = match delta {
        Delta::Replaced(replaced) if random.below(2) == 0 => fifo.replace(replaced),
        delta => fifo.push(delta),
    };
    if model.closed {
        assert_eq!(pushed, Err(QueueClosed));
        return;
    }
    assert_eq!(pushed, Ok(()));
    model.saw_list |= first_list;
    model.queue.push_back(waiting);
}

/// Every pushed delta is popped once, in order: never merged, relists alone.
fn pop(fifo: &mut DeltaFifo, model: &mut Model, random: &mut Random) {
    let max_deltas = index(random, 6);
    let mut expected: Vec<Waiting> = Vec::new();
    while let Some(next) = model.queue.front() {
        let full = expected.len() == max_deltas.max(1);
        if full || expected.iter().any(|delta| delta.alone) || (next.alone && !expected.is_empty()) {
            break;
        }
        expected.extend(model.queue.pop_front());
    }
    let batch = fifo.pop(max_deltas);
    let labels = batch.as_ref().map(|batch| batch.deltas.iter().map(label).collect::<Vec<_>>());
    let wanted = (!expected.is_empty()).then(|| expected.iter().map(|delta| delta.label.clone()).collect());
    assert_eq!(labels, wanted, "popped at most {max_deltas}");
    if let Some(batch) = batch {
        assert_eq!(batch.initial, !model.synced, "initial");
        model.popped.push_back((batch, expected.iter().any(|delta| delta.first_list)));
    }
}

/// Batches are applied in order, some later than others.
fn apply(fifo: &mut DeltaFifo, model: &mut Model) {
    let Some((batch, has_first_list)) = model.popped.pop_front() else { return };
    fifo.record_applied(batch.end());
    model.synced |= has_first_list;
}

fn delta(random: &mut Random, serial: u64) -> Delta {
    let plain = |number: usize| Plain {
        name: ("a", format!("o{number}")),
        uid: String::new(),
        version: (serial + 1).to_string(),
        node: None,
        app: None,
        tags: vec!["tag"; number],
    };
    let number = index(random, 4);
    match random.below(14) {
        0..4 => Delta::Added(watched(&plain(number))),
        4..8 => Delta::Updated(watched(&plain(number))),
        8..11 => Delta::Deleted(Deleted {
            key: Key::new("a", &format!("o{number}")),
            version: Some(version(&serial.to_string())),
            last: (random.below(2) == 0).then(|| watched(&plain(number))),
        }),
        11 => {
            let (entries, unreadable) = listed(&(0..number).map(plain).collect::<Vec<_>>(), &[]);
            Delta::Replaced(Replaced {
                scope: Scope::All,
                version: version(&serial.to_string()),
                entries,
                unreadable,
                audit: false,
            })
        }
        _ => Delta::Bookmark(version(&serial.to_string())),
    }
}

/// Kind, objects and serial number, as `Debug` prints them.
fn label(delta: &Delta) -> String {
    format!("{delta:?}")
}

fn index(random: &mut Random, bound: u64) -> usize {
    usize::try_from(random.below(bound)).unwrap()
}
