//! What anybody can see at a moment: C5 (a state is one of the server's, whole), C7 (synced never goes back), C8, and that a handler with
//! nothing pending believes what the store has (C2, C4, C6).

use super::{c7_sync, c8_bounded};
use crate::crew::{Informer, Kind, Member, Place, Reading};
use crate::truth::{State, Truth};
use informer::Scope;

/// What was seen at earlier moments.
#[derive(Default)]
pub(crate) struct Sampled {
    synced: Vec<bool>,
    held: Vec<(Reading, Vec<State>)>,
    pub(crate) looks: u64,
}

impl Sampled {
    /// Looks at everything. `exact`: the server lost nothing without a word.
    pub(crate) fn look(&mut self, truth: &Truth, informers: &[Informer], members: &[Member], exact: bool) {
        self.synced.resize(informers.len(), false);
        for (informer, synced) in informers.iter().zip(&mut self.synced) {
            let now = c7_sync::is_synced(informer);
            assert!(now || !*synced, "C7: {} is not synced any more", informer.name);
            *synced = now;
            if exact {
                self.looks += check_exact(truth, informer);
            }
        }
        for member in members.iter().filter(|member| !matches!(member.place, Place::Gone)) {
            let informer = &informers[member.informer];
            c8_bounded::check(member);
            if member.is_synced() {
                assert!((informer.status)().synced, "C7: {} is synced before its informer", member.name);
            }
            if member.kind != Kind::Slow && member.is_synced() && member.pending() == 0 {
                let mut listed = (informer.list)();
                listed.retain(|state| member.hears_of(state));
                assert_eq!(member.believes(), listed, "C2: {} has nothing pending", member.name);
                self.looks += 1;
            }
        }
    }

    /// Holds on to a state.
    pub(crate) fn hold(&mut self, informer: &Informer) {
        let snapshot = (informer.hold)();
        let states = snapshot();
        self.held.push((snapshot, states));
    }

    /// C5: what was held is what it was.
    pub(crate) fn check_held(&self) {
        for (snapshot, states) in &self.held {
            assert_eq!(&snapshot(), states, "C5: a snapshot changed");
        }
    }
}

/// C5: what an informer has of each scope is what the server had at that scope's version.
fn check_exact(truth: &Truth, informer: &Informer) -> u64 {
    let (status, listed) = ((informer.status)(), (informer.list)());
    let mut looks = 0;
    for scope in &status.scopes {
        let Some(version) = &scope.version else { continue };
        let version: u64 = version.as_str().parse().unwrap();
        let within = |state: &State| match &scope.scope {
            Scope::All => true,
            Scope::Namespace(name) => *state.namespace == **name,
        };
        let has: Vec<&State> = listed.iter().filter(|state| within(state)).collect();
        let real = truth.branches.iter().filter_map(|branch| branch.at(version)).any(|objects| {
            let seen = objects.values().filter(|state| informer.view.sees(state) && within(state));
            seen.eq(has.iter().copied())
        });
        assert!(real, "C5: {} at {version} was never what the server had: {has:?}", informer.name);
        looks += 1;
    }
    looks
}
