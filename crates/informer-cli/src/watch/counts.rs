//! Event counts by type, readable while a printer is blocked.

use crate::show::Verb;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts shared by the handlers.
#[derive(Debug, Default)]
pub(crate) struct EventCounts {
    added: AtomicU64,
    updated: AtomicU64,
    deleted: AtomicU64,
    resynced: AtomicU64,
}

impl EventCounts {
    pub(crate) fn count(&self, verb: Verb) {
        let count = match verb {
            Verb::Added => &self.added,
            Verb::Updated => &self.updated,
            Verb::Deleted => &self.deleted,
            Verb::Resync => &self.resynced,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Formats as `3 added, 1 updated, 0 deleted`; resyncs are appended if there were any.
impl std::fmt::Display for EventCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (added, updated, deleted) = (count(&self.added), count(&self.updated), count(&self.deleted));
        write!(f, "{added} added, {updated} updated, {deleted} deleted")?;
        match count(&self.resynced) {
            0 => Ok(()),
            resynced => write!(f, ", {resynced} resynced"),
        }
    }
}
