//! Rate limiters: the delay before a key is retried.
//!
//! A limiter knows only keys and moments. Everything it stores about a key is removed when the key has been
//! processed successfully ([`RateLimiter::forget`]); the queue makes that call.

use std::fmt;
use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;

use crate::backoff::doubled;
use crate::random::Random;
use crate::time::Moment;

/// A policy for the delay before a key is retried.
///
/// ```
/// # mod informer { pub use informer_core::workqueue; pub mod status { pub use informer_core::Moment; } }
/// use informer::status::Moment;
/// use informer::workqueue::{ExponentialBackoff, RateLimiter};
/// use std::time::Duration;
///
/// let mut limiter = ExponentialBackoff::new(Duration::from_millis(5), Duration::from_secs(1000));
/// let delays = [(); 3].map(|()| limiter.when(Moment::default(), &"key"));
/// assert_eq!(delays.map(|delay| delay.as_millis()), [5, 10, 20]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a rate limiter for `{T}`",
    label = "does not implement `RateLimiter<{T}>`",
    note = "use `ExponentialBackoff`, `FastSlow` or `TokenBucket`, combined by `MaxOf` or `WithMaxDelay`"
)]
pub trait RateLimiter<T>: Send + fmt::Debug {
    /// Records a failure of the key and returns the delay before its next attempt.
    ///
    /// The queue does not call this for a failure before the previous delay of the key has passed.
    fn when(&mut self, now: Moment, key: &T) -> Duration;

    /// Resets the failures of a key, after it was processed successfully.
    fn forget(&mut self, key: &T);

    /// Returns the number of failures of a key since they were last reset.
    fn retries(&self, key: &T) -> u32;
}

/// A delay per key that doubles with each failure, up to a maximum.
///
/// Defaults to 5 ms up to 1,000 s.
#[derive(Debug)]
pub struct ExponentialBackoff<T> {
    initial: Duration,
    max: Duration,
    jitter: Option<Random>,
    failures: HashMap<T, u32>,
}

impl<T> ExponentialBackoff<T> {
    /// Creates a limiter whose delays start at `initial` and double up to `max`.
    pub fn new(initial: Duration, max: Duration) -> Self {
        ExponentialBackoff { initial, max, jitter: None, failures: HashMap::new() }
    }

    /// Adds a random duration of up to the delay itself to each delay, but does not exceed the maximum. Keys
    /// that failed together are then retried at different times.
    #[must_use]
    pub fn jitter(self, seed: u64) -> Self {
        ExponentialBackoff { jitter: Some(Random::new(seed)), ..self }
    }
}

/// From 5 ms to 1,000 s, like client-go's default for controllers, but without its token bucket for all keys.
impl<T> Default for ExponentialBackoff<T> {
    fn default() -> Self {
        ExponentialBackoff::new(Duration::from_millis(5), Duration::from_secs(1_000))
    }
}

impl<T: Eq + Hash + Clone + Send + fmt::Debug> RateLimiter<T> for ExponentialBackoff<T> {
    fn when(&mut self, _now: Moment, key: &T) -> Duration {
        let failures = count(&mut self.failures, key);
        let delay = doubled(self.initial, failures).min(self.max);
        match &mut self.jitter {
            Some(random) => {
                let nanos = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
                delay.saturating_add(Duration::from_nanos(random.below(nanos))).min(self.max)
            }
            None => delay,
        }
    }

    fn forget(&mut self, key: &T) {
        forget(&mut self.failures, key);
    }

    fn retries(&self, key: &T) -> u32 {
        self.failures.get(key).copied().unwrap_or(0)
    }
}

/// A short delay for the first failures of a key, and a long one for all later ones.
#[derive(Debug)]
pub struct FastSlow<T> {
    fast: Duration,
    slow: Duration,
    max_fast: u32,
    failures: HashMap<T, u32>,
}

impl<T> FastSlow<T> {
    /// Creates a limiter that returns `fast` for the first `max_fast` failures, then `slow`.
    pub fn new(fast: Duration, slow: Duration, max_fast: u32) -> Self {
        FastSlow { fast, slow, max_fast, failures: HashMap::new() }
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

/// A token bucket shared by all keys: a burst, then a constant rate.
#[derive(Debug)]
pub struct TokenBucket {
    /// Time in which one token is added.
    interval: Duration,
    burst: u32,
    /// Time until the bucket is full, as of `last`.
    missing: Duration,
    last: Moment,
}

impl TokenBucket {
    /// Creates a bucket of `burst` tokens, refilled with `per_second` tokens per second.
    ///
    /// The lowest rate is one token per 1,000,000,000 seconds; it replaces zero and negative rates.
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

/// The maximum of the delays of several limiters. Each failure counts in all of them.
#[derive(Debug)]
pub struct MaxOf<T>(Vec<Box<dyn RateLimiter<T>>>);

impl<T> MaxOf<T> {
    /// Creates a limiter from these limiters.
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

/// A limiter whose delays are capped.
#[derive(Debug)]
pub struct WithMaxDelay<L> {
    limiter: L,
    max_delay: Duration,
}

impl<L> WithMaxDelay<L> {
    /// Creates a limiter that returns the delays of `limiter`, but at most `max_delay`.
    pub fn new(limiter: L, max_delay: Duration) -> Self {
        WithMaxDelay { limiter, max_delay }
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

/// Records a failure; returns the number of earlier ones.
fn count<T: Eq + Hash + Clone>(failures: &mut HashMap<T, u32>, key: &T) -> u32 {
    if let Some(failures) = failures.get_mut(key) {
        let before = *failures;
        *failures = before.saturating_add(1);
        return before;
    }
    failures.insert(key.clone(), 1);
    0
}

/// Removes the failures of a key. If no key has failed, which is the common case, nothing is hashed.
fn forget<T: Eq + Hash>(failures: &mut HashMap<T, u32>, key: &T) {
    if !failures.is_empty() {
        failures.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Moment::at(Duration::ZERO);

    fn delays<L: RateLimiter<&'static str>>(limiter: &mut L, key: &'static str, times: usize) -> Vec<u128> {
        (0..times).map(|_| limiter.when(NOW, &key).as_millis()).collect()
    }

    #[test]
    fn rl_2_delays_double_up_to_the_maximum() {
        let mut limiter = ExponentialBackoff::new(Duration::from_millis(1), Duration::from_secs(60));
        assert_eq!(delays(&mut limiter, "one", 5), [1, 2, 4, 8, 16]);
        assert_eq!((limiter.retries(&"one"), limiter.retries(&"two")), (5, 0));
        assert_eq!(delays(&mut limiter, "two", 2), [1, 2]);
        limiter.forget(&"one");
        assert_eq!((limiter.retries(&"one"), limiter.when(NOW, &"one").as_millis()), (0, 1));
        for _ in 0..100 {
            limiter.when(NOW, &"one");
        }
        assert_eq!(limiter.when(NOW, &"one"), Duration::from_secs(60), "the delay stays at the maximum");
        let mut unbounded = ExponentialBackoff::new(Duration::from_secs(1), Duration::MAX);
        assert!((0..200).map(|_| unbounded.when(NOW, &"k")).is_sorted(), "the delay never overflows");
    }

    /// Regression: the factor stopped growing at 2³² − 1, so that a delay that starts at one nanosecond stayed
    /// at about four seconds.
    #[test]
    fn rl_2_short_initial_delay_reaches_the_maximum() {
        let mut limiter = ExponentialBackoff::new(Duration::from_nanos(1), Duration::from_secs(1_000));
        let last = (0..50).map(|_| limiter.when(NOW, &"k")).last();
        assert_eq!(last, Some(Duration::from_secs(1_000)));
    }

    /// Without jitter, keys that failed together would be retried together forever.
    #[test]
    fn jitter_spreads_keys_and_is_bounded() {
        let limiter =
            || ExponentialBackoff::new(Duration::from_millis(100), Duration::from_secs(1)).jitter(7);
        let (mut one, mut same) = (limiter(), limiter());
        let delays: Vec<Duration> = (0..50).map(|key| one.when(NOW, &key)).collect();
        assert!(delays.iter().all(|delay| (100..200).contains(&delay.as_millis())), "{delays:?}");
        let repeated: Vec<Duration> = (0..50).map(|key| same.when(NOW, &key)).collect();
        assert_eq!(delays, repeated, "equal seeds return equal delays");
        let mut different = delays.clone();
        different.sort();
        different.dedup();
        assert!(different.len() > 40, "{different:?}");
        assert!((0..20).all(|_| one.when(NOW, &1) <= Duration::from_secs(1)));
    }

    #[test]
    fn rl_3_first_failures_are_fast_and_later_ones_slow() {
        let mut limiter = FastSlow::new(Duration::from_millis(5), Duration::from_secs(10), 3);
        assert_eq!(delays(&mut limiter, "k", 5), [5, 5, 5, 10_000, 10_000]);
        limiter.forget(&"k");
        assert_eq!(delays(&mut limiter, "k", 1), [5]);
    }

    #[test]
    fn rl_4_token_bucket_allows_a_burst_then_its_rate() {
        let mut bucket = TokenBucket::new(10.0, 3);
        assert_eq!(delays(&mut bucket, "k", 5), [0, 0, 0, 100, 200]);
        RateLimiter::forget(&mut bucket, &"k");
        assert_eq!(RateLimiter::retries(&bucket, &"k"), 0, "a bucket stores no keys");
        let later = Moment::at(Duration::from_millis(200));
        assert_eq!(bucket.when(later, &"k").as_millis(), 100, "two tokens were added and two were owed");
        let much_later = Moment::at(Duration::from_secs(3600));
        assert_eq!(
            (0..4).map(|_| bucket.when(much_later, &"k").as_millis()).max(),
            Some(100),
            "at most a burst is saved"
        );
        assert!(RateLimiter::<u8>::when(&mut TokenBucket::new(0.0, 0), NOW, &1) > Duration::from_secs(3600));
    }

    #[test]
    fn rl_5_longest_delay_is_used_and_all_limiters_count() {
        let exponential = ExponentialBackoff::new(Duration::from_millis(1), Duration::from_secs(1));
        let fast_slow = FastSlow::new(Duration::from_millis(3), Duration::from_millis(4), 2);
        let mut limiter = MaxOf::new(vec![Box::new(exponential), Box::new(fast_slow)]);
        assert_eq!(delays(&mut limiter, "k", 5), [3, 3, 4, 8, 16]);
        assert_eq!(limiter.retries(&"k"), 5);
        limiter.forget(&"k");
        assert_eq!((limiter.retries(&"k"), limiter.when(NOW, &"k").as_millis()), (0, 3));
        let mut capped = WithMaxDelay::new(
            ExponentialBackoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            Duration::from_secs(3),
        );
        assert_eq!(delays(&mut capped, "k", 4), [1_000, 2_000, 3_000, 3_000]);
        assert_eq!(capped.retries(&"k"), 4);
    }
}
