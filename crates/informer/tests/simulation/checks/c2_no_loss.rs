//! C2: no change is lost. The run itself checks that the last state of every object is delivered; here, an
//! uncoalesced handler must receive every state if there are no faults.

use std::collections::BTreeMap;

use crate::handlers::{Informer, Kind, TestHandler, What};
use crate::oracle::Oracle;

pub(crate) fn check(oracle: &Oracle, informer: &Informer, handler: &TestHandler, fault_free: bool) {
    let whole = informer.view.app.is_none() && informer.view.namespaces.is_empty();
    let record = handler.record();
    if !fault_free || !whole || handler.kind != Kind::Uncoalesced || record.skipped > 0 {
        return;
    }
    let mut written: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for write in oracle.branches.iter().flat_map(|branch| &branch.writes) {
        written.entry(&write.key).or_default().push(write.version);
    }
    let mut delivered: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for one in record.delivered.iter().filter(|one| !matches!(one.what, What::Updated { resync: true, .. })) {
        delivered.entry(one.state.key()).or_default().push(one.state.version);
    }
    for (key, delivered) in delivered {
        let all = &written[&*key];
        let from = all.iter().position(|version| *version == delivered[0]).unwrap();
        let expected: Vec<u64> = all[from..].iter().copied().take(delivered.len()).collect();
        assert_eq!(
            delivered, expected,
            "C2: {}: a state of {key} is missing or was delivered twice",
            handler.name
        );
    }
}
