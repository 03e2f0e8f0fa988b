//! The delay before the next request, and the consecutive failures that decide which request is next.
//!
//! Watches and relists have a backoff each. A watch that received a frame and was then interrupted resets the
//! backoff of watches, however short it was. Invariant: only a healthy watch, one that was open for a minimum time, resets the
//! backoff of relists (C11). This file must not know why a request failed.

use super::phase::Resume;
use super::server::Probes;
use crate::backoff::{Backoff, BackoffConfig};
use crate::random::Random;
use std::time::Duration;

/// Number of consecutive watches that end early without a frame after which the reflector relists.
const MAX_UNPRODUCTIVE_WATCHES: u32 = 3;

/// The backoff, and the numbers of consecutive failures.
#[derive(Debug)]
pub(super) struct Health {
    watch_backoff: Backoff,
    relist_backoff: Backoff,
    random: Random,
    /// Number of consecutive watches that ended early without a frame.
    unproductive_watches: u32,
    /// Whether a quiet watch ended early since the last healthy or productive one.
    quiet_ends: bool,
    pub(super) probes: Probes,
}

impl Health {
    pub(super) fn new(backoff: BackoffConfig, seed: u64) -> Self {
        Self {
            watch_backoff: Backoff::new(backoff),
            relist_backoff: Backoff::new(backoff),
            random: Random::new(seed),
            unproductive_watches: 0,
            quiet_ends: false,
            probes: Probes::default(),
        }
    }

    /// Returns the next delay before a watch, or before a relist, which is at least that of a watch.
    pub(super) fn next_delay(&mut self, resume: Resume) -> Duration {
        let watch = self.watch_backoff.next(&mut self.random);
        match resume {
            Resume::Watch => watch,
            Resume::Relist => watch.max(self.relist_backoff.next(&mut self.random)),
        }
    }

    /// Records a watch that ended early and received a frame.
    pub(super) fn record_productive_watch(&mut self) {
        self.unproductive_watches = 0;
        self.quiet_ends = false;
    }

    /// Records a quiet watch that ended early.
    pub(super) fn record_quiet_watch(&mut self) {
        self.quiet_ends = true;
    }

    pub(super) fn has_quiet_ends(&self) -> bool {
        self.quiet_ends
    }

    /// Resets the backoff of watches, because the server works.
    pub(super) fn reset_watch_backoff(&mut self) {
        self.watch_backoff.reset();
    }

    /// Returns a random duration from `duration` up to twice that.
    pub(super) fn jittered(&mut self, duration: Duration) -> Duration {
        self.random.jittered(duration)
    }

    /// Records a watch that ended early without a frame.
    ///
    /// Returns whether these were too many in a row. In that case the count restarts at zero.
    pub(super) fn record_unproductive_watch(&mut self) -> bool {
        self.unproductive_watches += 1;
        let too_many = self.unproductive_watches >= MAX_UNPRODUCTIVE_WATCHES;
        if too_many {
            self.unproductive_watches = 0;
        }
        too_many
    }

    /// Forgets earlier failures, after a healthy watch.
    pub(super) fn recover(&mut self) {
        self.watch_backoff.reset();
        self.relist_backoff.reset();
        self.unproductive_watches = 0;
        self.quiet_ends = false;
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
