//! The rate limit of new events: a token bucket per subject.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Moment;

/// Token buckets by subject. Each is stored as the moment at which it will be full; full buckets are not
/// stored.
#[derive(Debug)]
pub(super) struct Limit<S> {
    full_at: BTreeMap<S, Moment>,
    /// Time in which one token is added.
    refill_period: Duration,
    /// Time in which an empty bucket fills.
    fill_duration: Duration,
    max_remembered: usize,
}

impl<S: Ord> Limit<S> {
    pub(super) fn new(burst: u32, refill_period: Duration, max_remembered: usize) -> Self {
        Limit {
            full_at: BTreeMap::new(),
            refill_period,
            fill_duration: refill_period.saturating_mul(burst),
            max_remembered,
        }
    }

    /// Takes a token of the subject; returns whether there was one.
    pub(super) fn take(&mut self, now: Moment, subject: S) -> bool {
        let full_at =
            self.full_at.get(&subject).map_or(now, |full_at| (*full_at).max(now)) + self.refill_period;
        // An empty bucket is full after `fill_duration`. If it took longer, there was no token to take.
        if full_at > now + self.fill_duration {
            return false;
        }
        if self.full_at.len() >= self.max_remembered && !self.full_at.contains_key(&subject) {
            self.evict(now);
        }
        self.full_at.insert(subject, full_at);
        true
    }

    /// Removes the full buckets and, if that is not enough, the half that will be full first, because these
    /// restrict the least.
    fn evict(&mut self, now: Moment) {
        self.full_at.retain(|_, full_at| *full_at > now);
        if self.full_at.len() >= self.max_remembered {
            let mut moments: Vec<Moment> = self.full_at.values().copied().collect();
            moments.sort_unstable();
            let middle = moments.get(moments.len() / 2).copied().unwrap_or(now);
            self.full_at.retain(|_, full_at| *full_at > middle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::at(Duration::from_secs(seconds))
    }

    #[test]
    fn burst_is_accepted_then_one_per_refill_period() {
        let mut limit = Limit::new(3, Duration::from_secs(10), 8);
        let mut taken = |seconds| limit.take(at(seconds), "a");
        assert_eq!([taken(0), taken(0), taken(0), taken(0)], [true, true, true, false]);
        assert_eq!([taken(9), taken(10), taken(10), taken(19), taken(20)], [false, true, false, false, true]);
        assert_eq!(
            [taken(50), taken(50), taken(50), taken(50)],
            [true, true, true, false],
            "at most a burst is saved"
        );
        assert!(limit.take(at(50), "b"), "each subject has its own bucket");
    }

    #[test]
    fn remembered_subjects_are_bounded_and_the_emptiest_buckets_are_kept() {
        let mut limit = Limit::new(2, Duration::from_secs(10), 8);
        assert!(limit.take(at(0), 1_000) && limit.take(at(0), 1_000));
        for subject in 0..100 {
            assert!(limit.take(at(0), subject));
            assert!(limit.full_at.len() <= 8);
        }
        assert!(!limit.take(at(0), 1_000), "the bucket is still empty");
    }
}
