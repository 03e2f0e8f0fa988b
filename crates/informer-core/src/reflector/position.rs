//! The position: the version of the newest state that was handed on.
//!
//! Invariant: it is only ever a version that the server reported as a position (C1), and it moves in three ways: it advances with a stream, a
//! complete set replaces it, and it is lost when the server cannot serve it. This file must not know requests in flight.

use super::request::Consistency;
use crate::version::ResourceVersion;

/// The position, and whether the server still serves it.
#[derive(Debug, Default)]
pub(super) struct Position {
    version: Option<ResourceVersion>,
    /// A list or watch-list failed because of its version; the next one asks for the newest state instead.
    unavailable: bool,
    /// The position was lost and no watch has been healthy since.
    expired_since_health: bool,
}

impl Position {
    /// The version, once there was a complete set.
    pub(super) fn version(&self) -> Option<&ResourceVersion> {
        self.version.as_ref()
    }

    /// The version, if `other` lies before it.
    pub(super) fn ahead_of(&self, other: &ResourceVersion) -> Option<&ResourceVersion> {
        self.version.as_ref().filter(|version| other.is_before(version))
    }

    /// The version to ask a complete set for. `first` is what to ask while nothing is known yet.
    pub(super) fn consistency(&self, first: Consistency) -> Consistency {
        match &self.version {
            _ if self.unavailable => Consistency::MostRecent,
            Some(version) => Consistency::NotOlderThan(version.clone()),
            None => first,
        }
    }

    /// Follows a stream; a comparable version does not take it back.
    pub(super) fn advance(&mut self, version: ResourceVersion) {
        if self.ahead_of(&version).is_none() {
            self.version = Some(version);
        }
    }

    /// Takes the version of a complete set, also one that lies before it.
    pub(super) fn replace(&mut self, version: ResourceVersion) {
        self.version = Some(version);
        self.unavailable = false;
    }

    /// Notes that the server cannot serve it. The version is kept for comparison.
    pub(super) fn lose(&mut self) {
        self.unavailable = true;
    }

    /// Notes that a watch from here was refused as expired; returns whether that happened before, with no healthy watch since.
    pub(super) fn expire(&mut self) -> bool {
        std::mem::replace(&mut self.expired_since_health, true)
    }

    /// Notes that a watch was healthy.
    pub(super) fn note_health(&mut self) {
        self.expired_since_health = false;
    }

    /// Panics if it contradicts itself.
    pub(super) fn check(&self) {
        assert!(!self.expired_since_health || self.version.is_some(), "only a position can expire");
    }
}
