//! Warm start: a saved state is confirmed by the server, or replaced by a full list.

use super::check;

#[test]
fn c1_saved_state_is_passed_on_after_the_server_version_is_reached() {
    check(
        "
        saved v=9 a/x@5 a/y@7 a/z@8
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20 a/x@5
        > watch rv=9 for 3s
        200
        MODIFIED a/x@12
        DELETED a/y@14
        ADDED a/n@19
        state
        > state restored, as of 1970-01-01T00:00:00Z
        BOOKMARK @21
        > push replaced @21 [a/n@19, a/x@12, a/z@8]
        > cancel
        > watch rv=21
        > state live
        200
        MODIFIED a/x@22
        > push updated a/x@22
        count warm_starts full_lists initial
        > warm_starts 1 full_lists 0 initial 0
        ",
    );
}

#[test]
fn saved_state_of_the_server_version_is_passed_on_without_a_watch() {
    check(
        "
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=9 a/x@5
        > push replaced @9 [a/x@5]
        > watch rv=9
        > state stale
        200
        > state live
        ",
    );
}

#[test]
fn frame_at_the_server_version_confirms() {
    check(
        "
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > watch rv=9 for 3s
        200
        MODIFIED a/x@20 + MODIFIED a/x@22
        > push replaced @20 [a/x@20]
        > cancel
        > watch rv=20
        > state live
        ",
    );
}

#[test]
fn c1_frames_older_than_the_saved_objects_are_ignored() {
    check(
        "
        saved v=9 a/x@5 a/y@7
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > watch rv=9 for 3s
        200
        MODIFIED a/x@4
        DELETED a/y@6
        BOOKMARK @20
        > push replaced @20 [a/x@5, a/y@7]
        > cancel
        > watch rv=20
        > state live
        ",
    );
}

/// An object that exists but could not be read in the list that replaces a saved state was dropped from the cache, and
/// a durable handler received its deletion.
#[test]
fn c9_saved_state_of_an_object_that_a_list_cannot_read_is_kept() {
    check(
        "
        with watch-list never
        with max-object-size 300
        saved v=9 a/x@5 a/y@6
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=200
        > watch rv=9 for 3s
        reject 410 Expired
        > watch failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        > state connecting
        list v=200 a/x@150;big a/z@7;big
        > unreadable a/x@150: larger than 300 bytes
        > unreadable a/z@7: larger than 300 bytes
        > push replaced @200 [a/x@5] unreadable [a/x@150, a/z@7]
        > watch rv=200
        > state stale
        200
        > state live
        ",
    );
}

#[test]
fn expired_saved_version_is_followed_by_a_list_that_is_not_older() {
    check(
        "
        with watch-list never
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=200
        > watch rv=9 for 3s
        reject 410 Expired
        > watch failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        > state connecting
        list v=200 a/x@5 a/y@150
        > push replaced @200 [a/x@5, a/y@150]
        > watch rv=200
        > state stale
        200
        > state live
        count warm_starts full_lists
        > warm_starts 0 full_lists 1
        ",
    );
}

#[test]
fn c1_server_behind_the_saved_version_is_listed_and_counted_as_rewound() {
    check(
        "
        with watch-list never
        saved v=90 a/x@85
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > list limit=500
        > state connecting
        list v=20 a/x@5
        > push replaced @20 [a/x@5]
        > rewound from 90 to 20
        > watch rv=20
        > state stale
        ",
    );
}

#[test]
fn versions_that_cannot_be_compared_are_not_confirmed() {
    check(
        "
        with watch-list never
        saved v=abc a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=abd
        > list rv=abc match=NotOlderThan
        > state connecting
        ",
    );
}

#[test]
fn unreachable_server_is_asked_again_for_its_version() {
    check(
        "
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        error refused
        > list failed: connection refused; retry in 800ms..1.6s
        > state backing off: connection refused
        wake
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > watch rv=9 for 3s
        ",
    );
}

#[test]
fn c7_forbidden_list_ends_in_the_state_forbidden() {
    check(
        "
        with watch-list never
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry now
        > list rv=9 match=NotOlderThan
        > state connecting
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry in 30s..60s
        > state forbidden: 403 Forbidden
        ",
    );
}

#[test]
fn broken_watch_is_resumed_from_the_last_frame() {
    check(
        "
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > watch rv=9 for 3s
        200
        MODIFIED a/x@12
        error reset
        > watch failed: connection reset; retry in 500ms
        > state backing off: connection reset
        wake
        > list limit=1 rv=12 match=NotOlderThan
        > state restored, as of 1970-01-01T00:00:00Z
        list v=25
        > watch rv=12 for 3s
        200
        BOOKMARK @25
        > push replaced @25 [a/x@12]
        > cancel
        > watch rv=25
        > state live
        ",
    );
}

#[test]
fn watch_that_ends_without_a_bookmark_is_followed_by_a_list() {
    check(
        "
        with watch-list never
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > watch rv=9 for 3s
        200
        after 3s
        end
        > watch failed: the watch did not reach the version of the server; retry now
        > list rv=9 match=NotOlderThan
        > state connecting
        ",
    );
}

#[test]
fn watches_that_never_reach_the_server_version_are_followed_by_a_list() {
    check(
        "
        with watch-list never
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > watch rv=9 for 3s
        200
        BOOKMARK @10
        end
        > watch rv=10 for 3s
        200
        BOOKMARK @11
        end
        > watch rv=11 for 3s
        200
        BOOKMARK @12
        end
        > watch failed: the watch did not reach the version of the server; retry now
        > list rv=12 match=NotOlderThan
        > state connecting
        ",
    );
}

#[test]
fn silent_watch_is_followed_by_a_list() {
    check(
        "
        with watch-list never
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > watch rv=9 for 3s
        200
        wake
        > cancel
        > watch failed: the watch did not reach the version of the server; retry now
        > list rv=9 match=NotOlderThan
        > state connecting
        ",
    );
}

#[test]
fn audit_follows_within_an_hour() {
    check(
        "
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=9
        > push replaced @9 [a/x@5]
        > watch rv=9
        > state stale
        200
        > state live
        during 61m 5..200 list: list v=9 a/x@5; watch: 200 / BOOKMARK @9 / after 60s / end
        count audit full_lists
        > audit 1 full_lists 1
        ",
    );
}

#[test]
fn unreadable_objects_stay_marked_until_they_are_readable() {
    check(
        "
        with max-object-size 500
        saved v=9 a/x@5 a/y@8;big
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        list v=20
        > watch rv=9 for 3s
        200
        MODIFIED a/y@12
        MODIFIED a/x@13;big
        > unreadable a/x@13: larger than 500 bytes
        BOOKMARK @20
        > push replaced @20 [a/x@5, a/y@12] unreadable [a/x@13]
        > cancel
        > watch rv=20
        > state live
        ",
    );
}

#[test]
fn saved_objects_of_a_server_without_the_resource_are_discarded_by_its_next_list() {
    check(
        "
        with watch-list never
        saved v=9 a/x@5
        > state not started (call start)
        start
        > list limit=1
        > state restored, as of 1970-01-01T00:00:00Z
        reject 404 NotFound
        > list failed: 404 NotFound; retry now
        > list rv=9 match=NotOlderThan
        > state connecting
        reject 404 NotFound
        > list failed: 404 NotFound; retry in 30s..60s
        > state not served: 404 NotFound
        wake
        > list rv=9 match=NotOlderThan
        > state connecting
        list v=30 a/y@25
        > push replaced @30 [a/y@25]
        > watch rv=30
        > state stale
        ",
    );
}
