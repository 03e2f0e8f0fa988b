//! C6 and C10: a handler is not called after its removal has returned. C9: a panicking handler is called
//! again.

use crate::handlers::{Kind, TestHandler};

pub(crate) fn check(handler: &TestHandler) {
    let record = handler.record();
    if let Some(before) = handler.removed_after {
        assert_eq!(record.delivered.len(), before, "C6: {} was called after its removal", handler.name);
    }
    let expected = if handler.kind == Kind::Panicking { record.delivered.len() as u64 / 5 } else { 0 };
    assert_eq!(record.panics, expected, "C9: {}", handler.name);
}
