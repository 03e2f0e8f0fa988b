//! A persistent array: a clone shares all memory, and changing an element copies one small page and its
//! ancestors.
//!
//! A tree of fixed fan-out over the index, with pages of elements as its leaves. Copying a node increments
//! the reference count of each child, which touches each child's memory, so nodes are small. Two arrays that
//! share a node are equal below it, so the cost of finding their differences depends on the number of
//! differences, not on the size. This module does not know objects.

use std::sync::Arc;

/// The size of a cache line of most processors.
pub(crate) const CACHE_LINE_BYTES: usize = 64;

/// An array of `T` in pages of `SIZE`, below branches with `FANOUT` children, a power of two. Elements that were
/// never set are `T::default()`.
#[derive(Clone)]
pub(crate) struct PagedVec<T, const SIZE: usize, const FANOUT: usize> {
    root: Node<T, SIZE, FANOUT>,
    /// Number of branch levels above the pages.
    height: u32,
}

#[derive(Clone)]
enum Node<T, const SIZE: usize, const FANOUT: usize> {
    Empty,
    Branch(Arc<[Self; FANOUT]>),
    Page(Arc<[T; SIZE]>),
}

impl<T, const SIZE: usize, const FANOUT: usize> Default for PagedVec<T, SIZE, FANOUT> {
    fn default() -> Self {
        Self { root: Node::Empty, height: 0 }
    }
}

impl<T: Clone + Default, const SIZE: usize, const FANOUT: usize> PagedVec<T, SIZE, FANOUT> {
    /// Number of bits of the page number that select a child on one level.
    const BITS: u32 = FANOUT.trailing_zeros();

    /// Whether all pages below a branch are allocated with the first one. Allocated one by one, small pages lie
    /// between the objects of an initial list, and reading one costs a cache miss and a TLB miss. A branch then
    /// takes the memory of all its pages; later copies of a page may lie elsewhere.
    const ALLOCATES_SIBLINGS: bool = size_of::<[T; SIZE]>() <= CACHE_LINE_BYTES;

    /// Returns the element at `index`, or `None` if its page was never allocated.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.page(index / SIZE).map(|page| &page[index % SIZE])
    }

    /// Returns the page with the elements from `number * SIZE` on, or `None` if it was never allocated. Small pages
    /// are allocated before one of their elements is set.
    #[inline]
    pub(crate) fn page(&self, number: usize) -> Option<&[T; SIZE]> {
        if number >> (Self::BITS * self.height) != 0 {
            return None;
        }
        let mut node = &self.root;
        let mut level = self.height;
        loop {
            match node {
                Node::Branch(children) => {
                    level = level.saturating_sub(1);
                    node = &children[Self::child(number, level)];
                }
                Node::Page(page) => return Some(page),
                Node::Empty => return None,
            }
        }
    }

    /// Sets an element, growing the array if needed.
    pub(crate) fn set(&mut self, index: usize, value: T) {
        let number = index / SIZE;
        while number >> (Self::BITS * self.height) != 0 {
            self.add_level();
        }
        let mut node = &mut self.root;
        for level in (0..self.height).rev() {
            let (at, children) = (Self::child(number, level), node.branch_mut());
            if Self::ALLOCATES_SIBLINGS && level == 0 && matches!(children[at], Node::Empty) {
                for child in children.iter_mut().filter(|child| matches!(child, Node::Empty)) {
                    child.page_mut();
                }
            }
            node = &mut children[at];
        }
        node.page_mut()[index % SIZE] = value;
    }

    /// Returns the position of the child that leads to a page, in a branch at this level.
    #[inline]
    fn child(page: usize, level: u32) -> usize {
        (page >> (Self::BITS * level)) % FANOUT
    }

    /// Adds a level above the root.
    fn add_level(&mut self) {
        let mut top = Node::Empty;
        top.branch_mut()[0] = std::mem::replace(&mut self.root, Node::Empty);
        self.root = top;
        self.height += 1;
    }

    /// Calls `visit` for each index on a page that the arrays do not share, in order, with the elements of
    /// both arrays. The elements may be equal; `None` if an array has no such page.
    pub(crate) fn for_each_unshared(
        &self,
        other: &Self,
        mut visit: impl FnMut(usize, Option<&T>, Option<&T>),
    ) {
        let (mut left, mut right) = (self.clone(), other.clone());
        let height = left.height.max(right.height);
        for array in [&mut left, &mut right] {
            while array.height < height {
                array.add_level();
            }
        }
        visit_unshared(&left.root, &right.root, 0, &mut visit);
    }
}

impl<T: Clone + Default, const SIZE: usize, const FANOUT: usize> Node<T, SIZE, FANOUT> {
    /// Returns the children for modification, copying them if they are shared. An empty node becomes a
    /// branch.
    fn branch_mut(&mut self) -> &mut [Self; FANOUT] {
        if let Self::Empty = self {
            *self = Self::Branch(Arc::new([const { Self::Empty }; FANOUT]));
        }
        match self {
            Self::Branch(children) => Arc::make_mut(children),
            Self::Page(_) | Self::Empty => unreachable!("only the lowest level contains pages"),
        }
    }

    /// Returns the elements for modification, copying them if they are shared. An empty node becomes a page.
    fn page_mut(&mut self) -> &mut [T; SIZE] {
        if let Self::Empty = self {
            *self = Self::Page(Arc::new(std::array::from_fn(|_| T::default())));
        }
        match self {
            Self::Page(page) => Arc::make_mut(page),
            Self::Branch(_) | Self::Empty => unreachable!("only the lowest level contains pages"),
        }
    }

    /// Returns whether both nodes share their memory, or both are empty.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Empty, Self::Empty) => true,
            (Self::Branch(left), Self::Branch(right)) => Arc::ptr_eq(left, right),
            (Self::Page(left), Self::Page(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }
}

/// Visits the elements below two nodes on pages that the nodes do not share. `number` is the position of both
/// nodes on their level.
fn visit_unshared<T: Clone + Default, const SIZE: usize, const FANOUT: usize>(
    left: &Node<T, SIZE, FANOUT>,
    right: &Node<T, SIZE, FANOUT>,
    number: usize,
    visit: &mut impl FnMut(usize, Option<&T>, Option<&T>),
) {
    if left.is_same(right) {
        return;
    }
    let pages = [left, right].map(|node| if let Node::Page(page) = node { Some(page) } else { None });
    if pages.iter().any(Option::is_some) {
        for at in 0..SIZE {
            let [left, right] = pages.map(|page| page.map(|page| &page[at]));
            visit(number * SIZE + at, left, right);
        }
        return;
    }
    for at in 0..FANOUT {
        let [left, right] = [left, right].map(|node| match node {
            Node::Branch(children) => &children[at],
            Node::Page(_) | Node::Empty => &Node::Empty,
        });
        visit_unshared(left, right, number * FANOUT + at, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_sets_match_a_vec_and_leave_copies_unchanged() {
        const { assert!(PagedVec::<u32, 4, 16>::ALLOCATES_SIBLINGS) };
        check_random_sets::<4>();
        const { assert!(!PagedVec::<u32, 32, 16>::ALLOCATES_SIBLINGS) };
        check_random_sets::<32>();
    }

    fn check_random_sets<const SIZE: usize>() {
        let mut seed = 7_u64;
        let mut random = |bound: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % bound
        };
        let (mut pages, mut model) = (PagedVec::<u32, SIZE, 16>::default(), vec![0; 5000]);
        let mut copies = Vec::new();
        for round in 0..20_000 {
            // Starts with small indexes so that the tree grows during the test.
            let index = random(1 + round / 4);
            let value = u32::try_from(round).unwrap();
            pages.set(index, value);
            model[index] = value;
            if round % 1999 == 0 {
                copies.push((pages.clone(), model.clone()));
            }
        }
        copies.push((pages, model));
        for (pages, model) in &copies {
            for (index, expected) in model.iter().enumerate() {
                assert_eq!(pages.get(index).copied().unwrap_or_default(), *expected, "at {index}");
            }
            assert_eq!(pages.get(usize::MAX), None);
        }
        for ((left, left_model), (right, right_model)) in copies.iter().zip(&copies[1..]) {
            let expected: Vec<usize> = (0..5000).filter(|at| left_model[*at] != right_model[*at]).collect();
            let mut differing = Vec::new();
            left.for_each_unshared(right, |index, left, right| {
                if left.copied().unwrap_or_default() != right.copied().unwrap_or_default() {
                    differing.push(index);
                }
            });
            assert_eq!(differing, expected);
        }
    }

    #[test]
    fn shared_pages_are_not_visited() {
        let mut pages = PagedVec::<u32, 4, 16>::default();
        (0..1000).for_each(|index| pages.set(index, 1));
        let before = pages.clone();
        pages.set(501, 2);
        let mut visited = Vec::new();
        before.for_each_unshared(&pages, |index, left, right| {
            visited.push((index, left.copied(), right.copied()));
        });
        let one = Some(1);
        assert_eq!(visited, [(500, one, one), (501, one, Some(2)), (502, one, one), (503, one, one)]);
    }

    /// Regression: comparing a one-page array with a larger one copied the shared page, and visited it.
    #[test]
    fn page_shared_with_a_higher_tree_is_not_visited() {
        let mut pages = PagedVec::<u32, 4, 16>::default();
        (0..4).for_each(|index| pages.set(index, 1));
        let before = pages.clone();
        pages.set(4, 2);
        let visited = |left: &PagedVec<u32, 4, 16>, right| {
            let mut visited = Vec::new();
            left.for_each_unshared(right, |index, _, _| visited.push(index));
            visited
        };
        assert_eq!(visited(&before, &pages), (4..64).collect::<Vec<_>>());
        assert_eq!(visited(&pages, &before), (4..64).collect::<Vec<_>>());
        assert!(std::ptr::eq(before.page(0).unwrap(), pages.page(0).unwrap()));
    }
}
