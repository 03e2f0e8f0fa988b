//! Servers that were out of reach: whether they come back as they were.

use super::check;

// One small list says whether it is still the server that it was.
#[test]
fn a_server_out_of_reach_costs_the_position_nothing() {
    check(
        "
        live v=9
        > state live
        after 10s
        error broken
        > watch failed: connection reset; again now
        > watch rv=9
        > state stale
        error refused
        > watch failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        error refused
        > list failed: connection refused; again in 1.6s..3.2s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=12 continue=t remaining=3 a/x@5
        > watch rv=9
        200
        > state live
        count replaces
        > replaces 1
        ",
    );
}

// Seen on a real server: etcd was restored while the API server was away. The watch from the old position was accepted and silent, and went
// on so until versions had grown past it again; everything between was lost. No test had a server that was away and restored at once.
#[test]
fn c1_a_server_that_was_away_and_comes_back_older_is_found_out() {
    for (error, broke) in [("refused", "connection refused"), ("broken", "connection reset")] {
        for (answer, because) in
            [("refuse 504 TooLarge", "504 Timeout"), ("list v=4", "the list is older than requested: 4")]
        {
            check(&format!(
                "
                live v=9
                > state live
                error {error}
                > watch failed: {broke}; again in 800ms..1.6s
                > state backing off: {broke}
                wake
                > list limit=1 rv=9 match=NotOlderThan
                > state stale
                {answer}
                > list failed: {because}; again in 1.6s..3.2s
                > state backing off: {because}
                wake
                > list limit=1 rv=9 match=NotOlderThan
                > state stale
                {answer}
                > list failed: {because}; again now
                > list limit=500
                list v=4
                > rewound from 9 to 4
                > push replaced @4 []
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

// A watch-list needs no right to list.
#[test]
fn who_may_not_list_watches_from_the_position() {
    check(
        "
        live v=9
        > state live
        after 10s
        error refused
        > watch failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 403 Forbidden
        > list failed: 403 Forbidden; again now
        > watch rv=9
        200
        > state live
        ",
    );
}

// One of several servers may be some seconds behind the one that we had. That is no reason to list everything.
#[test]
fn a_server_that_lags_behind_is_given_time() {
    check(
        "
        live v=9
        > state live
        error refused
        > watch failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 504 TooLarge
        > list failed: 504 Timeout; again in 1.6s..3.2s
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

// Found in review: what had been said before a question that was never answered counted for the next outage, however long ago it was, and one
// lag was then enough to list everything.
#[test]
fn a_lag_of_long_ago_does_not_count() {
    check(
        "
        live v=9
        > state live
        error refused
        > watch failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 504 TooLarge
        > list failed: 504 Timeout; again in 1.6s..3.2s
        > state backing off: 504 Timeout
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 403 Forbidden
        > list failed: 403 Forbidden; again now
        > watch rv=9
        200
        > state live
        after 10s
        ERROR 429 TooManyRequests
        > cancel
        > watch failed: 429 TooManyRequests; again in 800ms..1.6s
        > state backing off: 429 TooManyRequests
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 504 TooLarge
        > list failed: 504 Timeout; again in 1.6s..3.2s
        > state backing off: 504 Timeout
        ",
    );
}

// Found in review: a server that begins may answer 429 to everything, or 403 while it does not know the roles yet, and one that ends gracefully
// 429. The watch after that was opened without having asked, so that a restore went unnoticed after all.
#[test]
fn c1_a_refusal_meanwhile_does_not_replace_the_question() {
    for refusal in ["429 TooManyRequests", "503 ServiceUnavailable"] {
        check(&format!(
            "
            live v=9
            > state live
            error refused
            > watch failed: connection refused; again in 800ms..1.6s
            > state backing off: connection refused
            wake
            > list limit=1 rv=9 match=NotOlderThan
            > state stale
            refuse {refusal}
            > list failed: {refusal}; again in 1.6s..3.2s
            > state backing off: {refusal}
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
        > watch failed: 429 TooManyRequests; again in 800ms..1.6s
        > state backing off: 429 TooManyRequests
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 403 Forbidden
        > list failed: 403 Forbidden; again now
        > watch rv=9
        refuse 403 Forbidden
        > watch failed: 403 Forbidden; again in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        ",
    );
}

// Lists can fail for good where watches do not: an object that cannot be converted any more.
#[test]
fn where_lists_fail_for_good_the_watch_goes_on() {
    check(
        "
        live v=9
        > state live
        error refused
        > watch failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 500 InternalError
        > list failed: 500 InternalError; again in 1.6s..3.2s
        > state backing off: 500 InternalError
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 500 InternalError
        > list failed: 500 InternalError; again in 3.2s..6.4s
        > state backing off: 500 InternalError
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        refuse 500 InternalError
        > list failed: 500 InternalError; again in 6.4s..12.8s
        > state backing off: 500 InternalError
        wake
        > watch rv=9
        > state stale
        200
        > state live
        ",
    );
}
