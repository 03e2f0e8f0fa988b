//! Compact timestamps, and the sampling rate of duration measurements.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::time::Moment;

/// A moment in nanoseconds since the origin, in eight bytes. Saturates after 584 years.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Stamp(NonZeroU64);

impl Default for Stamp {
    fn default() -> Self {
        Stamp(NonZeroU64::MIN)
    }
}

impl From<Moment> for Stamp {
    #[inline]
    fn from(moment: Moment) -> Self {
        let since = moment.since_origin();
        let nanos =
            since.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(since.subsec_nanos()));
        // Plus one, so that `Option<Stamp>` needs no extra space.
        Stamp(NonZeroU64::MIN.saturating_add(nanos))
    }
}

impl From<Stamp> for Moment {
    #[inline]
    fn from(stamp: Stamp) -> Self {
        Moment::at(stamp.since_origin())
    }
}

impl Stamp {
    /// Returns the time since an earlier stamp; zero if that stamp is not earlier.
    #[inline]
    pub(super) fn since(self, earlier: Stamp) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    #[inline]
    pub(super) fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0.get() - 1)
    }
}

/// Detects when keys are taken so fast that reading the clock for each key would be a large part of the cost.
///
/// Takes are counted in rounds. A round is fast if all its takes happen within [`FAST_ROUND_DURATION`].
#[derive(Debug, Default)]
pub(super) struct SamplingRate {
    /// The start of the current round of takes.
    round_start: Stamp,
    /// Number of takes in the current round.
    keys: u32,
    /// Whether the last completed round was fast.
    fast: bool,
}

/// Number of takes per round.
const KEYS_PER_ROUND: u32 = 64;
/// Duration below which a round is fast: more than 100,000 takes per second.
const FAST_ROUND_DURATION: Duration = Duration::from_micros(10 * KEYS_PER_ROUND as u64);
/// While takes are fast, one in this many is measured.
const SAMPLE_INTERVAL_WHEN_FAST: u64 = 16;

impl SamplingRate {
    /// Counts a take.
    #[inline]
    pub(super) fn count(&mut self, now: Stamp) {
        self.keys += 1;
        let is_slow = now.since(self.round_start) >= FAST_ROUND_DURATION;
        // A slow round ends early, so that measuring resumes immediately.
        if is_slow || self.keys == KEYS_PER_ROUND {
            (self.round_start, self.keys, self.fast) = (now, 0, !is_slow);
        }
    }

    /// Returns whether keys are taken fast.
    #[inline]
    pub(super) fn is_fast(&self) -> bool {
        self.fast
    }

    /// Returns whether the take or add with this number is measured.
    #[inline]
    pub(super) fn is_sampled(&self, number: u64) -> bool {
        !self.fast || number.is_multiple_of(SAMPLE_INTERVAL_WHEN_FAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workqueue::{ExponentialBackoff, Priority, Queue};

    /// Processes keys for three microseconds each, taken at this interval; returns how many were counted and
    /// how many were sampled.
    fn process_keys(count: u64, interval: Duration) -> (u64, u64) {
        let mut queue = Queue::new(ExponentialBackoff::default());
        let (mut now, mut sampled) = (Moment::default(), 0);
        for key in 0..count {
            queue.add(now, key, Priority::NORMAL);
            let token = queue.take(now + Duration::from_micros(1)).unwrap().token;
            sampled += u64::from(token.is_sampled());
            let end = if token.is_sampled() { now + Duration::from_micros(4) } else { Moment::default() };
            queue.done(end, token).unwrap();
            now = now + interval;
        }
        let metrics = queue.metrics(now);
        let counted = metrics.work_duration.count();
        assert_eq!(
            metrics.work_duration.sum(),
            Duration::from_micros(3 * counted),
            "the end of unsampled keys is ignored"
        );
        assert!(
            (counted..counted + SAMPLE_INTERVAL_WHEN_FAST).contains(&metrics.queue_duration.count())
                || counted == count
        );
        assert_eq!(metrics.adds, count);
        (counted, sampled)
    }

    #[test]
    fn all_keys_are_sampled_unless_takes_are_fast() {
        assert_eq!(process_keys(2_000, Duration::from_millis(1)), (2_000, 2_000));
        assert_eq!(process_keys(2_000, Duration::from_micros(11)), (2_000, 2_000));
        let (counted, sampled) = process_keys(2_000, Duration::from_micros(5));
        assert!(
            (2_000 - SAMPLE_INTERVAL_WHEN_FAST..=2_000).contains(&counted),
            "unsampled keys are counted with the next sampled one: {counted}"
        );
        assert!((100..250).contains(&sampled), "{sampled}");
    }

    #[test]
    fn late_take_ends_fast_sampling() {
        let at = |micros| Stamp::from(Moment::at(Duration::from_micros(micros)));
        let mut rate = SamplingRate::default();
        (0..u64::from(KEYS_PER_ROUND)).for_each(|micros| rate.count(at(micros)));
        assert!(
            rate.is_fast()
                && rate.is_sampled(SAMPLE_INTERVAL_WHEN_FAST)
                && !rate.is_sampled(SAMPLE_INTERVAL_WHEN_FAST + 1)
        );
        rate.count(at(1_000));
        assert!(!rate.is_fast() && rate.is_sampled(SAMPLE_INTERVAL_WHEN_FAST + 1));
    }
}
