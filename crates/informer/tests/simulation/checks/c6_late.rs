//! C6: a handler receives the initial list, flagged as initial and each object once, then further changes.

use crate::handlers::{Delivered, TestHandler, What};
use crate::oracle::State;

/// Checks that the initial list is delivered first.
pub(crate) fn check(handler: &TestHandler) {
    let record = handler.record();
    let last = record.delivered.iter().rposition(|delivered| delivered.what == What::Added { initial: true });
    let late = record
        .delivered
        .iter()
        .take(last.unwrap_or(0))
        .filter(|delivered| delivered.what == What::Added { initial: false });
    // Objects added while the initial list is being delivered are delivered in between.
    let not_initial = late.filter(|delivered| delivered.rewinds == 0).count();
    assert!(
        not_initial <= record.delivered.len() / 2,
        "C6: {}: {not_initial} additions before the end of the initial list",
        handler.name
    );
}

/// Checks that exactly the initial list was delivered, for a time without changes.
pub(crate) fn initial(handler: &TestHandler, listed: &[State]) {
    let mut delivered: Vec<State> = Vec::new();
    let again = |one: &&Delivered| matches!(one.what, What::Updated { resync: true, .. });
    for one in handler.record().delivered.iter().filter(|one| !again(one)) {
        assert_eq!(one.what, What::Added { initial: true }, "C6: {}: {}", handler.name, one.state);
        delivered.push(one.state.clone());
    }
    delivered.sort();
    let mut listed: Vec<State> = listed.iter().filter(|state| handler.selects(state)).cloned().collect();
    listed.sort();
    assert_eq!(delivered, listed, "C6: {}", handler.name);
    assert!(handler.is_synced(), "C6: {} received the initial list but is not synced", handler.name);
}
