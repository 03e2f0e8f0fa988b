//! The priority of a key. It must not know how keys are kept in order.

/// What is taken first. Keys of one priority are taken in the order in which they came. Of keys below [`Priority::NORMAL`] at least every sixteenth take is
/// one, if there are any, so that they are never kept waiting for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(pub i32);

impl Priority {
    /// For what was there when a controller began, so that it does not keep fresh changes waiting.
    pub const INITIAL: Priority = Priority(-100);
    /// For everything else.
    pub const NORMAL: Priority = Priority(0);
}
