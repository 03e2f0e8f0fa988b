//! C12: a resync delivers every object once per period. Without changes nothing else is delivered.

use std::collections::BTreeMap;

use crate::handlers::{Attachment, Kind, TestHandler, What};

/// Checks the events delivered during two periods without changes, after the first `before` of each handler.
pub(crate) fn idle_periods(handlers: &[TestHandler], before: &[usize]) {
    for (handler, before) in handlers.iter().zip(before) {
        let mut again: BTreeMap<String, u32> = BTreeMap::new();
        for delivered in &handler.record().delivered[*before..] {
            let What::Updated { old, resync } = &delivered.what else {
                panic!("C2: {}: {} was delivered, although nothing changed", handler.name, delivered.state);
            };
            // A list may repair an object that was received corrupted: its version is the same.
            assert!(
                *resync || *old == delivered.state,
                "C2: {}: {} was updated, although nothing changed",
                handler.name,
                delivered.state
            );
            *again.entry(delivered.state.key()).or_default() += u32::from(*resync);
        }
        if handler.kind == Kind::Resynced && !matches!(handler.attachment, Attachment::Removed) {
            for state in handler.known_objects() {
                let times = again.get(&state.key()).copied().unwrap_or(0);
                assert!(
                    (1..=3).contains(&times),
                    "C12: {}: {state} {times} times in two periods",
                    handler.name
                );
            }
        } else {
            assert!(again.values().all(|times| *times == 0), "C12: {}: unexpected resync", handler.name);
        }
    }
}
