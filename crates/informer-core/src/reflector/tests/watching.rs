//! Watching: changes, the position, ends and failures of every kind, silence.

use super::check;

#[test]
fn changes_are_handed_on_and_the_next_watch_goes_on_behind_them() {
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
fn a_comparable_version_never_takes_the_position_back() {
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
fn opaque_versions_are_taken_as_they_come() {
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
fn a_bookmark_without_a_version_is_only_a_sign_of_life() {
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

// C11, P16: whether as a frame or as a status.
#[test]
fn the_first_410_after_health_relists_at_once_and_the_second_waits() {
    check(
        "
        live v=9
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
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
        > watch failed: 410 Expired; again in 800ms..1.6s
        > state backing off: 410 Expired
        wake
        > list rv=12 match=NotOlderThan
        > state stale
        list v=14
        > push replaced @14 []
        > watch rv=14
        refuse 410 Gone
        > watch failed: 410 Gone; again in 1.6s..3.2s
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
        refuse 410 Expired
        > watch failed: 410 Expired; again now
        > list rv=16 match=NotOlderThan
        > state stale
        count expired replaces
        > expired 4 replaces 4
        ",
    );
}

// C11: a server whose watch cache forgets faster than we list.
#[test]
fn a_watch_that_always_expires_is_no_hot_loop() {
    for answers in [
        "watch-list: 200 / BOOKMARK @9 end / ERROR 410 Expired",
        "watch-list: 200 / BOOKMARK @9 end / ERROR 410 Expired; watch: refuse 410 Expired",
        "watch-list: refuse 500; list: list v=9; watch: refuse 410 Expired",
    ] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            during 10m 12..80 {answers}
            > state backing off: 410 Expired
            "
        ));
    }
}

#[test]
fn a_version_too_large_for_a_watch_relists_at_the_newest_state_in_the_end() {
    check(
        "
        live v=9
        > state live
        after 10s
        end
        > watch rv=9
        refuse 504 TooLarge
        > watch failed: 504 Timeout; again now
        > list rv=9 match=NotOlderThan
        > state stale
        refuse 504 TooLarge
        > list failed: 504 Timeout; again now
        > list limit=500
        list v=4
        > rewound from 9 to 4
        > push replaced @4 []
        > watch rv=4
        count rewinds
        > rewinds 1
        ",
    );
}

// C11
#[test]
fn a_throttled_watch_waits_as_long_as_the_server_asks_and_goes_on() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        429 retry-after=7
        end
        > watch failed: 429; again in 7s
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
        > watch failed: 429 TooManyRequests; again in 11s
        > state backing off: 429 TooManyRequests
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        refuse 429
        > watch failed: 429; again in 1.6s..3.2s
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
        > watch failed: 500 InternalError; again in 5s
        > state backing off: 500 InternalError
        ",
    );
}

// C7
#[test]
fn a_forbidden_watch_is_told_and_asked_for_slowly() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        refuse 403 Forbidden
        > watch failed: 403 Forbidden; again in 30s..60s
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
        > watch failed: 403 Forbidden; again in 30s..60s
        > state forbidden: 403 Forbidden
        ",
    );
}

// C7
#[test]
fn a_watch_that_is_not_found_is_told_and_the_set_asked_for_again() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        refuse 404 NotFound
        > watch failed: 404 NotFound; again in 30s..60s
        > state not served: 404 NotFound
        wake
        > list rv=9 match=NotOlderThan
        > state stale
        refuse 404 NotFound
        > list failed: 404 NotFound; again in 30s..60s
        > state not served: 404 NotFound
        ",
    );
}

#[test]
fn a_watch_that_fails_early_takes_the_back_off_and_relists_after_three() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        refuse 500
        > watch failed: 500; again in 800ms..1.6s
        > state backing off: 500
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        refuse 400 BadRequest
        > watch failed: 400 BadRequest; again in 1.6s..3.2s
        > state backing off: 400 BadRequest
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        error broken
        > watch failed: connection reset; again in 3.2s..6.4s
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

// P5: a peer reopened a watch that ended at once 160,000 times in two seconds.
#[test]
fn a_very_short_watch_takes_the_back_off_and_relists_after_three() {
    check(
        "
        live v=9
        > state live
        end
        > watch failed: the watch ended early; again in 800ms..1.6s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        end
        > watch failed: the watch ended early; again in 1.6s..3.2s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        after 9s
        end
        > watch failed: the watch ended early; again in 3.2s..6.4s
        > state backing off: the watch ended early
        wake
        > list rv=9 match=NotOlderThan
        > state stale
        ",
    );
}

// The position that makes a server fail makes it fail again. This used to go on for ever, since the ERROR was taken for a sign of life.
#[test]
fn a_watch_that_brings_nothing_but_an_error_is_barren() {
    check(
        "
        live v=9
        > state live
        ERROR 500 InternalError
        > cancel
        > watch failed: 500 InternalError; again in 800ms..1.6s
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
        > watch failed: 500 InternalError; again in 1.6s..3.2s
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
        > watch failed: a failure without a code; again in 3.2s..6.4s
        > state backing off: a failure without a code
        wake
        > list rv=9 match=NotOlderThan
        > state stale
        ",
    );
}

#[test]
fn a_short_watch_that_brought_something_does_not_count_towards_a_relist() {
    check(
        "
        live v=9
        > state live
        end
        > watch failed: the watch ended early; again in 800ms..1.6s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        end
        > watch failed: the watch ended early; again in 1.6s..3.2s
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
        > watch failed: the watch ended early; again in 3.2s..6.4s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=10 match=NotOlderThan
        > state stale
        list v=10
        > watch rv=10
        200
        > state live
        end
        > watch failed: the watch ended early; again in 6.4s..12.8s
        > state backing off: the watch ended early
        ",
    );
}

// P5: 160 231 requests in 2 s elsewhere.
#[test]
fn a_server_that_ends_every_watch_at_once_is_no_hot_loop() {
    check(
        "
        with lists
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
fn a_server_that_sends_a_bookmark_and_ends_is_no_hot_loop() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        during 10m 12..60 list: list v=10; watch: 200 / BOOKMARK @10 / end
        > state backing off: the watch ended early
        count replaces
        > replaces 1
        ",
    );
}

#[test]
fn a_watch_cut_after_each_change_is_no_hot_loop() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        during 10m 12..60 list: list v=10; watch-list: 200 / BOOKMARK @9 end / end; watch: 200 / MODIFIED a/x@10 / error broken
        > state backing off: connection reset
        count watch_lists
        > watch_lists 1
        ",
    );
}

#[test]
fn a_healthy_watch_that_ends_is_followed_by_the_next_at_once() {
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

// C7: seamless as long as nobody says no.
#[test]
fn a_refusal_ends_the_seam_between_two_watches() {
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
        > watch failed: 410; again now
        > list rv=9 match=NotOlderThan
        ",
    );
}

#[test]
fn a_refused_watch_without_a_body_is_refused_all_the_same() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        410
        after 10s
        > cancel
        > watch failed: 410; again now
        > list rv=9 match=NotOlderThan
        list v=12
        > push replaced @12 []
        > watch rv=12
        403
        error broken
        > watch failed: 403; again in 30s..60s
        > state forbidden: 403
        ",
    );
}

// C11: half-open connections.
#[test]
fn before_any_bookmark_silence_lasts_as_long_as_the_watch_and_ten_seconds() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        deadline
        > deadline in 120s
        200
        > state live
        deadline
        > deadline in the watch's timeout + 10s
        after 60s
        MODIFIED a/x@10
        > push updated a/x@10
        deadline
        > deadline in the watch's timeout + 10s
        after 1m
        deadline
        > deadline in the watch's timeout - 50s
        wake
        > cancel
        > watch failed: nothing received before the timeout, not even a bookmark; again now
        > watch rv=10
        > state stale
        count silent
        > silent 1
        ",
    );
}

// C11
#[test]
fn after_a_bookmark_silence_lasts_three_gaps_and_ninety_seconds_at_least() {
    check(
        "
        live v=9
        > state live
        after 20s
        BOOKMARK @10
        > push bookmark @10
        deadline
        > deadline in 90s
        after 60s
        BOOKMARK @11
        > push bookmark @11
        deadline
        > deadline in 180s
        # a shorter gap does not make us less patient
        after 10s
        BOOKMARK @12
        > push bookmark @12
        deadline
        > deadline in 180s
        after 60s
        MODIFIED a/x@13
        > push updated a/x@13
        deadline
        > deadline in 180s
        after 180s
        > cancel
        > watch failed: nothing received before the timeout, not even a bookmark; again now
        > watch rv=13
        > state stale
        deadline
        > deadline in 120s
        # what was learnt holds for the next watch
        200
        > state live
        deadline
        > deadline in 180s
        count silent
        > silent 1
        ",
    );
}

// C11: the marker of a watch-list is no gap yet.
#[test]
fn the_first_gap_of_a_watch_list_counts_from_its_marker() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        after 5s
        ADDED a/x@5
        > state listing 1
        BOOKMARK @9 end
        > push replaced @9 [a/x@5]
        > state live
        deadline
        > deadline in the watch's timeout + 10s
        after 50s
        BOOKMARK @10
        > push bookmark @10
        deadline
        > deadline in 150s
        ",
    );
}

#[test]
fn a_healthy_watch_that_breaks_is_followed_by_the_next_at_once() {
    check(
        "
        live v=9
        > state live
        after 10s
        ERROR 500 InternalError
        > cancel
        > watch failed: 500 InternalError; again now
        > watch rv=9
        > state stale
        200
        > state live
        after 10s
        error broken
        > watch failed: connection reset; again now
        > watch rv=9
        > state stale
        error broken
        > watch failed: connection reset; again in 800ms..1.6s
        > state backing off: connection reset
        ",
    );
}

#[test]
fn what_comes_behind_an_error_frame_is_not_read() {
    check(
        "
        live v=9
        > state live
        after 10s
        ERROR 410 Expired + ADDED a/x@10
        > cancel
        > watch failed: 410 Expired; again now
        > list rv=9 match=NotOlderThan
        > state stale
        ",
    );
}

#[test]
fn what_an_old_stream_still_says_is_dropped_and_counted() {
    check(
        "
        live v=9
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > list rv=9 match=NotOlderThan
        > state stale
        old 200
        old ADDED a/z@10
        old end
        old error broken
        count late failures
        > late 4 failures 1
        list v=12
        > push replaced @12 []
        > watch rv=12
        200
        > state live
        ",
    );
}
