//! Set operations of [`HashRanges`].
//!
//! Invariant: each result has as few ranges as possible, in ascending order.

use super::range::{HashRange, HashRanges};

impl HashRanges {
    /// The set of all hashes.
    pub fn all() -> Self {
        Self(vec![HashRange::ALL])
    }

    /// Returns the hashes that are in at least one of the sets.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        self.iter().chain(other.iter()).copied().collect()
    }

    /// Returns the hashes of this set that are not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut rest = Vec::new();
        for range in &self.0 {
            // The first hash of the range that is not known to be in `other`; `None` after the last hash of all.
            let mut next = Some(range.first());
            let overlapping = other.0.partition_point(|removed| removed.last() < range.first());
            for removed in other.0[overlapping..].iter().take_while(|removed| removed.first() <= range.last())
            {
                let before = removed.first().checked_sub(1);
                rest.extend(next.zip(before).and_then(|(first, last)| HashRange::new(first, last)));
                next = removed.last().checked_add(1);
            }
            rest.extend(next.and_then(|first| HashRange::new(first, range.last())));
        }
        Self(rest)
    }

    /// Returns the hashes that are in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.difference(&self.difference(other))
    }

    /// Returns whether all hashes of this set are in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.iter().all(|range| other.covers(range))
    }

    /// Returns the part of all hashes that is in the set, from 0 to 1.
    #[expect(clippy::cast_precision_loss, reason = "a share is a floating-point number")]
    pub fn share(&self) -> f64 {
        let hashes = |range: &HashRange| u128::from(range.last() - range.first()) + 1;
        let sum: u128 = self.0.iter().map(hashes).sum();
        sum as f64 / (u128::from(u64::MAX) + 1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::RangeCount;
    use proptest::prelude::*;

    /// The hashes that the tests look at: all bounds of [`any_set`], and those beside them.
    fn hashes() -> impl Iterator<Item = u64> {
        (0..24).chain(u64::MAX - 6..=u64::MAX)
    }

    fn any_set() -> impl Strategy<Value = HashRanges> {
        // Few different bounds, so that ranges touch and overlap.
        let bound = || prop_oneof![0..20_u64, u64::MAX - 3..=u64::MAX];
        let range = (bound(), bound()).prop_filter_map("empty", |(a, b)| HashRange::new(a.min(b), a.max(b)));
        prop::collection::vec(range, 0..6).prop_map(|ranges| ranges.into_iter().collect())
    }

    #[test]
    fn share_is_the_part_of_all_hashes() {
        assert_eq!(HashRanges::default().share().to_bits(), 0_f64.to_bits());
        assert_eq!(HashRanges::all().share().to_bits(), 1_f64.to_bits());
        let quarter: HashRanges = RangeCount::default().ranges().take(64).collect();
        assert_eq!(quarter.share().to_bits(), 0.25_f64.to_bits());
    }

    proptest! {
        #[test]
        fn operations_are_those_of_a_set_of_hashes(one in any_set(), other in any_set()) {
            let (union, difference) = (one.union(&other), one.difference(&other));
            for hash in hashes() {
                prop_assert_eq!(union.contains(hash), one.contains(hash) || other.contains(hash));
                prop_assert_eq!(difference.contains(hash), one.contains(hash) && !other.contains(hash));
            }
            // The bounds are between 0 and 23 or above, so that the hashes looked at decide.
            let is_subset = hashes().all(|hash| !one.contains(hash) || other.contains(hash));
            prop_assert_eq!(one.is_subset(&other), is_subset);
            for set in [union, difference] {
                prop_assert_eq!(&set.iter().copied().collect::<HashRanges>(), &set, "not the fewest ranges");
            }
            prop_assert!((one.union(&other).share() - one.difference(&other).share() - other.share()).abs() < 1e-9);
        }
    }
}
