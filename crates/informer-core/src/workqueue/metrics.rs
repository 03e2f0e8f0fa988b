//! Counters and histograms of a queue.

use std::time::Duration;

/// The metrics of a queue, with the meaning they have in client-go.
///
/// All are exact, except for the two histograms while more than 100,000 keys per second are taken: then one
/// in sixteen keys is measured and counted for the unmeasured ones before it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueMetrics {
    /// Number of adds, without those of keys that were already waiting to be processed.
    pub adds: u64,
    /// Number of queued keys, including those that are processing and were added again.
    pub depth: usize,
    /// Number of keys that are processing.
    pub processing: usize,
    /// Number of delayed keys, including retries that wait for the retry limit.
    pub delayed: usize,
    /// Number of retries, and of adds with a delay, even if the delay is zero.
    pub retries: u64,
    /// Number of work items that were dropped without being finished, because the worker was cancelled or
    /// panicked.
    pub abandoned: u64,
    /// Number of keys that a shutdown dropped.
    pub dropped: u64,
    /// Time from the first add of a key until it is taken.
    pub queue_duration: Histogram,
    /// Time for which keys were processing.
    pub work_duration: Histogram,
    /// Sum of the times for which the current keys have been processing.
    pub unfinished_work: Duration,
    /// Time for which the oldest current key has been processing.
    pub longest_running: Duration,
}

/// A histogram of durations with bucket bounds from ten nanoseconds to ten seconds, each ten times the
/// previous one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BOUNDS + 1],
    sum: Duration,
}

/// Number of bucket bounds.
const BOUNDS: usize = 10;

impl Histogram {
    /// Counts a duration.
    pub fn observe(&mut self, duration: Duration) {
        self.observe_times(duration, 1);
    }

    /// Counts a duration `times` times.
    pub(super) fn observe_times(&mut self, duration: Duration, times: u32) {
        // The lowest bucket whose bound is not less than the duration.
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let power = nanos.saturating_sub(1).checked_ilog10().unwrap_or(0);
        let bucket = usize::try_from(power).unwrap_or(BOUNDS).min(BOUNDS);
        self.counts[bucket] += u64::from(times);
        self.sum = self.sum.saturating_add(duration.saturating_mul(times));
    }

    /// Returns the number of durations counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the sum of all durations.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns each bound with the number of durations up to it.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        let mut below = 0;
        (0..BOUNDS).map(move |bucket| {
            below += self.counts[bucket];
            (Duration::from_nanos(u64::try_from(bound(bucket)).unwrap_or(u64::MAX)), below)
        })
    }
}

fn bound(bucket: usize) -> u128 {
    10_u128.pow(u32::try_from(bucket).unwrap_or(0) + 1)
}
