//! C3: per handler and key Added, Updated…, Deleted, Added…; an update says what this handler saw last, and one life of an object is
//! never mixed up with another.

use std::collections::BTreeMap;

use crate::crew::{Member, What};

pub(crate) fn check(member: &Member) {
    let notes = member.notes();
    let mut known = BTreeMap::new();
    for told in &notes.told {
        let (key, state, name) = (told.state.key(), &told.state, &member.name);
        let before = match &told.what {
            What::Deleted => known.remove(&key),
            _ => known.insert(key, state.clone()),
        };
        match (&told.what, before) {
            (What::Added { .. }, None) => {}
            (What::Added { .. }, Some(before)) => {
                panic!("C3: {name}: {state} added, though {before} was there")
            }
            (_, None) => panic!("C3: {name}: {state} told ({:?}) before it was added", told.what),
            (What::Updated { old, resync }, Some(before)) => {
                assert_eq!(*old, before, "C3: {name}: not what was told last");
                assert_eq!(old.uid, state.uid, "C3: {name}: {state} is another life");
                assert!(!resync || old == state, "C12: {name}: {state} changed by a resync");
            }
            (What::Deleted, Some(before)) => {
                assert_eq!(before.uid, state.uid, "C3: {name}: {state} deleted, another was there");
            }
        }
        // The last state of what is gone may be one that it was spared.
        let its_own = told.what == What::Deleted || member.hears_of(state);
        assert!(its_own, "C3: {name}: {state} is none of its business");
    }
}
