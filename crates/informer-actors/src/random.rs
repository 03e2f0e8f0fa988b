//! A seeded random number generator (splitmix64).
//!
//! Equal seeds give equal sequences in every run. No number comes from the environment.

/// A seeded random number generator. Equal seeds give equal sequences.
///
/// ```
/// let (mut a, mut b) = (informer_actors::Random::new(7), informer_actors::Random::new(7));
/// assert_eq!(a.between(1, 6), b.between(1, 6));
/// ```
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Creates a generator for a named part of a run, so that parts do not influence each other's numbers.
    pub(crate) fn for_part(seed: u64, name: &str) -> Self {
        Random(seed ^ u64::from(fnv1a(name.as_bytes())).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// Returns the next 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns an index below `length`, or 0 if `length` is 0.
    pub fn index_below(&mut self, length: usize) -> usize {
        usize::try_from(self.next_u64() % (length as u64).max(1)).unwrap_or(0)
    }

    /// Returns a number from `low` to `high`, both included; `low` if `high` is not greater.
    pub fn between(&mut self, low: i64, high: i64) -> i64 {
        let span = u64::try_from(high.saturating_sub(low)).unwrap_or(0).saturating_add(1);
        low.saturating_add(i64::try_from(self.next_u64() % span).unwrap_or(0))
    }

    /// Returns `true` with this probability in percent.
    pub fn percent(&mut self, percent: u8) -> bool {
        self.between(0, 99) < i64::from(percent)
    }
}

/// Returns the 32-bit FNV-1a hash, which Kubernetes uses for pod templates.
pub(crate) fn fnv1a(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_in_their_range() {
        let mut random = Random::new(3);
        for _ in 0..1_000 {
            assert!((2..=5).contains(&random.between(2, 5)));
            assert!(random.index_below(3) < 3);
        }
        assert_eq!((random.between(4, 1), random.index_below(0)), (4, 0));
        assert!((0..100).all(|_| !random.percent(0) && random.percent(100)));
    }

    #[test]
    fn hash_is_fnv1a() {
        assert_eq!(fnv1a(b"foobar"), 0xbf9c_f968);
    }
}
