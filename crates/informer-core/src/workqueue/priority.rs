//! The priority of a key. `priority_levels` implements the order of keys.

/// The priority of a queued key; higher ones are taken first.
///
/// Keys of equal priority are taken in the order in which they were added. If keys below [`Priority::NORMAL`]
/// are queued, at least every sixteenth take returns one of them, so they are never starved.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// The priority of initial objects of a controller, so that they do not delay later changes.
    pub const INITIAL: Priority = Priority(-100);
    /// The default priority.
    pub const NORMAL: Priority = Priority(0);
}
