//! Watch-lists: completion, rejection, stalls and failures.

use super::check;

#[test]
fn initial_list_is_requested_as_a_watch_list_that_becomes_the_watch() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
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
        count watch_lists lists watches full_lists
        > watch_lists 1 lists 0 watches 1 full_lists 1
        ",
    );
}

#[test]
fn empty_watch_list_ends_immediately() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        ",
    );
}

#[test]
fn frames_after_the_end_marker_in_the_same_chunk_are_changes() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5 + BOOKMARK @9 end + MODIFIED a/x@10 + DELETED a/x@11
        > push replaced @9 [a/x@5]
        > push updated a/x@10
        > push deleted a/x@11
        > state live
        ",
    );
}

#[test]
fn only_the_marker_with_a_version_ends_the_initial_events() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        BOOKMARK @7
        BOOKMARK @8 end=false
        # a marker without a version does not end the initial events
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
fn objects_are_updated_and_deleted_before_the_marker() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
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

// The versions of initial objects are unordered and independent of the position.
#[test]
fn initial_objects_do_not_advance_the_position() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
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
fn relist_requests_the_last_version_or_newer() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
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
fn unavailable_version_of_a_watch_list_is_replaced_by_the_most_recent_state() {
    for (status, message) in [("410 Expired", "410 Expired"), ("504 TooLarge", "504 Timeout")] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            200
            > state listing 0
            BOOKMARK @9 end
            > push replaced @9 []
            > state live
            after 10s
            ERROR 410 Expired
            > cancel
            > watch failed: 410 Expired; retry now
            > watch-list match=NotOlderThan rv=9
            > state stale
            reject {status}
            > watch-list failed: {message}; retry now
            > watch-list match=NotOlderThan rv=
            200
            BOOKMARK @12 end
            > push replaced @12 []
            > state live
            "
        ));
    }
}

// C11: the request had no version that could be dropped. After the second failure, lists are used instead.
#[test]
fn watch_list_of_the_most_recent_state_that_expires_twice_is_replaced_by_a_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        ERROR 410 Expired
        > cancel
        > watch-list failed: 410 Expired; retry in 800ms..1.6s
        > state backing off: 410 Expired
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        reject 504 TooLarge
        > watch-list disabled: 504 Timeout
        > watch-list failed: 504 Timeout; retry in 1.6s..3.2s
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
fn watch_list_that_always_expires_causes_no_hot_loop() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > watch-list match=NotOlderThan rv=9
        > state stale
        during 1m 4..13 watch-list: reject 410 Expired; list: reject 410 Expired
        > state backing off: 410 Expired
        ",
    );
}

// C11, P15: an old server may reject the unknown parameters with any 4xx except 410 and 429.
#[test]
fn rejected_watch_list_is_disabled_if_the_list_succeeds() {
    for status in ["400 BadRequest", "422 Invalid", "403 Forbidden", "405 MethodNotAllowed"] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            reject {status}
            > watch-list failed: {status}; retry now
            > list limit=500 rv=0
            list v=9 a/x@5
            > push replaced @9 [a/x@5]
            > watch-list disabled: {status}
            > watch rv=9
            > state stale
            200
            > state live
            after 10s
            ERROR 410 Expired
            > cancel
            > watch failed: 410 Expired; retry now
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
fn rejected_watch_list_is_not_disabled_if_the_list_fails_too() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        reject 422 Invalid
        > watch-list failed: 422 Invalid; retry now
        > list limit=500 rv=0
        reject 500
        > list failed: 500; retry in 800ms..1.6s
        > state backing off: 500
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        ",
    );
}

// C7: if both are forbidden, the permission is missing.
#[test]
fn forbidden_watch_list_and_list_are_forbidden() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        reject 403 Forbidden
        > watch-list failed: 403 Forbidden; retry now
        > list limit=500 rv=0
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        > state listing 0
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        ",
    );
}

// C7
#[test]
fn watch_list_and_list_that_are_not_found_are_not_served() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        reject 404 NotFound
        > watch-list failed: 404 NotFound; retry now
        > list limit=500 rv=0
        reject 404 NotFound
        > list failed: 404 NotFound; retry in 30s..60s
        > state not served: 404 NotFound
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        ",
    );
}

#[test]
fn second_watch_list_that_ends_before_the_marker_disables_watch_lists() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        end
        > watch-list failed: the stream ended before the initial events were complete; retry now
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
        > watch failed: 410 Expired; retry now
        > watch-list match=NotOlderThan rv=9
        > state stale
        200
        end
        > watch-list disabled: the stream ended before the initial events were complete
        > watch-list failed: the stream ended before the initial events were complete; retry now
        > list rv=9 match=NotOlderThan
        list v=12 a/x@5
        > push replaced @12 [a/x@5]
        > watch rv=12
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > list rv=12 match=NotOlderThan
        > state stale
        ",
    );
}

#[test]
fn completed_watch_list_resets_the_count_of_unfinished_ones() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        end
        > watch-list failed: the stream ended before the initial events were complete; retry now
        > list limit=500 rv=0
        > state connecting
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > watch-list match=NotOlderThan rv=9
        > state stale
        200
        BOOKMARK @12 end
        > push replaced @12 []
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > watch-list match=NotOlderThan rv=12
        > state stale
        200
        end
        > watch-list failed: the stream ended before the initial events were complete; retry now
        > list rv=12 match=NotOlderThan
        list v=14
        > push replaced @14 []
        > watch rv=14
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > watch-list match=NotOlderThan rv=14
        > state stale
        ",
    );
}

#[test]
fn failed_watch_list_is_replaced_by_a_list_and_not_disabled() {
    for (response, message) in [
        ("error reset", "connection reset"),
        ("reject 500 InternalError", "500 InternalError"),
        ("reject 401 Unauthorized", "401 Unauthorized"),
    ] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            {response}
            > watch-list failed: {message}; retry now
            > list limit=500 rv=0
            reject 500
            > list failed: 500; retry in 800ms..1.6s
            > state backing off: 500
            wake
            > watch-list match=NotOlderThan rv=
            > state connecting
            "
        ));
    }
}

// C11: the backoff applies to the list as well.
#[test]
fn throttled_watch_list_backs_off_without_a_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        429 retry-after=7
        end
        > watch-list failed: 429; retry in 7s
        > state backing off: 429
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        > state listing 0
        ERROR 429 TooManyRequests retry-after=11
        > cancel
        > watch-list failed: 429 TooManyRequests; retry in 11s
        > state backing off: 429 TooManyRequests
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        503 retry-after=13
        end
        > watch-list failed: 503; retry in 13s
        > state backing off: 503
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        reject 429
        > watch-list failed: 429; retry in 6.4s..12.8s
        > state backing off: 429
        ",
    );
}

#[test]
fn unreachable_server_receives_no_list_instead_of_the_watch_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        error refused
        > watch-list failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        error refused
        > watch-list failed: connection refused; retry in 1.6s..3.2s
        > state backing off: connection refused
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        > state listing 0
        BOOKMARK @9 end
        > push replaced @9 []
        > state live
        ",
    );
}

#[test]
fn error_frames_of_a_watch_list_are_classified_by_their_codes() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        ERROR 504 Timeout
        > cancel
        > watch-list failed: 504 Timeout; retry now
        > list limit=500 rv=0
        > state connecting
        reject 500
        > list failed: 500; retry in 800ms..1.6s
        > state backing off: 500
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        > state listing 0
        ERROR 500 InternalError
        > cancel
        > watch-list failed: 500 InternalError; retry now
        > list limit=500 rv=0
        > state connecting
        reject 500
        > list failed: 500; retry in 1.6s..3.2s
        > state backing off: 500
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        200
        > state listing 0
        ERROR 403 Forbidden
        > cancel
        > watch-list failed: 403 Forbidden; retry now
        > list limit=500 rv=0
        > state connecting
        reject 500
        > list failed: 500; retry in 3.2s..6.4s
        > state backing off: 500
        ",
    );
}

// C1
#[test]
fn watch_list_older_than_requested_is_requested_again_at_the_most_recent_state() {
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
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > watch-list match=NotOlderThan rv=9
        > state stale
        200
        ADDED a/x@5
        BOOKMARK @7 end + MODIFIED a/x@8
        > cancel
        > watch-list failed: the watch-list is older than requested: 7; retry now
        > watch-list match=NotOlderThan rv=
        200
        ADDED a/x@5
        BOOKMARK @7 end
        > push replaced @7 [a/x@5]
        > rewound from 9 to 7
        > state live
        MODIFIED a/x@8
        > push updated a/x@8
        count rewinds
        > rewinds 1
        ",
    );
}

// An error response whose body does not arrive is not a stalled watch-list.
#[test]
fn error_response_without_a_body_does_not_disable_watch_lists() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        429 retry-after=20
        after 10s
        > cancel
        > watch-list failed: 429; retry in 20s
        > state backing off: 429
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        410
        error reset
        > watch-list failed: 410; retry in 1.6s..3.2s
        > state backing off: 410
        ",
    );
}

#[test]
fn watch_list_that_ends_before_its_headers_is_replaced_by_a_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        end
        > watch-list failed: the response ended before its headers; retry now
        > list limit=500 rv=0
        end
        > list failed: the response ended before its headers; retry in 800ms..1.6s
        > state backing off: the response ended before its headers
        wake
        > watch-list match=NotOlderThan rv=
        > state connecting
        ",
    );
}
