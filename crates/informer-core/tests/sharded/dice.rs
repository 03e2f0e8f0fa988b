//! The random numbers of a run, and its faults. All randomness comes from here.

use informer_core::random::Random;

/// One way in which the server or the network misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is refused.
    Refused,
    /// No headers.
    NoHeaders,
    /// 500.
    Internal,
    /// 429, with or without `Retry-After`.
    Throttled,
    /// An ERROR frame with an unfounded 410.
    GoneFrame,
    /// A list that breaks off, or stalls.
    Truncated,
    /// A stream that breaks within a frame.
    Cut,
    /// A stream that ends early.
    EarlyEnd,
    /// A stream that stays silent.
    HalfOpen,
    /// A list of an older state, as far as allowed.
    Lag,
    /// An expired continue token.
    TokenExpired,
    /// A watch-list that is rejected.
    NoWatchList,
    /// History is compacted.
    Compacted,
    /// An object that cannot be read.
    Unreadable,
}

/// The index of a fault is its number.
pub(crate) const FAULTS: [(Fault, u64); 14] = [
    (Fault::Refused, 200),
    (Fault::NoHeaders, 80),
    (Fault::Internal, 200),
    (Fault::Throttled, 150),
    (Fault::GoneFrame, 100),
    (Fault::Truncated, 300),
    (Fault::Cut, 60),
    (Fault::EarlyEnd, 60),
    (Fault::HalfOpen, 40),
    (Fault::Lag, 800),
    (Fault::TokenExpired, 500),
    (Fault::NoWatchList, 300),
    (Fault::Compacted, 500),
    (Fault::Unreadable, 150),
];

/// Random numbers, and which faults are applied.
#[derive(Debug)]
pub(crate) struct Dice {
    random: Random,
    chances: [u64; FAULTS.len()],
    /// Number of times that each fault was applied.
    pub(crate) hits: [u64; FAULTS.len()],
    /// No faults are applied any more.
    pub(crate) is_quiet: bool,
}

impl Dice {
    /// Enables a third of the faults; none if `is_calm`.
    pub(crate) fn new(seed: u64, is_calm: bool) -> Self {
        let mut random = Random::new(seed ^ 0x5ead_ed00);
        let chances = FAULTS.map(|(_, most)| {
            let is_enabled = random.below(3) == 0 && !is_calm;
            if is_enabled { 1 + random.below(most) } else { 0 }
        });
        Self { random, chances, hits: [0; FAULTS.len()], is_quiet: false }
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    pub(crate) fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// Returns a number from `least` to `most`.
    pub(crate) fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// Returns whether this fault is applied now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let chance = self.chances[fault as usize];
        let strikes = !self.is_quiet && chance > 0 && self.below(1000) < chance;
        self.hits[fault as usize] += u64::from(strikes);
        strikes
    }
}
