//! A persistent sorted sequence: a clone shares all memory, and a change copies one leaf and its ancestors.
//!
//! A tree whose leaves contain the elements and whose branches contain the first element of each child. Nodes
//! are allocated for exactly their contents, so a half-full leaf takes half the memory, and elements that
//! arrive in order fill one leaf after the other. The caller defines the order: each call takes a comparison,
//! and all calls must use the same order. This module does not know objects.

use std::cmp::Ordering;
use std::slice;
use std::sync::Arc;

/// Maximum number of children of a branch.
///
/// Copying a branch increments the reference count of each child, which touches each child's memory.
const FANOUT: usize = 16;

/// Distinct elements in order, in leaves of at most `SIZE`.
#[derive(Debug, Clone)]
pub(crate) struct SortedSeq<T, const SIZE: usize> {
    /// Invariant: a branch at the root has at least two children.
    root: Node<T, SIZE>,
    len: usize,
}

/// A node of the tree.
///
/// Invariants: all leaves have the same depth. A node other than the root is not empty, and at least a
/// quarter full unless it is at the right edge, where elements that arrive in order are added.
#[derive(Debug, Clone)]
enum Node<T, const SIZE: usize> {
    Leaf(Arc<[T]>),
    Branch(Arc<[Child<T, SIZE>]>),
}

#[derive(Debug, Clone)]
struct Child<T, const SIZE: usize> {
    /// Invariant: a copy of the first element below `node`. A removed element must not stay here, because the
    /// caller may reuse it with another place in the order.
    first: T,
    node: Node<T, SIZE>,
}

/// The result of inserting an element into a node.
enum Insertion<T, const SIZE: usize> {
    /// An equal element exists; nothing was inserted.
    AlreadyPresent,
    Inserted,
    /// The element was inserted and the node was split; the returned node must be added after it.
    Overflow(Child<T, SIZE>),
}

impl<T, const SIZE: usize> Default for SortedSeq<T, SIZE> {
    fn default() -> Self {
        Self { root: Node::Leaf(Arc::default()), len: 0 }
    }
}

impl<T: Clone, const SIZE: usize> SortedSeq<T, SIZE> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns all elements in order.
    pub(crate) fn iter(&self) -> Iter<'_, T, SIZE> {
        self.iter_from(|_| false)
    }

    /// Returns the elements in order, starting with the first one for which `before` returns `false`.
    pub(crate) fn iter_from(&self, before: impl Fn(&T) -> bool) -> Iter<'_, T, SIZE> {
        let (mut node, mut remaining) = (&self.root, Vec::new());
        loop {
            match node {
                Node::Leaf(leaf) => {
                    return Iter { leaf: leaf[leaf.partition_point(before)..].iter(), remaining };
                }
                Node::Branch(children) => {
                    let at = children.partition_point(|child| before(&child.first)).saturating_sub(1);
                    remaining.push(children[at + 1..].iter());
                    node = &children[at].node;
                }
            }
        }
    }

    /// Returns the first element for which `before` returns `false`.
    pub(crate) fn first_from(&self, before: impl Fn(&T) -> bool) -> Option<&T> {
        let (mut node, mut successor) = (&self.root, None);
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.get(leaf.partition_point(before)).or(successor),
                Node::Branch(children) => {
                    let next = children.partition_point(|child| before(&child.first)).max(1);
                    successor = children.get(next).map(|child| &child.first).or(successor);
                    node = &children[next - 1].node;
                }
            }
        }
    }

    /// Inserts an element unless an equal one exists; returns whether it was inserted.
    ///
    /// `compare` compares an existing element with the new one.
    pub(crate) fn insert(&mut self, new: T, compare: impl Fn(&T) -> Ordering) -> bool {
        let at_right_edge = true;
        // An element greater than all others is appended without a search.
        let insertion = if self.root.last().is_none_or(|last| compare(last).is_lt()) {
            self.root.insert(new, &|_| Ordering::Less, at_right_edge)
        } else {
            self.root.insert(new, &compare, at_right_edge)
        };
        match insertion {
            Insertion::AlreadyPresent => return false,
            Insertion::Inserted => {}
            Insertion::Overflow(next) => {
                let old_root = std::mem::replace(&mut self.root, Node::Leaf(Arc::default()));
                self.root = Node::Branch(old_root.into_child().into_iter().chain([next]).collect());
            }
        }
        self.len += 1;
        true
    }

    /// Removes the element that compares as equal; returns whether there was one.
    pub(crate) fn remove(&mut self, compare: impl Fn(&T) -> Ordering) -> bool {
        if !self.root.remove(&compare) {
            return false;
        }
        while let Node::Branch(children) = &self.root
            && let [only] = &**children
        {
            self.root = only.node.clone();
        }
        self.len -= 1;
        true
    }

    /// Checks the invariants and the order.
    ///
    /// # Panics
    ///
    /// If an invariant is violated or the elements are not in this order.
    pub(crate) fn check_invariants(&self, compare: impl Fn(&T, &T) -> Ordering) {
        assert_eq!(self.iter().count(), self.len, "the length is the number of elements");
        for (left, right) in self.iter().zip(self.iter().skip(1)) {
            assert!(compare(left, right).is_lt(), "the elements are in order and distinct");
        }
        if let Node::Branch(children) = &self.root {
            assert!(children.len() > 1, "a branch at the root has at least two children");
        }
        let at_right_edge = true;
        self.root.check_invariants(&compare, at_right_edge);
    }
}

impl<T: Clone, const SIZE: usize> Node<T, SIZE> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len(),
            Self::Branch(children) => children.len(),
        }
    }

    /// Returns whether the node is less than a quarter full.
    fn is_sparse(&self) -> bool {
        match self {
            Self::Leaf(leaf) => leaf.len() < SIZE / 4,
            Self::Branch(children) => children.len() < FANOUT / 4,
        }
    }

    fn first(&self) -> Option<&T> {
        match self {
            Self::Leaf(leaf) => leaf.first(),
            Self::Branch(children) => children.first().map(|child| &child.first),
        }
    }

    fn last(&self) -> Option<&T> {
        let mut node = self;
        loop {
            match node {
                Self::Leaf(leaf) => return leaf.last(),
                Self::Branch(children) => node = &children.last()?.node,
            }
        }
    }

    /// Returns the node as a child of a branch, or `None` if it is empty.
    fn into_child(self) -> Option<Child<T, SIZE>> {
        Some(Child { first: self.first()?.clone(), node: self })
    }

    /// Inserts an element. A full node is split in halves; at the right edge of the tree, an element that
    /// comes after all others gets a node of its own instead.
    fn insert(
        &mut self,
        new: T,
        compare: &impl Fn(&T) -> Ordering,
        at_right_edge: bool,
    ) -> Insertion<T, SIZE> {
        let overflow = match self {
            Self::Leaf(leaf) => match leaf.binary_search_by(compare) {
                Ok(_) => return Insertion::AlreadyPresent,
                Err(at) => insert_or_split(leaf, at, new, SIZE, at_right_edge).map(Self::Leaf),
            },
            Self::Branch(children) => {
                let next = children.partition_point(|child| compare(&child.first).is_le());
                let (at, last) = (next.saturating_sub(1), children.len() - 1);
                let child = &mut Arc::make_mut(children)[at];
                if next == 0 {
                    child.first = new.clone();
                }
                match child.node.insert(new, compare, at_right_edge && at == last) {
                    Insertion::Overflow(more) => {
                        insert_or_split(children, at + 1, more, FANOUT, at_right_edge).map(Self::Branch)
                    }
                    other => return other,
                }
            }
        };
        overflow.and_then(Self::into_child).map_or(Insertion::Inserted, Insertion::Overflow)
    }

    fn remove(&mut self, compare: &impl Fn(&T) -> Ordering) -> bool {
        let children = match self {
            Self::Leaf(leaf) => {
                let found = leaf.binary_search_by(compare);
                if let Ok(at) = found {
                    *leaf = replaced(leaf, at, 1, []);
                }
                return found.is_ok();
            }
            Self::Branch(children) => children,
        };
        let next = children.partition_point(|child| compare(&child.first).is_le());
        let Some(at) = next.checked_sub(1) else { return false };
        let child = &mut Arc::make_mut(children)[at];
        if !child.node.remove(compare) {
            return false;
        }
        match child.node.first().cloned() {
            Some(first) => child.first = first,
            None => *children = replaced(children, at, 1, []),
        }
        if children.get(at).is_some_and(|child| child.node.is_sparse()) && children.len() > 1 {
            // With the right neighbour; the last child has only a left one.
            merge(children, at.min(children.len() - 2));
        }
        true
    }

    /// Checks the invariants of the subtree; returns its height.
    ///
    /// # Panics
    ///
    /// If an invariant is violated.
    fn check_invariants(&self, compare: &impl Fn(&T, &T) -> Ordering, at_right_edge: bool) -> usize {
        let Self::Branch(children) = self else {
            assert!(self.len() <= SIZE, "a leaf has at most {SIZE} elements");
            return 0;
        };
        assert!((1..=FANOUT).contains(&children.len()), "a branch has 1 to {FANOUT} children");
        let mut heights = children.iter().enumerate().map(|(at, child)| {
            let (node, at_right_edge) = (&child.node, at_right_edge && at == children.len() - 1);
            let first = node.first().map(|first| compare(first, &child.first));
            assert_eq!(first, Some(Ordering::Equal), "a branch contains the first element of each child");
            assert!(
                at_right_edge || !node.is_sparse(),
                "nodes are at least a quarter full except at the right edge"
            );
            node.check_invariants(compare, at_right_edge)
        });
        let height = heights.next().unwrap_or_default();
        assert!(heights.all(|other| other == height), "all leaves have the same depth");
        height + 1
    }
}

/// Inserts `new` at position `at`.
///
/// If there would be more than `max_len` items, the items are split and the second part is returned: the
/// upper half, or only the new item if it comes last in a node at the right edge of the tree.
fn insert_or_split<X: Clone>(
    items: &mut Arc<[X]>,
    at: usize,
    new: X,
    max_len: usize,
    at_right_edge: bool,
) -> Option<Arc<[X]>> {
    if items.len() < max_len {
        *items = replaced(items, at, 0, [new]);
        return None;
    }
    if at_right_edge && at == items.len() {
        return Some(Arc::new([new]));
    }
    let (left, right) = items.split_at(max_len / 2);
    let (left, right) = match at.checked_sub(left.len()) {
        Some(at) => (left.into(), replaced(right, at, 0, [new])),
        None => (replaced(left, at, 0, [new]), right.into()),
    };
    *items = left;
    Some(right)
}

/// Returns a copy in which `new` replaces `count` items from `at` on.
fn replaced<X: Clone, const N: usize>(items: &[X], at: usize, count: usize, new: [X; N]) -> Arc<[X]> {
    items[..at].iter().cloned().chain(new).chain(items[at + count..].iter().cloned()).collect()
}

/// Merges the nodes at `at` and `at + 1` into one, or into two of equal length if one cannot contain all
/// items.
fn merge<T: Clone, const SIZE: usize>(children: &mut Arc<[Child<T, SIZE>]>, at: usize) {
    let (one, two) = match (&children[at].node, &children[at + 1].node) {
        (Node::Leaf(left), Node::Leaf(right)) => {
            let (one, two) = balanced(left, right, SIZE);
            (Node::Leaf(one), Node::Leaf(two))
        }
        (Node::Branch(left), Node::Branch(right)) => {
            let (one, two) = balanced(left, right, FANOUT);
            (Node::Branch(one), Node::Branch(two))
        }
        _ => unreachable!("all leaves have the same depth"),
    };
    let merged = [one, two].into_iter().filter_map(Node::into_child);
    *children =
        children[..at].iter().cloned().chain(merged).chain(children[at + 2..].iter().cloned()).collect();
}

/// Returns the items of two nodes in two halves; the second is empty if the first can contain all of them.
fn balanced<X: Clone>(left: &[X], right: &[X], max_len: usize) -> (Arc<[X]>, Arc<[X]>) {
    let all = [left, right].concat();
    let middle = if all.len() <= max_len { all.len() } else { all.len() / 2 };
    (all[..middle].into(), all[middle..].into())
}

/// An iterator over the elements in order.
pub(crate) struct Iter<'a, T, const SIZE: usize> {
    leaf: slice::Iter<'a, T>,
    /// The children after the current path, from the root down.
    remaining: Vec<slice::Iter<'a, Child<T, SIZE>>>,
}

impl<'a, T, const SIZE: usize> Iterator for Iter<'a, T, SIZE> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(next) = self.leaf.next() {
                return Some(next);
            }
            match self.remaining.last_mut()?.next().map(|child| &child.node) {
                Some(Node::Leaf(leaf)) => self.leaf = leaf.iter(),
                Some(Node::Branch(children)) => self.remaining.push(children.iter()),
                None => drop(self.remaining.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
                let value =
                    if random(8) == 0 { value } else { from(value).or_else(|| from(0)).unwrap_or(value) };
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
}
