//! Hash ranges that a reflector gains and releases while it runs.
//!
//! All ranges share one watch. When ranges are gained, another reflector has listed them at a version of its own. The
//! watch then continues from the older of both versions, and frames that some ranges have received before are dropped:
//! otherwise a frame could revive an object whose deletion is already known (C1). If objects can change their range, such
//! a frame still shows which range the object has left.
//!
//! Invariant: each floor is newer than the position. This file must not know who decides about ranges.

use super::gain_log::GainLog;
use super::machine::Reflector;
use super::phase::{ListKind, Phase, Resume};
use super::state::RelistReason;
use crate::delta::{Deleted, Delta};
use crate::key::Key;
use crate::object::Entry;
use crate::shard::{HashRanges, ShardFilter};
use crate::time::Moment;
use crate::version::ResourceVersion;
use crate::wire::{FrameKind, Head, ScannedObject, UnreadableObject};
use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a reflector knows about its hash ranges, besides their selection.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// Ranges that have received all frames up to a version that is newer than the position.
    pub(super) floors: Vec<(ShardFilter, ResourceVersion)>,
    /// Whether the open stream was requested with other ranges.
    pub(super) is_stream_outdated: bool,
    /// The unreadable objects of the last full list that may be in other ranges. Meanwhile, the store keeps an earlier
    /// incarnation with the same key.
    undecided: BTreeSet<Key>,
    /// What was received while another reflector lists ranges. Invariant: nothing is missing since the log began.
    pub(super) gain_log: Option<GainLog>,
}

impl Reflector {
    /// Returns whether a frame about this object is applied: the object must be in the ranges, and the frame not older
    /// than what they have received.
    pub(super) fn accepts_frame(&mut self, head: &Head) -> bool {
        if !self.config.selects(head) {
            self.out.counters.foreign += 1;
            return false;
        }
        let is_passed = |(filter, floor): &(ShardFilter, ResourceVersion)| {
            filter.contains(head) && head.version.compare(floor).is_some_and(Ordering::is_le)
        };
        !self.ranges.floors.iter().any(is_passed)
    }

    /// Handles a frame that is not applied.
    pub(super) fn skip_frame(&mut self, kind: &FrameKind, scanned: ScannedObject) {
        let version = scanned.head.version.clone();
        self.advance(version.clone());
        if self.can_leave() {
            // The object may have left a range that has not received this frame before. A range that has received it, and
            // still contains the object, has made the store at least as new. The last state in the range, with its owner,
            // is what matters.
            let key = scanned.head.key.clone();
            self.push(Delta::Deleted(Deleted { key, version: Some(version), last: None }));
            return self.log_skipped(kind, scanned);
        }
        // The object is in other ranges, so the store keeps an object that does not exist any more.
        if self.ranges.undecided.contains(&scanned.head.key) && !self.config.selects(&scanned.head) {
            let entry = self.changed_entry(scanned);
            let key = entry.key().clone();
            self.push(Delta::Deleted(Deleted { key, version: Some(version), last: Some(entry) }));
        }
    }

    /// Returns whether an object can leave the ranges without being deleted.
    pub(super) fn can_leave(&self) -> bool {
        self.config.shard.as_ref().is_some_and(|shard| shard.property().can_change())
    }

    /// Records the unreadable objects of a full list.
    pub(super) fn record_undecided(&mut self, unreadable: &[UnreadableObject]) {
        let keys = unreadable.iter().filter_map(|object| object.key.as_ref());
        self.ranges.undecided = keys.filter(|key| self.config.key_decides(key).is_none()).cloned().collect();
    }

    /// Advances the position to the version of a frame.
    pub(super) fn advance(&mut self, version: ResourceVersion) {
        self.position.advance(version);
        if let Some(position) = self.position.version() {
            self.ranges.floors.retain(|(_, floor)| position.is_before(floor));
        }
    }

    /// Makes the newest floor the position, before a full list: no range may go back.
    pub(super) fn raise_to_floors(&mut self) {
        for (_, floor) in std::mem::take(&mut self.ranges.floors) {
            self.position.advance(floor);
        }
    }

    /// Returns the newest version that some ranges have received.
    pub(super) fn newest_version(&self) -> Option<&ResourceVersion> {
        let floors = self.ranges.floors.iter().map(|(_, floor)| floor);
        let versions = self.position.version().into_iter().chain(floors);
        versions.reduce(|newest, version| if newest.is_before(version) { version } else { newest })
    }

    /// Lists the most recent state of the server, whose version is older than known ones: it was restored from a backup.
    pub(super) fn relist_rewound(&mut self, now: Moment) {
        self.cancel_stream();
        self.position.mark_unavailable();
        self.begin_relist(now, RelistReason::Expired);
    }

    /// Removes the entries whose ranges were released while they were listed.
    pub(super) fn drop_released(&self, entries: &mut Vec<Arc<Entry>>) {
        if self.ranges.is_stream_outdated {
            entries.retain(|entry| self.config.selects(entry.head()));
        }
    }

    /// Requests a new watch if the open one was requested with other ranges.
    pub(super) fn renew_outdated_stream(&mut self, now: Moment) {
        if self.ranges.is_stream_outdated && matches!(self.phase, Phase::Watching(_)) {
            self.cancel_stream();
            let seamless = true;
            self.open_watch(now, seamless);
        }
    }

    /// Returns the selected ranges; `None` without sharding.
    pub(super) fn selected_ranges(&self) -> Option<&HashRanges> {
        self.config.shard.as_ref().map(ShardFilter::ranges)
    }

    /// Stops reflecting ranges, whose objects leave the store. Without any other ranges, the caller stops the reflector.
    pub(super) fn release_ranges(&mut self, now: Moment, released: &HashRanges) {
        let Some(shard) = &mut self.config.shard else { return };
        let filter = shard.with_ranges(released.clone());
        *shard = shard.with_ranges(shard.ranges().difference(released));
        for (floor, _) in &mut self.ranges.floors {
            *floor = floor.with_ranges(floor.ranges().difference(released));
        }
        self.push(Delta::Released(filter));
        // A list is completed with the old selection; the released objects are dropped at its end.
        self.ranges.is_stream_outdated = self.current_stream().is_some();
        self.renew_outdated_stream(now);
    }

    /// Returns whether [`absorb`](Self::absorb) may be called: the cache is complete, and no full list is under way.
    pub(super) fn can_absorb(&self) -> bool {
        let is_listing = match &self.phase {
            Phase::Listing(listing) => listing.kind == ListKind::Full,
            Phase::BackingOff { resume, .. } => *resume == Resume::Relist,
            Phase::Watching(_) => false,
            Phase::WatchListing(_) | Phase::Idle | Phase::Stopped => true,
        };
        self.cache.is_synced() && !is_listing
    }

    /// Continues for ranges that another reflector has reflected up to `version`.
    pub(super) fn absorb(&mut self, now: Moment, gained: &HashRanges, version: &ResourceVersion) {
        let (Some(shard), Some(position)) = (&mut self.config.shard, self.position.version()) else { return };
        let position = position.clone();
        let (own, other) = (shard.clone(), shard.with_ranges(gained.clone()));
        *shard = shard.with_ranges(shard.ranges().union(gained));
        match version.compare(&position) {
            Some(Ordering::Equal) => {}
            Some(Ordering::Less) => {
                self.ranges.floors.push((own, position));
                self.position.go_back(version.clone());
            }
            Some(Ordering::Greater) => self.ranges.floors.push((other, version.clone())),
            // Opaque versions: nothing tells which frames are missing.
            None => {
                self.cancel_stream();
                return self.begin_relist(now, RelistReason::Suspect);
            }
        }
        self.ranges.is_stream_outdated = self.current_stream().is_some();
        self.renew_outdated_stream(now);
    }

    /// Panics if an invariant is violated.
    pub(super) fn check_ranges(&self) {
        for (_, floor) in &self.ranges.floors {
            let is_newer = self.position.version().is_some_and(|position| position.is_before(floor));
            assert!(is_newer, "a floor is newer than the position");
        }
    }
}
