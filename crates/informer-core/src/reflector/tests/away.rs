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
            [("refuse 504 TooLarge", "504 Timeout"), ("list v=4", "the list is older than asked for: 4")]
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
