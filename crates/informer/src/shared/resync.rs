//! Resync (C12): schedules when a handler receives which cached objects again.
//!
//! A round visits the keys in order within one period; at any time, the share of objects that is due equals
//! the elapsed share of the period. An object that exists for a whole round is due exactly once in that
//! round. (The outbox skips due objects that have pending events, or for which it has no capacity.) A resync
//! sends no request. This file reads no clock: the caller passes the time.

use informer_core::{Entry, Key, Moment, StoreSnapshot};
use std::sync::Arc;
use std::time::Duration;

/// Lower bound of the resync period; a shorter one would be a busy loop over the cache.
const MIN_RESYNC_PERIOD: Duration = Duration::from_secs(1);
/// Number of slices in which the objects of a round are delivered.
const SLICES_PER_PERIOD: u32 = 128;

/// The resync rounds of one handler.
#[derive(Debug)]
pub(super) struct ResyncSchedule {
    period: Duration,
    /// The current round; `None` until the initial list is complete.
    round: Option<Round>,
}

/// One pass over the keys.
#[derive(Debug)]
struct Round {
    /// When the round ends.
    ends: Moment,
    /// When the last slice was taken.
    last_slice: Moment,
    /// When the next slice is due.
    next_slice: Moment,
    /// The last key that was taken in this round.
    cursor: Option<Key>,
    /// Approximate number of objects that the round has still to deliver.
    remaining: usize,
    /// Number of cached objects when `remaining` was computed.
    total: usize,
    /// Fraction of an object that is due and not delivered, in units of 1 / [`FRACTION_UNIT`].
    fraction: u128,
}

/// One whole object, in the unit of [`Round::fraction`].
const FRACTION_UNIT: u128 = 1_000_000;

impl ResyncSchedule {
    /// Creates a schedule with rounds of `period`; `None` if the period is zero.
    pub(super) fn new(period: Duration) -> Option<Self> {
        (!period.is_zero()).then(|| Self { period: period.max(MIN_RESYNC_PERIOD), round: None })
    }

    /// Starts the first round; later calls have no effect.
    pub(super) fn start(&mut self, now: Moment) {
        self.round.get_or_insert_with(|| Round::new(self.period, now));
    }

    /// Returns when the next slice is due.
    pub(super) fn next(&self) -> Option<Moment> {
        self.round.as_ref().map(|round| round.next_slice)
    }

    /// Begins the slice that is due at `now`, if any, by scheduling the next one; returns whether one is due.
    pub(super) fn begin_slice(&mut self, now: Moment) -> bool {
        let Some(round) = self.round.as_mut().filter(|round| now >= round.next_slice) else { return false };
        round.next_slice = now + self.period / SLICES_PER_PERIOD;
        true
    }

    /// Takes the objects that are due at `now`.
    pub(super) fn take(&mut self, objects: &StoreSnapshot, now: Moment) -> Vec<Arc<Entry>> {
        let Some(round) = &mut self.round else { return Vec::new() };
        if now >= round.ends {
            let due = objects.after(round.cursor.as_ref()).cloned().collect();
            // Whole rounds that were missed, for example while the process was suspended, are not repeated.
            let started = if now - round.ends < self.period { round.ends } else { now };
            // `begin_slice` has already scheduled the next slice.
            let next_slice = round.next_slice;
            *round = Round { next_slice, ..Round::new(self.period, started) };
            return due;
        }
        // The share of the remaining objects that is due equals the elapsed share of the remaining time, so a
        // growing cache causes no burst.
        round.update_remaining(objects);
        let remaining = round.remaining as u128;
        let elapsed = (now - round.last_slice).as_nanos();
        let remaining_time = (round.ends - round.last_slice).as_nanos().max(1);
        let due_fraction = round.fraction + FRACTION_UNIT * remaining * elapsed / remaining_time;
        let due = usize::try_from(due_fraction / FRACTION_UNIT).unwrap_or(usize::MAX);
        round.fraction = due_fraction % FRACTION_UNIT;
        let slice: Vec<_> = objects.after(round.cursor.as_ref()).take(due).cloned().collect();
        if let Some(last) = slice.last() {
            round.cursor = Some(last.key().clone());
        }
        round.remaining -= slice.len().min(round.remaining);
        round.last_slice = now;
        slice
    }
}

impl Round {
    /// Adjusts `remaining` to the current number of objects.
    ///
    /// New objects are counted even if they sort before the cursor, which makes the rest of the round
    /// slightly faster. After deletions the remaining objects are counted exactly; otherwise too few would
    /// be due now and too many at the end.
    fn update_remaining(&mut self, objects: &StoreSnapshot) {
        if objects.len() < self.total {
            self.remaining = objects.after(self.cursor.as_ref()).count();
        } else {
            self.remaining += objects.len() - self.total;
        }
        self.total = objects.len();
    }

    fn new(period: Duration, started: Moment) -> Self {
        let (ends, next_slice) = (started + period, started + period / SLICES_PER_PERIOD);
        Self { ends, last_slice: started, next_slice, cursor: None, remaining: 0, total: 0, fraction: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::entry;
    use informer_core::{Delta, Scope, StoreWriter};
    use std::collections::BTreeMap;

    fn at(millis: u64) -> Moment {
        Moment::at(Duration::from_millis(millis))
    }

    fn cache(names: impl IntoIterator<Item = String>) -> StoreSnapshot {
        let (mut writer, reader) = StoreWriter::new([Scope::All]);
        writer.apply(&Scope::All, names.into_iter().map(|name| Delta::Added(entry(&name, 1))));
        reader.snapshot()
    }

    fn started(period: Duration) -> ResyncSchedule {
        let mut schedule = ResyncSchedule::new(period).unwrap();
        schedule.start(at(0));
        schedule
    }

    #[test]
    fn c12_deleted_objects_cause_no_burst_at_the_end_of_a_round() {
        // Regression: deleted objects that had been delivered were subtracted from the remaining ones, so
        // nothing was due until the end of the round, and then everything.
        let objects = cache((0..1000).map(|number| format!("pod-{number:04}")));
        let mut schedule = started(Duration::from_secs(100));
        assert_eq!(schedule.take(&objects, at(50_000)).len(), 500);
        let remaining = cache((500..1000).map(|number| format!("pod-{number:04}")));
        assert_eq!(schedule.take(&remaining, at(75_000)).len(), 250);
        assert_eq!(schedule.take(&remaining, at(100_000)).len(), 250);
    }

    #[test]
    fn c12_few_objects_are_also_spread_over_the_period() {
        let objects = cache(["a", "b", "c", "d"].map(ToOwned::to_owned));
        let mut schedule = started(Duration::from_secs(100));
        let slices: Vec<usize> =
            (1..=10).map(|step| schedule.take(&objects, at(step * 10_000)).len()).collect();
        assert_eq!(slices.iter().sum::<usize>(), 4);
        assert!(slices.iter().all(|slice| *slice <= 2), "{slices:?}");
        assert!(slices[..5].iter().sum::<usize>() <= 2, "{slices:?}");
    }

    #[test]
    fn c12_growing_cache_causes_no_burst() {
        // Regression: near the end of a round, nearly all objects of a list that had just arrived were due
        // immediately.
        let mut schedule = started(Duration::from_secs(100));
        assert_eq!(schedule.take(&cache([]), at(90_000)).len(), 0);
        let objects = cache((0..1000).map(|number| format!("pod-{number:04}")));
        assert_eq!(schedule.take(&objects, at(91_000)).len(), 100);
        assert!(
            ResyncSchedule::new(Duration::from_secs(1)).unwrap().next().is_none(),
            "no resync before the initial list"
        );
    }

    #[test]
    fn c12_round_delivers_each_object_once_spread_over_the_period() {
        let objects = cache((0..1000).map(|number| format!("pod-{number:04}")));
        let mut schedule = started(Duration::from_secs(100));
        let (mut delivered, mut now, mut largest) = (BTreeMap::new(), at(0), 0);
        while now < at(200_000) {
            now = schedule.next().unwrap();
            assert!(schedule.begin_slice(now) && !schedule.begin_slice(now));
            let slice = schedule.take(&objects, now);
            largest = largest.max(slice.len());
            for entry in slice {
                *delivered.entry(entry.key().clone()).or_insert(0) += 1;
            }
        }
        assert_eq!(delivered.len(), 1000);
        assert!(delivered.values().all(|times| *times == 2), "two rounds");
        assert!(largest <= 16, "a slice of {largest} objects is a burst");
    }

    #[test]
    fn c12_rounds_missed_during_a_suspension_are_not_repeated() {
        let objects = cache(["a", "b"].map(ToOwned::to_owned));
        let mut schedule = started(Duration::from_secs(10));
        assert_eq!(schedule.take(&objects, at(1_000_000)).len(), 2);
        assert_eq!(schedule.take(&objects, at(1_000_000)).len(), 0);
    }

    #[test]
    fn zero_period_disables_resync_and_a_short_one_is_raised_to_a_second() {
        assert!(ResyncSchedule::new(Duration::ZERO).is_none());
        assert_eq!(ResyncSchedule::new(Duration::from_millis(1)).unwrap().period, MIN_RESYNC_PERIOD);
    }
}
