//! Both outboxes, held to the same truth.

use super::*;
use crate::event::Event;
use crate::test_support::{added, deleted, updated};
use informer_core::Object;
use informer_core::random::Random;
use std::collections::BTreeMap;

/// However its calls are spread, a handler's fold equals the truth, and every step starts where the one before ended (C2, C3).
#[test]
fn random_handlers_fold_to_the_truth() {
    for seed in 0..1000 {
        let mut random = Random::new(seed);
        let bound = (seed % 2 == 1).then(|| 1 + usize::try_from(random.below(6)).unwrap());
        let (mut outbox, mut truth, mut fold) = (Outbox::new(bound, false), BTreeMap::new(), BTreeMap::new());
        let mut told = 0;
        for version in 1..100 {
            let name = ["a", "b", "c"][usize::try_from(random.below(3)).unwrap()];
            let change = match (truth.get(name).copied(), random.below(3)) {
                (None, _) => added(name, version),
                (Some(old), 0 | 1) => updated(name, old, version),
                (Some(_), _) => deleted(name, version),
            };
            match &change {
                Change::Deleted { .. } => drop(truth.remove(name)),
                _ => drop(truth.insert(name, version)),
            }
            outbox.add(&change, false, Moment::default());
            for _ in 0..random.below(3) {
                told += outbox.pop().map_or(0, |next| apply(&next, &mut fold, seed));
            }
        }
        while let Some(next) = outbox.pop() {
            told += apply(&next, &mut fold, seed);
        }
        let truth: BTreeMap<String, String> =
            truth.iter().map(|(name, version)| ((*name).to_owned(), version.to_string())).collect();
        assert_eq!(fold, truth, "seed {seed}");
        assert!(bound.is_none() || told == 99, "seed {seed}: each event is told, or counted as skipped");
        assert_eq!((outbox.is_empty(), outbox.len()), (true, 0), "seed {seed}");
    }
}

/// Returns for how many events this stands.
fn apply(told: &Delivery<Untyped>, fold: &mut BTreeMap<String, String>, seed: u64) -> u64 {
    let parts = |object: &Object<Untyped>| (object.name().to_owned(), object.resource_version().to_string());
    let event = match told {
        Delivery::Event(event) => event,
        Delivery::Lagged { skipped } => return *skipped,
    };
    match event {
        Event::Added { object, .. } => {
            let (name, version) = parts(object);
            assert_eq!(fold.insert(name, version), None, "seed {seed}: added what was known");
        }
        Event::Updated { old, new, .. } => {
            let (name, version) = parts(new);
            assert_eq!(
                fold.insert(name, version),
                Some(parts(old).1),
                "seed {seed}: old is not what was seen"
            );
        }
        Event::Deleted { last, .. } => {
            assert!(fold.remove(last.name()).is_some(), "seed {seed}: deleted what was not known");
        }
    }
    1
}
