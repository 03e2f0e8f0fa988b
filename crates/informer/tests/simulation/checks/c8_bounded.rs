//! C8: at most one event per object is pending for a handler, plus its capacity if uncoalesced.

use crate::handlers::{Kind, TestHandler};

/// Number of objects that can exist.
const MAX_OBJECTS: usize = 21;
/// Capacity of uncoalesced handlers.
const CAPACITY: usize = 8;

pub(crate) fn check(handler: &TestHandler) {
    let bound = if handler.kind == Kind::Uncoalesced { MAX_OBJECTS + CAPACITY } else { MAX_OBJECTS };
    let pending = handler.pending();
    assert!(pending <= bound || pending == usize::MAX, "C8: {}: {pending} are pending", handler.name);
}
