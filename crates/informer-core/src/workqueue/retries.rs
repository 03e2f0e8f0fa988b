//! Which failures of a key count, and when the key is retried.
//!
//! A failure counts only if the delay after the previous counted failure of its key has passed. A key that is
//! added before that, for example by an event, is processed immediately; if it fails again, its retry stays
//! at the moment at which it was due, and its next delay does not grow. Otherwise frequent events would drive
//! the delay of a failing key to the maximum within seconds (kubernetes/kubernetes#132805).

use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use hashbrown::HashMap;

use super::limiter::RateLimiter;
use crate::time::Moment;

/// The retry delay if the limiter panicked; long enough to prevent a hot loop.
const LIMITER_PANIC_DELAY: Duration = Duration::from_secs(1);

/// The failed keys and their retries.
pub(super) struct Retries<T> {
    limiter: Box<dyn RateLimiter<T>>,
    /// When each key that has failed is due, by its last counted failure. Kept until the key is forgotten.
    due: HashMap<T, Moment>,
}

impl<T: Eq + Hash + Clone> Retries<T> {
    pub(super) fn new(limiter: impl RateLimiter<T> + 'static) -> Self {
        Retries { limiter: Box::new(limiter), due: HashMap::new() }
    }

    /// Records a failure of a key, which counts if the previous delay has passed; returns the delay before
    /// the retry.
    ///
    /// If a user's limiter panics, the key must not be lost.
    pub(super) fn fail(&mut self, now: Moment, key: &T) -> Duration {
        if let Some(due) = self.due.get(key).filter(|due| now < **due) {
            return *due - now;
        }
        let delay =
            catch_unwind(AssertUnwindSafe(|| self.limiter.when(now, key))).unwrap_or(LIMITER_PANIC_DELAY);
        self.due.insert(key.clone(), now + delay);
        delay
    }

    /// Resets the failures of a key. If no key has failed, which is the common case, nothing is hashed.
    pub(super) fn forget(&mut self, key: &T) {
        self.limiter.forget(key);
        if !self.due.is_empty() {
            self.due.remove(key);
        }
    }

    /// Returns the number of counted failures of a key since they were last reset.
    pub(super) fn count(&self, key: &T) -> u32 {
        self.limiter.retries(key)
    }
}

impl<T> fmt::Debug for Retries<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Retries").field("keys", &self.due.len()).finish_non_exhaustive()
    }
}
