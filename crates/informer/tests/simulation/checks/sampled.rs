//! Checks at random times: C5 (a snapshot is a state of the server), C7 (synced stays true), C8, and that the
//! events of a handler without pending ones add up to the store (C2, C4, C6).

use super::{c7_sync, c8_bounded};
use crate::handlers::{Attachment, Informer, Kind, ListStates, TestHandler};
use crate::oracle::{Oracle, State};
use informer::status::Scope;

/// Observations of earlier samples.
#[derive(Default)]
pub(crate) struct Sampled {
    synced: Vec<bool>,
    snapshots: Vec<(ListStates, Vec<State>)>,
    pub(crate) samples: u64,
}

impl Sampled {
    /// Checks everything that is visible now. `exact`: the server dropped no frames silently.
    pub(crate) fn sample(
        &mut self,
        oracle: &Oracle,
        informers: &[Informer],
        handlers: &[TestHandler],
        exact: bool,
    ) {
        self.synced.resize(informers.len(), false);
        for (informer, synced) in informers.iter().zip(&mut self.synced) {
            let now = c7_sync::is_synced(informer);
            assert!(now || !*synced, "C7: {} is no longer synced", informer.name);
            *synced = now;
            if exact {
                self.samples += check_exact(oracle, informer);
            }
        }
        for handler in handlers.iter().filter(|handler| !matches!(handler.attachment, Attachment::Removed)) {
            let informer = &informers[handler.informer];
            c8_bounded::check(handler);
            if handler.is_synced() {
                assert!((informer.status)().synced, "C7: {} is synced before its informer", handler.name);
            }
            if handler.kind != Kind::Slow && handler.is_synced() && handler.pending() == 0 {
                let mut listed = (informer.list)();
                listed.retain(|state| handler.selects(state));
                assert_eq!(handler.known_objects(), listed, "C2: {} has nothing pending", handler.name);
                self.samples += 1;
            }
        }
    }

    /// Takes a snapshot, to be checked at the end.
    pub(crate) fn snapshot(&mut self, informer: &Informer) {
        let snapshot = (informer.snapshot)();
        let states = snapshot();
        self.snapshots.push((snapshot, states));
    }

    /// C5: checks that snapshots did not change.
    pub(crate) fn check_snapshots(&self) {
        for (snapshot, states) in &self.snapshots {
            assert_eq!(&snapshot(), states, "C5: a snapshot changed");
        }
    }
}

/// C5: checks that the objects of each scope are those of the server at the scope's version.
fn check_exact(oracle: &Oracle, informer: &Informer) -> u64 {
    let (status, listed) = ((informer.status)(), (informer.list)());
    let mut samples = 0;
    for scope in &status.scopes {
        let Some(version) = &scope.resource_version else { continue };
        let version: u64 = version.as_str().parse().unwrap();
        let in_scope = |state: &State| match &scope.scope {
            Scope::All => true,
            Scope::Namespace(name) => *state.namespace == **name,
        };
        let has: Vec<&State> = listed.iter().filter(|state| in_scope(state)).collect();
        let real = oracle.branches.iter().filter_map(|branch| branch.at(version)).any(|objects| {
            let selected = objects.values().filter(|state| informer.view.selects(state) && in_scope(state));
            selected.eq(has.iter().copied())
        });
        assert!(real, "C5: {} at {version} was never a state of the server: {has:?}", informer.name);
        samples += 1;
    }
    samples
}
