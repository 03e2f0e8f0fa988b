//! Times of the last contact with the server.
//!
//! The age of the cache and the silence timeout are derived from these times. The moment of the next audit is
//! here too. This file must not know the contents of what was received.

use crate::time::Moment;

/// Times of the last contact with the server.
#[derive(Debug, Default)]
pub(super) struct Contact {
    /// When a part of a response was last received; `None` until the first one.
    received_at: Option<Moment>,
    /// When the cache was last known to be up to date: an open watch received something, or a full list was
    /// complete.
    last_up_to_date: Moment,
    /// When the server last reported its state: in a full list, or in a frame of a watch that is neither
    /// ERROR nor of unknown type.
    last_progress: Moment,
    /// When the open request was sent.
    request_sent: Moment,
    /// When the next audit is due.
    audit_at: Option<Moment>,
}

impl Contact {
    pub(super) fn last_contact(&self) -> Option<Moment> {
        self.received_at
    }

    pub(super) fn last_up_to_date(&self) -> Moment {
        self.last_up_to_date
    }

    pub(super) fn last_progress(&self) -> Moment {
        self.last_progress
    }

    pub(super) fn request_sent(&self) -> Moment {
        self.request_sent
    }

    pub(super) fn audit_at(&self) -> Option<Moment> {
        self.audit_at
    }

    pub(super) fn record_request(&mut self, now: Moment) {
        self.request_sent = now;
    }

    pub(super) fn record_contact(&mut self, now: Moment) {
        self.received_at = Some(now);
    }

    /// Records that an open watch received something.
    pub(super) fn record_up_to_date(&mut self, now: Moment) {
        self.last_up_to_date = now;
    }

    /// Records that a watch received a frame.
    pub(super) fn record_progress(&mut self, now: Moment) {
        self.last_progress = now;
    }

    /// Records that a full list was complete.
    pub(super) fn record_full_list(&mut self, now: Moment) {
        (self.last_progress, self.last_up_to_date) = (now, now);
    }

    pub(super) fn schedule_audit(&mut self, at: Option<Moment>) {
        self.audit_at = at;
    }
}
