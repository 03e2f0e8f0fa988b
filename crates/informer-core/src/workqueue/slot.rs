//! The number under which an entry of the queue is known. It must not know what an entry is.

/// The number of an entry.
pub(super) type Slot = u32;

/// No entry has this number.
pub(super) const NONE: Slot = Slot::MAX;
