//! What a queue counts.

use std::time::Duration;

/// The figures of a queue, under the meanings that client-go's have.
///
/// All are exact, but for the two histograms while more than a hundred thousand turns a second begin: then one in sixteen turns is timed, and
/// counts for those before it that were not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueMetrics {
    /// Adds that led to a turn: of keys that were not waiting for one already.
    pub adds: u64,
    /// Keys that wait for a turn, also those that are being worked on and were added again.
    pub depth: usize,
    /// Keys that are being worked on.
    pub processing: usize,
    /// Keys that come later.
    pub delayed: usize,
    /// Adds with a delay, retries among them.
    pub retries: u64,
    /// Leases that were dropped without a word: the worker was cancelled or panicked.
    pub abandoned: u64,
    /// Keys that a shutdown dropped.
    pub dropped: u64,
    /// How long turns waited, from the first add to the take.
    pub queue_duration: Histogram,
    /// How long turns took.
    pub work_duration: Histogram,
    /// How long all keys that are being worked on have been, together.
    pub unfinished_work: Duration,
    /// How long the longest of them has been.
    pub longest_running: Duration,
}

/// Durations in buckets whose bounds grow tenfold from ten nanoseconds to ten seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BOUNDS + 1],
    sum: Duration,
}

/// How many bounds there are.
const BOUNDS: usize = 10;

impl Histogram {
    /// Counts one more.
    pub fn observe(&mut self, duration: Duration) {
        self.observe_times(duration, 1);
    }

    /// Counts so many more.
    pub(super) fn observe_times(&mut self, duration: Duration, times: u32) {
        // The smallest bucket whose bound is not below it.
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        let power = nanos.saturating_sub(1).checked_ilog10().unwrap_or(0);
        let bucket = usize::try_from(power).unwrap_or(BOUNDS).min(BOUNDS);
        self.counts[bucket] += u64::from(times);
        self.sum = self.sum.saturating_add(duration.saturating_mul(times));
    }

    /// How many durations were seen.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All of them together.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Each bound, and how many durations were no longer than it.
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
