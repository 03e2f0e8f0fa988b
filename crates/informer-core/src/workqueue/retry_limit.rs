//! The limit on retries of one queue: how many start per second, and how many are processing.
//!
//! While a server is down, every key fails, and thousands of keys with short delays would send thousands of
//! requests per second. So due retries share a token bucket, and at most a part of the workers. Few failing
//! keys are not delayed: they find the bucket full. Thousands are: they wait in the order in which they became
//! due. A retry that succeeds adds two tokens for the one it took, so that once the server is back the number
//! of concurrent retries doubles with each round of responses, while retries that fail never add any.
//!
//! Only retries are limited. An attempt that an add has caused, be it the first one or not, is not: it starts
//! immediately and takes no token. This module knows moments and numbers, not keys.

use std::time::Duration;

use crate::time::Moment;

/// Number of tokens that a successful retry adds.
const TOKENS_PER_SUCCESS: u32 = 2;
/// Time without a success, beginning with a failure, after which the next success ends an outage.
const MIN_OUTAGE_DURATION: Duration = Duration::from_secs(10);
/// Time between two recoveries. Each one retries all delayed keys, also those that fail permanently.
const MIN_RECOVERY_PERIOD: Duration = Duration::from_secs(60);
/// Number of started retries that may wait for a worker. They start together when workers become free, so this
/// number adds to the burst.
const MAX_WAITING: usize = 8;
/// Rate that replaces lower ones, so that every failed key is retried.
const MIN_PER_SECOND: f64 = 1.0 / 60.0;

/// The delay within which every failed key is retried once an outage is over.
pub(super) const MAX_DELAY_AFTER_OUTAGE: Duration = Duration::from_secs(30);

/// A limit on the retries of all keys of a queue, in addition to the delay of each key.
///
/// Retries that are due start at up to `per_second`, after a burst, in the order in which they became due. A
/// retry that succeeds allows two more, so the limit rises quickly when a server is back after an
/// outage. If nothing has succeeded for at least 10 s, the first success also shortens the remaining delays
/// of failed keys to at most 30 s.
///
/// Attempts caused by an add, for example by an event, are not retries and not limited, even if the key has
/// failed before. Defaults to 50 retries per second after a burst of 40, so never more than 100 in a second
/// unless retries succeed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RetryLimit {
    per_second: f64,
    burst: u32,
    max_processing: Option<usize>,
}

impl RetryLimit {
    /// Creates a limit of `per_second` retries after a burst of `burst`.
    ///
    /// The lowest rate is one retry per minute, and the smallest burst is one.
    pub fn new(per_second: f64, burst: u32) -> Self {
        RetryLimit { per_second: per_second.max(MIN_PER_SECOND), burst: burst.max(1), max_processing: None }
    }

    /// Sets how many keys may be processing as retries at the same time, at least one. The others wait, so
    /// that slow failures do not occupy all workers.
    ///
    /// Defaults to no limit for a queue, and to half of the workers for a controller.
    #[must_use]
    pub fn max_processing(self, keys: usize) -> Self {
        RetryLimit { max_processing: Some(keys.max(1)), ..self }
    }

    /// Sets the number of keys for [`max_processing`](Self::max_processing) unless it is set.
    #[must_use]
    pub fn or_max_processing(self, keys: usize) -> Self {
        if self.max_processing.is_some() { self } else { self.max_processing(keys) }
    }
}

impl Default for RetryLimit {
    fn default() -> Self {
        RetryLimit::new(50.0, 40)
    }
}

/// The state of a [`RetryLimit`].
#[derive(Debug)]
pub(super) struct RetryThrottle {
    max_active: usize,
    /// Number of started retries that have not ended, at most `max_active`.
    active: usize,
    /// Number of started retries that no worker has taken yet.
    waiting: usize,
    /// Time in which one token is added.
    interval: Duration,
    /// Time in which an empty bucket is filled.
    capacity: Duration,
    /// Time until the bucket is full, as of `last`; at most `capacity`.
    missing: Duration,
    last: Moment,
    /// The first failure since the last success.
    failing_since: Option<Moment>,
    /// Whether an outage was noticed whose end has not been handled.
    is_outage: bool,
    last_recovery: Option<Moment>,
}

/// What a success means for the other keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recovery {
    /// Nothing.
    None,
    /// An outage is over: no failed key may wait longer than [`MAX_DELAY_AFTER_OUTAGE`].
    OutageOver,
}

impl RetryThrottle {
    pub(super) fn new(limit: RetryLimit) -> Self {
        let interval = Duration::from_secs_f64(1.0 / limit.per_second);
        RetryThrottle {
            max_active: limit.max_processing.unwrap_or(usize::MAX),
            active: 0,
            waiting: 0,
            interval,
            capacity: interval.saturating_mul(limit.burst),
            missing: Duration::ZERO,
            last: Moment::default(),
            failing_since: None,
            is_outage: false,
            last_recovery: None,
        }
    }

    /// Starts a retry if the limit allows one more.
    pub(super) fn try_start(&mut self, now: Moment) -> bool {
        self.refill(now);
        let missing = self.missing.saturating_add(self.interval);
        if self.is_full() || missing > self.capacity {
            return false;
        }
        self.active += 1;
        self.waiting += 1;
        self.missing = missing;
        true
    }

    /// Returns when the next retry may start; `None` if an earlier one must be taken or end first.
    pub(super) fn next_start(&self) -> Option<Moment> {
        let missing = self.missing.saturating_add(self.interval).saturating_sub(self.capacity);
        (!self.is_full()).then(|| self.last + missing)
    }

    /// Records that a worker has taken a started retry.
    pub(super) fn take(&mut self) {
        self.waiting = self.waiting.saturating_sub(1);
    }

    /// Records that a started retry ended, whatever its result.
    pub(super) fn end(&mut self) {
        self.active = self.active.saturating_sub(1);
    }

    /// Records a successful attempt.
    pub(super) fn succeed(&mut self, now: Moment, is_retry: bool) -> Recovery {
        if is_retry {
            self.refill(now);
            self.missing = self.missing.saturating_sub(self.interval.saturating_mul(TOKENS_PER_SUCCESS));
        }
        self.failing_since = None;
        let is_recent = self.last_recovery.is_some_and(|last| now - last < MIN_RECOVERY_PERIOD);
        if !self.is_outage || is_recent {
            return Recovery::None;
        }
        (self.is_outage, self.last_recovery) = (false, Some(now));
        Recovery::OutageOver
    }

    /// Records a failed attempt.
    pub(super) fn fail(&mut self, now: Moment) {
        let since = *self.failing_since.get_or_insert(now);
        self.is_outage |= now - since >= MIN_OUTAGE_DURATION;
    }

    #[cfg(test)]
    pub(super) fn active(&self) -> usize {
        self.active
    }

    fn is_full(&self) -> bool {
        self.active >= self.max_active || self.waiting >= MAX_WAITING
    }

    fn refill(&mut self, now: Moment) {
        self.missing = self.missing.saturating_sub(now - self.last);
        self.last = self.last.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_millis(millis))
    }

    /// Starts as many retries as possible.
    fn starts(throttle: &mut RetryThrottle, now: u64) -> usize {
        let start = || throttle.try_start(at(now)).then(|| throttle.take());
        std::iter::from_fn(start).count()
    }

    #[test]
    fn burst_is_followed_by_a_constant_rate() {
        let mut throttle = RetryThrottle::new(RetryLimit::new(10.0, 3));
        assert_eq!((starts(&mut throttle, 0), throttle.next_start()), (3, Some(at(100))));
        assert_eq!((starts(&mut throttle, 99), starts(&mut throttle, 100)), (0, 1));
        assert_eq!(starts(&mut throttle, 60_000), 3, "the bucket holds no more than the burst");
    }

    #[test]
    fn failures_free_a_worker_and_successes_two_tokens() {
        let mut throttle = RetryThrottle::new(RetryLimit::new(10.0, 4).max_processing(2));
        assert_eq!((starts(&mut throttle, 0), throttle.next_start()), (2, None));
        for _ in 0..2 {
            throttle.end();
            throttle.fail(at(0));
        }
        assert_eq!(starts(&mut throttle, 0), 2, "the rest of the burst");
        throttle.end();
        throttle.fail(at(0));
        assert_eq!(starts(&mut throttle, 0), 0);
        throttle.end();
        assert_eq!(throttle.succeed(at(0), true), Recovery::None);
        assert_eq!(starts(&mut throttle, 0), 2, "two for one success");
        throttle.succeed(at(0), false);
        throttle.end();
        assert_eq!(starts(&mut throttle, 0), 0, "the success of another attempt adds none");
    }

    #[test]
    fn first_success_after_ten_seconds_of_failures_ends_the_outage() {
        let mut throttle = RetryThrottle::new(RetryLimit::default());
        let fail = |throttle: &mut RetryThrottle, millis: &[u64]| {
            for millis in millis {
                throttle.fail(at(*millis));
            }
        };
        fail(&mut throttle, &[0, 9_999]);
        assert_eq!(throttle.succeed(at(10_000), false), Recovery::None, "too short");
        fail(&mut throttle, &[11_000, 21_000]);
        assert_eq!(throttle.succeed(at(22_000), false), Recovery::OutageOver);
        assert_eq!(throttle.succeed(at(22_001), true), Recovery::None);
        fail(&mut throttle, &[23_000, 40_000]);
        assert_eq!(throttle.succeed(at(41_000), true), Recovery::None, "a minute after the last one");
        assert_eq!(throttle.succeed(at(82_000), true), Recovery::OutageOver, "which is not forgotten");
    }

    #[test]
    fn unusable_limits_are_replaced() {
        for (per_second, per_minute) in [(0.0, 1), (-1.0, 1), (f64::NAN, 1), (1.0, 60)] {
            let mut throttle = RetryThrottle::new(RetryLimit::new(per_second, 0).max_processing(0));
            let mut started = 0;
            for second in 0..60 {
                started += starts(&mut throttle, second * 1_000);
                (0..throttle.active()).for_each(|_| throttle.end());
            }
            assert_eq!(started, per_minute, "{per_second}");
        }
        assert_eq!(RetryThrottle::new(RetryLimit::new(f64::INFINITY, 1)).interval, Duration::ZERO);
    }
}
