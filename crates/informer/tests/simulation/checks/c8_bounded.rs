//! C8: what a handler has still to be told is at most one transition per object, or its own bound besides.

use crate::crew::{Kind, Member};

/// All objects there can be.
const OBJECTS: usize = 21;
/// The bound of handlers that want every state.
const STATES: usize = 8;

pub(crate) fn check(member: &Member) {
    let bound = if member.kind == Kind::EveryState { OBJECTS + STATES } else { OBJECTS };
    let pending = member.pending();
    assert!(pending <= bound || pending == usize::MAX, "C8: {}: {pending} are pending", member.name);
}
