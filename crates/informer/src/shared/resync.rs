//! Resync (C12): cached objects are told again to a handler that asked for it, spread over its period.
//!
//! A round walks the keys in order and is over after one period; so many objects are due at any time as the period has gone by. An object
//! that is there for a whole round is told exactly once in it. Nothing here asks the server anything. Pure: time comes in.

use informer_core::{Entry, Key, Moment, StoreSnapshot};
use std::sync::Arc;
use std::time::Duration;

/// The shortest period; anything less would be a busy loop over the cache.
const MIN_RESYNC_PERIOD: Duration = Duration::from_secs(1);
/// Into so many parts a round is cut.
const SLICES_PER_PERIOD: u32 = 128;

/// One handler's resync.
#[derive(Debug)]
pub(super) struct ResyncSchedule {
    period: Duration,
    /// `None` until the handler has its initial set.
    round: Option<Round>,
}

/// One walk over the keys.
#[derive(Debug)]
struct Round {
    /// When it is over.
    ends: Moment,
    /// When the last part was taken.
    last: Moment,
    /// When the next part is due.
    due: Moment,
    /// The last key that was told.
    cursor: Option<Key>,
    /// About how many objects are still to be told, and how many there were in all when that was so.
    left: usize,
    of: usize,
    /// The fraction of an object that is due, in [`FRACTION_UNIT`]ths.
    fraction: u128,
}

/// A whole object, as fractions are counted.
const FRACTION_UNIT: u128 = 1_000_000;

impl ResyncSchedule {
    /// Rounds of `period`, once they begin. A period of zero means none.
    pub(super) fn new(period: Duration) -> Option<Self> {
        (!period.is_zero()).then(|| Self { period: period.max(MIN_RESYNC_PERIOD), round: None })
    }

    /// The first round begins; later calls do nothing.
    pub(super) fn begin(&mut self, now: Moment) {
        self.round.get_or_insert_with(|| Round::new(self.period, now));
    }

    /// When the next part is due.
    pub(super) fn next(&self) -> Option<Moment> {
        self.round.as_ref().map(|round| round.due)
    }

    /// Whether a part is due; if so, the next is due in its turn.
    pub(super) fn is_due(&mut self, now: Moment) -> bool {
        let Some(round) = self.round.as_mut().filter(|round| now >= round.due) else { return false };
        round.due = now + self.period / SLICES_PER_PERIOD;
        true
    }

    /// The objects that are due by now.
    pub(super) fn take(&mut self, objects: &StoreSnapshot, now: Moment) -> Vec<Arc<Entry>> {
        let Some(round) = &mut self.round else { return Vec::new() };
        if now >= round.ends {
            let rest = objects.after(round.cursor.as_ref()).cloned().collect();
            // Rounds that were missed altogether, while the process slept, are not made up for.
            let began = if now - round.ends < self.period { round.ends } else { now };
            let due = round.due;
            *round = Round { due, ..Round::new(self.period, began) };
            return rest;
        }
        // So many of those that are left as of the time that is left has gone by: a cache that grows makes no burst.
        round.count(objects);
        let left = round.left as u128;
        let (gone, time) = ((now - round.last).as_nanos(), (round.ends - round.last).as_nanos().max(1));
        let share = round.fraction + FRACTION_UNIT * left * gone / time;
        let due = usize::try_from(share / FRACTION_UNIT).unwrap_or(usize::MAX);
        round.fraction = share % FRACTION_UNIT;
        let part: Vec<_> = objects.after(round.cursor.as_ref()).take(due).cloned().collect();
        if let Some(last) = part.last() {
            round.cursor = Some(last.key().clone());
        }
        round.left -= part.len().min(round.left);
        round.last = now;
        part
    }
}

impl Round {
    /// Follows the number of objects. Some that came may lie behind the cursor, which makes the rest a little faster; what went is looked for,
    /// since it might leave nothing to do for now and too much for the end.
    fn count(&mut self, objects: &StoreSnapshot) {
        if objects.len() < self.of {
            self.left = objects.after(self.cursor.as_ref()).count();
        } else {
            self.left += objects.len() - self.of;
        }
        self.of = objects.len();
    }

    fn new(period: Duration, began: Moment) -> Self {
        let (ends, due) = (began + period, began + period / SLICES_PER_PERIOD);
        Self { ends, last: began, due, cursor: None, left: 0, of: 0, fraction: 0 }
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

    fn begun(period: Duration) -> ResyncSchedule {
        let mut pace = ResyncSchedule::new(period).unwrap();
        pace.begin(at(0));
        pace
    }

    #[test]
    fn c12_what_went_leaves_no_burst_for_the_end() {
        // Objects that had been told and were gone counted as told of those that were left: nothing was due, until everything was.
        let objects = cache((0..1000).map(|number| format!("pod-{number:04}")));
        let mut pace = begun(Duration::from_secs(100));
        assert_eq!(pace.take(&objects, at(50_000)).len(), 500);
        let rest = cache((500..1000).map(|number| format!("pod-{number:04}")));
        assert_eq!(pace.take(&rest, at(75_000)).len(), 250);
        assert_eq!(pace.take(&rest, at(100_000)).len(), 250);
    }

    #[test]
    fn c12_few_objects_are_spread_over_the_period_too() {
        let objects = cache(["a", "b", "c", "d"].map(ToOwned::to_owned));
        let mut pace = begun(Duration::from_secs(100));
        let told: Vec<usize> = (1..=10).map(|step| pace.take(&objects, at(step * 10_000)).len()).collect();
        assert_eq!(told.iter().sum::<usize>(), 4);
        assert!(told.iter().all(|part| *part <= 2), "{told:?}");
        assert!(told[..5].iter().sum::<usize>() <= 2, "{told:?}");
    }

    #[test]
    fn c12_a_cache_that_grows_makes_no_burst() {
        // Near the end of a round nearly all of a set that had just arrived was due at once.
        let mut pace = begun(Duration::from_secs(100));
        assert_eq!(pace.take(&cache([]), at(90_000)).len(), 0);
        let objects = cache((0..1000).map(|number| format!("pod-{number:04}")));
        assert_eq!(pace.take(&objects, at(91_000)).len(), 100);
        assert!(
            ResyncSchedule::new(Duration::from_secs(1)).unwrap().next().is_none(),
            "nothing before the initial set"
        );
    }

    #[test]
    fn c12_a_round_tells_each_object_once_spread_over_the_period() {
        let objects = cache((0..1000).map(|number| format!("pod-{number:04}")));
        let mut pace = begun(Duration::from_secs(100));
        let (mut told, mut now, mut largest) = (BTreeMap::new(), at(0), 0);
        while now < at(200_000) {
            now = pace.next().unwrap();
            assert!(pace.is_due(now) && !pace.is_due(now));
            let part = pace.take(&objects, now);
            largest = largest.max(part.len());
            for entry in part {
                *told.entry(entry.key().clone()).or_insert(0) += 1;
            }
        }
        assert_eq!(told.len(), 1000);
        assert!(told.values().all(|times| *times == 2), "two rounds");
        assert!(largest <= 16, "{largest} at once is a burst");
    }

    #[test]
    fn c12_a_sleep_of_many_periods_is_one_round_late_and_no_storm() {
        let objects = cache(["a", "b"].map(ToOwned::to_owned));
        let mut pace = begun(Duration::from_secs(10));
        assert_eq!(pace.take(&objects, at(1_000_000)).len(), 2);
        assert_eq!(pace.take(&objects, at(1_000_000)).len(), 0);
    }

    #[test]
    fn a_period_of_zero_is_none_and_a_tiny_one_a_second() {
        assert!(ResyncSchedule::new(Duration::ZERO).is_none());
        assert_eq!(ResyncSchedule::new(Duration::from_millis(1)).unwrap().period, MIN_RESYNC_PERIOD);
    }
}
