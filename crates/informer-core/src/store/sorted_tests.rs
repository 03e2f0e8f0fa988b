//! The sorted sequence against a `BTreeSet`.

use super::*;
use std::collections::BTreeSet;

fn insert<const SIZE: usize>(sorted: &mut SortedSeq<u32, SIZE>, new: u32) -> bool {
    sorted.insert(new, |known| known.cmp(&new))
}

fn leaves<T, const SIZE: usize>(node: &Node<T, SIZE>) -> Vec<usize> {
    match node {
        Node::Leaf(leaf) => vec![leaf.len()],
        Node::Branch(children) => children.iter().flat_map(|child| leaves(&child.node)).collect(),
    }
}

/// Compares random operations with a `BTreeSet`: mostly insertions, then mostly removals, then both
/// again. Insertions are at random positions or at the end.
fn check_against_btree_set<const SIZE: usize>(mut seed: u64) {
    let case = format!("leaves of {SIZE}, seed {seed}");
    let mut random = |bound: u32| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(seed >> 33).unwrap() % bound
    };
    let (mut sorted, mut model) = (SortedSeq::<u32, SIZE>::default(), BTreeSet::new());
    let mut copies = Vec::new();
    for round in 0..6_000 {
        let value = random(3_000);
        // The last phase removes all remaining elements.
        let removal_percent = [20, 90, 30, 100][round / 1_500];
        if random(100) < removal_percent {
            let from = |value| model.range(value..).next().copied();
            // Usually removes an element that exists.
            let value = if random(8) == 0 { value } else { from(value).or_else(|| from(0)).unwrap_or(value) };
            assert_eq!(sorted.remove(|known| known.cmp(&value)), model.remove(&value), "{case}");
        } else {
            let end = model.last().map_or(0, |last| last + 1);
            let value = if random(4) == 0 { end } else { value };
            assert_eq!(insert(&mut sorted, value), model.insert(value), "{case}");
        }
        let bound = random(3_500);
        let from = sorted.iter_from(|known| *known < bound).take(9);
        assert!(from.eq(model.range(bound..).take(9)), "{case}");
        let next = sorted.first_from(|known| *known <= bound);
        assert_eq!(next, model.range(bound + 1..).next(), "{case}");
        if round % 97 == 0 {
            copies.push((sorted.clone(), model.clone()));
        }
    }
    assert_eq!((sorted.len(), model.len()), (0, 0), "{case}: every element was removed");
    copies.push((sorted, model));
    for (sorted, model) in &copies {
        assert!(sorted.iter().eq(model), "{case}");
        sorted.check_invariants(u32::cmp);
    }
}

#[test]
fn random_operations_match_a_btree_set_and_leave_copies_unchanged() {
    for seed in 0..10 {
        check_against_btree_set::<4>(seed);
        check_against_btree_set::<7>(seed);
        check_against_btree_set::<64>(seed);
    }
}

#[test]
fn elements_inserted_in_order_fill_the_leaves() {
    let mut sorted = SortedSeq::<u32, 8>::default();
    (0..1001).for_each(|value| assert!(insert(&mut sorted, value)));
    sorted.check_invariants(u32::cmp);
    let leaves = leaves(&sorted.root);
    assert_eq!((leaves.len(), leaves.last()), (126, Some(&1)));
    assert!(leaves[..125].iter().all(|len| *len == 8));
}

#[test]
fn sparse_leaves_are_merged() {
    let mut sorted = SortedSeq::<u32, 8>::default();
    (0..1000).for_each(|value| assert!(insert(&mut sorted, value)));
    for value in (0..1000).filter(|value| value % 10 != 0) {
        assert!(sorted.remove(|known| known.cmp(&value)));
    }
    sorted.check_invariants(u32::cmp);
    assert!(leaves(&sorted.root).len() <= 50, "100 elements, at least two per leaf");
}

#[test]
fn change_copies_one_leaf() {
    let mut sorted = SortedSeq::<u32, 8>::default();
    (0..1000).for_each(|value| assert!(insert(&mut sorted, 2 * value)));
    let before = sorted.clone();
    assert!(sorted.remove(|known| known.cmp(&1000)));
    assert!(insert(&mut sorted, 1001));
    let shared: Vec<_> = sorted.iter().map(std::ptr::from_ref).collect();
    let copied = before.iter().filter(|old| !shared.contains(&std::ptr::from_ref(*old)));
    assert!(copied.count() <= 8);
}

/// A reused slot compares like its new key. A branch that still contained the removed slot would
/// misdirect searches.
#[test]
fn branches_drop_removed_elements() {
    let mut keys: Vec<u32> = (0..200).collect();
    let mut sorted = SortedSeq::<usize, 4>::default();
    for slot in 0..200 {
        assert!(sorted.insert(slot, |known| keys[*known].cmp(&keys[slot])));
    }
    for slot in 0..200 {
        assert!(sorted.remove(|known| keys[*known].cmp(&keys[slot])));
        keys[slot] = 1000 - keys[slot];
        assert!(sorted.insert(slot, |known| keys[*known].cmp(&keys[slot])));
        sorted.check_invariants(|left, right| keys[*left].cmp(&keys[*right]));
    }
}
