//! Outages: the position is probed before the watch resumes.

use super::check;

// A probe confirms the position after the outage.
#[test]
fn position_survives_an_unreachable_server() {
    check(
        "
        live v=9
        > state live
        after 10s
        error reset
        > watch failed: connection reset; retry now
        > watch rv=9
        > state stale
        error refused
        > watch failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        error refused
        > list failed: connection refused; retry in 1.6s..3.2s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=12 continue=t remaining=3 a/x@5
        > watch rv=9
        200
        > state live
        count full_lists
        > full_lists 1
        ",
    );
}

// Regression, seen on a real server: etcd was restored while the API server was down. The watch from the old
// position was accepted and stayed silent until the versions had passed that position; all changes in between
// were lost. No test combined an outage with a restore.
#[test]
fn c1_server_that_returns_with_older_versions_is_detected() {
    for (error, failure) in [("refused", "connection refused"), ("reset", "connection reset")] {
        for (response, probe_failure) in
            [("reject 504 TooLarge", "504 Timeout"), ("list v=4", "the list is older than requested: 4")]
        {
            check(&format!(
                "
                live v=9
                > state live
                error {error}
                > watch failed: {failure}; retry in 800ms..1.6s
                > state backing off: {failure}
                wake
                > list limit=1 rv=9 match=NotOlderThan
                > state stale
                {response}
                > list failed: {probe_failure}; retry in 1.6s..3.2s
                > state backing off: {probe_failure}
                wake
                > list limit=1 rv=9 match=NotOlderThan
                > state stale
                {response}
                > list failed: {probe_failure}; retry now
                > list limit=500
                list v=4
                > push replaced @4 []
                > rewound from 9 to 4
                > watch rv=4
                200
                > state live
                count rewinds
                > rewinds 1
                "
            ));
        }
    }
}

// A watch-list does not need the permission to list.
#[test]
fn user_without_permission_to_list_resumes_the_watch() {
    check(
        "
        live v=9
        > state live
        after 10s
        error refused
        > watch failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry now
        > watch rv=9
        200
        > state live
        ",
    );
}

// One of several servers may lag some seconds behind the previous one. That does not justify a relist.
#[test]
fn lagging_server_is_probed_again_before_a_relist() {
    check(
        "
        live v=9
        > state live
        error refused
        > watch failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 504 TooLarge
        > list failed: 504 Timeout; retry in 1.6s..3.2s
        > state backing off: 504 Timeout
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        count rewinds
        > rewinds 0
        ",
    );
}

// Regression: if a probe found the server behind and the next probe had no result, the first one was still
// counted at the next outage, however much later. A single lag then caused a relist.
#[test]
fn earlier_lag_is_forgotten_after_a_healthy_watch() {
    check(
        "
        live v=9
        > state live
        error refused
        > watch failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 504 TooLarge
        > list failed: 504 Timeout; retry in 1.6s..3.2s
        > state backing off: 504 Timeout
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry now
        > watch rv=9
        200
        > state live
        after 10s
        ERROR 429 TooManyRequests
        > cancel
        > watch failed: 429 TooManyRequests; retry in 800ms..1.6s
        > state backing off: 429 TooManyRequests
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 504 TooLarge
        > list failed: 504 Timeout; retry in 1.6s..3.2s
        > state backing off: 504 Timeout
        ",
    );
}

// Regression: a starting server may reject every request with 429, or with 403 until it has loaded the roles;
// a server that shuts down gracefully responds with 429. The next watch then started without a probe, so a
// restore was missed.
#[test]
fn c1_rejected_probe_is_repeated_before_the_watch_resumes() {
    for status in ["429 TooManyRequests", "503 ServiceUnavailable"] {
        check(&format!(
            "
            live v=9
            > state live
            error refused
            > watch failed: connection refused; retry in 800ms..1.6s
            > state backing off: connection refused
            wake
            > list limit=1 rv=9 match=NotOlderThan
            > state stale
            reject {status}
            > list failed: {status}; retry in 1.6s..3.2s
            > state backing off: {status}
            wake
            > list limit=1 rv=9 match=NotOlderThan
            > state stale
            "
        ));
    }
    check(
        "
        live v=9
        > state live
        ERROR 429 TooManyRequests
        > cancel
        > watch failed: 429 TooManyRequests; retry in 800ms..1.6s
        > state backing off: 429 TooManyRequests
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry now
        > watch rv=9
        reject 403 Forbidden
        > watch failed: 403 Forbidden; retry in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        ",
    );
}

// Lists can fail permanently where watches do not, for example because an object can no longer be converted.
#[test]
fn watch_resumes_without_a_probe_after_three_failed_probes() {
    check(
        "
        live v=9
        > state live
        error refused
        > watch failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 500 InternalError
        > list failed: 500 InternalError; retry in 1.6s..3.2s
        > state backing off: 500 InternalError
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 500 InternalError
        > list failed: 500 InternalError; retry in 3.2s..6.4s
        > state backing off: 500 InternalError
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        reject 500 InternalError
        > list failed: 500 InternalError; retry in 6.4s..12.8s
        > state backing off: 500 InternalError
        wake
        > watch rv=9
        > state stale
        200
        > state live
        ",
    );
}
