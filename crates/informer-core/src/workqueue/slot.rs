//! The slot number of a key in the queue. This module must not know what an entry is.

/// The stable number of a key in the queue.
pub(super) type Slot = u32;

/// The slot number that no key has.
pub(super) const NONE: Slot = Slot::MAX;
