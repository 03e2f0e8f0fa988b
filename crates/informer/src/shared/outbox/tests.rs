//! Transitions as one handler sees them, however late it is.

use super::*;
use informer_core::reflector::Random;
use informer_core::wire::{Limits, ListItem, ListReader};
use informer_core::{Delta, Encoding, ListenerId, Retention, Scope, StoreWriter, TypeMeta};
use std::collections::BTreeMap;

fn entry(name: &str, version: u64) -> Arc<Entry> {
    let body = format!(
        r#"{{"kind":"PodList","metadata":{{"resourceVersion":"9"}},
            "items":[{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}]}}"#
    );
    let mut entry = None;
    let mut reader = ListReader::new(TypeMeta::new("v1", "Pod"), Limits::default());
    let read = reader.read(body.as_bytes(), |item| {
        if let ListItem::Object(scanned) = item {
            entry = Some(Arc::new(Entry::new(scanned, Encoding::Json, Retention::Bytes)));
        }
    });
    read.unwrap();
    entry.unwrap()
}

fn added(name: &str, version: u64) -> Change {
    Change::Added(entry(name, version))
}

fn updated(name: &str, old: u64, new: u64) -> Change {
    Change::Updated { old: entry(name, old), new: entry(name, new) }
}

fn deleted(name: &str, version: u64) -> Change {
    Change::Deleted { last: entry(name, version), observed: true }
}

fn text(told: &Told) -> String {
    match told {
        Told::Added { entry, initial } => format!("+{entry:?}{}", if *initial { "!" } else { "" }),
        Told::Updated { old, new, cause: Cause::Change } => format!("~{old:?}>{new:?}"),
        Told::Updated { new, .. } => format!("={new:?}"),
        Told::Deleted { last, .. } => format!("-{last:?}"),
    }
}

fn drain(outbox: &mut Outbox) -> String {
    std::iter::from_fn(|| outbox.pop()).map(|told| text(&told)).collect::<Vec<_>>().join(" ")
}

/// What is told when all changes come before the handler is called once.
#[track_caller]
fn check(changes: &[Change], expected: &str) {
    let mut outbox = Outbox::default();
    for change in changes {
        outbox.add(change, false);
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
    let mut outbox = Outbox::default();
    outbox.add(&added("a", 1), true);
    outbox.add(&added("b", 2), true);
    assert!(!outbox.initial_is_told(), "the set is not complete");
    outbox.end_initial();
    outbox.add(&added("c", 3), false);
    outbox.add(&deleted("b", 4), false);
    assert_eq!(text(&outbox.pop().unwrap()), "+a@1!");
    assert!(outbox.initial_is_told(), "b came and went, c is not of the set");
    assert_eq!(drain(&mut outbox), "+c@3");
}

#[test]
fn an_empty_set_is_told_at_once() {
    let mut outbox = Outbox::default();
    outbox.end_initial();
    assert!(outbox.initial_is_told());
}

#[test]
fn c12_a_resync_tells_what_is_not_pending_anyway() {
    let (mut writer, reader) = StoreWriter::new([Scope::All]);
    writer.apply(&Scope::All, [Delta::Added(entry("a", 1)), Delta::Added(entry("b", 2))]);
    let resync = Change::Resync { due: [ListenerId(1)].into(), objects: reader.snapshot() };
    check(&[updated("a", 1, 3), resync], "~a@1>a@3 =b@2");
}

#[test]
fn settled_places_do_not_pile_up() {
    let mut outbox = Outbox::default();
    for version in 0..10_000 {
        outbox.add(&added("a", version), false);
        outbox.add(&deleted("a", version), false);
    }
    assert!(outbox.order.len() < 200, "{} places for nothing", outbox.order.len());
}

/// However its calls are spread, a handler's fold equals the truth, and every step starts where the one before ended (C2, C3).
#[test]
fn random_handlers_fold_to_the_truth() {
    for seed in 0..500 {
        let mut random = Random::new(seed);
        let (mut outbox, mut truth, mut fold) = (Outbox::default(), BTreeMap::new(), BTreeMap::new());
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
            outbox.add(&change, false);
            for _ in 0..random.below(3) {
                outbox.pop().iter().for_each(|told| apply(told, &mut fold, seed));
            }
        }
        while let Some(told) = outbox.pop() {
            apply(&told, &mut fold, seed);
        }
        let truth: BTreeMap<String, String> =
            truth.iter().map(|(name, version)| ((*name).to_owned(), version.to_string())).collect();
        assert_eq!(fold, truth, "seed {seed}");
    }
}

fn apply(told: &Told, fold: &mut BTreeMap<String, String>, seed: u64) {
    let parts = |entry: &Entry| (entry.key().name().to_owned(), entry.head().version.to_string());
    match told {
        Told::Added { entry, .. } => {
            let (name, version) = parts(entry);
            assert_eq!(fold.insert(name, version), None, "seed {seed}: added what was known");
        }
        Told::Updated { old, new, .. } => {
            let (name, version) = parts(new);
            assert_eq!(
                fold.insert(name, version),
                Some(parts(old).1),
                "seed {seed}: old is not what was seen"
            );
        }
        Told::Deleted { last, .. } => {
            assert!(fold.remove(last.key().name()).is_some(), "seed {seed}: deleted what was not known");
        }
    }
}

#[test]
fn a_burst_leaves_no_memory_behind() {
    // The initial set of 50,000 pods left 7 MB in every handler's outbox, for as long as the handler lived.
    let mut outbox = Outbox::default();
    for number in 0..5000 {
        outbox.add(&added(&format!("pod-{number}"), 1), true);
    }
    while outbox.pop().is_some() {}
    assert!(outbox.order.capacity() < 1000 && outbox.pending.capacity() < 1000);
}
