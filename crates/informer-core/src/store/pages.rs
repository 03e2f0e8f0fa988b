//! A persistent array: cloning it is a pointer, changing one element copies one small page and the way to it.
//!
//! A tree of fixed fan-out over the index, with pages of elements as its leaves. Copying a node takes a share of each of its children,
//! and that share is counted where the child lies, so nodes are kept small. Two arrays that share a node are equal below it: telling
//! them apart costs what differs, not what is there. It knows nothing of objects.

use std::sync::Arc;

const BITS: u32 = 4;
const FANOUT: usize = 1 << BITS;

/// An array of `T`, in pages of `SIZE`. What was never set is `T::default()`.
#[derive(Clone)]
pub(crate) struct PagedVec<T, const SIZE: usize> {
    root: Node<T, SIZE>,
    /// How many levels of branches lie above the pages.
    height: u32,
}

#[derive(Clone)]
enum Node<T, const SIZE: usize> {
    Nothing,
    Branch(Arc<[Node<T, SIZE>; FANOUT]>),
    Page(Arc<[T; SIZE]>),
}

impl<T, const SIZE: usize> Default for PagedVec<T, SIZE> {
    fn default() -> Self {
        Self { root: Node::Nothing, height: 0 }
    }
}

impl<T: Clone + Default, const SIZE: usize> PagedVec<T, SIZE> {
    /// The element at `index`, if its page was ever touched.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        self.page(index / SIZE).map(|page| &page[index % SIZE])
    }

    /// The elements from `number * SIZE` on, if any of them was ever set.
    #[inline]
    pub(crate) fn page(&self, number: usize) -> Option<&[T; SIZE]> {
        if number >> (BITS * self.height) != 0 {
            return None;
        }
        let mut node = &self.root;
        let mut level = self.height;
        loop {
            match node {
                Node::Branch(children) => {
                    level = level.saturating_sub(1);
                    node = &children[child(number, level)];
                }
                Node::Page(page) => return Some(page),
                Node::Nothing => return None,
            }
        }
    }

    /// Sets one element, making room for it.
    pub(crate) fn set(&mut self, index: usize, value: T) {
        let number = index / SIZE;
        while number >> (BITS * self.height) != 0 {
            self.raise();
        }
        let mut node = &mut self.root;
        for level in (0..self.height).rev() {
            node = &mut node.branch()[child(number, level)];
        }
        node.page()[index % SIZE] = value;
    }

    /// Puts one level on top.
    fn raise(&mut self) {
        let mut top = Node::Nothing;
        top.branch()[0] = std::mem::replace(&mut self.root, Node::Nothing);
        self.root = top;
        self.height += 1;
    }

    /// Calls `visit` with the index and both elements wherever the two arrays do not share a page, in order of index.
    pub(crate) fn each_apart(&self, other: &Self, mut visit: impl FnMut(usize, Option<&T>, Option<&T>)) {
        let (mut left, mut right) = (self.clone(), other.clone());
        let height = left.height.max(right.height);
        for array in [&mut left, &mut right] {
            while array.height < height {
                array.raise();
            }
        }
        apart(&left.root, &right.root, 0, &mut visit);
    }
}

/// Which child of a branch at this level leads to a page.
#[inline]
fn child(page: usize, level: u32) -> usize {
    (page >> (BITS * level)) % FANOUT
}

impl<T: Clone + Default, const SIZE: usize> Node<T, SIZE> {
    /// The children, not shared with anybody; a node that was nothing becomes a branch.
    fn branch(&mut self) -> &mut [Self; FANOUT] {
        if let Self::Nothing = self {
            *self = Self::Branch(Arc::new([const { Self::Nothing }; FANOUT]));
        }
        match self {
            Self::Branch(children) => Arc::make_mut(children),
            Self::Page(_) | Self::Nothing => unreachable!("pages lie below all branches"),
        }
    }

    /// The elements, not shared with anybody; a node that was nothing becomes a page.
    fn page(&mut self) -> &mut [T; SIZE] {
        if let Self::Nothing = self {
            *self = Self::Page(Arc::new(std::array::from_fn(|_| T::default())));
        }
        match self {
            Self::Page(page) => Arc::make_mut(page),
            Self::Branch(_) | Self::Nothing => unreachable!("pages lie below all branches"),
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Nothing, Self::Nothing) => true,
            (Self::Branch(left), Self::Branch(right)) => Arc::ptr_eq(left, right),
            (Self::Page(left), Self::Page(right)) => Arc::ptr_eq(left, right),
            _ => false,
        }
    }
}

fn apart<T: Clone + Default, const SIZE: usize>(
    left: &Node<T, SIZE>,
    right: &Node<T, SIZE>,
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
            Node::Page(_) | Node::Nothing => &Node::Nothing,
        });
        apart(left, right, number * FANOUT + at, visit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_what_was_set_and_copies_stay_as_they_were() {
        let mut seed = 7_u64;
        let mut random = |bound: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % bound
        };
        let (mut pages, mut twin) = (PagedVec::<u32, 4>::default(), vec![0; 5000]);
        let mut copies = Vec::new();
        for round in 0..20_000 {
            // Small indexes first, so that the tree grows under way.
            let index = random(1 + round / 4);
            let value = u32::try_from(round).unwrap();
            pages.set(index, value);
            twin[index] = value;
            if round % 1999 == 0 {
                copies.push((pages.clone(), twin.clone()));
            }
        }
        copies.push((pages, twin));
        for (pages, twin) in &copies {
            for (index, expected) in twin.iter().enumerate() {
                assert_eq!(pages.get(index).copied().unwrap_or_default(), *expected, "at {index}");
            }
            assert_eq!(pages.get(usize::MAX), None);
        }
        for ((left, left_twin), (right, right_twin)) in copies.iter().zip(&copies[1..]) {
            let expected: Vec<usize> = (0..5000).filter(|at| left_twin[*at] != right_twin[*at]).collect();
            let mut apart = Vec::new();
            left.each_apart(right, |index, left, right| {
                if left.copied().unwrap_or_default() != right.copied().unwrap_or_default() {
                    apart.push(index);
                }
            });
            assert_eq!(apart, expected);
        }
    }

    #[test]
    fn what_is_shared_is_not_visited() {
        let mut pages = PagedVec::<u32, 4>::default();
        (0..1000).for_each(|index| pages.set(index, 1));
        let before = pages.clone();
        pages.set(501, 2);
        let mut visited = Vec::new();
        before.each_apart(&pages, |index, left, right| visited.push((index, left.copied(), right.copied())));
        let one = Some(1);
        assert_eq!(visited, [(500, one, one), (501, one, Some(2)), (502, one, one), (503, one, one)]);
    }
}
