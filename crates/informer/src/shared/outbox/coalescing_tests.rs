//! Transitions as one handler sees them, however late it is.

use super::*;
use crate::test_support::{added, deleted, entry, text, updated};
use informer_core::random::Random;
use std::collections::BTreeMap;

fn drain(outbox: &mut CoalescingOutbox) -> String {
    std::iter::from_fn(|| outbox.pop()).map(|event| text(&event.into())).collect::<Vec<_>>().join(" ")
}

/// What is told when all changes come before the handler is called once.
#[track_caller]
fn check(changes: &[Change], expected: &str) {
    let mut outbox = CoalescingOutbox::default();
    for change in changes {
        outbox.add(change, false, Moment::default());
    }
    assert_eq!(drain(&mut outbox), expected);
    assert!(outbox.is_empty() && outbox.steps == 0 && outbox.order.is_empty());
}

#[test]
fn c8_a_late_handler_gets_one_transition_per_key() {
    check(&[added("a", 1), updated("a", 1, 2), updated("a", 2, 3)], "+a@3");
    check(&[updated("a", 1, 2), added("b", 3), updated("a", 2, 4)], "~a@1>a@4 +b@3");
    check(&[updated("a", 1, 2), deleted("a", 3)], "-a@3");
    check(&[added("a", 1), deleted("a", 2)], "");
    check(&[deleted("a", 2), added("a", 3), updated("a", 3, 4)], "-a@2 +a@4");
    check(&[deleted("a", 2), added("a", 3), deleted("a", 4)], "-a@2");
    check(&[deleted("a", 2), added("a", 3), deleted("a", 4), added("a", 5)], "-a@2 +a@5");
}

#[test]
fn c5_the_deletions_of_a_relist_stay_in_front() {
    check(&[deleted("x", 1), deleted("y", 2), updated("a", 3, 8), added("x", 9)], "-x@1 -y@2 ~a@3>a@8 +x@9");
}

#[test]
fn the_initial_set_is_told_when_its_last_place_is_empty() {
    let mut outbox = CoalescingOutbox::default();
    outbox.add(&added("a", 1), true, Moment::default());
    outbox.add(&added("b", 2), true, Moment::default());
    assert!(!outbox.initial_list_delivered(), "the set is not complete");
    outbox.mark_initial_list_complete();
    outbox.add(&added("c", 3), false, Moment::default());
    outbox.add(&deleted("b", 4), false, Moment::default());
    assert_eq!(text(&outbox.pop().unwrap().into()), "+a@1!");
    assert!(outbox.initial_list_delivered(), "b came and went, c is not of the set");
    assert_eq!(drain(&mut outbox), "+c@3");
}

#[test]
fn an_empty_set_is_told_at_once() {
    let mut outbox = CoalescingOutbox::default();
    outbox.mark_initial_list_complete();
    assert!(outbox.initial_list_delivered());
}

#[test]
fn c12_a_resync_tells_what_is_not_pending_anyway() {
    let mut outbox = CoalescingOutbox::default();
    outbox.add(&updated("a", 1, 3), false, Moment::default());
    outbox.add_resync(&entry("a", 3), Moment::default());
    outbox.add_resync(&entry("b", 2), Moment::default());
    assert_eq!(drain(&mut outbox), "~a@1>a@3 =b@2");
}

#[test]
fn the_age_is_that_of_the_oldest_step_still_pending() {
    let at = |seconds| Moment::at(std::time::Duration::from_secs(seconds));
    let mut outbox = CoalescingOutbox::default();
    outbox.add(&added("a", 1), false, at(1));
    outbox.add(&added("b", 2), false, at(2));
    outbox.add(&updated("a", 1, 3), false, at(3));
    assert_eq!(outbox.oldest(), Some(at(1)));
    outbox.add(&deleted("a", 4), false, at(4));
    assert_eq!(outbox.oldest(), Some(at(2)));
    outbox.pop();
    assert_eq!(outbox.oldest(), None);
}

#[test]
fn settled_places_do_not_pile_up() {
    let mut outbox = CoalescingOutbox::default();
    for version in 0..10_000 {
        outbox.add(&added("a", version), false, Moment::default());
        outbox.add(&deleted("a", version), false, Moment::default());
    }
    assert!(outbox.order.len() < 200, "{} places for nothing", outbox.order.len());
}

#[test]
fn a_burst_leaves_no_memory_behind() {
    // The initial set of 50,000 pods left 7 MB in every handler's outbox, for as long as the handler lived.
    let mut outbox = CoalescingOutbox::default();
    for number in 0..5000 {
        outbox.add(&added(&format!("pod-{number}"), 1), true, Moment::default());
    }
    while outbox.pop().is_some() {}
    let Pending { steps, free, slots, .. } = &outbox.pending;
    let room = [outbox.order.capacity(), steps.capacity(), free.capacity(), slots.capacity()];
    assert!(room.iter().all(|room| *room < 1000), "{room:?}");
}

/// Hundreds of keys at a time, long without a call and then all at once, so that places are used again and the table grows and shrinks with steps
/// in it: what is pending always leads from what the handler saw to what is there (C2, C3).
#[test]
fn bursts_of_many_keys_fold_to_the_truth() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (mut outbox, brief) = (CoalescingOutbox::new(seed % 2 == 1), seed % 2 == 1);
        let (mut truth, mut fold) = (BTreeMap::new(), BTreeMap::new());
        for version in 1..3000_u64 {
            let name = format!("pod-{}", random.below(300));
            match (truth.get(&name).copied(), random.below(4)) {
                (None, _) => {
                    outbox.add(&added(&name, version), false, Moment::default());
                    truth.insert(name, version);
                }
                (Some(old), 0) => {
                    outbox.add(&deleted(&name, old), false, Moment::default());
                    truth.remove(&name);
                }
                (Some(old), 1) => outbox.add_resync(&entry(&name, old), Moment::default()),
                (Some(old), _) => {
                    outbox.add(&updated(&name, old, version), false, Moment::default());
                    truth.insert(name, version);
                }
            }
            if random.below(200) == 0 {
                outbox.reserve(300);
            }
            let calls = if random.below(500) == 0 { u64::MAX } else { random.below(2) };
            for _ in 0..calls {
                let Some(told) = outbox.pop() else { break };
                see(&told, &mut fold, brief);
            }
            if version % 16 == 0 {
                outbox.check_invariants();
            }
        }
        while let Some(told) = outbox.pop() {
            see(&told, &mut fold, brief);
        }
        outbox.check_invariants();
        assert_eq!(fold, truth, "seed {seed}");
    }
}

/// Does to what the handler knows what it is told.
fn see(event: &Event<Untyped>, fold: &mut BTreeMap<String, u64>, brief: bool) {
    let parts = |object: &Object<Untyped>| {
        (object.name().to_owned(), object.resource_version().as_str().parse::<u64>().unwrap())
    };
    match event {
        Event::Added { object, .. } => {
            let (name, version) = parts(object);
            assert_eq!(fold.insert(name, version), None, "added what was known");
        }
        Event::Updated { old, new, .. } => {
            let (name, version) = parts(new);
            assert_eq!(fold.insert(name, version), Some(parts(old).1), "old is not what was seen");
        }
        Event::Deleted { last, .. } => {
            let known = fold.remove(last.key().name());
            assert!(known.is_some() || brief, "deleted what was not known");
        }
    }
}
