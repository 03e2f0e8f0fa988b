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
        let (mut node, mut path) = (&self.root, Path::default());
        loop {
            match node {
                Node::Leaf(leaf) => {
                    let leaf = leaf[leaf.partition_point(before)..].iter();
                    return Iter { leaf, root: &self.root, path };
                }
                Node::Branch(children) => {
                    let at = children.partition_point(|child| before(&child.first)).saturating_sub(1);
                    path.push(at);
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

/// An iterator over the elements in order. It allocates nothing.
pub(crate) struct Iter<'a, T, const SIZE: usize> {
    /// The rest of the current leaf.
    leaf: slice::Iter<'a, T>,
    root: &'a Node<T, SIZE>,
    /// The path to the current leaf.
    path: Path,
}

impl<'a, T, const SIZE: usize> Iterator for Iter<'a, T, SIZE> {
    type Item = &'a T;

    #[inline]
    fn next(&mut self) -> Option<&'a T> {
        if let Some(next) = self.leaf.next() {
            return Some(next);
        }
        self.leaf = self.next_leaf()?.iter();
        self.leaf.next()
    }
}

impl<'a, T, const SIZE: usize> Iter<'a, T, SIZE> {
    /// Moves to the next leaf and returns it. Starts at the root, which is cheap once per leaf.
    fn next_leaf(&mut self) -> Option<&'a [T]> {
        // The lowest branch on the path that has a child after the path.
        let (mut node, mut level, mut turn) = (self.root, 0, None);
        while let Node::Branch(children) = node {
            let at = self.path.at(level);
            if let Some(next) = children.get(at + 1) {
                turn = Some((level, at + 1, &next.node));
            }
            node = &children.get(at)?.node;
            level += 1;
        }
        let (level, at, mut node) = turn?;
        self.path.truncate(level);
        self.path.push(at);
        loop {
            match node {
                Node::Leaf(leaf) => return Some(leaf),
                Node::Branch(children) => {
                    self.path.push(0);
                    node = &children.first()?.node;
                }
            }
        }
    }
}

/// Upper bound on the levels of branches: a tree with more has over `4^15` leaves, because each branch except
/// those at the right edge has at least four children.
const MAX_LEVELS: usize = 16;

/// The path from the root to a leaf: the position of a child in each branch, from the root down.
#[derive(Debug, Clone, Copy, Default)]
struct Path {
    positions: [u8; MAX_LEVELS],
    len: usize,
}

impl Path {
    fn at(&self, level: usize) -> usize {
        usize::from(self.positions[level])
    }

    fn push(&mut self, position: usize) {
        // Positions are less than `FANOUT`.
        self.positions[self.len] = u8::try_from(position).unwrap_or(u8::MAX);
        self.len += 1;
    }

    fn truncate(&mut self, len: usize) {
        self.len = len;
    }
}

#[cfg(test)]
#[path = "sorted_tests.rs"]
mod tests;
