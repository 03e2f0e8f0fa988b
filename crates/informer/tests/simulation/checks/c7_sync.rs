//! C7: a wait for the first set ends: well, or with the reason. What is synced is complete, and stands for a version.

use informer::{FactorySyncError, State};

use crate::crew::{Informer, Member};

pub(crate) fn check(member: &Member) {
    assert_eq!(
        member.notes().unripe,
        0,
        "C7: {} was told things by an informer that was synced too early",
        member.name
    );
}

/// Whether an informer is synced now.
pub(crate) fn is_synced(informer: &Informer) -> bool {
    let status = (informer.status)();
    let complete = status.scopes.iter().all(|scope| scope.version.is_some());
    assert!(!status.synced || complete, "C7: {} is synced and has not seen everything", informer.name);
    status.synced
}

/// What a wait of a minute came to.
pub(crate) fn waited(outcome: Result<(), FactorySyncError>, fair: bool) {
    let Err(error) = outcome else { return };
    assert!(!fair, "C7: {error}");
    let useless = |state: &State| matches!(state, State::Forbidden { .. } | State::NotServed { .. });
    for failed in error.failed() {
        let reason = failed.after.is_some() || error.failed().any(|other| useless(&other.state));
        assert!(reason, "C7: gave up without a reason: {error}");
    }
}
