//! How long a key waits before it is tried again.
//!
//! Limiters know keys and moments and nothing else. Whatever one remembers of a key is forgotten when the key has been dealt with
//! ([`RateLimiter::forget`]); a queue sees to that.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;

use crate::random::Random;
use crate::time::Moment;

/// Says how long a key waits before its next try.
///
/// ```
/// use informer_core::workqueue::{ExponentialBackoff, RateLimiter};
/// use informer_core::Moment;
/// use std::time::Duration;
///
/// let mut limiter = ExponentialBackoff::new(Duration::from_millis(5), Duration::from_secs(1000));
/// let waits = [(); 3].map(|()| limiter.when(Moment::default(), &"key"));
/// assert_eq!(waits.map(|wait| wait.as_millis()), [5, 10, 20]);
/// ```
pub trait RateLimiter<T>: Send + fmt::Debug {
    /// How long a key waits that has failed just now. Counts as a try.
    fn when(&mut self, now: Moment, key: &T) -> Duration;

    /// The key has been dealt with: its next failure is its first.
    fn forget(&mut self, key: &T);

    /// How often a key was told to wait since it was last forgotten.
    fn retries(&self, key: &T) -> u32;
}

/// Waits that double with each failure of a key, from the first wait to the longest.
#[derive(Debug)]
pub struct ExponentialBackoff<T> {
    initial: Duration,
    max: Duration,
    jitter: Option<Random>,
    failures: HashMap<T, u32>,
}

impl<T> ExponentialBackoff<T> {
    /// Waits that begin with `first` and double up to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        ExponentialBackoff { initial: first, max: longest, jitter: None, failures: HashMap::new() }
    }

    /// Stretches each wait by a random part of itself, up to all of it, but not beyond the longest: keys that failed together
    /// come back apart.
    #[must_use]
    pub fn jitter(self, seed: u64) -> Self {
        ExponentialBackoff { jitter: Some(Random::new(seed)), ..self }
    }
}

/// From 5 milliseconds to 1,000 seconds, as client-go's controllers have it.
impl<T> Default for ExponentialBackoff<T> {
    fn default() -> Self {
        ExponentialBackoff::new(Duration::from_millis(5), Duration::from_secs(1_000))
    }
}

impl<T: Eq + Hash + Clone + Send + fmt::Debug> RateLimiter<T> for ExponentialBackoff<T> {
    fn when(&mut self, _now: Moment, key: &T) -> Duration {
        let failures = count(&mut self.failures, key);
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        let grown = self.initial.saturating_mul(factor).min(self.max);
        match &mut self.jitter {
            Some(random) => {
                let nanos = u64::try_from(grown.as_nanos()).unwrap_or(u64::MAX);
                grown.saturating_add(Duration::from_nanos(random.below(nanos))).min(self.max)
            }
            None => grown,
        }
    }

    fn forget(&mut self, key: &T) {
        forget(&mut self.failures, key);
    }

    fn retries(&self, key: &T) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

/// A short wait for the first failures of a key, a long one for all others.
#[derive(Debug)]
pub struct FastSlow<T> {
    fast: Duration,
    slow: Duration,
    max_fast: u32,
    failures: HashMap<T, u32>,
}

impl<T> FastSlow<T> {
    /// `fast` for the first `most_fast` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, most_fast: u32) -> Self {
        FastSlow { fast, slow, max_fast: most_fast, failures: HashMap::new() }
    }
}

impl<T: Eq + Hash + Clone + Send + fmt::Debug> RateLimiter<T> for FastSlow<T> {
    fn when(&mut self, _now: Moment, key: &T) -> Duration {
        if count(&mut self.failures, key) < self.max_fast { self.fast } else { self.slow }
    }

    fn forget(&mut self, key: &T) {
        forget(&mut self.failures, key);
    }

    fn retries(&self, key: &T) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

/// A bucket of tokens for all keys together: so many at once, and so many a second.
#[derive(Debug)]
pub struct TokenBucket {
    /// The time in which one token comes.
    interval: Duration,
    burst: u32,
    /// How long it takes until the bucket is full, as of `last`.
    missing: Duration,
    last: Moment,
}

impl TokenBucket {
    /// `burst` at once, and then `per_second`; a rate that is not positive counts as the smallest there is.
    pub fn new(per_second: f64, burst: u32) -> Self {
        let interval = if per_second > 0.0 { (1.0 / per_second).min(1e9) } else { 1e9 };
        TokenBucket {
            interval: Duration::from_secs_f64(interval),
            burst,
            missing: Duration::ZERO,
            last: Moment::default(),
        }
    }
}

impl<T> RateLimiter<T> for TokenBucket {
    fn when(&mut self, now: Moment, _key: &T) -> Duration {
        self.missing = self.missing.saturating_sub(now - self.last).saturating_add(self.interval);
        self.last = self.last.max(now);
        self.missing.saturating_sub(self.interval.saturating_mul(self.burst))
    }

    fn forget(&mut self, _key: &T) {}

    fn retries(&self, _key: &T) -> u32 {
        0
    }
}

/// The longest of several waits. All of them are asked, so all of them count.
#[derive(Debug)]
pub struct MaxOf<T>(Vec<Box<dyn RateLimiter<T>>>);

impl<T> MaxOf<T> {
    /// Of these limiters.
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        MaxOf(limiters)
    }
}

impl<T: fmt::Debug> RateLimiter<T> for MaxOf<T> {
    fn when(&mut self, now: Moment, key: &T) -> Duration {
        self.0.iter_mut().map(|limiter| limiter.when(now, key)).max().unwrap_or_default()
    }

    fn forget(&mut self, key: &T) {
        self.0.iter_mut().for_each(|limiter| limiter.forget(key));
    }

    fn retries(&self, key: &T) -> u32 {
        self.0.iter().map(|limiter| limiter.retries(key)).max().unwrap_or(0)
    }
}

/// Another limiter's waits, cut at a longest one.
#[derive(Debug)]
pub struct WithMaxDelay<L> {
    limiter: L,
    max_delay: Duration,
}

impl<L> WithMaxDelay<L> {
    /// `limiter`'s waits, but none longer than `longest`.
    pub fn new(limiter: L, longest: Duration) -> Self {
        WithMaxDelay { limiter, max_delay: longest }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxDelay<L> {
    fn when(&mut self, now: Moment, key: &T) -> Duration {
        self.limiter.when(now, key).min(self.max_delay)
    }

    fn forget(&mut self, key: &T) {
        self.limiter.forget(key);
    }

    fn retries(&self, key: &T) -> u32 {
        self.limiter.retries(key)
    }
}

/// Counts a failure; how many there were before.
fn count<T: Eq + Hash + Clone>(failures: &mut HashMap<T, u32>, key: &T) -> u32 {
    if let Some(failures) = failures.get_mut(key) {
        let before = *failures;
        *failures = before.saturating_add(1);
        return before;
    }
    failures.insert(key.clone(), 1);
    0
}

/// Most keys never fail: where none has, none is hashed.
fn forget<T: Eq + Hash>(failures: &mut HashMap<T, u32>, key: &T) {
    if !failures.is_empty() {
        failures.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::at(Duration::ZERO);

    fn waits<L: RateLimiter<&'static str>>(limiter: &mut L, key: &'static str, times: usize) -> Vec<u128> {
        (0..times).map(|_| limiter.when(NOW, &key).as_millis()).collect()
    }

    #[test]
    fn rl_2_waits_double_up_to_the_longest() {
        let mut limiter = ExponentialBackoff::new(Duration::from_millis(1), Duration::from_mins(1));
        assert_eq!(waits(&mut limiter, "one", 5), [1, 2, 4, 8, 16]);
        assert_eq!((limiter.retries(&"one"), limiter.retries(&"two")), (5, 0));
        assert_eq!(waits(&mut limiter, "two", 2), [1, 2]);
        limiter.forget(&"one");
        assert_eq!((limiter.retries(&"one"), limiter.when(NOW, &"one").as_millis()), (0, 1));
        for _ in 0..100 {
            limiter.when(NOW, &"one");
        }
        assert_eq!(limiter.when(NOW, &"one"), Duration::from_mins(1), "however often it failed");
        let mut endless = ExponentialBackoff::new(Duration::from_secs(1), Duration::MAX);
        assert!((0..200).map(|_| endless.when(NOW, &"k")).is_sorted(), "and it never wraps around");
    }

    /// Keys that fail together would come back together for ever without it (W-35).
    #[test]
    fn jitter_spreads_keys_and_is_bounded() {
        let limiter =
            || ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(1)).jitter(7);
        let (mut one, mut same) = (limiter(), limiter());
        let waits: Vec<Duration> = (0..50).map(|key| one.when(NOW, &key)).collect();
        assert!(waits.iter().all(|wait| (100..200).contains(&wait.as_millis())), "{waits:?}");
        let again: Vec<Duration> = (0..50).map(|key| same.when(NOW, &key)).collect();
        assert_eq!(waits, again, "equal seeds give equal runs");
        let mut different = waits.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > 40, "{different:?}");
        assert!((0..20).all(|_| one.when(NOW, &1) <= Duration::from_secs(1)));
    }

    #[test]
    fn rl_3_fast_for_a_while_and_then_slow() {
        let mut limiter = FastSlow::new(Duration::from_millis(5), Duration::from_secs(10), 3);
        assert_eq!(waits(&mut limiter, "k", 5), [5, 5, 5, 10_000, 10_000]);
        limiter.forget(&"k");
        assert_eq!(waits(&mut limiter, "k", 1), [5]);
    }

    #[test]
    fn rl_4_a_bucket_lets_a_burst_through_and_then_its_rate() {
        let mut bucket = TokenBucket::new(10.0, 3);
        assert_eq!(waits(&mut bucket, "k", 5), [0, 0, 0, 100, 200]);
        RateLimiter::forget(&mut bucket, &"k");
        assert_eq!(RateLimiter::retries(&bucket, &"k"), 0, "it knows no keys");
        let later = Moment::at(Duration::from_millis(200));
        assert_eq!(bucket.when(later, &"k").as_millis(), 100, "two tokens came, and two were owed");
        let much_later = Moment::at(Duration::from_hours(1));
        assert_eq!(
            (0..4).map(|_| bucket.when(much_later, &"k").as_millis()).max(),
            Some(100),
            "no more than a burst is saved"
        );
        assert!(RateLimiter::<u8>::when(&mut TokenBucket::new(0.0, 0), NOW, &1) > Duration::from_hours(1));
    }

    #[test]
    fn rl_5_the_longest_counts_and_all_are_asked() {
        let exponential = ExponentialBackoff::new(Duration::from_millis(1), Duration::from_secs(1));
        let fast_slow = FastSlow::new(Duration::from_millis(3), Duration::from_millis(4), 2);
        let mut limiter = MaxOf::new(vec![Box::new(exponential), Box::new(fast_slow)]);
        assert_eq!(waits(&mut limiter, "k", 5), [3, 3, 4, 8, 16]);
        assert_eq!(limiter.retries(&"k"), 5);
        limiter.forget(&"k");
        assert_eq!((limiter.retries(&"k"), limiter.when(NOW, &"k").as_millis()), (0, 3));
        let mut cut = WithMaxDelay::new(
            ExponentialBackoff::new(Duration::from_secs(1), Duration::from_mins(1)),
            Duration::from_secs(3),
        );
        assert_eq!(waits(&mut cut, "k", 4), [1_000, 2_000, 3_000, 3_000]);
        assert_eq!(cut.retries(&"k"), 4);
    }
}
