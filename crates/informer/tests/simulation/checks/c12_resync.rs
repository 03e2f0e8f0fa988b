//! C12: a resync tells every object again, once in each period. Where nothing happens, nothing else is told.

use std::collections::BTreeMap;

use crate::crew::{Kind, Member, Place, What};

/// What was told during two periods without changes, after the first `before` of each handler.
pub(crate) fn quiet(members: &[Member], before: &[usize]) {
    for (member, before) in members.iter().zip(before) {
        let mut again: BTreeMap<String, u32> = BTreeMap::new();
        for told in &member.notes().told[*before..] {
            let What::Updated { old, resync } = &told.what else {
                panic!("C2: {}: {} was told, though nothing happened", member.name, told.state);
            };
            // A list may put an object right that came spoilt: its version is the same.
            assert!(*resync || *old == told.state, "C2: {}: {} in calm weather", member.name, told.state);
            *again.entry(told.state.key()).or_default() += u32::from(*resync);
        }
        if member.kind == Kind::Resynced && !matches!(member.place, Place::Gone) {
            for state in member.believes() {
                let times = again.get(&state.key()).copied().unwrap_or(0);
                assert!(
                    (1..=3).contains(&times),
                    "C12: {}: {state} {times} times in two periods",
                    member.name
                );
            }
        } else {
            assert!(
                again.values().all(|times| *times == 0),
                "C12: {}: a resync nobody asked for",
                member.name
            );
        }
    }
}
