//! The claims of one member, and the events that their changes cause.
//!
//! Invariant: no two claims overlap. This file decides nothing about time, and does not know the requests.

use super::protocol::{ClaimState, MemberEvent, RangeLossReason, RangeToken};
use super::range::{HashRange, HashRanges};
use super::record::{Assignment, MemberRecord};
use std::collections::{BTreeMap, VecDeque};

/// The claims of one member.
#[derive(Debug, Default)]
pub(super) struct Claims {
    claims: BTreeMap<HashRange, Claim>,
    events: VecDeque<MemberEvent>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Claim {
    epoch: u64,
    /// The number of the first record that contains the claim; `None` if none was written yet.
    first_record: Option<u64>,
    state: ClaimState,
}

impl Claim {
    /// Returns whether a record with this number contains the claim.
    fn is_in(&self, number: u64) -> bool {
        self.first_record.is_some_and(|first| first <= number)
    }
}

impl Claims {
    pub(super) fn is_empty(&self) -> bool {
        self.claims.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (HashRange, u64, ClaimState)> {
        self.claims.iter().map(|(range, claim)| (*range, claim.epoch, claim.state))
    }

    /// Returns the ranges for which the member acts.
    pub(super) fn acting(&self) -> impl Iterator<Item = HashRange> {
        self.iter().filter(|(_, _, state)| *state != ClaimState::Claimed).map(|(range, _, _)| range)
    }

    pub(super) fn ranges(&self) -> HashRanges {
        self.claims.keys().copied().collect()
    }

    /// Returns whether there is a claim that can be confirmed when the Lease contains the record with this number.
    pub(super) fn has_unconfirmed(&self, number: u64) -> bool {
        self.claims.values().any(|claim| claim.state == ClaimState::Claimed && claim.is_in(number))
    }

    /// Returns whether there is a claim that is in no record yet. The last record may contain an earlier claim of the
    /// same range.
    pub(super) fn has_unwritten(&self) -> bool {
        self.claims.values().any(|claim| claim.first_record.is_none())
    }

    pub(super) fn poll_event(&mut self) -> Option<MemberEvent> {
        self.events.pop_front()
    }

    /// Records that all claims are in the record with this number, which is about to be written.
    pub(super) fn record_write(&mut self, number: u64) {
        for claim in self.claims.values_mut() {
            claim.first_record.get_or_insert(number);
        }
    }

    /// Adds the ranges that the assignment contains for the member, and releases the others.
    pub(super) fn apply(&mut self, assignment: &Assignment, identity: &str) {
        let own = assignment
            .iter()
            .filter(|(_, assigned)| assigned.owner.as_deref() == Some(identity) && !assigned.is_releasing);
        let wanted: BTreeMap<HashRange, u64> = own.map(|(range, assigned)| (range, assigned.epoch)).collect();
        self.release(|range| !wanted.contains_key(range));
        let present = self.ranges();
        for (range, epoch) in wanted {
            // A range of another size is claimed when the overlapping ones are released.
            if !present.overlaps(&range) {
                let claim = Claim { epoch, first_record: None, state: ClaimState::Claimed };
                self.claims.insert(range, claim);
            }
        }
    }

    /// Begins to release ranges. Claims that were not confirmed are removed at once.
    pub(super) fn release(&mut self, is_released: impl Fn(&HashRange) -> bool) {
        let Self { claims, events } = self;
        claims.retain(|range, claim| {
            if !is_released(range) {
                return true;
            }
            if claim.state == ClaimState::Held {
                claim.state = ClaimState::Releasing;
                events.push_back(MemberEvent::ReleaseRequested(*range));
            }
            claim.state == ClaimState::Releasing
        });
    }

    /// Removes the claim of a range whose work has ended.
    pub(super) fn record_released(&mut self, range: &HashRange) {
        if self.claims.get(range).is_some_and(|claim| claim.state == ClaimState::Releasing) {
            self.claims.remove(range);
        }
    }

    /// Confirms the claims in the record with this number that overlap no claim of another member.
    pub(super) fn confirm(&mut self, number: u64, version: &str, key: &str, others: &[&MemberRecord]) {
        let Self { claims, events } = self;
        for (range, claim) in claims {
            let is_claimed = || others.iter().any(|record| record.conflicts_with(key, range));
            if claim.state == ClaimState::Claimed && claim.is_in(number) && !is_claimed() {
                claim.state = ClaimState::Held;
                let token = RangeToken { version: version.to_owned(), epoch: claim.epoch };
                events.push_back(MemberEvent::Gained(*range, token));
            }
        }
    }

    /// Removes the claims that are not in the record that was read, although it is not older than they are: another
    /// process has edited it, or deleted it before a late request created it again.
    pub(super) fn lose_missing(&mut self, record: &MemberRecord) {
        let is_kept = |range: &HashRange, claim: &Claim| {
            record.claims.covers(range) || (claim.state == ClaimState::Claimed && !claim.is_in(record.number))
        };
        self.lose(|range, claim| !is_kept(range, claim), &RangeLossReason::LeaseChanged);
    }

    /// Removes the claims of all ranges for which the member acts.
    pub(super) fn lose_acting(&mut self, reason: &RangeLossReason) {
        self.lose(|_, claim| claim.state != ClaimState::Claimed, reason);
    }

    /// Removes all claims.
    pub(super) fn lose_all(&mut self, reason: &RangeLossReason) {
        self.lose(|_, _| true, reason);
    }

    /// Removes claims; those for which the member acts are reported.
    fn lose(&mut self, is_lost: impl Fn(&HashRange, &Claim) -> bool, reason: &RangeLossReason) {
        let Self { claims, events } = self;
        claims.retain(|range, claim| {
            let is_lost = is_lost(range, claim);
            if is_lost && claim.state != ClaimState::Claimed {
                events.push_back(MemberEvent::Lost(*range, reason.clone()));
            }
            !is_lost
        });
    }
}
