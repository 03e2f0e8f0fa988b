//! Audits: the cache compared with a fresh list, now and then.

use super::check;

#[test]
fn an_audit_lists_exactly_the_position_and_watches_on_from_there() {
    check(
        "
        with relist-every 4m
        live v=9 a/x@5
        > state live
        ADDED a/y@10
        > push added a/y@10
        after 264s
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
fn an_audit_of_a_forgotten_version_becomes_an_ordinary_list() {
    check(
        "
        with relist-every 4m
        live v=9 a/x@5
        > state live
        after 264s
        > cancel
        > list limit=500 rv=9 match=Exact
        > state stale
        refuse 410 Expired
        > list failed: 410 Expired; again now
        > list rv=9 match=NotOlderThan
        list v=20 a/x@5
        > push replaced @20 [a/x@5]
        > watch rv=20
        ",
    );
}

#[test]
fn an_audit_that_fails_lets_the_watch_go_on() {
    check(
        "
        with relist-every 4m
        live v=9 a/x@5
        > state live
        after 264s
        > cancel
        > list limit=500 rv=9 match=Exact
        > state stale
        refuse 500 InternalError
        > list failed: 500 InternalError; again in 800ms..1.6s
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
fn an_audit_answered_with_a_newer_list_finds_no_drift() {
    // A proxy that drops `resourceVersionMatch` made every change since the last frame look like drift.
    check(
        "
        with relist-every 4m
        live v=9 a/x@5
        > state live
        after 264s
        > cancel
        > list limit=500 rv=9 match=Exact
        > state stale
        list v=12 a/x@5 a/y@11
        > push replaced @12 [a/x@5, a/y@11]
        > watch rv=12
        ",
    );
}
