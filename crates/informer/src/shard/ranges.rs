//! The ranges for which a member acts, and which of them may be released.
//!
//! Pure: views are numbers, confirmations and time are parameters. Invariant: a range is released only when every
//! participant has confirmed, for this range, a view in which it was not held.

use informer_core::shard::{HashRange, HashRanges, MemberEvent, RangeLossReason, RangeToken};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The ranges for which a member acts.
#[derive(Debug, Default)]
pub(super) struct ActingRanges(BTreeMap<HashRange, Acting>);

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

/// A range that was released, and how long that took.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Released {
    pub(super) range: HashRange,
    pub(super) handover: Duration,
}

impl ActingRanges {
    /// Applies an event of the member.
    pub(super) fn apply(&mut self, event: MemberEvent, now: Instant) -> Option<RangeLossReason> {
        match event {
            MemberEvent::Gained(range, token) => {
                self.0.insert(range, Acting { token, release: None });
            }
            MemberEvent::ReleaseRequested(range) => {
                if let Some(acting) = self.0.get_mut(&range) {
                    acting.release.get_or_insert(Release { requested_at: now, view: None });
                }
            }
            MemberEvent::Lost(range, reason) => {
                self.0.remove(&range);
                return Some(reason);
            }
        }
        None
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

    /// Returns the number of ranges that are held, and of those that are being released.
    pub(super) fn counts(&self) -> (usize, usize) {
        let releasing = self.0.values().filter(|acting| acting.release.is_some()).count();
        (self.0.len() - releasing, releasing)
    }

    pub(super) fn highest_epoch(&self) -> u64 {
        self.0.values().map(|acting| acting.token.epoch).max().unwrap_or(0)
    }

    pub(super) fn tokens(&self) -> BTreeMap<HashRange, RangeToken> {
        self.0.iter().map(|(range, acting)| (*range, acting.token.clone())).collect()
    }

    /// Records the number of a view that contains all changes so far.
    pub(super) fn record_view(&mut self, number: u64) {
        for release in self.0.values_mut().filter_map(|acting| acting.release.as_mut()) {
            release.view.get_or_insert(number);
        }
    }

    /// Removes the ranges that may be released. `has_ended` tells whether all participants have confirmed for a range the
    /// view with a number.
    pub(super) fn take_released(
        &mut self,
        has_ended: impl Fn(&HashRange, u64) -> bool,
        now: Instant,
    ) -> Vec<Released> {
        let mut released = Vec::new();
        self.0.retain(|range, acting| {
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

    /// Returns the next point in time after `now` at which work that is ending must be dropped.
    pub(super) fn next_deadline(&self, now: Instant, timeout: Duration) -> Option<Instant> {
        let releases = self.0.values().filter_map(|acting| acting.release.as_ref());
        releases.map(|release| release.requested_at + timeout).filter(|deadline| *deadline > now).min()
    }

    fn select(&self, is_selected: impl Fn(&Acting) -> bool) -> HashRanges {
        self.0.iter().filter(|(_, acting)| is_selected(acting)).map(|(range, _)| *range).collect()
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
        assert_eq!((ranges.counts(), ranges.take_released(|_, view| view == 0, start)), ((1, 1), vec![]));
        ranges.record_view(2);
        assert_eq!(ranges.take_released(|_, view| view <= 1, start), []);
        let later = start + TIMEOUT;
        assert_eq!(ranges.next_deadline(start, TIMEOUT), Some(later));
        assert!(
            ranges.releasing(start, TIMEOUT).contains(0) && !ranges.releasing(later, TIMEOUT).contains(0)
        );
        let released = ranges.take_released(|_, view| view <= 2, later);
        assert_eq!(released, [Released { range: range(0), handover: TIMEOUT }]);
        assert_eq!((ranges.counts(), ranges.next_deadline(start, TIMEOUT)), ((1, 0), None));
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
