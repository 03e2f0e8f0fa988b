//! A persistent sorted sequence: cloning it is a pointer, a change copies one leaf and the way to it.
//!
//! A tree whose leaves hold the elements and whose branches hold the first element of each child. Nodes are as long as what is in them,
//! so that a leaf that is half full takes half the memory, and elements that arrive in order fill one leaf after the other. The order is the
//! caller's: each call brings a comparison, and all calls must mean the same order. It knows nothing of objects.

use std::cmp::Ordering;
use std::slice;
use std::sync::Arc;

/// The most children of a branch. Copying one takes a share of each child, and that share is counted where the child lies.
const FANOUT: usize = 16;

/// Elements in order, each once, in leaves of at most `SIZE`.
#[derive(Debug, Clone)]
pub(crate) struct SortedSeq<T, const SIZE: usize> {
    /// Invariant: if it is a branch, it has two children or more.
    root: Node<T, SIZE>,
    len: usize,
}

/// Invariant: below a branch all leaves are equally deep. A node that is not the root holds something, and is a quarter full
/// at least unless it lies at the right edge, where the next one in order will go.
#[derive(Debug, Clone)]
enum Node<T, const SIZE: usize> {
    Leaf(Arc<[T]>),
    Branch(Arc<[Child<T, SIZE>]>),
}

#[derive(Debug, Clone)]
struct Child<T, const SIZE: usize> {
    /// Invariant: the first element below `node`, and no older one that was equal to it: it may compare as something else by now.
    first: T,
    node: Node<T, SIZE>,
}

/// What became of an element that was to be put in.
enum Put<T, const SIZE: usize> {
    /// An equal one is there.
    Known,
    Done,
    /// It is in, and this part of the node found no room: it belongs right behind.
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

    /// All elements, in order.
    pub(crate) fn iter(&self) -> Iter<'_, T, SIZE> {
        self.from(|_| false)
    }

    /// The elements in order, without those at the beginning that lie `before` the wanted ones.
    pub(crate) fn from(&self, before: impl Fn(&T) -> bool) -> Iter<'_, T, SIZE> {
        let (mut node, mut rest) = (&self.root, Vec::new());
        loop {
            match node {
                Node::Leaf(leaf) => return Iter { leaf: leaf[leaf.partition_point(before)..].iter(), rest },
                Node::Branch(children) => {
                    let at = children.partition_point(|child| before(&child.first)).saturating_sub(1);
                    rest.push(children[at + 1..].iter());
                    node = &children[at].node;
                }
            }
        }
    }

    /// The first element that does not lie `before` the wanted ones.
    pub(crate) fn first_from(&self, before: impl Fn(&T) -> bool) -> Option<&T> {
        let (mut node, mut behind) = (&self.root, None);
        loop {
            match node {
                Node::Leaf(leaf) => return leaf.get(leaf.partition_point(before)).or(behind),
                Node::Branch(children) => {
                    let next = children.partition_point(|child| before(&child.first)).max(1);
                    behind = children.get(next).map(|child| &child.first).or(behind);
                    node = &children[next - 1].node;
                }
            }
        }
    }

    /// Puts an element in its place, unless an equal one is there; returns whether it did. `compare` says how a known element orders
    /// against the new one.
    pub(crate) fn insert(&mut self, new: T, compare: impl Fn(&T) -> Ordering) -> bool {
        // What arrives in order goes to the end, and needs no search.
        let put = if self.root.last().is_none_or(|last| compare(last).is_lt()) {
            self.root.insert(new, &|_| Ordering::Less, true)
        } else {
            self.root.insert(new, &compare, true)
        };
        match put {
            Put::Known => return false,
            Put::Done => {}
            Put::Overflow(behind) => {
                let before = std::mem::replace(&mut self.root, Node::Leaf(Arc::default()));
                self.root = Node::Branch(before.into_child().into_iter().chain([behind]).collect());
            }
        }
        self.len += 1;
        true
    }

    /// Takes the element out that compares as equal; returns whether there was one.
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

    /// Panics if the tree contradicts itself, or is not in this order.
    pub(crate) fn check_invariants(&self, compare: impl Fn(&T, &T) -> Ordering) {
        assert_eq!(self.iter().count(), self.len, "the length is the number of elements");
        for (left, right) in self.iter().zip(self.iter().skip(1)) {
            assert!(compare(left, right).is_lt(), "elements are in order, each once");
        }
        if let Node::Branch(children) = &self.root {
            assert!(children.len() > 1, "a root with one child is that child");
        }
        self.root.check_invariants(&compare, true);
    }
}

impl<T: Clone, const SIZE: usize> Node<T, SIZE> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(leaf) => leaf.len(),
            Self::Branch(children) => children.len(),
        }
    }

    /// Whether it is less than a quarter full.
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

    /// `None` if it is empty.
    fn into_child(self) -> Option<Child<T, SIZE>> {
        Some(Child { first: self.first()?.clone(), node: self })
    }

    /// Puts an element in. At the right `edge` of the tree a full node stays full when something comes behind it.
    fn insert(&mut self, new: T, compare: &impl Fn(&T) -> Ordering, edge: bool) -> Put<T, SIZE> {
        let overflow = match self {
            Self::Leaf(leaf) => match leaf.binary_search_by(compare) {
                Ok(_) => return Put::Known,
                Err(at) => put(leaf, at, new, SIZE, edge).map(Self::Leaf),
            },
            Self::Branch(children) => {
                let behind = children.partition_point(|child| compare(&child.first).is_le());
                let (at, last) = (behind.saturating_sub(1), children.len() - 1);
                let child = &mut Arc::make_mut(children)[at];
                if behind == 0 {
                    child.first = new.clone();
                }
                match child.node.insert(new, compare, edge && at == last) {
                    Put::Overflow(more) => put(children, at + 1, more, FANOUT, edge).map(Self::Branch),
                    other => return other,
                }
            }
        };
        overflow.and_then(Self::into_child).map_or(Put::Done, Put::Overflow)
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
        let behind = children.partition_point(|child| compare(&child.first).is_le());
        let Some(at) = behind.checked_sub(1) else { return false };
        let child = &mut Arc::make_mut(children)[at];
        if !child.node.remove(compare) {
            return false;
        }
        match child.node.first().cloned() {
            Some(first) => child.first = first,
            None => *children = replaced(children, at, 1, []),
        }
        if children.get(at).is_some_and(|child| child.node.is_sparse()) && children.len() > 1 {
            join(children, at.min(children.len() - 2));
        }
        true
    }

    /// Panics if something is wrong in here; returns how deep the leaves are.
    fn check_invariants(&self, compare: &impl Fn(&T, &T) -> Ordering, edge: bool) -> usize {
        let Self::Branch(children) = self else {
            assert!(self.len() <= SIZE, "a leaf holds {SIZE} at most");
            return 0;
        };
        assert!((1..=FANOUT).contains(&children.len()), "a branch has 1 to {FANOUT} children");
        let mut depths = children.iter().enumerate().map(|(at, child)| {
            let (node, edge) = (&child.node, edge && at == children.len() - 1);
            let first = node.first().map(|first| compare(first, &child.first));
            assert_eq!(first, Some(Ordering::Equal), "a branch knows what its children begin with");
            assert!(edge || !node.is_sparse(), "nodes are a quarter full, except at the edge");
            node.check_invariants(compare, edge)
        });
        let depth = depths.next().unwrap_or_default();
        assert!(depths.all(|other| other == depth), "all leaves are equally deep");
        depth + 1
    }
}

/// Puts something in at this place. If that is more than `most`, what has no room is returned: what lies behind the middle, or the new
/// one alone if it comes last at the `edge`.
fn put<X: Clone>(items: &mut Arc<[X]>, at: usize, new: X, most: usize, edge: bool) -> Option<Arc<[X]>> {
    if items.len() < most {
        *items = replaced(items, at, 0, [new]);
        return None;
    }
    if edge && at == items.len() {
        return Some(Arc::new([new]));
    }
    let (left, right) = items.split_at(most / 2);
    let (left, right) = match at.checked_sub(left.len()) {
        Some(at) => (left.into(), replaced(right, at, 0, [new])),
        None => (replaced(left, at, 0, [new]), right.into()),
    };
    *items = left;
    Some(right)
}

/// A copy with `new` in the place of `count` items.
fn replaced<X: Clone, const N: usize>(items: &[X], at: usize, count: usize, new: [X; N]) -> Arc<[X]> {
    items[..at].iter().cloned().chain(new).chain(items[at + count..].iter().cloned()).collect()
}

/// Makes one node of two neighbours, or two of equal length if they do not fit into one.
fn join<T: Clone, const SIZE: usize>(children: &mut Arc<[Child<T, SIZE>]>, at: usize) {
    let (one, two) = match (&children[at].node, &children[at + 1].node) {
        (Node::Leaf(left), Node::Leaf(right)) => {
            let (one, two) = evened(left, right, SIZE);
            (Node::Leaf(one), Node::Leaf(two))
        }
        (Node::Branch(left), Node::Branch(right)) => {
            let (one, two) = evened(left, right, FANOUT);
            (Node::Branch(one), Node::Branch(two))
        }
        _ => unreachable!("all leaves are equally deep"),
    };
    let joined = [one, two].into_iter().filter_map(Node::into_child);
    *children =
        children[..at].iter().cloned().chain(joined).chain(children[at + 2..].iter().cloned()).collect();
}

/// All items of two nodes, in two halves; in one if `most` allows.
fn evened<X: Clone>(left: &[X], right: &[X], most: usize) -> (Arc<[X]>, Arc<[X]>) {
    let all = [left, right].concat();
    let middle = if all.len() <= most { all.len() } else { all.len() / 2 };
    (all[..middle].into(), all[middle..].into())
}

/// Elements in order.
pub(crate) struct Iter<'a, T, const SIZE: usize> {
    leaf: slice::Iter<'a, T>,
    /// What comes behind the leaf, from the root down.
    rest: Vec<slice::Iter<'a, Child<T, SIZE>>>,
}

impl<'a, T, const SIZE: usize> Iterator for Iter<'a, T, SIZE> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(next) = self.leaf.next() {
                return Some(next);
            }
            match self.rest.last_mut()?.next().map(|child| &child.node) {
                Some(Node::Leaf(leaf)) => self.leaf = leaf.iter(),
                Some(Node::Branch(children)) => self.rest.push(children.iter()),
                None => drop(self.rest.pop()),
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

    /// Random operations: mostly additions, then mostly removals, then again. Additions come at random or at the end.
    fn check_against_twin<const SIZE: usize>(mut seed: u64) {
        let story = format!("leaves of {SIZE}, seed {seed}");
        let mut random = |bound: u32| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from(seed >> 33).unwrap() % bound
        };
        let (mut sorted, mut twin) = (SortedSeq::<u32, SIZE>::default(), BTreeSet::new());
        let mut copies = Vec::new();
        for round in 0..6_000 {
            let value = random(3_000);
            // The third phase takes out everything that is left.
            let removes = [20, 90, 30, 100][round / 1_500];
            if random(100) < removes {
                let from = |value| twin.range(value..).next().copied();
                // Mostly something that is there.
                let value =
                    if random(8) == 0 { value } else { from(value).or_else(|| from(0)).unwrap_or(value) };
                assert_eq!(sorted.remove(|known| known.cmp(&value)), twin.remove(&value), "{story}");
            } else {
                let end = twin.last().map_or(0, |last| last + 1);
                let value = if random(4) == 0 { end } else { value };
                assert_eq!(insert(&mut sorted, value), twin.insert(value), "{story}");
            }
            let bound = random(3_500);
            let from = sorted.from(|known| *known < bound).take(9);
            assert!(from.eq(twin.range(bound..).take(9)), "{story}");
            let behind = sorted.first_from(|known| *known <= bound);
            assert_eq!(behind, twin.range(bound + 1..).next(), "{story}");
            if round % 97 == 0 {
                copies.push((sorted.clone(), twin.clone()));
            }
        }
        assert_eq!((sorted.len(), twin.len()), (0, 0), "{story}: all is taken out at the end");
        copies.push((sorted, twin));
        for (sorted, twin) in &copies {
            assert!(sorted.iter().eq(twin), "{story}");
            sorted.check_invariants(u32::cmp);
        }
    }

    #[test]
    fn a_sequence_is_what_was_put_in_and_copies_stay_as_they_were() {
        for seed in 0..10 {
            check_against_twin::<4>(seed);
            check_against_twin::<7>(seed);
            check_against_twin::<64>(seed);
        }
    }

    #[test]
    fn what_arrives_in_order_fills_the_leaves() {
        let mut sorted = SortedSeq::<u32, 8>::default();
        (0..1001).for_each(|value| assert!(insert(&mut sorted, value)));
        sorted.check_invariants(u32::cmp);
        let leaves = leaves(&sorted.root);
        assert_eq!((leaves.len(), leaves.last()), (126, Some(&1)));
        assert!(leaves[..125].iter().all(|len| *len == 8));
    }

    #[test]
    fn leaves_that_run_empty_are_joined() {
        let mut sorted = SortedSeq::<u32, 8>::default();
        (0..1000).for_each(|value| assert!(insert(&mut sorted, value)));
        for value in (0..1000).filter(|value| value % 10 != 0) {
            assert!(sorted.remove(|known| known.cmp(&value)));
        }
        sorted.check_invariants(u32::cmp);
        assert!(leaves(&sorted.root).len() <= 50, "100 elements, two in a leaf at least");
    }

    #[test]
    fn a_change_copies_one_leaf() {
        let mut sorted = SortedSeq::<u32, 8>::default();
        (0..1000).for_each(|value| assert!(insert(&mut sorted, 2 * value)));
        let before = sorted.clone();
        assert!(sorted.remove(|known| known.cmp(&1000)));
        assert!(insert(&mut sorted, 1001));
        let shared: Vec<_> = sorted.iter().map(std::ptr::from_ref).collect();
        let apart = before.iter().filter(|old| !shared.contains(&std::ptr::from_ref(*old)));
        assert!(apart.count() <= 8);
    }

    /// A slot that is taken again by another key compares as something else. A branch that had kept the slot of an element that was taken out
    /// would send the search astray.
    #[test]
    fn branches_forget_what_was_taken_out() {
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
