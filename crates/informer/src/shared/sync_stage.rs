//! The progress of a listener through its initial list.
//!
//! A listener that has ended stays ended. Every transition returns whether it changed the stage.

/// The progress of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SyncStage {
    /// Not every event of the initial list is delivered yet.
    Initial {
        /// Whether the outbox has received the complete initial list.
        complete: bool,
    },
    /// The handler has returned from every event of the initial list.
    Synced,
    /// The listener has ended, or was closed before it started.
    Ended {
        /// Whether the handler had synced.
        synced: bool,
    },
}

impl SyncStage {
    /// Returns whether the handler has returned from every event of the initial list, also if the listener
    /// has ended since.
    pub(super) fn has_synced(self) -> bool {
        matches!(self, Self::Synced | Self::Ended { synced: true })
    }

    /// Returns whether the outbox has received the complete initial list; `None` if it may still receive it.
    pub(super) fn has_initial_list(self) -> Option<bool> {
        match self {
            Self::Initial { complete } => complete.then_some(true),
            Self::Synced => Some(true),
            Self::Ended { synced } => Some(synced),
        }
    }

    pub(super) fn mark_complete(&mut self) -> bool {
        self.replace(Self::Initial { complete: false }, Self::Initial { complete: true })
    }

    pub(super) fn mark_synced(&mut self) -> bool {
        let is_initial = matches!(self, Self::Initial { .. });
        if is_initial {
            *self = Self::Synced;
        }
        is_initial
    }

    /// Ends a listener that cannot receive the rest of its initial list any more.
    pub(super) fn end_if_incomplete(&mut self) -> bool {
        self.replace(Self::Initial { complete: false }, Self::Ended { synced: false })
    }

    fn replace(&mut self, expected: Self, new: Self) -> bool {
        let is_expected = *self == expected;
        if is_expected {
            *self = new;
        }
        is_expected
    }
}
