//! C7: waiting for sync ends with success or a reason. A synced informer is complete and has a version.

use informer::error::SyncError;
use informer::status::InformerState;

use crate::handlers::{Informer, TestHandler};

pub(crate) fn check(handler: &TestHandler) {
    assert_eq!(
        handler.record().synced_without_version,
        0,
        "C7: {} received events from an informer that was synced without a version",
        handler.name
    );
}

/// Whether an informer is synced, checking that it is complete then.
pub(crate) fn is_synced(informer: &Informer) -> bool {
    let status = (informer.status)();
    let complete = status.scopes.iter().all(|scope| scope.resource_version.is_some());
    assert!(!status.synced || complete, "C7: {} is synced, but not all scopes have a version", informer.name);
    status.synced
}

/// Checks the result of a wait of one minute.
pub(crate) fn waited(outcome: Result<(), SyncError>, fault_free: bool) {
    let Err(error) = outcome else { return };
    assert!(!fault_free, "C7: {error}");
    let useless = |state: &InformerState| {
        matches!(state, InformerState::Forbidden { .. } | InformerState::NotServed { .. })
    };
    let reason = error.timeout.is_some() || error.failed().any(|informer| useless(&informer.state));
    assert!(reason, "C7: wait ended without a reason: {error}");
}
