//! Transitions as one handler sees them, however late it is.

use super::*;
use crate::testing::{added, deleted, entry, text, updated};

fn drain(outbox: &mut Merged) -> String {
    std::iter::from_fn(|| outbox.pop()).map(|told| text(&told)).collect::<Vec<_>>().join(" ")
}

/// What is told when all changes come before the handler is called once.
#[track_caller]
fn check(changes: &[Change], expected: &str) {
    let mut outbox = Merged::default();
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
    let mut outbox = Merged::default();
    outbox.add(&added("a", 1), true, Moment::default());
    outbox.add(&added("b", 2), true, Moment::default());
    assert!(!outbox.initial_is_told(), "the set is not complete");
    outbox.end_initial();
    outbox.add(&added("c", 3), false, Moment::default());
    outbox.add(&deleted("b", 4), false, Moment::default());
    assert_eq!(text(&outbox.pop().unwrap()), "+a@1!");
    assert!(outbox.initial_is_told(), "b came and went, c is not of the set");
    assert_eq!(drain(&mut outbox), "+c@3");
}

#[test]
fn an_empty_set_is_told_at_once() {
    let mut outbox = Merged::default();
    outbox.end_initial();
    assert!(outbox.initial_is_told());
}

#[test]
fn c12_a_resync_tells_what_is_not_pending_anyway() {
    let mut outbox = Merged::default();
    outbox.add(&updated("a", 1, 3), false, Moment::default());
    outbox.add_again(&entry("a", 3), Moment::default());
    outbox.add_again(&entry("b", 2), Moment::default());
    assert_eq!(drain(&mut outbox), "~a@1>a@3 =b@2");
}

#[test]
fn the_age_is_that_of_the_oldest_step_still_pending() {
    let at = |seconds| Moment::at(std::time::Duration::from_secs(seconds));
    let mut outbox = Merged::default();
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
    let mut outbox = Merged::default();
    for version in 0..10_000 {
        outbox.add(&added("a", version), false, Moment::default());
        outbox.add(&deleted("a", version), false, Moment::default());
    }
    assert!(outbox.order.len() < 200, "{} places for nothing", outbox.order.len());
}

#[test]
fn a_burst_leaves_no_memory_behind() {
    // The initial set of 50,000 pods left 7 MB in every handler's outbox, for as long as the handler lived.
    let mut outbox = Merged::default();
    for number in 0..5000 {
        outbox.add(&added(&format!("pod-{number}"), 1), true, Moment::default());
    }
    while outbox.pop().is_some() {}
    assert!(outbox.order.capacity() < 1000 && outbox.pending.steps.capacity() < 1000);
}
