//! C6: a handler gets the set that is there, flagged as initial and each object once, then what follows.

use crate::crew::{Member, Told, What};
use crate::truth::State;

/// The initial set comes first.
pub(crate) fn check(member: &Member) {
    let notes = member.notes();
    let last = notes.told.iter().rposition(|told| told.what == What::Added { initial: true });
    let late =
        notes.told.iter().take(last.unwrap_or(0)).filter(|told| told.what == What::Added { initial: false });
    // What was added while the first set was still being told is told among it.
    let strangers = late.filter(|told| told.rewinds == 0).count();
    assert!(
        strangers <= notes.told.len() / 2,
        "C6: {}: {strangers} additions before the initial set",
        member.name
    );
}

/// Where nothing else happens, it gets exactly that.
pub(crate) fn initial(member: &Member, listed: &[State]) {
    let mut told: Vec<State> = Vec::new();
    let again = |one: &&Told| matches!(one.what, What::Updated { resync: true, .. });
    for one in member.notes().told.iter().filter(|one| !again(one)) {
        assert_eq!(one.what, What::Added { initial: true }, "C6: {}: {}", member.name, one.state);
        told.push(one.state.clone());
    }
    told.sort();
    let mut listed: Vec<State> = listed.iter().filter(|state| member.hears_of(state)).cloned().collect();
    listed.sort();
    assert_eq!(told, listed, "C6: {}", member.name);
    assert!(member.is_synced(), "C6: {} has everything and is not synced", member.name);
}
