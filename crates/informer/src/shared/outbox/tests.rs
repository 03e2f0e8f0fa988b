//! Both outboxes against the same reference model.

use super::*;
use crate::event::Event;
use crate::test_support::{added, deleted, released, updated};
use informer_core::Object;
use informer_core::random::Random;
use std::collections::BTreeMap;

/// Whenever events are taken, applying them yields the current state, and the old state of every update is
/// the state that was delivered before (C2, C3).
#[test]
fn randomly_timed_events_fold_to_the_current_state() {
    for seed in 0..1000 {
        let mut random = Random::new(seed);
        let capacity = (seed % 2 == 1).then(|| 1 + usize::try_from(random.below(6)).unwrap());
        let deliver_transient_deletes = false;
        let mut outbox = Outbox::new(capacity, deliver_transient_deletes);
        let (mut current, mut folded) = (BTreeMap::new(), BTreeMap::new());
        let mut accounted = 0;
        for version in 1..100 {
            let name = ["a", "b", "c"][usize::try_from(random.below(3)).unwrap()];
            let change = match (current.get(name).copied(), random.below(4)) {
                (None, _) => added(name, version),
                (Some(old), 0 | 1) => updated(name, old, version),
                (Some(_), 2) => deleted(name, version),
                (Some(old), _) => released(name, old),
            };
            match &change {
                Change::Deleted { .. } | Change::Released(_) => drop(current.remove(name)),
                _ => drop(current.insert(name, version)),
            }
            let initial = false;
            outbox.add(&change, initial, Moment::default());
            for _ in 0..random.below(3) {
                accounted += outbox.pop().map_or(0, |next| apply(&next, &mut folded, seed));
            }
        }
        while let Some(next) = outbox.pop() {
            accounted += apply(&next, &mut folded, seed);
        }
        let current: BTreeMap<String, String> =
            current.iter().map(|(name, version)| ((*name).to_owned(), version.to_string())).collect();
        assert_eq!(folded, current, "seed {seed}");
        assert!(
            capacity.is_none() || accounted == 99,
            "seed {seed}: each event is delivered or counted as skipped"
        );
        assert_eq!((outbox.is_empty(), outbox.len()), (true, 0), "seed {seed}");
    }
}

/// Applies a delivery and returns the number of changes it accounts for.
fn apply(delivery: &Delivery<Untyped>, folded: &mut BTreeMap<String, String>, seed: u64) -> u64 {
    let parts = |object: &Object<Untyped>| (object.name().to_owned(), object.resource_version().to_string());
    let event = match delivery {
        Delivery::Event(event) => event,
        Delivery::Lagged { skipped } => return *skipped,
        Delivery::Released { last } => {
            let known = folded.remove(last.name());
            assert!(known.is_some(), "seed {seed}: released an object that was not known");
            return 1;
        }
    };
    match event {
        Event::Added { object, .. } => {
            let (name, version) = parts(object);
            assert_eq!(folded.insert(name, version), None, "seed {seed}: added an object that was known");
        }
        Event::Updated { old, new, .. } => {
            let (name, version) = parts(new);
            let before = folded.insert(name, version);
            assert_eq!(before, Some(parts(old).1), "seed {seed}: old is not the last delivered state");
        }
        Event::Deleted { last, .. } => {
            assert!(
                folded.remove(last.name()).is_some(),
                "seed {seed}: deleted an object that was not known"
            );
        }
    }
    1
}
