//! What can go wrong, how likely each of it is in one seed, and the dice that decide. All chance comes from here.

use informer_core::reflector::Random;

/// One way in which a server, a network or an operator misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is refused.
    Refused,
    /// The headers never come; the source gives up after its deadline.
    NoHeaders,
    /// 429, with or without Retry-After.
    Throttled,
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 403 for a while.
    Forbidden,
    /// 404 for a while.
    NotFound,
    /// A proxy's page instead of the answer.
    Html,
    /// HTTP 410 out of the blue.
    GoneHttp,
    /// A frame that says 410 out of the blue.
    GoneFrame,
    /// A frame that says something else went wrong.
    ErrorFrame,
    /// A list body that ends too early, cleanly or not.
    Truncated,
    /// A list body that stops coming.
    StalledBody,
    /// A stream that is cut inside a frame, cleanly or not.
    Cut,
    /// A stream that ends too early, cleanly.
    EarlyEnd,
    /// A stream that goes silent for ever.
    HalfOpen,
    /// A frame that was sent before, or long before.
    Replayed,
    /// Bytes that are no frame.
    Garbage,
    /// Frames and items that are none of ours, or have no name.
    Junk,
    /// Objects that cannot be read.
    Unfit,
    /// One key twice in a list.
    Duplicate,
    /// A list without a version.
    NoVersion,
    /// A watch-list whose marker never comes.
    NeverEnds,
    /// A watch-list that ends without its marker.
    NoMarker,
    /// A list from an older state, as far as that is allowed.
    Lag,
    /// A list from an older state than asked for.
    OlderThanAsked,
    /// "Too large resource version", though it is not.
    TooLarge,
    /// A continue token that has expired.
    TokenExpired,
    /// A page, though none was asked for.
    UnaskedPage,
    /// History is forgotten.
    Compacted,
    /// The state is restored to an older point; versions go back and are used again.
    Rewound,
    /// The state is restored to an older point; versions jump ahead and history is gone.
    Restored,
    /// What was still under way on a request that was given up arrives.
    Late,
}

/// All faults; a fault's place is its number.
pub(crate) const FAULTS: [Fault; 33] = [
    Fault::Refused,
    Fault::NoHeaders,
    Fault::Throttled,
    Fault::Internal,
    Fault::Unavailable,
    Fault::Forbidden,
    Fault::NotFound,
    Fault::Html,
    Fault::GoneHttp,
    Fault::GoneFrame,
    Fault::ErrorFrame,
    Fault::Truncated,
    Fault::StalledBody,
    Fault::Cut,
    Fault::EarlyEnd,
    Fault::HalfOpen,
    Fault::Replayed,
    Fault::Garbage,
    Fault::Junk,
    Fault::Unfit,
    Fault::Duplicate,
    Fault::NoVersion,
    Fault::NeverEnds,
    Fault::NoMarker,
    Fault::Lag,
    Fault::OlderThanAsked,
    Fault::TooLarge,
    Fault::TokenExpired,
    Fault::UnaskedPage,
    Fault::Compacted,
    Fault::Rewound,
    Fault::Restored,
    Fault::Late,
];

impl Fault {
    /// How likely it may be at most, in a thousand occasions. Some occasions are frames, some are requests.
    fn most(self) -> u64 {
        match self {
            Self::Cut | Self::EarlyEnd | Self::GoneFrame | Self::ErrorFrame | Self::Garbage => 60,
            Self::HalfOpen | Self::Forbidden | Self::NotFound => 40,
            Self::Refused | Self::Internal | Self::Html | Self::GoneHttp | Self::NoHeaders => 200,
            Self::Throttled
            | Self::Unavailable
            | Self::StalledBody
            | Self::NoVersion
            | Self::Unfit
            | Self::Junk => 150,
            Self::TokenExpired | Self::UnaskedPage => 1000,
            _ => 500,
        }
    }

    /// Whether it means something only where versions compare.
    fn compares(self) -> bool {
        matches!(self, Self::OlderThanAsked | Self::Replayed | Self::Rewound | Self::Restored)
    }
}

/// Randomness, and which faults strike.
#[derive(Debug)]
pub(crate) struct Dice {
    random: Random,
    chances: [u64; FAULTS.len()],
    /// How often each fault struck.
    pub(crate) hits: [u64; FAULTS.len()],
    /// Nothing goes wrong any more.
    pub(crate) quiet: bool,
}

impl Dice {
    /// Each seed has its own third of the faults, and some have none.
    pub(crate) fn new(seed: u64, opaque: bool) -> Self {
        let mut random = Random::new(seed ^ 0x51e5_7a11);
        let healthy = random.below(20) == 0;
        let mut chances = FAULTS.map(|fault| {
            let enabled = random.below(3) == 0 && !healthy && !(opaque && fault.compares());
            if enabled { 1 + random.below(fault.most()) } else { 0 }
        });
        if seed % 50 == 7 {
            // These two bite only together.
            chances[Fault::UnaskedPage as usize] = 1000;
            chances[Fault::TokenExpired as usize] = 1000;
        }
        Self { random, chances, hits: [0; FAULTS.len()], quiet: false }
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

    /// Whether this fault happens now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let chance = self.chances[fault as usize];
        let strikes = !self.quiet && chance > 0 && self.below(1000) < chance;
        self.hits[fault as usize] += u64::from(strikes);
        strikes
    }
}
