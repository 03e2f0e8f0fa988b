//! Watch-lists: how they end, and what happens when they do not.

use super::check;

#[test]
fn the_first_set_is_asked_for_as_a_stream_that_becomes_the_watch() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/y@7
        > state listing 1
        ADDED a/x@5
        > state listing 2
        BOOKMARK @9 end
        > push replaced @9 [a/x@5, a/y@7]
        > state live
        MODIFIED a/x@10
        > push updated a/x@10
        after 10s
        end
        > watch rv=10
        200
        count watch_lists lists watches replaces
        > watch_lists 1 lists 0 watches 1 replaces 1
        ",
    );
}

#[test]
fn an_empty_set_ends_at_once() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        ",
    );
}

#[test]
fn changes_behind_the_end_marker_in_the_same_chunk_are_changes() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5 + BOOKMARK @9 end + MODIFIED a/x@10 + DELETED a/x@11
        > push replaced @9 [a/x@5]
        > push updated a/x@10
        > push deleted a/x@11
        > state live
        ",
    );
}

#[test]
fn only_the_marker_ends_the_initial_events() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5
        > state listing 1
        BOOKMARK @7
        BOOKMARK @8 end=false
        # nor does a marker that does not say where
        BOOKMARK - end
        ADDED a/y@3
        > state listing 2
        BOOKMARK @9 end
        > push replaced @9 [a/x@5, a/y@3]
        > state live
        ",
    );
}

#[test]
fn objects_change_and_go_away_before_the_marker() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5
        > state listing 1
        ADDED a/y@6
        > state listing 2
        MODIFIED a/x@7
        DELETED a/y@8
        > state listing 1
        DELETED a/z@8
        MODIFIED a/w@8
        > state listing 2
        BOOKMARK @9 end
        > push replaced @9 [a/w@8, a/x@7]
        > state live
        ",
    );
}

// The versions of initial objects are in no order and say nothing about the position.
#[test]
fn initial_objects_do_not_move_the_position() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@50
        > state listing 1
        BOOKMARK @9 end
        > push replaced @9 [a/x@50]
        > state live
        after 10s
        end
        > watch rv=9
        ",
    );
}

#[test]
fn a_relist_asks_for_no_less_than_the_last_version() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > watch-list match=NotOlderThan rv=9
        > state stale
        200
        ADDED a/x@11
        BOOKMARK @12 end
        > push replaced @12 [a/x@11]
        > state live
        ",
    );
}

// C1, C11
#[test]
fn a_version_the_server_cannot_stream_is_dropped_for_the_newest_state() {
    for (answer, said) in [("410 Expired", "410 Expired"), ("504 TooLarge", "504 Timeout")] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            200
            BOOKMARK @9 end
            > push replaced @9 []
            > state live
            after 10s
            ERROR 410 Expired
            > cancel
            > watch failed: 410 Expired; again now
            > watch-list match=NotOlderThan rv=9
            > state stale
            refuse {answer}
            > watch-list failed: {said}; again now
            > watch-list match=NotOlderThan rv=
            200
            BOOKMARK @12 end
            > push replaced @12 []
            > state live
            "
        ));
    }
}

// C11: nothing was asked for that could be dropped. If that happens again, watch-lists are at fault, and the list is not.
#[test]
fn a_watch_list_of_the_newest_state_that_expires_twice_gives_way_to_the_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5
        > state listing 1
        ERROR 410 Expired
        > cancel
        > watch-list failed: 410 Expired; again in 800ms..1.6s
        > state backing off: 410 Expired
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        refuse 504 TooLarge
        > no more watch-lists: 504 Timeout
        > watch-list failed: 504 Timeout; again in 1.6s..3.2s
        > state backing off: 504 Timeout
        wake
        > list limit=500
        > state connecting
        list v=9 a/x@5
        > push replaced @9 [a/x@5]
        > watch rv=9
        > state stale
        ",
    );
}

// C11
#[test]
fn a_watch_list_that_always_expires_is_no_hot_loop() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > watch-list match=NotOlderThan rv=9
        > state stale
        during 1m 4..13 watch-list: refuse 410 Expired; list: refuse 410 Expired
        > state backing off: 410 Expired
        ",
    );
}

// C11, P15: any 4xx but 410 and 429 may be how an old server says that it does not know the parameters.
#[test]
fn a_refused_watch_list_gives_way_to_the_list_and_is_remembered_if_that_works() {
    for refusal in ["400 BadRequest", "422 Invalid", "403 Forbidden", "405 MethodNotAllowed"] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            refuse {refusal}
            > watch-list failed: {refusal}; again now
            > list limit=500 rv=0
            list v=9 a/x@5
            > no more watch-lists: {refusal}
            > push replaced @9 [a/x@5]
            > watch rv=9
            > state stale
            200
            > state live
            after 10s
            ERROR 410 Expired
            > cancel
            > watch failed: 410 Expired; again now
            > list rv=9 match=NotOlderThan
            > state stale
            list v=12 a/x@5
            > push replaced @12 [a/x@5]
            > watch rv=12
            count watch_lists
            > watch_lists 1
            "
        ));
    }
}

#[test]
fn a_refused_watch_list_is_not_remembered_if_the_list_fails_too() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        refuse 422 Invalid
        > watch-list failed: 422 Invalid; again now
        > list limit=500 rv=0
        refuse 500
        > list failed: 500; again in 800ms..1.6s
        > state backing off: 500
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        ",
    );
}

// C7: if both are forbidden, it is a matter of permissions.
#[test]
fn forbidden_twice_is_forbidden() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        refuse 403 Forbidden
        > watch-list failed: 403 Forbidden; again now
        > list limit=500 rv=0
        refuse 403 Forbidden
        > list failed: 403 Forbidden; again in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        ",
    );
}

// C7
#[test]
fn not_found_twice_is_not_served() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        refuse 404 NotFound
        > watch-list failed: 404 NotFound; again now
        > list limit=500 rv=0
        refuse 404 NotFound
        > list failed: 404 NotFound; again in 30s..60s
        > state not served: 404 NotFound
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        ",
    );
}

// C11: the trap of this form.
#[test]
fn initial_events_that_never_end_give_way_to_the_list_and_are_remembered() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        deadline
        > deadline in 120s
        200
        deadline
        > deadline in 10s
        ADDED a/x@5
        > state listing 1
        after 10s
        after 10s
        > cancel
        > no more watch-lists: the initial events did not complete
        > watch-list failed: the initial events did not complete; again now
        > list limit=500 rv=0
        > state connecting
        old BOOKMARK @9 end
        list v=9 a/x@5
        > push replaced @9 [a/x@5]
        > watch rv=9
        > state stale
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > list rv=9 match=NotOlderThan
        > state stale
        count late watch_lists
        > late 1 watch_lists 1
        ",
    );
}

#[test]
fn a_stream_that_says_nothing_at_all_stalls_too() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        after 10s
        > cancel
        > no more watch-lists: the initial events did not complete
        > watch-list failed: the initial events did not complete; again now
        > list limit=500 rv=0
        ",
    );
}

// Live changes of a busy cluster are no progress: they come for ever.
#[test]
fn changes_to_known_objects_are_no_progress() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5 + ADDED a/y@5
        > state listing 2
        after 10s
        MODIFIED a/x@6
        after 4s
        MODIFIED a/y@7 + DELETED a/x@8
        > state listing 1
        after 4s
        ADDED a/x@9
        > state listing 2
        after 2s
        > cancel
        > no more watch-lists: the initial events did not complete
        > watch-list failed: the initial events did not complete; again now
        > list limit=500 rv=0
        > state connecting
        ",
    );
}

#[test]
fn a_large_set_that_grows_by_less_than_one_in_a_hundred_stalls() {
    let many: Vec<_> = (0..300).map(|n| format!("ADDED a/x{n}@5")).collect();
    let many = many.join(" + ");
    check(&format!(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        {many}
        > state listing 300
        after 10s
        ADDED b/w@6 + ADDED b/x@6 + ADDED b/y@6 + ADDED b/z@6
        > state listing 304
        after 10s
        ADDED c/x@6 + ADDED c/y@6 + ADDED c/z@6
        > state listing 307
        after 10s
        > cancel
        > no more watch-lists: the initial events did not complete
        > watch-list failed: the initial events did not complete; again now
        > list limit=500 rv=0
        > state connecting
        "
    ));
}

#[test]
fn slow_progress_is_progress() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        after 9s
        ADDED a/x1@5
        > state listing 1
        after 9s
        ADDED a/x2@5
        > state listing 2
        after 9s
        ADDED a/x3@5
        > state listing 3
        after 9s
        ADDED a/x4@5
        > state listing 4
        after 9s
        BOOKMARK @9 end
        > push replaced @9 [a/x1@5, a/x2@5, a/x3@5, a/x4@5]
        > state live
        ",
    );
}

#[test]
fn a_stream_that_ends_before_the_marker_is_remembered_the_second_time() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5
        > state listing 1
        end
        > watch-list failed: the stream ended before the initial events were complete; again now
        > list limit=500 rv=0
        > state connecting
        list v=9 a/x@5
        > push replaced @9 [a/x@5]
        > watch rv=9
        > state stale
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > watch-list match=NotOlderThan rv=9
        > state stale
        200
        end
        > no more watch-lists: the stream ended before the initial events were complete
        > watch-list failed: the stream ended before the initial events were complete; again now
        > list rv=9 match=NotOlderThan
        list v=12 a/x@5
        > push replaced @12 [a/x@5]
        > watch rv=12
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > list rv=12 match=NotOlderThan
        > state stale
        ",
    );
}

#[test]
fn a_watch_list_that_works_makes_up_for_one_that_did_not() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        end
        > watch-list failed: the stream ended before the initial events were complete; again now
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > watch-list match=NotOlderThan rv=9
        > state stale
        200
        BOOKMARK @12 end
        > push replaced @12 []
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > watch-list match=NotOlderThan rv=12
        > state stale
        200
        end
        > watch-list failed: the stream ended before the initial events were complete; again now
        > list rv=12 match=NotOlderThan
        list v=14
        > push replaced @14 []
        > watch rv=14
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > watch-list match=NotOlderThan rv=14
        > state stale
        ",
    );
}

#[test]
fn a_broken_watch_list_gives_way_to_the_list_and_is_not_remembered() {
    for (answer, said) in [
        ("error broken", "connection reset"),
        ("refuse 500 InternalError", "500 InternalError"),
        ("refuse 401 Unauthorized", "401 Unauthorized"),
    ] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            {answer}
            > watch-list failed: {said}; again now
            > list limit=500 rv=0
            refuse 500
            > list failed: 500; again in 800ms..1.6s
            > state backing off: 500
            wake
            > watch-list match=NotOlderThan rv=
            > state connecting
            "
        ));
    }
}

// C11: one place to wait, and the list is spared too.
#[test]
fn a_throttled_watch_list_waits() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        429 retry-after=7
        end
        > watch-list failed: 429; again in 7s
        > state backing off: 429
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        ERROR 429 TooManyRequests retry-after=11
        > cancel
        > watch-list failed: 429 TooManyRequests; again in 11s
        > state backing off: 429 TooManyRequests
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        503 retry-after=13
        end
        > watch-list failed: 503; again in 13s
        > state backing off: 503
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        refuse 429
        > watch-list failed: 429; again in 6.4s..12.8s
        > state backing off: 429
        ",
    );
}

#[test]
fn a_server_out_of_reach_is_not_asked_for_a_list_instead() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        error refused
        > watch-list failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        error refused
        > watch-list failed: connection refused; again in 1.6s..3.2s
        > state backing off: connection refused
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        ",
    );
}

#[test]
fn error_frames_inside_mean_what_their_codes_mean() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5
        > state listing 1
        ERROR 504 Timeout
        > cancel
        > watch-list failed: 504 Timeout; again now
        > list limit=500 rv=0
        > state connecting
        refuse 500
        > list failed: 500; again in 800ms..1.6s
        > state backing off: 500
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        ERROR 500 InternalError
        > cancel
        > watch-list failed: 500 InternalError; again now
        > list limit=500 rv=0
        refuse 500
        > list failed: 500; again in 1.6s..3.2s
        > state backing off: 500
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        ERROR 403 Forbidden
        > cancel
        > watch-list failed: 403 Forbidden; again now
        > list limit=500 rv=0
        refuse 500
        > list failed: 500; again in 3.2s..6.4s
        > state backing off: 500
        ",
    );
}

// C1
#[test]
fn a_watch_list_older_than_asked_for_is_not_believed_but_asked_for_again() {
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
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > watch-list match=NotOlderThan rv=9
        > state stale
        200
        ADDED a/x@5
        BOOKMARK @7 end + MODIFIED a/x@8
        > cancel
        > watch-list failed: the watch-list is older than requested: 7; again now
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5
        BOOKMARK @7 end
        > rewound from 9 to 7
        > push replaced @7 [a/x@5]
        > state live
        MODIFIED a/x@8
        > push updated a/x@8
        count rewinds
        > rewinds 1
        ",
    );
}

// A refusal whose body does not come says nothing about initial events.
#[test]
fn a_refusal_without_its_body_is_no_stall() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        429 retry-after=20
        after 10s
        > cancel
        > watch-list failed: 429; again in 20s
        > state backing off: 429
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        410
        error broken
        > watch-list failed: 410; again in 1.6s..3.2s
        > state backing off: 410
        ",
    );
}

#[test]
fn an_answer_that_ends_before_it_began_gives_way_to_the_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        end
        > watch-list failed: the response ended before its headers; again now
        > list limit=500 rv=0
        end
        > list failed: the response ended before its headers; again in 800ms..1.6s
        > state backing off: the response ended before its headers
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        ",
    );
}
