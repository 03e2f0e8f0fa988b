//! C1: a handler sees the states of one object in the server's order; only a server that goes back takes them back. And every
//! state that is told was one of the server's.

use std::collections::BTreeMap;

use crate::crew::{Member, What};
use crate::truth::Truth;

pub(crate) fn check(truth: &Truth, member: &Member) {
    let notes = member.notes();
    let mut last = BTreeMap::new();
    for told in &notes.told {
        let state = &told.state;
        let real = match told.what {
            // A deletion shows the last state with the version of the deletion.
            What::Deleted => truth
                .states
                .range((state.stamp, 0)..=(state.stamp, u64::MAX))
                .any(|(_, real)| (&real.uid, &real.app) == (&state.uid, &state.app)),
            _ => truth.states.get(&(state.stamp, state.version)) == Some(state),
        };
        assert!(real, "C1: {}: {state} never was", member.name);
        let before = last.get(&state.key()).copied();
        if let Some((version, rewinds)) = before {
            assert!(
                state.version >= version || told.rewinds > rewinds,
                "C1: {}: {state} after v{version}, and the server did not go back",
                member.name
            );
        }
        // A deletion that was found out later says what was known before: its state is as old as that.
        let inferred =
            told.what == What::Deleted && before.is_some_and(|(version, _)| version == state.version);
        let rewinds = before.filter(|_| inferred).map_or(told.rewinds, |(_, rewinds)| rewinds);
        last.insert(state.key(), (state.version, rewinds));
    }
}
