//! The ranges for which a member acts, which of them may be released, and how long moves take.
//!
//! Pure: views are numbers, confirmations and time are parameters. Invariant: a range is released only when every
//! participant has confirmed, for this range, a view in which it was not held.

use crate::clock::instant_after;
use informer_core::shard::{HashRange, HashRanges, MemberEvent, RangeLossReason, RangeToken};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The ranges for which a member acts.
#[derive(Debug, Default)]
pub(super) struct ActingRanges {
    acting: BTreeMap<HashRange, Acting>,
    /// The ranges for which the member does not act yet, and since when they have been assigned to it.
    claimed: BTreeMap<HashRange, Instant>,
}

#[derive(Debug)]
struct Acting {
    token: RangeToken,
    release: Option<Release>,
}

#[derive(Debug)]
struct Release {
    requested_at: Instant,
    /// The number of the first view in which the range is not held; `None` if it is not published yet.
    view: Option<u64>,
}

/// What an event has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Applied {
    /// The member acts for a range. The duration is the time since it has known that the range is assigned to it.
    Gained(Option<Duration>),
    ReleaseBegun,
    Lost(RangeLossReason),
}

/// A range that was released, and how long that took.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Released {
    pub(super) range: HashRange,
    pub(super) handover: Duration,
}

impl ActingRanges {
    /// Applies an event of the member.
    pub(super) fn apply(&mut self, event: MemberEvent, now: Instant) -> Applied {
        match event {
            MemberEvent::Gained(range, token) => {
                self.acting.insert(range, Acting { token, release: None });
                let claimed_at = self.claimed.remove(&range);
                Applied::Gained(claimed_at.map(|claimed_at| now.duration_since(claimed_at)))
            }
            MemberEvent::ReleaseRequested(range) => {
                if let Some(acting) = self.acting.get_mut(&range) {
                    acting.release.get_or_insert(Release { requested_at: now, view: None });
                }
                Applied::ReleaseBegun
            }
            MemberEvent::Lost(range, reason) => {
                self.acting.remove(&range);
                Applied::Lost(reason)
            }
        }
    }

    /// Records the ranges that are assigned to the member, but for which it does not act yet.
    pub(super) fn record_claimed(&mut self, ranges: impl IntoIterator<Item = HashRange>, now: Instant) {
        let known = std::mem::take(&mut self.claimed);
        let since = |range| (range, known.get(&range).copied().unwrap_or(now));
        self.claimed = ranges.into_iter().map(since).collect();
    }

    /// Returns the ranges that are assigned to the member, but for which it does not act yet.
    pub(super) fn claimed(&self) -> HashRanges {
        self.claimed.keys().copied().collect()
    }

    /// Returns the ranges that are held.
    pub(super) fn held(&self) -> HashRanges {
        self.select(|acting| acting.release.is_none())
    }

    /// Returns the ranges that are being released, without those whose work must be dropped because it did not end
    /// within `timeout`.
    pub(super) fn releasing(&self, now: Instant, timeout: Duration) -> HashRanges {
        let is_in_time = |release: &Release| now.duration_since(release.requested_at) < timeout;
        self.select(|acting| acting.release.as_ref().is_some_and(is_in_time))
    }

    /// Returns the number of ranges that are held, of those that are being released, and of those that are claimed.
    pub(super) fn counts(&self) -> (usize, usize, usize) {
        let releasing = self.acting.values().filter(|acting| acting.release.is_some()).count();
        (self.acting.len() - releasing, releasing, self.claimed.len())
    }

    pub(super) fn highest_epoch(&self) -> u64 {
        self.acting.values().map(|acting| acting.token.epoch).max().unwrap_or(0)
    }

    pub(super) fn tokens(&self) -> BTreeMap<HashRange, RangeToken> {
        self.acting.iter().map(|(range, acting)| (*range, acting.token.clone())).collect()
    }

    /// Records the number of a view that contains all changes so far.
    pub(super) fn record_view(&mut self, number: u64) {
        for release in self.acting.values_mut().filter_map(|acting| acting.release.as_mut()) {
            release.view.get_or_insert(number);
        }
    }

    /// Removes the ranges that may be released. `has_ended` returns whether all participants have confirmed for a range the
    /// view with a number.
    pub(super) fn take_released(
        &mut self,
        has_ended: impl Fn(&HashRange, u64) -> bool,
        now: Instant,
    ) -> Vec<Released> {
        let mut released = Vec::new();
        self.acting.retain(|range, acting| {
            let Some(Release { requested_at, view: Some(view) }) = &acting.release else { return true };
            let has_ended = has_ended(range, *view);
            if has_ended {
                let handover = now.duration_since(*requested_at);
                released.push(Released { range: *range, handover });
            }
            !has_ended
        });
        released
    }

    /// Returns the next point in time after `now` at which work that is ending must be dropped. `now` is the time for which
    /// [`releasing`](Self::releasing) was called last.
    pub(super) fn next_deadline(&self, now: Instant, timeout: Duration) -> Option<Instant> {
        let releases = self.acting.values().filter_map(|acting| acting.release.as_ref());
        let deadlines = releases.map(|release| instant_after(release.requested_at, timeout));
        deadlines.filter(|deadline| *deadline > now).min()
    }

    fn select(&self, is_selected: impl Fn(&Acting) -> bool) -> HashRanges {
        self.acting.iter().filter(|(_, acting)| is_selected(acting)).map(|(range, _)| *range).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use informer_core::shard::RangeCount;
    use proptest::prelude::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn range(index: usize) -> HashRange {
        RangeCount::default().ranges().nth(index).expect("256 ranges")
    }

    fn gained(index: usize) -> MemberEvent {
        MemberEvent::Gained(range(index), RangeToken::new("1", 1))
    }

    #[test]
    fn range_is_released_when_a_view_without_it_is_confirmed() {
        let (mut ranges, start) = (ActingRanges::default(), Instant::now());
        ranges.apply(gained(0), start);
        ranges.apply(gained(1), start);
        ranges.record_view(1);
        ranges.apply(MemberEvent::ReleaseRequested(range(0)), start);
        assert_eq!((ranges.counts(), ranges.take_released(|_, view| view == 0, start)), ((1, 1, 0), vec![]));
        ranges.record_view(2);
        assert_eq!(ranges.take_released(|_, view| view <= 1, start), []);
        // Bug: a timeout that is not meant to end, which other settings allow, was added to the time, and panicked.
        assert!(
            ranges.next_deadline(start, Duration::MAX).is_some_and(|deadline| deadline > start + TIMEOUT)
        );
        let later = start + TIMEOUT;
        assert_eq!(ranges.next_deadline(start, TIMEOUT), Some(later));
        assert!(
            ranges.releasing(start, TIMEOUT).contains(0) && !ranges.releasing(later, TIMEOUT).contains(0)
        );
        let released = ranges.take_released(|_, view| view <= 2, later);
        assert_eq!(released, [Released { range: range(0), handover: TIMEOUT }]);
        assert_eq!((ranges.counts(), ranges.next_deadline(start, TIMEOUT)), ((1, 0, 0), None));
    }

    proptest! {
        /// No range is released before the view that first lacks it is confirmed, and each is released or lost once.
        #[test]
        fn released_ranges_are_confirmed(
            steps in prop::collection::vec((0_usize..4, 0_usize..4, 0_u64..3), 0..60),
        ) {
            let (mut ranges, now) = (ActingRanges::default(), Instant::now());
            let (mut number, mut held_in) = (0, [0_u64; 4]);
            for (index, action, lag) in steps {
                let event = match action {
                    0 => gained(index),
                    1 => MemberEvent::ReleaseRequested(range(index)),
                    2 => MemberEvent::Lost(range(index), RangeLossReason::LeaseChanged),
                    _ => {
                        let confirmed = number - lag.min(number);
                        let busy = range(index);
                        for released in ranges.take_released(|range, view| view <= confirmed && *range != busy, now) {
                            prop_assert_ne!(released.range, busy);
                            let index = (0..4).find(|index| range(*index) == released.range).expect("known");
                            prop_assert!(confirmed > held_in[index]);
                        }
                        continue;
                    }
                };
                ranges.apply(event, now);
                number += 1;
                ranges.record_view(number);
                for (index, held) in held_in.iter_mut().enumerate() {
                    if ranges.held().covers(&range(index)) {
                        *held = number;
                    }
                }
            }
        }
    }
}
