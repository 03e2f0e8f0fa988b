//! The delay before the next request, and the consecutive failures that decide which request is next.
//!
//! Invariant: only a healthy watch, one that was open for a minimum time, resets the backoff (C11). This file
//! must not know which request failed, nor why.

use super::server::Probes;
use crate::backoff::{Backoff, BackoffConfig};
use crate::random::Random;
use std::time::Duration;

/// Number of consecutive watches that end early without a frame after which the reflector relists.
const MAX_UNPRODUCTIVE_WATCHES: u32 = 3;

/// The backoff, and the numbers of consecutive failures.
#[derive(Debug)]
pub(super) struct Health {
    backoff: Backoff,
    random: Random,
    /// Number of consecutive watches that ended early without a frame.
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

    /// Returns the next delay of the backoff.
    pub(super) fn next_delay(&mut self) -> Duration {
        self.backoff.next(&mut self.random)
    }

    /// Returns a random duration from `duration` up to twice that.
    pub(super) fn jittered(&mut self, duration: Duration) -> Duration {
        self.random.jittered(duration)
    }

    /// Records a watch that ended early; `unproductive` if it received no frame.
    ///
    /// Returns whether too many consecutive watches were unproductive. In that case the count restarts at
    /// zero.
    pub(super) fn record_early_end(&mut self, unproductive: bool) -> bool {
        self.unproductive_watches = if unproductive { self.unproductive_watches + 1 } else { 0 };
        let too_many = self.unproductive_watches >= MAX_UNPRODUCTIVE_WATCHES;
        if too_many {
            self.unproductive_watches = 0;
        }
        too_many
    }

    /// Forgets earlier failures, after a healthy watch.
    pub(super) fn recover(&mut self) {
        self.backoff.reset();
        self.unproductive_watches = 0;
        self.probes = Probes::default();
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        assert!(
            self.unproductive_watches < MAX_UNPRODUCTIVE_WATCHES,
            "too many unproductive watches must cause a relist"
        );
    }
}
