//! Seeded random numbers (splitmix64).
//!
//! Equal seeds produce equal sequences. Outside of unit tests, this is the only generator of the crate; its
//! benchmarks and fuzzer use it too. This module does not know what the numbers are used for and never takes
//! a seed from the environment.

use std::time::Duration;

/// A small random number generator (splitmix64): equal seeds produce equal sequences.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator with this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next_u64() % bound }
    }

    /// Returns a random duration from `duration` up to twice `duration`, in steps of a millisecond.
    ///
    /// Durations below two milliseconds are returned unchanged.
    pub fn jittered(&mut self, duration: Duration) -> Duration {
        let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        duration.saturating_add(Duration::from_millis(self.below(millis)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers() {
        let numbers = |seed| -> Vec<u64> {
            let mut random = Random::new(seed);
            (0..5).map(|_| random.below(1000)).collect()
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }
}
