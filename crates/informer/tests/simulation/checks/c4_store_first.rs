//! C4: when a handler runs, the store already holds that change or a newer one. A newer one is told in its turn, unless it is a new
//! life that is over before its turn comes.

use std::collections::BTreeSet;

use crate::crew::{Member, What};
use crate::truth::Truth;

pub(crate) fn check(truth: &Truth, member: &Member) {
    let notes = member.notes();
    // From the end, so that what comes later is known.
    let mut later = BTreeSet::new();
    for told in notes.told.iter().rev() {
        let same = match (&told.what, &told.store) {
            (What::Deleted, Some(store)) => {
                !member.hears_of(store) || truth.now.get(&store.key()).is_none_or(|now| now.uid != store.uid)
            }
            (What::Deleted, None) => true,
            (_, store) => store.as_ref() == Some(&told.state),
        };
        let newer = later.contains(&told.state.key()) || member.removed_after.is_some();
        assert!(
            same || newer,
            "C4: {} was told {:?} of {}, the store had {:?}",
            member.name,
            told.what,
            told.state,
            told.store
        );
        later.insert(told.state.key());
    }
}
