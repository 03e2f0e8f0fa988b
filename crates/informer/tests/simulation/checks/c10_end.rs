//! C6 and C10: once a removal has returned the handler is not called any more; and a handler that panics goes on (C9).

use crate::crew::{Kind, Member};

pub(crate) fn check(member: &Member) {
    let notes = member.notes();
    if let Some(before) = member.removed_after {
        assert_eq!(notes.told.len(), before, "C6: {} was called after its removal", member.name);
    }
    let expected = if member.kind == Kind::Panicking { notes.told.len() as u64 / 5 } else { 0 };
    assert_eq!(notes.panics, expected, "C9: {}", member.name);
}
