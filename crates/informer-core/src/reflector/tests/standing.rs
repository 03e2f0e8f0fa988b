//! Where a reflector stands (C7): its states, its deadlines, its beginning and its end.

use super::check;

#[test]
fn before_the_start_nothing_is_waited_for() {
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
fn stopping_gives_up_the_request_and_ends_everything() {
    for (begun, late) in [
        ("start\n> watch-list match=NotOlderThan rv=", "BOOKMARK @9 end"),
        ("with lists\nstart\n> list limit=500 rv=0", "list v=9"),
        (
            "start\n> watch-list match=NotOlderThan rv=\n200\nBOOKMARK @9 end\n> push replaced @9 []\n> state live",
            "end",
        ),
    ] {
        check(&format!(
            "
            {begun}
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
fn stopping_while_waiting_has_nothing_to_give_up() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        refuse 500
        > list failed: 500; again in 800ms..1.6s
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
fn a_set_that_arrives_is_counted() {
    check(
        r#"
        with lists
        start
        > list limit=500 rv=0
        200
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

// A cache that was complete once stays usable: it says since when it may be behind, not that it is being filled.
#[test]
fn a_relist_is_stale_and_not_listing() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5
        > state listing 1
        BOOKMARK @9 end
        > push replaced @9 [a/x@5]
        > state live
        after 12s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > watch-list match=NotOlderThan rv=9
        > state stale
        state
        > state stale since 12s
        after 3s
        200
        ADDED a/x@5
        after 2s
        ADDED a/y@6
        state
        > state stale since 12s
        BOOKMARK @12 end
        > push replaced @12 [a/x@5, a/y@6]
        > state live
        ",
    );
}

#[test]
fn a_new_watch_after_a_failure_is_stale_until_it_is_answered() {
    check(
        "
        live v=9
        > state live
        after 30s
        error broken
        > watch failed: connection reset; again now
        > watch rv=9
        > state stale
        after 5s
        state
        > state stale since 0ns
        200
        > state live
        after 1s
        error refused
        > watch failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        ",
    );
}

#[test]
fn a_timer_too_early_changes_nothing() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        tick
        200
        after 9s
        tick
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        tick
        after 20s
        tick
        deadline
        > deadline in the watch's timeout - 10s
        error refused
        > watch failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        tick
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        ",
    );
}
