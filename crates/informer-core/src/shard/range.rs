//! Ranges of hashes, as the `shardSelector` of Kubernetes (KEP-5866) defines them.

use std::fmt;

/// Returns the hash of a uid or namespace by which objects are divided (FNV-1a, 64 bits).
pub fn shard_hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// A range of hashes that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashRange {
    first: u64,
    last: u64,
}

impl HashRange {
    /// All hashes.
    pub const ALL: Self = Self { first: 0, last: u64::MAX };

    /// Creates the range from `first` to `last`, both included; `None` if it is empty.
    pub fn new(first: u64, last: u64) -> Option<Self> {
        (first <= last).then_some(Self { first, last })
    }

    /// Returns the first hash.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Returns the last hash.
    pub fn last(&self) -> u64 {
        self.last
    }

    /// Returns whether the range contains a hash.
    pub fn contains(&self, hash: u64) -> bool {
        (self.first..=self.last).contains(&hash)
    }

    /// Returns whether the ranges have a hash in common.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }
}

impl fmt::Display for HashRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.first, self.last)
    }
}

/// The number of ranges of equal size into which a group divides the hashes: a power of two.
///
/// Defaults to 256.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RangeCount(u32);

impl RangeCount {
    /// The largest number. An assignment with more ranges could exceed the size of an object.
    pub const MAX: Self = Self(1_024);

    /// Creates a number of ranges; `None` unless it is a power of two up to [`MAX`](Self::MAX).
    pub fn new(count: u32) -> Option<Self> {
        (count.is_power_of_two() && count <= Self::MAX.0).then_some(Self(count))
    }

    /// Returns the number.
    pub fn get(self) -> usize {
        self.0 as usize
    }

    /// Returns the ranges, in ascending order.
    pub fn ranges(self) -> impl ExactSizeIterator<Item = HashRange> {
        // One range has 2^64 hashes, which is not a `u64`.
        let last_of_range = u64::MAX / u64::from(self.0);
        (0..self.0).map(move |index| {
            let first = u64::from(index).wrapping_mul(last_of_range.wrapping_add(1));
            HashRange { first, last: first + last_of_range }
        })
    }
}

impl Default for RangeCount {
    fn default() -> Self {
        Self(256)
    }
}

/// A set of hashes, as few ranges as possible.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct HashRanges(pub(super) Vec<HashRange>);

impl HashRanges {
    /// Returns the ranges in ascending order. There is at least one hash between any two of them.
    pub fn iter(&self) -> impl Iterator<Item = &HashRange> {
        self.0.iter()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether one of the ranges contains a hash.
    pub fn contains(&self, hash: u64) -> bool {
        let after = self.0.partition_point(|range| range.first <= hash);
        after.checked_sub(1).is_some_and(|index| self.0[index].contains(hash))
    }

    /// Returns whether the sets have a hash in common with the range.
    pub fn overlaps(&self, range: &HashRange) -> bool {
        let after = self.0.partition_point(|other| other.first <= range.last);
        after.checked_sub(1).is_some_and(|index| self.0[index].overlaps(range))
    }

    /// Returns whether all hashes of the range are in the set.
    pub fn covers(&self, range: &HashRange) -> bool {
        self.0.iter().any(|other| other.first <= range.first && range.last <= other.last)
    }
}

impl FromIterator<HashRange> for HashRanges {
    fn from_iter<I: IntoIterator<Item = HashRange>>(ranges: I) -> Self {
        let mut ranges: Vec<HashRange> = ranges.into_iter().collect();
        ranges.sort_unstable();
        let mut merged: Vec<HashRange> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(previous) if range.first <= previous.last.saturating_add(1) => {
                    previous.last = previous.last.max(range.last);
                }
                _ => merged.push(range),
            }
        }
        Self(merged)
    }
}

/// The text form: ranges in hexadecimal, separated by commas; empty if there are none.
impl fmt::Display for HashRanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, range) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            range.fmt(f)?;
        }
        Ok(())
    }
}

/// A text that is not a set of ranges.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid hash range {range:?}: expected two numbers of 16 hexadecimal digits, separated by a hyphen")]
pub struct HashRangeError {
    range: String,
}

impl std::str::FromStr for HashRanges {
    type Err = HashRangeError;

    fn from_str(text: &str) -> Result<Self, HashRangeError> {
        let parse = |text: &str| {
            let (first, last) = text.split_once('-')?;
            let number = |text: &str| {
                let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
                is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten()
            };
            HashRange::new(number(first)?, number(last)?)
        };
        let ranges = text.split(',').filter(|_| !text.is_empty());
        // Part of the text only: it comes from outside.
        let error = |text: &str| HashRangeError { range: text.chars().take(40).collect() };
        ranges.map(|text| parse(text).ok_or_else(|| error(text))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Published test vectors of FNV-1a.
    #[test]
    fn hash_is_fnv_1a() {
        assert_eq!(shard_hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(shard_hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(shard_hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn ranges_of_a_count_cover_all_hashes_once() {
        for count in [1, 2, 256, 1_024] {
            let ranges: Vec<HashRange> = RangeCount::new(count).unwrap().ranges().collect();
            assert_eq!(ranges.len(), count as usize);
            assert_eq!((ranges[0].first(), ranges[ranges.len() - 1].last()), (0, u64::MAX));
            assert!(ranges.windows(2).all(|pair| pair[0].last() + 1 == pair[1].first()));
            assert_eq!(ranges.into_iter().collect::<HashRanges>(), [HashRange::ALL].into_iter().collect());
        }
        for count in [0, 3, 2_048] {
            assert_eq!(RangeCount::new(count), None);
        }
    }

    #[test]
    fn invalid_texts_are_rejected() {
        for text in ["0-1", ",", "0000000000000001-0000000000000000", "+000000000000001-0000000000000002"] {
            let error = text.parse::<HashRanges>().unwrap_err();
            assert!(error.to_string().contains("16 hexadecimal digits"), "{text}");
        }
        assert_eq!("".parse(), Ok(HashRanges::default()));
    }

    fn any_range() -> impl Strategy<Value = HashRange> {
        // Few different bounds, so that ranges touch and overlap.
        let bound = || prop_oneof![0..20_u64, u64::MAX - 3..=u64::MAX];
        (bound(), bound()).prop_map(|(a, b)| HashRange { first: a.min(b), last: a.max(b) })
    }

    proptest! {
        #[test]
        fn set_contains_what_its_ranges_contain(ranges in prop::collection::vec(any_range(), 0..6), other in any_range()) {
            let set: HashRanges = ranges.iter().copied().collect();
            let hashes = || (0..22).chain(u64::MAX - 5..=u64::MAX);
            for hash in hashes() {
                prop_assert_eq!(set.contains(hash), ranges.iter().any(|range| range.contains(hash)));
            }
            let common = hashes().any(|hash| other.contains(hash) && set.contains(hash));
            // The hashes between the small and the large ones are in ranges from one to the other.
            let spans = |range: &HashRange| range.first() < 22 && range.last() > 22;
            prop_assert_eq!(set.overlaps(&other), common || (spans(&other) && ranges.iter().any(spans)));
            prop_assert_eq!(set.to_string().parse(), Ok(set));
        }
    }
}
