//! Tests of the coalescing outbox: the events that a handler receives, however late it takes them.

use super::*;
use crate::test_support::{added, deleted, entry, released, text, updated};
use informer_core::random::Random;
use std::collections::BTreeMap;

/// The argument `initial` of `add`.
const INITIAL: bool = true;
const NOT_INITIAL: bool = false;

fn drain(outbox: &mut CoalescingOutbox) -> String {
    std::iter::from_fn(|| outbox.pop()).map(|event| text(&event)).collect::<Vec<_>>().join(" ")
}

/// Checks the events that are delivered if all changes are added before the first one is taken.
#[track_caller]
fn check(changes: &[Change], expected: &str) {
    let mut outbox = CoalescingOutbox::default();
    for change in changes {
        outbox.add(change, NOT_INITIAL, Moment::default());
    }
    assert_eq!(drain(&mut outbox), expected);
    assert!(outbox.is_empty() && outbox.events == 0 && outbox.order.is_empty());
}

#[test]
fn c8_late_handler_receives_coalesced_events() {
    check(&[added("a", 1), updated("a", 1, 2), updated("a", 2, 3)], "+a@3");
    check(&[updated("a", 1, 2), added("b", 3), updated("a", 2, 4)], "~a@1>a@4 +b@3");
    check(&[updated("a", 1, 2), deleted("a", 3)], "-a@3");
    check(&[added("a", 1), deleted("a", 2)], "");
    check(&[deleted("a", 2), added("a", 3), updated("a", 3, 4)], "-a@2 +a@4");
    check(&[deleted("a", 2), added("a", 3), deleted("a", 4)], "-a@2");
    check(&[deleted("a", 2), added("a", 3), deleted("a", 4), added("a", 5)], "-a@2 +a@5");
}

#[test]
fn released_object_that_came_back_and_was_deleted_is_delivered_as_deleted() {
    check(&[released("a", 1)], "released a@1");
    check(&[added("a", 1), released("a", 1)], "");
    check(&[released("a", 1), added("a", 2)], "released a@1 +a@2");
    check(&[released("a", 1), added("a", 2), released("a", 2)], "released a@2");
    check(&[released("a", 1), added("a", 2), deleted("a", 3)], "-a@3");
    check(&[deleted("a", 1), added("a", 2), released("a", 2)], "-a@1");
}

#[test]
fn c5_deletions_of_a_relist_stay_in_front() {
    check(&[deleted("x", 1), deleted("y", 2), updated("a", 3, 8), added("x", 9)], "-x@1 -y@2 ~a@3>a@8 +x@9");
}

#[test]
fn initial_list_is_delivered_when_none_of_its_events_is_pending() {
    let mut outbox = CoalescingOutbox::default();
    outbox.add(&added("a", 1), INITIAL, Moment::default());
    outbox.add(&added("b", 2), INITIAL, Moment::default());
    assert!(!outbox.initial_list_delivered(), "the initial list is not complete");
    outbox.mark_initial_list_complete();
    outbox.add(&added("c", 3), NOT_INITIAL, Moment::default());
    outbox.add(&deleted("b", 4), NOT_INITIAL, Moment::default());
    assert_eq!(text(&outbox.pop().unwrap()), "+a@1!");
    assert!(outbox.initial_list_delivered(), "b was deleted, c is not in the initial list");
    assert_eq!(drain(&mut outbox), "+c@3");
}

#[test]
fn empty_initial_list_is_delivered_immediately() {
    let mut outbox = CoalescingOutbox::default();
    outbox.mark_initial_list_complete();
    assert!(outbox.initial_list_delivered());
}

#[test]
fn c12_resync_skips_keys_with_pending_events() {
    let mut outbox = CoalescingOutbox::default();
    outbox.add(&updated("a", 1, 3), NOT_INITIAL, Moment::default());
    outbox.add_resync(&entry("a", 3), Moment::default());
    outbox.add_resync(&entry("b", 2), Moment::default());
    assert_eq!(drain(&mut outbox), "~a@1>a@3 =b@2");
}

#[test]
fn oldest_added_at_is_the_time_of_the_oldest_pending_event() {
    let at = |seconds| Moment::at(std::time::Duration::from_secs(seconds));
    let mut outbox = CoalescingOutbox::default();
    outbox.add(&added("a", 1), NOT_INITIAL, at(1));
    outbox.add(&added("b", 2), NOT_INITIAL, at(2));
    outbox.add(&updated("a", 1, 3), NOT_INITIAL, at(3));
    assert_eq!(outbox.oldest_added_at(), Some(at(1)));
    outbox.add(&deleted("a", 4), NOT_INITIAL, at(4));
    assert_eq!(outbox.oldest_added_at(), Some(at(2)));
    outbox.pop();
    assert_eq!(outbox.oldest_added_at(), None);
}

#[test]
fn obsolete_positions_do_not_accumulate() {
    let mut outbox = CoalescingOutbox::default();
    for version in 0..10_000 {
        outbox.add(&added("a", version), NOT_INITIAL, Moment::default());
        outbox.add(&deleted("a", version), NOT_INITIAL, Moment::default());
    }
    assert!(outbox.order.len() < 200, "{} positions without an event", outbox.order.len());
}

#[test]
fn drained_outbox_releases_the_memory_of_a_burst() {
    // Regression: the initial list of 50,000 pods left 7 MB in the outbox of every handler, for as long as
    // the handler lived.
    let mut outbox = CoalescingOutbox::default();
    for number in 0..5000 {
        outbox.add(&added(&format!("pod-{number}"), 1), INITIAL, Moment::default());
    }
    while outbox.pop().is_some() {}
    let Pending { keys, free, slots, .. } = &outbox.pending;
    let capacities = [outbox.order.capacity(), keys.capacity(), free.capacity(), slots.capacity()];
    assert!(capacities.iter().all(|capacity| *capacity < 1000), "{capacities:?}");
}

/// Hundreds of keys, long phases without a call followed by a complete drain, so that slots are reused and
/// the table grows and shrinks while it contains events: the pending events always lead from the state that
/// the handler knows to the current one (C2, C3).
#[test]
fn bursts_of_many_keys_fold_to_the_current_state() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let transient_deletes = seed % 2 == 1;
        let mut outbox = CoalescingOutbox::new(transient_deletes);
        let (mut current, mut folded) = (BTreeMap::new(), BTreeMap::new());
        for version in 1..3000_u64 {
            let name = format!("pod-{}", random.below(300));
            match (current.get(&name).copied(), random.below(5)) {
                (None, _) => {
                    outbox.add(&added(&name, version), NOT_INITIAL, Moment::default());
                    current.insert(name, version);
                }
                (Some(old), 0) => {
                    outbox.add(&deleted(&name, old), NOT_INITIAL, Moment::default());
                    current.remove(&name);
                }
                (Some(old), 2) => {
                    outbox.add(&released(&name, old), NOT_INITIAL, Moment::default());
                    current.remove(&name);
                }
                (Some(old), 1) => outbox.add_resync(&entry(&name, old), Moment::default()),
                (Some(old), _) => {
                    outbox.add(&updated(&name, old, version), NOT_INITIAL, Moment::default());
                    current.insert(name, version);
                }
            }
            if random.below(200) == 0 {
                outbox.reserve(300);
            }
            let calls = if random.below(500) == 0 { u64::MAX } else { random.below(2) };
            for _ in 0..calls {
                let Some(event) = outbox.pop() else { break };
                fold(&event, &mut folded, transient_deletes);
            }
            if version % 16 == 0 {
                outbox.check_invariants();
            }
        }
        while let Some(event) = outbox.pop() {
            fold(&event, &mut folded, transient_deletes);
        }
        outbox.check_invariants();
        assert_eq!(folded, current, "seed {seed}");
    }
}

/// Applies an event to the states that the handler knows.
fn fold(delivery: &Delivery<Untyped>, folded: &mut BTreeMap<String, u64>, transient_deletes: bool) {
    let parts = |object: &Object<Untyped>| {
        (object.name().to_owned(), object.resource_version().as_str().parse::<u64>().unwrap())
    };
    let event = match delivery {
        Delivery::Event(event) => event,
        Delivery::Released { last } => {
            assert!(folded.remove(last.name()).is_some(), "released an object that was not known");
            return;
        }
        Delivery::Lagged { .. } => panic!("a coalescing outbox has no capacity"),
    };
    match event {
        Event::Added { object, .. } => {
            let (name, version) = parts(object);
            assert_eq!(folded.insert(name, version), None, "added an object that was known");
        }
        Event::Updated { old, new, .. } => {
            let (name, version) = parts(new);
            let before = folded.insert(name, version);
            assert_eq!(before, Some(parts(old).1), "old is not the last delivered state");
        }
        Event::Deleted { last, .. } => {
            let known = folded.remove(last.key().name());
            assert!(known.is_some() || transient_deletes, "deleted an object that was not known");
        }
    }
}
