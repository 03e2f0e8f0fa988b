//! The configuration of aggregation, rate limiting and retries of recorded events.

use std::time::Duration;

use crate::backoff::BackoffConfig;

/// The durations and bounds of a [`Correlator`](super::Correlator).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecorderConfig {
    /// Time without an occurrence after which a series has ended. Defaults to 6 minutes.
    pub series_timeout: Duration,
    /// Period at which an ongoing series is written to the server. Defaults to 30 minutes.
    pub series_update_period: Duration,
    /// Number of new events about one subject that are accepted in a burst. Defaults to 25.
    pub burst: u32,
    /// Period at which one more new event about a subject is accepted. Defaults to 5 minutes.
    pub refill_period: Duration,
    /// Maximum number of queued writes. Defaults to 1,000.
    pub max_queued: usize,
    /// Maximum number of events without a queued write, and of subjects, that are remembered. Defaults to
    /// 4,096.
    pub max_remembered: usize,
    /// Maximum number of attempts per write. Defaults to 12.
    pub max_attempts: u32,
    /// Delays between attempts.
    pub backoff: BackoffConfig,
}

impl Default for RecorderConfig {
    fn default() -> Self {
        RecorderConfig {
            series_timeout: Duration::from_secs(360),
            series_update_period: Duration::from_secs(1800),
            burst: 25,
            refill_period: Duration::from_secs(300),
            max_queued: 1_000,
            max_remembered: 4_096,
            max_attempts: 12,
            backoff: BackoffConfig::default(),
        }
    }
}
