//! The position: the resource version that the cache has reached, from which a watch resumes.
//!
//! Invariant: the position is always a version that the server sent (C1), in this process or in the one that
//! saved it. It changes in two ways: a stream advances it, and a full list replaces it. If the server cannot serve it, it is marked as
//! unavailable and kept for comparison. This file must not know which requests are open.

use super::request::Consistency;
use crate::version::ResourceVersion;

/// The position, and whether the server still serves it.
#[derive(Debug, Default)]
pub(super) struct Position {
    version: Option<ResourceVersion>,
    /// A list, watch-list or probe failed because of its version; the next list or watch-list requests the
    /// most recent state.
    unavailable: bool,
    /// A watch from the position expired, and no watch has been healthy (open for a minimum time) since.
    expired_since_health: bool,
}

impl Position {
    /// Returns the version; `None` until the first full list, unless a saved one was restored.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// Returns the version if it is newer than `other`.
    pub(super) fn ahead_of(&self, other: &ResourceVersion) -> Option<&ResourceVersion> {
        self.version.as_ref().filter(|version| other.is_before(version))
    }

    /// Returns the consistency to request for a full list; `initial` while there is no position.
    pub(super) fn consistency(&self, initial: Consistency) -> Consistency {
        match &self.version {
            _ if self.unavailable => Consistency::MostRecent,
            Some(version) => Consistency::NotOlderThan(version.clone()),
            None => initial,
        }
    }

    /// Advances to the version of a frame, unless that version is comparable and older.
    pub(super) fn advance(&mut self, version: ResourceVersion) {
        if self.ahead_of(&version).is_none() {
            self.version = Some(version);
        }
    }

    /// Sets the version of a saved state, before the first request.
    pub(super) fn restore(&mut self, version: ResourceVersion) {
        self.version = Some(version);
    }

    /// Goes back to an older version, because other hash ranges have reached only that one. The caller drops the frames
    /// that were received before.
    pub(super) fn go_back(&mut self, version: ResourceVersion) {
        self.version = Some(version);
    }

    /// Sets the version of a full list, even if it is older.
    pub(super) fn replace(&mut self, version: ResourceVersion) {
        self.version = Some(version);
        self.unavailable = false;
    }

    /// Records that the server cannot serve the version, which is kept for comparison.
    pub(super) fn mark_unavailable(&mut self) {
        self.unavailable = true;
    }

    /// Records that a watch from the position expired; returns whether one had expired before, without a
    /// healthy watch since.
    pub(super) fn record_expired(&mut self) -> bool {
        std::mem::replace(&mut self.expired_since_health, true)
    }

    /// Records that a watch was healthy.
    pub(super) fn record_healthy_watch(&mut self) {
        self.expired_since_health = false;
    }

    /// Panics if an invariant is violated.
    pub(super) fn check(&self) {
        assert!(!self.expired_since_health || self.version.is_some(), "only a position can expire");
    }
}
