//! Times of the last contact with the server.
//!
//! The age of the cache and the silence timeout are derived from these times. The moment of the next audit is
//! here too. This file must not know the contents of what was received.

use crate::time::Moment;

/// Times of the last contact with the server.
#[derive(Debug, Default)]
pub(super) struct Contact {
    /// When response headers, a part of a list or a frame were last received; `None` until then. A part of a
    /// frame does not count, unless it is large.
    received_at: Option<Moment>,
    /// When the cache was last known to be up to date: a watch received a frame, or a full list was complete.
    last_up_to_date: Moment,
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

    /// Records that the server reported its state: in a frame of a watch, or in a full list.
    pub(super) fn record_up_to_date(&mut self, now: Moment) {
        self.last_up_to_date = now;
    }

    pub(super) fn schedule_audit(&mut self, at: Option<Moment>) {
        self.audit_at = at;
    }
}
