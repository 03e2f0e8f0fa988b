//! How well requests go: the delay before the next one, and the failures in a row that decide what it is.
//!
//! Invariant: only a healthy watch makes delays short again (C11). This file must not know which request failed, nor why.

use super::server::Probes;
use crate::backoff::{Backoff, BackoffConfig};
use crate::random::Random;
use std::time::Duration;

/// Watches in a row that end early and bring nothing after which the position is no good.
const MAX_UNPRODUCTIVE_WATCHES: u32 = 3;

/// Delays, and failures in a row.
#[derive(Debug)]
pub(super) struct Health {
    backoff: Backoff,
    random: Random,
    /// Watches in a row that ended early without having brought anything.
    unproductive_watches: u32,
    pub(super) probes: Probes,
}

impl Health {
    pub(super) fn new(backoff: BackoffConfig, seed: u64) -> Self {
        Self {
            backoff: Backoff::new(backoff),
            random: Random::new(seed),
            unproductive_watches: 0,
            probes: Probes::default(),
        }
    }

    /// The next delay of the back-off.
    pub(super) fn next_delay(&mut self) -> Duration {
        self.backoff.next(&mut self.random)
    }

    /// A duration with jitter: from `duration` up to twice that.
    pub(super) fn stretch(&mut self, duration: Duration) -> Duration {
        self.random.jittered(duration)
    }

    /// Notes a watch that ended early, and whether it brought anything; returns whether too many in a row brought nothing, and counts anew then.
    pub(super) fn note_early_end(&mut self, brought_nothing: bool) -> bool {
        self.unproductive_watches = if brought_nothing { self.unproductive_watches + 1 } else { 0 };
        let exhausted = self.unproductive_watches >= MAX_UNPRODUCTIVE_WATCHES;
        if exhausted {
            self.unproductive_watches = 0;
        }
        exhausted
    }

    /// Forgets earlier failures: a watch was healthy.
    pub(super) fn recover(&mut self) {
        self.backoff.reset();
        self.unproductive_watches = 0;
        self.probes = Probes::default();
    }

    /// Panics if it contradicts itself.
    pub(super) fn check(&self) {
        assert!(self.unproductive_watches < MAX_UNPRODUCTIVE_WATCHES, "watches that bring nothing end");
    }
}
