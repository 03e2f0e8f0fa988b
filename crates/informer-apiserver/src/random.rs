//! One seeded source of numbers, for ids and for faults (splitmix64).
//!
//! Equal seeds give equal numbers, in every run. Nothing here is fit for secrets.

/// A source of numbers.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Any number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below a bound; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// An index into a list of this length; 0 if it is empty.
    pub(crate) fn pick(&mut self, among: usize) -> usize {
        usize::try_from(self.below(among as u64)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the published generator for seed 0.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random::new(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(Random::new(7).below(0), 0);
        assert!((0..100).all(|_| random.pick(3) < 3));
    }
}
