//! C4: when a handler is called, the store already contains that change or a newer one. A newer one is
//! delivered later, unless it is a new incarnation that is deleted, or leaves the selection, before.

use std::collections::BTreeSet;

use crate::handlers::{Informer, TestHandler, What};
use crate::oracle::{Oracle, State};

pub(crate) fn check(oracle: &Oracle, informer: &Informer, handler: &TestHandler) {
    let record = handler.record();
    // In reverse order, so that later events are known.
    let mut later = BTreeSet::new();
    for delivered in record.delivered.iter().rev() {
        let same = match (&delivered.what, &delivered.store) {
            (What::Deleted, Some(store)) => {
                let is_selected = |now: &State| informer.view.selects(now) && handler.selects(now);
                let is_last = |now: &State| now.uid == store.uid && is_selected(now);
                !handler.selects(store) || !oracle.now.get(&store.key()).is_some_and(is_last)
            }
            (What::Deleted, None) => true,
            (_, store) => store.as_ref() == Some(&delivered.state),
        };
        let newer = later.contains(&delivered.state.key()) || handler.removed_after.is_some();
        assert!(
            same || newer,
            "C4: {} received {:?} of {}, but the store contained {:?}",
            handler.name,
            delivered.what,
            delivered.state,
            delivered.store
        );
        later.insert(delivered.state.key());
    }
}
