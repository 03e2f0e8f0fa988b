//! How recorded events are merged, limited and retried.

use std::time::Duration;

use crate::backoff::BackoffConfig;

/// The times and bounds of a [`Correlator`](super::Correlator).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderConfig {
    /// How long a series is quiet before it has ended: 6 minutes.
    pub series_timeout: Duration,
    /// How often a series that goes on is told to the server: every 30 minutes.
    pub series_update_period: Duration,
    /// New events about one subject that are written at once: 25.
    pub burst: u32,
    /// The time after which one more may be: 5 minutes.
    pub refill_period: Duration,
    /// Writes that may wait: 1,000.
    pub max_queued: usize,
    /// Events, and subjects, that are remembered while nothing is to be written: 4,096.
    pub max_remembered: usize,
    /// How often a write is tried: 12 times.
    pub max_attempts: u32,
    /// The waits between tries.
    pub backoff: BackoffConfig,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        RecorderConfig {
            series_timeout: Duration::from_mins(6),
            series_update_period: Duration::from_mins(30),
            burst: 25,
            refill_period: Duration::from_mins(5),
            max_queued: 1_000,
            max_remembered: 4_096,
            max_attempts: 12,
            backoff: BackoffConfig::default(),
        }
    }
}
