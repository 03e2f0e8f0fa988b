//! Audits: the cache is compared with a list at the same version.

use super::check;

#[test]
fn audit_lists_exactly_the_position_and_resumes_the_watch() {
    check(
        "
        with audit-period 40s
        live v=9 a/x@5
        > state live
        ADDED a/y@10
        > push added a/y@10
        after 44s
        > cancel
        > list limit=500 rv=10 match=Exact
        > state stale
        list v=10 a/x@5 a/z@8
        > push audited @10 [a/x@5, a/z@8]
        > watch rv=10
        ",
    );
}

#[test]
fn audit_of_an_expired_version_becomes_an_ordinary_list() {
    check(
        "
        with audit-period 40s
        live v=9 a/x@5
        > state live
        after 44s
        > cancel
        > list limit=500 rv=9 match=Exact
        > state stale
        reject 410 Expired
        > list failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        list v=20 a/x@5
        > push replaced @20 [a/x@5]
        > watch rv=20
        ",
    );
}

#[test]
fn failed_audit_resumes_the_watch() {
    check(
        "
        with audit-period 40s
        live v=9 a/x@5
        > state live
        after 44s
        > cancel
        > list limit=500 rv=9 match=Exact
        > state stale
        reject 500 InternalError
        > list failed: 500 InternalError; retry in 800ms..1.6s
        > state backing off: 500 InternalError
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        ",
    );
}

#[test]
fn audit_with_a_newer_list_reports_no_drift() {
    // Regression: with a proxy that drops `resourceVersionMatch`, every change since the last frame was
    // reported as drift.
    check(
        "
        with audit-period 40s
        live v=9 a/x@5
        > state live
        after 44s
        > cancel
        > list limit=500 rv=9 match=Exact
        > state stale
        list v=12 a/x@5 a/y@11
        > push replaced @12 [a/x@5, a/y@11]
        > watch rv=12
        ",
    );
}
