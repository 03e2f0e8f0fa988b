//! All faults, their probability in one seed, and the random numbers that decide. All randomness of a run
//! comes from here.

use informer_core::random::Random;

/// One way in which a server, a network or an operator misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The connection is refused.
    Refused,
    /// No headers; the source times out.
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
    /// The page of a proxy instead of the response.
    Html,
    /// An unfounded HTTP 410.
    GoneHttp,
    /// An ERROR frame with an unfounded 410.
    GoneFrame,
    /// An ERROR frame with another code.
    ErrorFrame,
    /// A truncated list body, with a clean end or not.
    Truncated,
    /// A list body that stalls.
    StalledBody,
    /// A stream that breaks inside a frame, with a clean end or not.
    Cut,
    /// A stream that ends early and cleanly.
    EarlyEnd,
    /// A stream that stays silent forever.
    HalfOpen,
    /// A frame that was sent before.
    Replayed,
    /// Bytes that are no frame.
    Garbage,
    /// Frames and items of other kinds or without a name.
    Junk,
    /// Unreadable objects.
    Unfit,
    /// A key that occurs twice in a list.
    Duplicate,
    /// A list without a version.
    NoVersion,
    /// A watch-list without the marker, which does not end.
    NeverEnds,
    /// A watch-list that ends without its marker.
    NoMarker,
    /// A list of an older state, as far as allowed.
    Lag,
    /// A list of an older state than requested.
    OlderThanAsked,
    /// An unfounded "Too large resource version".
    TooLarge,
    /// An expired continue token.
    TokenExpired,
    /// An unrequested page.
    UnaskedPage,
    /// History is compacted.
    Compacted,
    /// The state is restored to an older point; versions decrease and are used again.
    Rewound,
    /// The state is restored to an older point; versions jump ahead and history is lost.
    Restored,
    /// Late bytes of a cancelled request arrive.
    Late,
}

/// All faults; the index of a fault is its number.
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
    /// Upper bound on the probability, per thousand frames or requests.
    fn max_probability(self) -> u64 {
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

    /// Whether it applies only if versions are comparable.
    fn compares(self) -> bool {
        matches!(self, Self::OlderThanAsked | Self::Replayed | Self::Rewound | Self::Restored)
    }
}

/// Random numbers, and which faults are applied.
#[derive(Debug)]
pub(crate) struct Dice {
    random: Random,
    chances: [u64; FAULTS.len()],
    /// Number of times each fault was applied.
    pub(crate) hits: [u64; FAULTS.len()],
    /// All faults are disabled.
    pub(crate) quiet: bool,
}

impl Dice {
    /// Each seed enables a third of the faults, and some seeds none.
    pub(crate) fn new(seed: u64, opaque: bool) -> Self {
        let mut random = Random::new(seed ^ 0x51e5_7a11);
        let healthy = random.below(20) == 0;
        let mut chances = FAULTS.map(|fault| {
            let enabled = random.below(3) == 0 && !healthy && !(opaque && fault.compares());
            if enabled { 1 + random.below(fault.max_probability()) } else { 0 }
        });
        if seed % 50 == 7 {
            // These two have an effect only together.
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

    /// Whether this fault is applied now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let chance = self.chances[fault as usize];
        let strikes = !self.quiet && chance > 0 && self.below(1000) < chance;
        self.hits[fault as usize] += u64::from(strikes);
        strikes
    }
}
