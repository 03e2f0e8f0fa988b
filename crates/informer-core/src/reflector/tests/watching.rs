//! Watching: changes, the position, ends and failures of streams.

use super::check;

#[test]
fn changes_are_passed_on_and_the_next_watch_starts_after_them() {
    check(
        "
        live v=9 a/x@5
        > state live
        ADDED a/y@10
        > push added a/y@10
        MODIFIED a/x@11
        > push updated a/x@11
        DELETED a/y@12
        > push deleted a/y@12
        after 10s
        end
        > watch rv=12
        200
        BOOKMARK @20
        > push bookmark @20
        after 10s
        end
        > watch rv=20
        count frames bookmarks watches
        > frames 4 bookmarks 1 watches 3
        ",
    );
}

// C1
#[test]
fn comparable_version_never_lowers_the_position() {
    check(
        "
        live v=9
        > state live
        ADDED a/x@12
        > push added a/x@12
        ADDED a/y@10
        > push added a/y@10
        BOOKMARK @11
        > push bookmark @11
        after 10s
        end
        > watch rv=12
        ",
    );
}

#[test]
fn opaque_versions_advance_the_position_in_the_order_received() {
    check(
        "
        live v=zz
        > state live
        ADDED a/x@yy
        > push added a/x@yy
        BOOKMARK @aa
        > push bookmark @aa
        after 10s
        end
        > watch rv=aa
        ",
    );
}

#[test]
fn bookmark_without_a_version_does_not_advance_the_position() {
    check(
        "
        live v=9
        > state live
        BOOKMARK -
        after 10s
        end
        > watch rv=9
        count bookmarks
        > bookmarks 1
        ",
    );
}

// C11, P16. The 410 arrives as an ERROR frame or as a response status.
#[test]
fn first_410_after_a_healthy_watch_relists_immediately_and_the_second_backs_off() {
    check(
        "
        live v=9
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        > state stale
        list v=12
        > push replaced @12 []
        > watch rv=12
        200
        > state live
        after 9s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry in 800ms..1.6s
        > state backing off: 410 Expired
        wake
        > list rv=12 match=NotOlderThan
        > state stale
        list v=14
        > push replaced @14 []
        > watch rv=14
        reject 410 Gone
        > watch failed: 410 Gone; retry in 1.6s..3.2s
        > state backing off: 410 Gone
        wake
        > list rv=14 match=NotOlderThan
        > state stale
        list v=16
        > push replaced @16 []
        > watch rv=16
        200
        > state live
        after 10s
        end
        > watch rv=16
        reject 410 Expired
        > watch failed: 410 Expired; retry now
        > list rv=16 match=NotOlderThan
        > state stale
        count expired full_lists
        > expired 4 full_lists 4
        ",
    );
}

// C11: the watch cache of the server expires versions faster than we list.
#[test]
fn watch_that_always_expires_causes_no_hot_loop() {
    for responses in [
        "watch-list: 200 / BOOKMARK @9 end / ERROR 410 Expired",
        "watch-list: 200 / BOOKMARK @9 end / ERROR 410 Expired; watch: reject 410 Expired",
        "watch-list: reject 500; list: list v=9; watch: reject 410 Expired",
    ] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            during 10m 12..80 {responses}
            > state backing off: 410 Expired
            "
        ));
    }
}

#[test]
fn too_large_version_of_a_watch_relists_at_the_most_recent_state() {
    check(
        "
        live v=9
        > state live
        after 10s
        end
        > watch rv=9
        reject 504 TooLarge
        > watch failed: 504 Timeout; retry now
        > list rv=9 match=NotOlderThan
        > state stale
        reject 504 TooLarge
        > list failed: 504 Timeout; retry now
        > list limit=500
        list v=4
        > push replaced @4 []
        > rewound from 9 to 4
        > watch rv=4
        count rewinds
        > rewinds 1
        ",
    );
}

// C11
#[test]
fn throttled_watch_honours_retry_after_and_resumes() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        429 retry-after=7
        end
        > watch failed: 429; retry in 7s
        > state backing off: 429
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        after 10s
        ERROR 429 TooManyRequests retry-after=11
        > cancel
        > watch failed: 429 TooManyRequests; retry in 11s
        > state backing off: 429 TooManyRequests
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        reject 429
        > watch failed: 429; retry in 1.6s..3.2s
        > state backing off: 429
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        after 10s
        ERROR 500 InternalError retry-after=5
        > cancel
        > watch failed: 500 InternalError; retry in 5s
        > state backing off: 500 InternalError
        ",
    );
}

// C7
#[test]
fn forbidden_watch_is_reported_and_retried_slowly() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        reject 403 Forbidden
        > watch failed: 403 Forbidden; retry in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        ERROR 403 Forbidden
        > cancel
        > watch failed: 403 Forbidden; retry in 30s..60s
        > state forbidden: 403 Forbidden
        ",
    );
}

// C7
#[test]
fn watch_that_is_not_served_is_reported_and_relists_slowly() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        reject 404 NotFound
        > watch failed: 404 NotFound; retry in 30s..60s
        > state not served: 404 NotFound
        wake
        > list rv=9 match=NotOlderThan
        > state stale
        reject 404 NotFound
        > list failed: 404 NotFound; retry in 30s..60s
        > state not served: 404 NotFound
        ",
    );
}

#[test]
fn watch_that_fails_early_backs_off_and_relists_after_three() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        reject 500
        > watch failed: 500; retry in 800ms..1.6s
        > state backing off: 500
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        reject 400 BadRequest
        > watch failed: 400 BadRequest; retry in 1.6s..3.2s
        > state backing off: 400 BadRequest
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        error reset
        > watch failed: connection reset; retry in 3.2s..6.4s
        > state backing off: connection reset
        wake
        > list rv=9 match=NotOlderThan
        > state stale
        list v=9
        > push replaced @9 []
        > watch rv=9
        ",
    );
}

// P5: another client reopened a watch that ended immediately 160,000 times in two seconds.
#[test]
fn watch_that_ends_early_backs_off_and_relists_after_three() {
    check(
        "
        live v=9
        > state live
        end
        > watch failed: the watch ended early; retry in 800ms..1.6s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        end
        > watch failed: the watch ended early; retry in 1.6s..3.2s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        end
        > watch failed: the watch ended early; retry in 3.2s..6.4s
        > state backing off: the watch ended early
        wake
        > list rv=9 match=NotOlderThan
        > state stale
        ",
    );
}

// A position that makes a server fail makes it fail every time.
// Regression: the watch was repeated forever, because the ERROR frame counted as progress.
#[test]
fn watch_with_only_an_error_frame_is_unproductive() {
    check(
        "
        live v=9
        > state live
        ERROR 500 InternalError
        > cancel
        > watch failed: 500 InternalError; retry in 800ms..1.6s
        > state backing off: 500 InternalError
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        ERROR 500 InternalError
        > cancel
        > watch failed: 500 InternalError; retry in 1.6s..3.2s
        > state backing off: 500 InternalError
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        ERROR
        > cancel
        > watch failed: a failure without a code; retry in 3.2s..6.4s
        > state backing off: a failure without a code
        wake
        > list rv=9 match=NotOlderThan
        > state stale
        ",
    );
}

#[test]
fn short_watch_with_a_change_does_not_count_towards_a_relist() {
    check(
        "
        live v=9
        > state live
        end
        > watch failed: the watch ended early; retry in 800ms..1.6s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        end
        > watch failed: the watch ended early; retry in 1.6s..3.2s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        ADDED a/x@10
        > push added a/x@10
        end
        > watch failed: the watch ended early; retry in 500ms
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=10 match=NotOlderThan
        > state stale
        list v=10
        > watch rv=10
        200
        > state live
        end
        > watch failed: the watch ended early; retry in 800ms..1.6s
        > state backing off: the watch ended early
        ",
    );
}

// P5: another client sent 160,231 requests in 2 s.
#[test]
fn server_that_ends_every_watch_immediately_causes_no_hot_loop() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        during 2s 2..6 list: list v=9; watch: 200 / end
        > state backing off: the watch ended early
        during 10m 12..60 list: list v=9; watch: 200 / end
        ",
    );
}

// P5
#[test]
fn server_that_ends_every_watch_after_a_bookmark_causes_no_hot_loop() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        during 10m 2300..2410 list: list v=10; watch: 200 / BOOKMARK @10 / end
        > state stale
        count full_lists
        > full_lists 1
        ",
    );
}

#[test]
fn watch_interrupted_after_each_change_causes_no_hot_loop() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        during 10m 2300..2410 list: list v=10; watch-list: 200 / BOOKMARK @9 end / end; watch: 200 / MODIFIED a/x@10 / error reset
        > state backing off: connection reset
        count watch_lists
        > watch_lists 1
        ",
    );
}

#[test]
fn healthy_watch_that_ends_is_followed_by_the_next_without_a_delay() {
    check(
        "
        live v=9
        > state live
        after 10s
        end
        > watch rv=9
        200
        during 10m 58..63 watch: 200 / after 10s / end
        ",
    );
}

// C7: the cache stays live until the next watch is rejected.
#[test]
fn rejected_seamless_watch_makes_the_cache_stale() {
    check(
        "
        live v=9
        > state live
        after 10s
        end
        > watch rv=9
        410
        > state stale
        end
        > watch failed: 410; retry now
        > list rv=9 match=NotOlderThan
        ",
    );
}

#[test]
fn rejected_watch_without_a_body_is_classified_by_its_headers() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        410
        after 10s
        > cancel
        > watch failed: 410; retry now
        > list rv=9 match=NotOlderThan
        list v=12
        > push replaced @12 []
        > watch rv=12
        403
        error reset
        > watch failed: 403; retry in 30s..60s
        > state forbidden: 403
        ",
    );
}

#[test]
fn healthy_watch_that_fails_is_followed_by_the_next_without_a_delay() {
    check(
        "
        live v=9
        > state live
        after 10s
        ERROR 500 InternalError
        > cancel
        > watch failed: 500 InternalError; retry now
        > watch rv=9
        > state stale
        200
        > state live
        after 10s
        error reset
        > watch failed: connection reset; retry now
        > watch rv=9
        > state stale
        error reset
        > watch failed: connection reset; retry in 800ms..1.6s
        > state backing off: connection reset
        ",
    );
}

#[test]
fn frames_after_an_error_frame_are_ignored() {
    check(
        "
        live v=9
        > state live
        after 10s
        ERROR 410 Expired + ADDED a/x@10
        > cancel
        > watch failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        > state stale
        ",
    );
}

#[test]
fn responses_of_a_cancelled_request_are_dropped_and_counted() {
    check(
        "
        live v=9
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        > state stale
        old 200
        old ADDED a/z@10
        old end
        old error reset
        count stray_responses failures
        > stray_responses 4 failures 1
        list v=12
        > push replaced @12 []
        > watch rv=12
        200
        > state live
        ",
    );
}

/// C11: a watch that receives one change and then expires resets no backoff of relists.
#[test]
fn watch_that_expires_after_each_change_causes_no_relist_loop() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        during 10m 12..80 list: list v=10; watch: 200 / MODIFIED a/x@10 / ERROR 410 Expired
        > state backing off: 410 Expired
        ",
    );
}
