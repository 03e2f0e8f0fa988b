//! States of the reflector (C7), its deadlines, start and stop.

use super::check;

#[test]
fn reflector_has_no_deadline_before_its_start() {
    check(
        "
        deadline
        > deadline none
        > state not started (call start)
        tick
        start
        > watch-list match=NotOlderThan rv=
        > state connecting
        start
        ",
    );
}

#[test]
fn stop_cancels_the_request_and_ignores_later_input() {
    for (started, late) in [
        ("start\n> watch-list match=NotOlderThan rv=", "BOOKMARK @9 end"),
        ("with watch-list never\nstart\n> list limit=500 rv=0", "list v=9"),
        (
            "start\n> watch-list match=NotOlderThan rv=\n200\n> state listing 0\nBOOKMARK @9 end\n> push replaced @9 []\n> state live",
            "end",
        ),
    ] {
        check(&format!(
            "
            {started}
            stop
            > cancel
            > state stopped
            deadline
            > deadline none
            old {late}
            tick
            start
            stop
            "
        ));
    }
}

#[test]
fn stop_during_a_backoff_cancels_no_request() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        reject 500
        > list failed: 500; retry in 800ms..1.6s
        > state backing off: 500
        stop
        > state stopped
        deadline
        > deadline none
        tick
        ",
    );
}

#[test]
fn received_objects_are_counted_in_the_listing_state() {
    check(
        r#"
        with watch-list never
        start
        > list limit=500 rv=0
        200
        > state listing 0
        bytes {"kind":"PodList","metadata":{"resourceVersion":"9","continue":"t","remainingItemCount":2},"items":[
        bytes {"metadata":{"name":"x","resourceVersion":"5"}},
        > state listing 1
        bytes {"metadata":{"name":"y","resourceVersion":"5"}}]}
        > state listing 2
        end
        > list limit=500 continue=t
        > state listing 2/4
        200
        page v=9 z@6 w@7
        > state listing 4/4
        end
        > push replaced @9 [x@5, y@5, z@6, w@7]
        > watch rv=9
        > state stale
        200
        > state live
        "#,
    );
}

// A synced cache stays usable during a relist: the state reports since when the cache may be out of date, not
// the progress of the relist.
#[test]
fn relist_has_the_state_stale_instead_of_listing() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        BOOKMARK @9 end
        > push replaced @9 [a/x@5]
        > state live
        after 12s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > watch-list match=NotOlderThan rv=9
        > state stale
        state
        > state stale since 0ns
        after 3s
        200
        ADDED a/x@5
        after 2s
        ADDED a/y@6
        state
        > state stale since 0ns
        BOOKMARK @12 end
        > push replaced @12 [a/x@5, a/y@6]
        > state live
        ",
    );
}

#[test]
fn new_watch_after_a_failure_is_stale_until_its_headers_arrive() {
    check(
        "
        live v=9
        > state live
        after 30s
        error reset
        > watch failed: connection reset; retry now
        > watch rv=9
        > state stale
        after 5s
        state
        > state stale since 0ns
        200
        > state live
        after 1s
        error refused
        > watch failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        ",
    );
}

#[test]
fn early_timeout_call_has_no_effect() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        tick
        200
        > state listing 0
        after 9s
        tick
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        tick
        after 20s
        tick
        deadline
        > deadline in 55s
        error refused
        > watch failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        tick
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        ",
    );
}
