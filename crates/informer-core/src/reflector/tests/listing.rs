//! Lists: requested versions, pages and their tokens, failures.

use super::check;

#[test]
fn initial_list_requests_any_version_and_is_followed_by_a_watch() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9 a/x@5 a/y@7
        > push replaced @9 [a/x@5, a/y@7]
        > watch rv=9
        > state stale
        200
        > state live
        ",
    );
}

// C1, C11: the version is dropped once, without a delay. The second failure backs off, and the version stays
// dropped.
#[test]
fn expired_version_of_a_list_is_replaced_by_the_most_recent_state() {
    for reason in ["410 Expired", "410 Gone"] {
        check(&format!(
            "
            live v=9 a/x@5
            > state live
            after 10s
            ERROR {reason}
            > cancel
            > watch failed: {reason}; retry now
            > list rv=9 match=NotOlderThan
            > state stale
            reject {reason}
            > list failed: {reason}; retry now
            > list limit=500
            reject {reason}
            > list failed: {reason}; retry in 800ms..1.6s
            > state backing off: {reason}
            wake
            > list limit=500
            > state stale
            list v=12 a/x@5
            > push replaced @12 [a/x@5]
            > watch rv=12
            200
            > state live
            after 10s
            ERROR {reason}
            > cancel
            > watch failed: {reason}; retry now
            > list rv=12 match=NotOlderThan
            > state stale
            count expired lists
            > expired 4 lists 5
            "
        ));
    }
}

// C1: a server restored from a backup has not reached our version.
#[test]
fn too_large_version_of_a_list_is_replaced_by_the_most_recent_state() {
    check(
        "
        live v=9 a/x@5
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        > state stale
        reject 504 TooLarge
        > list failed: 504 Timeout; retry now
        > list limit=500
        reject 504 TooLarge
        > list failed: 504 Timeout; retry in 800ms..1.6s
        > state backing off: 504 Timeout
        wake
        > list limit=500
        > state stale
        list v=4 a/x@3
        > push replaced @4 [a/x@3]
        > rewound from 9 to 4
        > watch rv=4
        count rewinds full_lists
        > rewinds 1 full_lists 2
        ",
    );
}

#[test]
fn rejected_list_of_any_version_is_replaced_by_the_most_recent_state() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        reject 410 Expired
        > list failed: 410 Expired; retry now
        > list limit=500
        list v=3
        > push replaced @3 []
        > watch rv=3
        > state stale
        ",
    );
}

// C1: only a consistent list may be older than the cache.
#[test]
fn list_older_than_requested_is_requested_again_at_the_most_recent_state() {
    check(
        "
        live v=9 a/x@5
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        > state stale
        list v=7 a/x@5
        > list failed: the list is older than requested: 7; retry now
        > list limit=500
        list v=7 a/x@5
        > push replaced @7 [a/x@5]
        > rewound from 9 to 7
        > watch rv=7
        count rewinds
        > rewinds 1
        ",
    );
}

// C1: versions that cannot be compared never cause a list to be dropped.
#[test]
fn opaque_versions_are_never_a_rewind() {
    check(
        "
        live v=zz a/x@yy
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > list rv=zz match=NotOlderThan
        > state stale
        list v=aa a/x@bb
        > push replaced @aa [a/x@bb]
        > watch rv=aa
        count rewinds
        > rewinds 0
        ",
    );
}

#[test]
fn duplicate_items_of_a_list_are_passed_on_in_order() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9 a/x@5 a/y@6 a/x@7
        > push replaced @9 [a/x@5, a/y@6, a/x@7]
        > watch rv=9
        > state stale
        ",
    );
}

// P6, C11: the backoff grows with each failed list, and only a healthy watch resets it.
#[test]
fn backoff_grows_with_failing_lists_and_only_a_healthy_watch_resets_it() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        reject 500
        > list failed: 500; retry in 800ms..1.6s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        reject 500
        > list failed: 500; retry in 1.6s..3.2s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        reject 500
        > list failed: 500; retry in 3.2s..6.4s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        error refused
        > list failed: connection refused; retry in 6.4s..12.8s
        > state backing off: connection refused
        wake
        > list limit=500 rv=0
        > state connecting
        error reset
        > list failed: connection reset; retry in 12.8s..25.6s
        > state backing off: connection reset
        wake
        > list limit=500 rv=0
        > state connecting
        reject 500
        > list failed: 500; retry in 25.6s..60s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        # a successful list does not reset the backoff
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        200
        > state live
        after 9s
        end
        > watch failed: the watch ended early; retry in 9s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        after 10s
        # a healthy watch does
        error refused
        > watch failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        count failures lists watches
        > failures 8 lists 8 watches 2
        ",
    );
}

// P6: another client sent 21 requests in 25 s of failing lists.
#[test]
fn failing_lists_are_requested_rarely() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        during 25s 4..7 list: reject 500
        > state backing off: 500
        during 10m 9..26 list: reject 500
        ",
    );
}

// C11
#[test]
fn list_honours_retry_after() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        429 retry-after=7
        end
        > list failed: 429; retry in 7s
        > state backing off: 429
        wake
        > list limit=500 rv=0
        > state connecting
        reject 429 TooManyRequests retry-after=20
        > list failed: 429 TooManyRequests; retry in 20s
        > state backing off: 429 TooManyRequests
        wake
        > list limit=500 rv=0
        > state connecting
        503 retry-after=9
        end
        > list failed: 503; retry in 9s
        > state backing off: 503
        wake
        > list limit=500 rv=0
        > state connecting
        # a small Retry-After does not shorten the backoff
        429 retry-after=1
        end
        > list failed: 429; retry in 6.4s..12.8s
        > state backing off: 429
        wake
        > list limit=500 rv=0
        > state connecting
        # a large one is limited to ten minutes
        429 retry-after=86400
        end
        > list failed: 429; retry in 600s
        > state backing off: 429
        ",
    );
}

// C7
#[test]
fn forbidden_list_is_reported_and_retried_slowly() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > list limit=500 rv=0
        > state connecting
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > list limit=500 rv=0
        > state connecting
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        during 10m 21..84 list: reject 403; watch: reject 403
        > state forbidden: 403
        ",
    );
}

// C7: any 404 is NotServed, whatever its body.
#[test]
fn list_that_is_not_served_is_reported_and_retried_slowly() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        reject 404 NotFound
        > list failed: 404 NotFound; retry in 30s..60s
        > state not served: 404 NotFound
        wake
        > list limit=500 rv=0
        > state connecting
        404 type=text/plain
        bytes 404 page not found
        end
        > list failed: 404; retry in 30s..60s
        > state not served: 404
        wake
        > list limit=500 rv=0
        > state connecting
        404
        error reset
        > list failed: 404; retry in 30s..60s
        > state not served: 404
        wake
        > list limit=500 rv=0
        > state connecting
        reject 405 MethodNotAllowed
        > list failed: 405 MethodNotAllowed; retry in 30s..60s
        > state not served: 405 MethodNotAllowed
        ",
    );
}

// The headers of an error response are sufficient; the wait for its body is limited.
#[test]
fn error_response_without_a_body_is_classified_by_its_headers() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        404
        deadline
        > deadline in 10s
        after 9s
        bytes {
        after 1s
        > cancel
        > list failed: 404; retry in 30s..60s
        > state not served: 404
        wake
        > list limit=500 rv=0
        > state connecting
        403
        error reset
        > list failed: 403; retry in 30s..60s
        > state forbidden: 403
        ",
    );
}

#[test]
fn error_body_is_read_up_to_its_limit() {
    let page = "x".repeat(70_000);
    check(&format!(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        500
        bytes {page}
        > cancel
        > list failed: 500; retry in 800ms..1.6s
        > state backing off: 500
        old bytes more
        old end
        count stray_responses
        > stray_responses 2
        "
    ));
}

#[test]
fn list_without_progress_times_out() {
    // Regression: a list whose body arrived at one byte per second was never abandoned.

    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        deadline
        > deadline in 120s
        after 1m
        200
        > state listing 0
        deadline
        > deadline in 60s
        after 50s
        bytes {
        deadline
        > deadline in 10s
        after 9s
        tick
        after 1s
        > cancel
        > list failed: too little received within 60s: 1 bytes of this page, 0 objects; retry in 800ms..1.6s
        > state backing off: too little received within 60s: 1 bytes of this page, 0 objects
        old bytes }
        count stray_responses
        > stray_responses 1
        ",
    );
}

#[test]
fn rejected_version_is_dropped_after_a_backoff() {
    // Regression: after a kind had moved to another server, our version was rejected with 400 forever,
    // because a list without a version was never requested.
    check(
        "
        with watch-list never
        live v=abc
        > state live
        after 20s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > list rv=abc match=NotOlderThan
        > state stale
        400
        end
        > list failed: 400; retry in 800ms..1.6s
        > state backing off: 400
        wake
        > list limit=500
        > state stale
        ",
    );
}

#[test]
fn request_without_response_headers_times_out() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        after 2m
        > cancel
        > list failed: no response headers within 120s; retry in 800ms..1.6s
        > state backing off: no response headers within 120s
        ",
    );
}
