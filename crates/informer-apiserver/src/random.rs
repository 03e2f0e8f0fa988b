//! A seeded pseudorandom number generator (splitmix64) for ids and faults, and random keys.
//!
//! Equal seeds produce equal sequences in every run, so these numbers are not suitable for secrets. Keys come
//! from the operating system.

/// A pseudorandom number generator.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Returns the next 64-bit number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// Returns an index below `length`, or 0 if `length` is 0.
    pub(crate) fn index_below(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }
}

/// A random key. Its `Debug` output does not contain it.
pub(crate) struct SecretKey([u8; Self::BYTES]);

impl SecretKey {
    pub(crate) const BYTES: usize = 32;

    /// Returns a new key, or `None` if the operating system provides no random numbers.
    pub(crate) fn generate() -> Option<Self> {
        let mut bytes = [0; Self::BYTES];
        rustls::crypto::ring::default_provider().secure_random.fill(&mut bytes).ok()?;
        Some(SecretKey(bytes))
    }

    #[cfg(test)]
    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        SecretKey(bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8; Self::BYTES] {
        &self.0
    }
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("SecretKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the published output of splitmix64 for seed 0.
    #[test]
    fn numbers_are_those_of_splitmix64() {
        let mut random = Random::new(0);
        assert_eq!(random.next(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(random.next(), 0x6e78_9e6a_a1b9_65f4);
        assert_eq!(Random::new(7).below(0), 0);
        assert!((0..100).all(|_| random.index_below(3) < 3));
    }
}
