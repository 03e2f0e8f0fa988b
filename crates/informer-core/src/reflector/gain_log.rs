//! The changes that a reflector receives while another one lists hash ranges that are gained.
//!
//! They are needed only if objects can change their range. The list may then contain an object that has moved to a range
//! of the store since, and was deleted there: it would be revived (C1). So the list must not be older than the store. No
//! server selects objects by a property that can change, so the watch of the other ranges brings all changes that the list
//! lacks.
//!
//! Invariants: there is a log only while ranges are being gained, so that it is bounded by the changes during a list. It
//! contains the newest change of each object that was received since it began. This file must not know when ranges are
//! merged.

use super::detached::DetachedState;
use super::machine::Reflector;
use crate::delta::{Deleted, Delta};
use crate::key::Key;
use crate::shard::{HashRanges, ShardFilter};
use crate::version::ResourceVersion;
use crate::wire::{Frame, FrameKind, ScannedObject};
use std::collections::BTreeMap;

/// The newest changes of all objects since ranges are being gained.
#[derive(Debug)]
pub(super) struct GainLog {
    /// The ranges that are gained.
    gained: ShardFilter,
    /// An object that is not in these ranges counts as deleted.
    newest: BTreeMap<Key, Delta>,
}

impl GainLog {
    /// Applies the changes to the list of the ranges, of which only `held` are still held.
    pub(super) fn apply_to(self, list: &mut DetachedState, held: &HashRanges) {
        let held = self.gained.with_ranges(held.clone());
        for delta in self.newest.into_values() {
            let delta = match delta {
                Delta::Updated(entry) if !held.contains(entry.head()) => {
                    deletion(entry.key().clone(), entry.head().version.clone())
                }
                delta => delta,
            };
            list.apply(delta);
        }
    }
}

impl Reflector {
    /// Begins to log changes for ranges that another reflector lists from now on, if objects can change their range.
    pub(super) fn begin_gain_log(&mut self, gained: &HashRanges) {
        let shard = self.config.shard.as_ref().filter(|shard| shard.property().can_change());
        let log = |shard: &ShardFilter| GainLog {
            gained: shard.with_ranges(gained.clone()),
            newest: BTreeMap::new(),
        };
        self.ranges.gain_log = shard.map(log);
    }

    /// Ends the log and returns it; `None` if a full list was received since it began.
    pub(super) fn take_gain_log(&mut self) -> Option<GainLog> {
        self.ranges.gain_log.take()
    }

    /// Logs a frame, before it is handled.
    pub(super) fn log_frame(&mut self, frame: &Frame) {
        let Some(log) = &mut self.ranges.gain_log else { return };
        match frame {
            Frame::Added(scanned) | Frame::Modified(scanned) | Frame::Deleted(scanned) => {
                let (key, version) = (scanned.head.key.clone(), scanned.head.version.clone());
                log.newest.insert(key.clone(), deletion(key, version));
            }
            Frame::Unreadable(_, object) => {
                if let Some(key) = &object.key {
                    log.newest.insert(key.clone(), Delta::Unreadable(object.clone()));
                }
            }
            Frame::Bookmark { .. } | Frame::Error(_) => {}
        }
    }

    /// Logs the state of a frame that is not applied, if the gained ranges contain it.
    pub(super) fn log_skipped(&mut self, kind: &FrameKind, scanned: ScannedObject) {
        let log = self.ranges.gain_log.as_ref().filter(|log| log.gained.contains(&scanned.head));
        if log.is_none() || *kind == FrameKind::Deleted {
            return;
        }
        let entry = self.changed_entry(scanned);
        if let Some(log) = &mut self.ranges.gain_log {
            log.newest.insert(entry.key().clone(), Delta::Updated(entry));
        }
    }
}

fn deletion(key: Key, version: ResourceVersion) -> Delta {
    Delta::Deleted(Deleted { key, version: Some(version), last: None })
}
