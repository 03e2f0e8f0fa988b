//! Moments in eight bytes, and how many turns are timed.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::time::Moment;

/// A moment in nanoseconds since the origin; what is more than 584 years away counts as just that.
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
        // One more, so that none has a value of its own.
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
    /// How long after an earlier one; nothing if it was not earlier.
    #[inline]
    pub(super) fn since(self, earlier: Stamp) -> Duration {
        Duration::from_nanos(self.0.get().saturating_sub(earlier.0.get()))
    }

    #[inline]
    pub(super) fn since_origin(self) -> Duration {
        Duration::from_nanos(self.0.get() - 1)
    }
}

/// Notices when turns follow each other so fast that timing each of them would be much of the work.
#[derive(Debug, Default)]
pub(super) struct SamplingRate {
    /// When the current round of turns began.
    round_start: Stamp,
    keys: u32,
    fast: bool,
}

/// How many turns are looked at together.
const KEYS_PER_ROUND: u32 = 64;
/// A round that takes less than this is a fast one: more than a hundred thousand turns a second.
const FAST_ROUND_DURATION: Duration = Duration::from_micros(10 * KEYS_PER_ROUND as u64);
/// While it is fast, one in so many turns is timed.
const SAMPLE_INTERVAL_WHEN_FAST: u64 = 16;

impl SamplingRate {
    /// Counts a turn that begins.
    #[inline]
    pub(super) fn count(&mut self, now: Stamp) {
        self.keys += 1;
        let slow = now.since(self.round_start) >= FAST_ROUND_DURATION;
        if slow || self.keys == KEYS_PER_ROUND {
            (self.round_start, self.keys, self.fast) = (now, 0, !slow);
        }
    }

    /// Whether turns follow each other fast.
    #[inline]
    pub(super) fn is_fast(&self) -> bool {
        self.fast
    }

    /// Whether a turn is timed, by its number.
    #[inline]
    pub(super) fn is_sampled(&self, number: u64) -> bool {
        !self.fast || number.is_multiple_of(SAMPLE_INTERVAL_WHEN_FAST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workqueue::{ExponentialBackoff, Priority, Queue};

    /// Lets turns of three microseconds begin so far apart; how many were counted, and how many of them were timed.
    fn turns(count: u64, apart: Duration) -> (u64, u64) {
        let mut queue = Queue::new(ExponentialBackoff::default());
        let (mut now, mut timed) = (Moment::default(), 0);
        for key in 0..count {
            queue.add(now, key, Priority::NORMAL);
            let ticket = queue.take(now + Duration::from_micros(1)).unwrap().token;
            timed += u64::from(ticket.is_sampled());
            let end = if ticket.is_sampled() { now + Duration::from_micros(4) } else { Moment::default() };
            queue.done(end, ticket).unwrap();
            now = now + apart;
        }
        let metrics = queue.metrics(now);
        let counted = metrics.work_duration.count();
        assert_eq!(metrics.work_duration.sum(), Duration::from_micros(3 * counted), "any moment would do");
        assert!(
            (counted..counted + SAMPLE_INTERVAL_WHEN_FAST).contains(&metrics.queue_duration.count())
                || counted == count
        );
        assert_eq!(metrics.adds, count);
        (counted, timed)
    }

    #[test]
    fn all_turns_are_timed_unless_they_are_fast() {
        assert_eq!(turns(2_000, Duration::from_millis(1)), (2_000, 2_000));
        assert_eq!(turns(2_000, Duration::from_micros(11)), (2_000, 2_000));
        let (counted, timed) = turns(2_000, Duration::from_micros(5));
        assert!(
            (2_000 - SAMPLE_INTERVAL_WHEN_FAST..=2_000).contains(&counted),
            "those that are not are counted later: {counted}"
        );
        assert!((100..250).contains(&timed), "{timed}");
    }

    #[test]
    fn one_that_comes_late_ends_a_fast_time() {
        let at = |micros| Stamp::from(Moment::at(Duration::from_micros(micros)));
        let mut pace = SamplingRate::default();
        (0..u64::from(KEYS_PER_ROUND)).for_each(|turn| pace.count(at(turn)));
        assert!(
            pace.is_fast()
                && pace.is_sampled(SAMPLE_INTERVAL_WHEN_FAST)
                && !pace.is_sampled(SAMPLE_INTERVAL_WHEN_FAST + 1)
        );
        pace.count(at(1_000));
        assert!(!pace.is_fast() && pace.is_sampled(SAMPLE_INTERVAL_WHEN_FAST + 1));
    }
}
