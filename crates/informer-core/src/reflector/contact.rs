//! When the server was last heard, and what follows from that: how old the cache may be, when silence has lasted too long, when the next audit
//! is due.
//!
//! Moments only; every one is set by a `note_…` method here. This file must not know what was heard.

use crate::time::Moment;

/// The moments that matter.
#[derive(Debug, Default)]
pub(super) struct Contact {
    /// When the server was last heard, or else when the reflector started.
    last: Moment,
    /// When the server was last heard at all.
    heard: Option<Moment>,
    /// When the cache was last known to be current: a live watch was heard, or a set was complete.
    last_up_to_date: Moment,
    /// When the server last reported its state: a frame of a watch, or a complete set.
    last_progress: Moment,
    /// When the open request was sent.
    sent: Moment,
    /// When the cache is next compared with a fresh list.
    audit_at: Option<Moment>,
}

impl Contact {
    pub(super) fn last_contact(&self) -> Moment {
        self.last
    }

    pub(super) fn heard(&self) -> Option<Moment> {
        self.heard
    }

    pub(super) fn last_current(&self) -> Moment {
        self.last_up_to_date
    }

    pub(super) fn last_news(&self) -> Moment {
        self.last_progress
    }

    pub(super) fn sent(&self) -> Moment {
        self.sent
    }

    pub(super) fn audit_at(&self) -> Option<Moment> {
        self.audit_at
    }

    /// Silence is counted from here.
    pub(super) fn note_start(&mut self, now: Moment) {
        self.last = now;
    }

    pub(super) fn note_sent(&mut self, now: Moment) {
        self.sent = now;
    }

    pub(super) fn note_heard(&mut self, now: Moment) {
        self.last = now;
        self.heard = Some(now);
    }

    /// A live watch was heard.
    pub(super) fn note_current(&mut self, now: Moment) {
        self.last_up_to_date = now;
    }

    pub(super) fn note_news(&mut self, now: Moment) {
        self.last_progress = now;
    }

    /// A set was complete.
    pub(super) fn note_set(&mut self, now: Moment) {
        (self.last_progress, self.last_up_to_date) = (now, now);
    }

    pub(super) fn note_next_audit(&mut self, at: Option<Moment>) {
        self.audit_at = at;
    }

    /// Panics if it contradicts itself.
    pub(super) fn check(&self) {
        assert!(self.heard.is_none_or(|heard| heard == self.last), "the last contact was heard");
    }
}
