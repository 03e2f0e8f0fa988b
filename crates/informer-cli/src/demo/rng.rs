//! Deterministic random numbers: the same seed gives the same demo.

/// A random number generator (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct DemoRng(u64);

/// Returns a random seed.
pub(crate) fn any_seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

/// Characters of generated names, without vowels.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

impl DemoRng {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 if `end` is 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % end).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = usize::try_from(high.saturating_sub(low)).unwrap_or(0) + 1;
        low + i64::try_from(self.below(span)).unwrap_or(0)
    }

    /// Returns true with this probability in percent.
    pub(super) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns a suffix for a generated name, with this many characters.
    pub(super) fn suffix(&mut self, length: usize) -> String {
        (0..length).map(|_| self.letter()).collect()
    }

    fn letter(&mut self) -> char {
        let index = self.below(LETTERS.len());
        LETTERS.get(index).copied().map_or('x', char::from)
    }
}
