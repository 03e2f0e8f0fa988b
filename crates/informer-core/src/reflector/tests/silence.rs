//! Silent watches: probes, bookmarks, bytes without frames.

use super::check;

/// Regression: if the server stopped responding before its first bookmark, this was noticed at the end of the
/// watch, after 310 to 610 seconds. C11: half-open connections.
#[test]
fn silent_watch_is_replaced_by_a_probe_and_a_new_watch() {
    check(
        "
        live v=9
        > state live
        deadline
        > deadline in 75s
        after 30s
        MODIFIED a/x@10
        > push updated a/x@10
        deadline
        > deadline in 75s
        # the server is only quiet: the state stays live, and the next check is later
        wake
        > cancel
        > list limit=1 rv=10 match=NotOlderThan
        list v=10 a/x@10
        > watch rv=10
        200
        deadline
        > deadline in 150s
        # the server does not respond
        wake
        > cancel
        > list limit=1 rv=10 match=NotOlderThan
        deadline
        > deadline in 20s
        wake
        > cancel
        > list failed: nothing received for 245s; retry in 800ms..1.6s
        > state backing off: nothing received for 245s
        count silence_timeouts
        > silence_timeouts 1
        ",
    );
}

/// C11: a slow response to the probe is a failure as well; a user who may not list keeps watching.
#[test]
fn probe_of_a_silent_watch_fails_or_is_forbidden() {
    check(
        "
        live v=9
        > state live
        wake
        > cancel
        > list limit=1 rv=9 match=NotOlderThan
        after 10s
        200
        bytes {
        after 10s
        > cancel
        > list failed: nothing received for 95s; retry in 800ms..1.6s
        > state backing off: nothing received for 95s
        ",
    );
    check(
        "
        live v=9
        > state live
        wake
        > cancel
        > list limit=1 rv=9 match=NotOlderThan
        reject 403 Forbidden
        > list failed: 403 Forbidden; retry now
        > watch rv=9
        200
        ",
    );
}

// C11
#[test]
fn watch_is_checked_if_a_bookmark_is_20_seconds_late_and_after_at_least_75_seconds() {
    check(
        "
        live v=9
        > state live
        after 20s
        BOOKMARK @10
        > push bookmark @10
        deadline
        > deadline in 75s
        after 60s
        BOOKMARK @11
        > push bookmark @11
        deadline
        > deadline in 80s
        # a shorter gap does not shorten the delay
        after 10s
        BOOKMARK @12
        > push bookmark @12
        deadline
        > deadline in 80s
        after 60s
        MODIFIED a/x@13
        > push updated a/x@13
        deadline
        > deadline in 80s
        after 80s
        > cancel
        > list limit=1 rv=13 match=NotOlderThan
        list v=13
        > watch rv=13
        # the longest gap applies to the next watch
        200
        deadline
        > deadline in 80s
        count silence_timeouts
        > silence_timeouts 0
        ",
    );
}

/// Regression: a watch that received only line ends, or one endless frame, at one byte per second stayed live
/// forever. Only complete frames are evidence that the cache is up to date, and changes that such a watch
/// should have brought are found by a relist.
#[test]
fn watch_with_bytes_but_without_frames_is_followed_by_a_relist() {
    let half_frame = "{\"type\":\"ADDED\",\"object\":{\"spec\":\"xxxxxxxxxx";
    let half_frame = half_frame.chars().map(|byte| format!("after 1s\nbytes {byte}"));
    for received in [vec!["after 1s\nblank".to_owned(); 44], half_frame.collect()] {
        let (received, bytes, left) = (received.join("\n"), received.len(), 75 - received.len());
        check(&format!(
            "
            live v=9
            > state live
            {received}
            deadline
            > deadline in {left}s
            wake
            > cancel
            > watch failed: {bytes} bytes received without a usable frame; retry in 800ms..1.6s
            > state backing off: {bytes} bytes received without a usable frame
            wake
            > list rv=9 match=NotOlderThan
            > state stale
            count silence_timeouts
            > silence_timeouts 1
            "
        ));
    }
}

// C11: the time before the marker of a watch-list is not a bookmark gap.
#[test]
fn first_bookmark_gap_of_a_watch_list_starts_at_its_marker() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        after 5s
        ADDED a/x@5
        > state listing 1
        BOOKMARK @9 end
        > push replaced @9 [a/x@5]
        > state live
        deadline
        > deadline in 75s
        after 60s
        BOOKMARK @10
        > push bookmark @10
        deadline
        > deadline in 80s
        ",
    );
}

/// Regression: a watch that received frames of another kind, or of unknown type, stayed live, because every
/// frame was contact. Such a watch brings no changes.
#[test]
fn frames_of_another_kind_are_no_contact() {
    for (frame, skipped, bytes) in [
        ("ADDED a/x@10;kind=Secret", "> unreadable a/x@10: unexpected kind: v1 Secret", 938),
        ("PING a/x@10;kind=Pod", "> unreadable a/x@10: unknown frame type", 910),
    ] {
        let frames = vec![format!("after 10s\n{frame}\n{skipped}"); 7].join("\n");
        check(&format!(
            "
            live v=9
            > state live
            {frames}
            wake
            > cancel
            > watch failed: {bytes} bytes received without a usable frame; retry in 800ms..1.6s
            > state backing off: {bytes} bytes received without a usable frame
            wake
            > list rv=9 match=NotOlderThan
            > state stale
            "
        ));
    }
}
