//! C2: nothing is lost. That the last state of everything is told in the end is looked at by the run itself; where nothing goes wrong,
//! a handler that wants every state gets every one.

use std::collections::BTreeMap;

use crate::crew::{Informer, Kind, Member, What};
use crate::truth::Truth;

pub(crate) fn check(truth: &Truth, informer: &Informer, member: &Member, fair: bool) {
    let whole = informer.view.app.is_none() && informer.view.namespaces.is_empty();
    let notes = member.notes();
    if !fair || !whole || member.kind != Kind::EveryState || notes.skipped > 0 {
        return;
    }
    let mut written: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for write in truth.branches.iter().flat_map(|branch| &branch.writes) {
        written.entry(&write.key).or_default().push(write.version);
    }
    let mut told: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for one in notes.told.iter().filter(|one| !matches!(one.what, What::Updated { resync: true, .. })) {
        told.entry(one.state.key()).or_default().push(one.state.version);
    }
    for (key, told) in told {
        let all = &written[&*key];
        let from = all.iter().position(|version| *version == told[0]).unwrap();
        let expected: Vec<u64> = all[from..].iter().copied().take(told.len()).collect();
        assert_eq!(told, expected, "C2: {}: {key} skipped a state, or told one twice", member.name);
    }
}
