//! C1: a handler receives the states of one object in the server's order, except after a rewind. Every
//! delivered state existed on the server.

use std::collections::BTreeMap;

use crate::handlers::{TestHandler, What};
use crate::oracle::Oracle;

pub(crate) fn check(oracle: &Oracle, handler: &TestHandler) {
    let record = handler.record();
    let mut last = BTreeMap::new();
    for delivered in &record.delivered {
        let state = &delivered.state;
        let real = match delivered.what {
            // A deletion carries the last state with the version of the deletion.
            What::Deleted => oracle
                .states
                .range((state.stamp, 0)..=(state.stamp, u64::MAX))
                .any(|(_, real)| (&real.uid, &real.app) == (&state.uid, &state.app)),
            _ => oracle.states.get(&(state.stamp, state.version)) == Some(state),
        };
        assert!(real, "C1: {}: {state} never existed", handler.name);
        let before = last.get(&state.key()).copied();
        if let Some((version, rewinds)) = before {
            assert!(
                state.version >= version || delivered.rewinds > rewinds,
                "C1: {}: {state} after v{version} without a rewind",
                handler.name
            );
        }
        // An inferred deletion carries the last known state, which may predate a rewind.
        let inferred =
            delivered.what == What::Deleted && before.is_some_and(|(version, _)| version == state.version);
        let rewinds = before.filter(|_| inferred).map_or(delivered.rewinds, |(_, rewinds)| rewinds);
        last.insert(state.key(), (state.version, rewinds));
    }
}
