//! How many new events one subject may have: a bucket of tokens for each.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::time::Moment;

/// Buckets, each kept as the moment at which it will be full; one that is full is not kept.
#[derive(Debug)]
pub(super) struct Limit<S> {
    full: BTreeMap<S, Moment>,
    /// The time in which one token comes.
    refill_period: Duration,
    /// The time in which an empty bucket fills.
    whole: Duration,
    max_remembered: usize,
}

impl<S: Ord> Limit<S> {
    pub(super) fn new(burst: u32, refill: Duration, remembered: usize) -> Self {
        Limit {
            full: BTreeMap::new(),
            refill_period: refill,
            whole: refill.saturating_mul(burst),
            max_remembered: remembered,
        }
    }

    /// Takes a token of the subject's; whether there was one.
    pub(super) fn take(&mut self, now: Moment, subject: S) -> bool {
        let full = self.full.get(&subject).map_or(now, |full| (*full).max(now)) + self.refill_period;
        if full > now + self.whole {
            return false;
        }
        if self.full.len() >= self.max_remembered && !self.full.contains_key(&subject) {
            self.evict(now);
        }
        self.full.insert(subject, full);
        true
    }

    /// Forgets the buckets that are full, and if that is not enough the half that will be soonest: those that forbid the least.
    fn evict(&mut self, now: Moment) {
        self.full.retain(|_, full| *full > now);
        if self.full.len() >= self.max_remembered {
            let mut moments: Vec<Moment> = self.full.values().copied().collect();
            moments.sort_unstable();
            let middle = moments.get(moments.len() / 2).copied().unwrap_or(now);
            self.full.retain(|_, full| *full > middle);
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
    fn a_burst_and_then_one_at_a_time() {
        let mut limit = Limit::new(3, Duration::from_secs(10), 8);
        let mut taken = |seconds| limit.take(at(seconds), "a");
        assert_eq!([taken(0), taken(0), taken(0), taken(0)], [true, true, true, false]);
        assert_eq!([taken(9), taken(10), taken(10), taken(19), taken(20)], [false, true, false, false, true]);
        assert_eq!(
            [taken(50), taken(50), taken(50), taken(50)],
            [true, true, true, false],
            "never more than a burst"
        );
        assert!(limit.take(at(50), "b"), "each has its own");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_busiest_stay() {
        let mut limit = Limit::new(2, Duration::from_secs(10), 8);
        assert!(limit.take(at(0), 1_000) && limit.take(at(0), 1_000));
        for subject in 0..100 {
            assert!(limit.take(at(0), subject));
            assert!(limit.full.len() <= 8);
        }
        assert!(!limit.take(at(0), 1_000), "it has had its two");
    }
}
