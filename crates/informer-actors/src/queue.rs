//! A queue of keys with the times at which they are due, for actors that handle one object after the other.
//!
//! A key is in the queue at most once. Keys are handled in the order of their times, then of the keys. A key
//! whose handling failed is retried: soon after a conflict, with increasing delays after other errors.

use std::collections::{BTreeMap, BTreeSet};

use informer_apiserver::Status;
use jiff::{SignedDuration, Timestamp};

use crate::cluster::Cluster;

/// Delay before a write is retried that failed because the object had changed or was gone.
const CONFLICT_DELAY: SignedDuration = SignedDuration::from_millis(50);

/// Delay before the first retry after another error. It doubles with each failure.
const MIN_RETRY_DELAY: SignedDuration = SignedDuration::from_secs(1);

/// Number of times that the delay doubles at most: to about 17 minutes.
const MAX_DOUBLINGS: u32 = 10;

/// The result of handling a key: the time at which the key is to be handled again, if any.
pub(crate) type Handled = Result<Option<Timestamp>, Status>;

/// A queue of keys with times.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    due: BTreeMap<K, Timestamp>,
    by_time: BTreeSet<(Timestamp, K)>,
    /// Number of failures of a key since its last success.
    failures: BTreeMap<K, u32>,
}

impl<K: Ord + Clone> Queue<K> {
    pub(crate) fn new() -> Self {
        Queue { due: BTreeMap::new(), by_time: BTreeSet::new(), failures: BTreeMap::new() }
    }

    /// Adds a key, or moves it if it is due later.
    pub(crate) fn add_at(&mut self, key: K, time: Timestamp) {
        match self.due.get(&key) {
            Some(due) if *due <= time => return,
            Some(due) => {
                let due = *due;
                self.by_time.remove(&(due, key.clone()));
            }
            None => {}
        }
        self.due.insert(key.clone(), time);
        self.by_time.insert((time, key));
    }

    /// Adds a key after a random delay in milliseconds, unless it is in the queue and due before the longest
    /// delay.
    pub(crate) fn add(&mut self, cluster: &mut Cluster<'_>, key: K, (low, high): (i64, i64)) {
        let latest = cluster.now() + SignedDuration::from_millis(high);
        if self.due.get(&key).is_none_or(|due| *due > latest) {
            let time = cluster.after_delay(low, high);
            self.add_at(key, time);
        }
    }

    /// Handles all keys that are due, and returns the time at which the next one is.
    pub(crate) fn run(
        &mut self,
        cluster: &mut Cluster<'_>,
        mut handle: impl FnMut(&mut Cluster<'_>, &K) -> Handled,
    ) -> Option<Timestamp> {
        let now = cluster.now();
        while let Some(key) = self.pop(now) {
            match handle(cluster, &key) {
                Ok(again) => {
                    self.failures.remove(&key);
                    if let Some(time) = again {
                        self.add_at(key, time.max(now));
                    }
                }
                Err(status) => self.retry(key, now, &status),
            }
        }
        self.next_due()
    }

    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(time, _)| *time)
    }

    fn pop(&mut self, now: Timestamp) -> Option<K> {
        let (time, _) = self.by_time.first()?;
        if *time > now {
            return None;
        }
        let (_, key) = self.by_time.pop_first()?;
        self.due.remove(&key);
        Some(key)
    }

    fn retry(&mut self, key: K, now: Timestamp, status: &Status) {
        let delay = if matches!(status.code, 404 | 409) {
            CONFLICT_DELAY
        } else {
            let failures = self.failures.entry(key.clone()).or_default();
            let delay = MIN_RETRY_DELAY * (1 << (*failures).min(MAX_DOUBLINGS));
            *failures += 1;
            delay
        };
        self.add_at(key, now.saturating_add(delay).unwrap_or(Timestamp::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[test]
    fn earlier_time_of_a_key_counts() {
        let mut queue = Queue::new();
        queue.add_at("a", second(5));
        queue.add_at("b", second(3));
        queue.add_at("a", second(2));
        queue.add_at("a", second(9));
        assert_eq!(queue.pop(second(1)), None);
        assert_eq!(queue.pop(second(3)), Some("a"));
        assert_eq!(queue.next_due(), Some(second(3)));
        assert_eq!((queue.pop(second(3)), queue.pop(second(99))), (Some("b"), None));
    }

    #[test]
    fn retries_wait_longer_except_after_conflicts() {
        let mut queue = Queue::new();
        let mut delay = |status: &Status| {
            queue.retry("a", second(0), status);
            let due = queue.next_due().unwrap().as_millisecond();
            queue.pop(Timestamp::MAX);
            due
        };
        let invalid = Status::bad_request("invalid".to_owned());
        let delays: Vec<i64> = (0..4).map(|_| delay(&invalid)).collect();
        assert_eq!(delays, [1_000, 2_000, 4_000, 8_000]);
        assert_eq!(delay(&Status::not_found("", "pods", "a")), 50);
        assert_eq!((0..20).map(|_| delay(&invalid)).last(), Some(1_024_000));
    }
}
