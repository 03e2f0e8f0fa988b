//! C3: per handler and key Added, Updated…, Deleted, Added…; an update carries the state that this handler
//! received last, and incarnations of an object are never mixed up.

use std::collections::BTreeMap;

use crate::handlers::{TestHandler, What};

pub(crate) fn check(handler: &TestHandler) {
    let record = handler.record();
    let mut known = BTreeMap::new();
    for delivered in &record.delivered {
        let (key, state, name) = (delivered.state.key(), &delivered.state, &handler.name);
        let before = match &delivered.what {
            What::Deleted => known.remove(&key),
            _ => known.insert(key, state.clone()),
        };
        match (&delivered.what, before) {
            (What::Added { .. }, None) => {}
            (What::Added { .. }, Some(before)) => {
                panic!("C3: {name}: {state} added, although {before} exists")
            }
            (_, None) => panic!("C3: {name}: {state} delivered as {:?} before it was added", delivered.what),
            (What::Updated { old, resync }, Some(before)) => {
                assert_eq!(*old, before, "C3: {name}: old is not the last delivered state");
                assert_eq!(old.uid, state.uid, "C3: {name}: {state} is another incarnation");
                assert!(!resync || old == state, "C12: {name}: {state} changed by a resync");
            }
            (What::Deleted, Some(before)) => {
                assert_eq!(
                    before.uid, state.uid,
                    "C3: {name}: {state} deleted, but another incarnation existed"
                );
            }
        }
        // The last state of a deleted object may be one that the filter excluded.
        let is_selected = delivered.what == What::Deleted || handler.selects(state);
        assert!(is_selected, "C3: {name}: {state} does not match the filter");
    }
}
