//! Lists: which version is asked for, pages and their tokens, refusals.

use super::check;

#[test]
fn the_first_list_takes_any_version_and_the_watch_follows_it() {
    check(
        "
        with lists
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

#[test]
fn a_relist_asks_for_no_less_than_the_last_version_and_for_no_pages() {
    check(
        "
        live v=9 a/x@5
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
        ",
    );
}

// C1, C11: the version is dropped once and at once; the second refusal takes the back-off, and the flag stays.
#[test]
fn a_version_the_server_cannot_list_is_dropped_for_the_newest_state() {
    for reason in ["410 Expired", "410 Gone"] {
        check(&format!(
            "
            live v=9 a/x@5
            > state live
            after 10s
            ERROR {reason}
            > cancel
            > watch failed: {reason}; again now
            > list rv=9 match=NotOlderThan
            > state stale
            refuse {reason}
            > list failed: {reason}; again now
            > list limit=500
            refuse {reason}
            > list failed: {reason}; again in 800ms..1.6s
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
            > watch failed: {reason}; again now
            > list rv=12 match=NotOlderThan
            > state stale
            count expired lists
            > expired 4 lists 5
            "
        ));
    }
}

// C1: a restored server does not know our version yet.
#[test]
fn a_version_too_large_for_a_list_is_dropped_for_the_newest_state() {
    check(
        "
        live v=9 a/x@5
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > list rv=9 match=NotOlderThan
        > state stale
        refuse 504 TooLarge
        > list failed: 504 Timeout; again now
        > list limit=500
        refuse 504 TooLarge
        > list failed: 504 Timeout; again in 800ms..1.6s
        > state backing off: 504 Timeout
        wake
        > list limit=500
        > state stale
        list v=4 a/x@3
        > rewound from 9 to 4
        > push replaced @4 [a/x@3]
        > watch rv=4
        count rewinds replaces
        > rewinds 1 replaces 2
        ",
    );
}

#[test]
fn even_any_version_can_be_refused() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        refuse 410 Expired
        > list failed: 410 Expired; again now
        > list limit=500
        list v=3
        > push replaced @3 []
        > watch rv=3
        > state stale
        ",
    );
}

#[test]
fn pages_are_followed_and_the_first_says_the_version() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        200
        page v=9 continue=t1 remaining=3 a/x@5 a/y@6
        > state listing 2
        end
        > list limit=500 continue=t1
        > state listing 2/5
        200
        page v=9 continue=t2 remaining=1 b/x@7 b/y@3
        > state listing 4/5
        end
        > list limit=500 continue=t2
        list v=11 b/z@8
        > push replaced @9 [a/x@5, a/y@6, b/x@7, b/y@3, b/z@8]
        > watch rv=9
        > state stale
        count lists replaces
        > lists 3 replaces 1
        ",
    );
}

// A server that pages at "any version" has no watch cache in front of its storage.
#[test]
fn once_any_version_came_in_pages_every_list_is_paged() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9 continue=t1 a/x@5
        > list limit=500 continue=t1
        > state listing 1
        list v=9 a/y@5
        > push replaced @9 [a/x@5, a/y@5]
        > watch rv=9
        > state stale
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > list limit=500 rv=9 match=NotOlderThan
        > state stale
        list v=12 continue=t2 a/x@5
        > list limit=500 continue=t2
        ",
    );
}

#[test]
fn a_page_size_of_our_own_goes_for_every_list() {
    check(
        "
        with lists
        with page-size 2
        start
        > list limit=2 rv=0
        list v=9 continue=t1 a/x@5 a/y@5
        > list limit=2 continue=t1
        > state listing 2
        list v=9 a/z@5
        > push replaced @9 [a/x@5, a/y@5, a/z@5]
        > watch rv=9
        > state stale
        200
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > list limit=2 rv=9 match=NotOlderThan
        > state stale
        refuse 410 Expired
        > list failed: 410 Expired; again now
        > list limit=2
        ",
    );
}

#[test]
fn pages_that_nobody_asked_for_are_followed_too() {
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
        list v=12 continue=t1 a/x@5
        > list limit=500 continue=t1
        list v=12 a/y@6
        > push replaced @12 [a/x@5, a/y@6]
        > watch rv=12
        ",
    );
}

// P14
#[test]
fn an_expired_token_means_everything_at_once_from_the_same_version() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9 continue=t1 a/x@5
        > list limit=500 continue=t1
        > state listing 1
        refuse 410 Expired
        > list failed: 410 Expired; again now
        > list rv=0
        > state connecting
        list v=12 a/y@11
        > push replaced @12 [a/y@11]
        > watch rv=12
        > state stale
        count expired
        > expired 1
        ",
    );
}

// C11. The server pages although it was asked not to, and forgets its tokens at once. This used to go round without a pause.
#[test]
fn tokens_that_always_expire_are_no_hot_loop() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9 continue=t1 a/x@5
        > list limit=500 continue=t1
        > state listing 1
        refuse 410 Expired
        > list failed: 410 Expired; again now
        > list rv=0
        > state connecting
        list v=9 continue=t2 a/x@5
        > list limit=500 continue=t2
        > state listing 1
        refuse 410 Expired
        > list failed: 410 Expired; again now
        > list limit=500
        > state connecting
        list v=9 continue=t3 a/x@5
        > list limit=500 continue=t3
        > state listing 1
        refuse 410 Expired
        > list failed: 410 Expired; again now
        > list
        > state connecting
        list v=9 continue=t4 a/x@5
        > list limit=500 continue=t4
        > state listing 1
        refuse 410 Expired
        > list failed: 410 Expired; again in 800ms..1.6s
        > state backing off: 410 Expired
        ",
    );
}

// C11. The server ignores tokens and answers every page with the first. This used to go round without a pause, and grow.
#[test]
fn pages_that_go_round_in_a_circle_are_no_hot_loop() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9 continue=t1 a/x@5
        > list limit=500 continue=t1
        > state listing 1
        list v=9 continue=t1 a/x@5
        > list failed: the pages of the list repeat; again in 800ms..1.6s
        > state backing off: the pages of the list repeat
        wake
        > list limit=500 rv=0
        > state connecting
        list v=9 continue=t1 a/x@5
        > list limit=500 continue=t1
        > state listing 1
        list v=9 continue=t2 a/y@5
        > list limit=500 continue=t2
        > state listing 2
        list v=9 continue=t1 a/x@5
        > list failed: the pages of the list repeat; again in 1.6s..3.2s
        > state backing off: the pages of the list repeat
        ",
    );
}

#[test]
fn a_page_that_fails_otherwise_starts_the_list_over() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9 continue=t1 remaining=1 a/x@5
        > list limit=500 continue=t1
        > state listing 1/2
        refuse 500
        > list failed: 500; again in 800ms..1.6s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        list v=9 a/x@5 a/y@5
        > push replaced @9 [a/x@5, a/y@5]
        > watch rv=9
        > state stale
        ",
    );
}

// C1: only a consistent list may take us back.
#[test]
fn a_list_older_than_asked_for_is_not_believed_but_asked_for_again() {
    check(
        "
        live v=9 a/x@5
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > list rv=9 match=NotOlderThan
        > state stale
        list v=7 a/x@5
        > list failed: the list is older than requested: 7; again now
        > list limit=500
        list v=7 a/x@5
        > rewound from 9 to 7
        > push replaced @7 [a/x@5]
        > watch rv=7
        count rewinds
        > rewinds 1
        ",
    );
}

// C1: what does not compare is never used to refuse anything.
#[test]
fn opaque_versions_do_not_go_back() {
    check(
        "
        live v=zz a/x@yy
        > state live
        after 10s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
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
fn an_item_listed_twice_is_handed_on_as_it_came() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9 a/x@5 a/y@6 a/x@7
        > push replaced @9 [a/x@5, a/y@6, a/x@7]
        > watch rv=9
        > state stale
        ",
    );
}

// P6, C11: a list that fails, fails more and more slowly; nothing but health starts that over.
#[test]
fn waits_grow_over_failing_lists_and_only_health_resets_them() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        refuse 500
        > list failed: 500; again in 800ms..1.6s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        refuse 500
        > list failed: 500; again in 1.6s..3.2s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        refuse 500
        > list failed: 500; again in 3.2s..6.4s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        error refused
        > list failed: connection refused; again in 6.4s..12.8s
        > state backing off: connection refused
        wake
        > list limit=500 rv=0
        > state connecting
        error broken
        > list failed: connection reset; again in 12.8s..25.6s
        > state backing off: connection reset
        wake
        > list limit=500 rv=0
        > state connecting
        refuse 500
        > list failed: 500; again in 25.6s..60s
        > state backing off: 500
        wake
        > list limit=500 rv=0
        > state connecting
        # a list that works is no health
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        200
        > state live
        after 9s
        end
        > watch failed: the watch ended early; again in 25.6s..60s
        > state backing off: the watch ended early
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        after 10s
        # this is
        error refused
        > watch failed: connection refused; again in 800ms..1.6s
        > state backing off: connection refused
        count failures lists watches
        > failures 8 lists 8 watches 2
        ",
    );
}

// P6: 25 s of failing lists were 21 requests elsewhere.
#[test]
fn failing_lists_are_few() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        during 25s 4..7 list: refuse 500
        > state backing off: 500
        during 10m 9..26 list: refuse 500
        ",
    );
}

// C11
#[test]
fn a_list_waits_as_long_as_the_server_asks() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        429 retry-after=7
        end
        > list failed: 429; again in 7s
        > state backing off: 429
        wake
        > list limit=500 rv=0
        > state connecting
        refuse 429 TooManyRequests retry-after=20
        > list failed: 429 TooManyRequests; again in 20s
        > state backing off: 429 TooManyRequests
        wake
        > list limit=500 rv=0
        > state connecting
        503 retry-after=9
        end
        > list failed: 503; again in 9s
        > state backing off: 503
        wake
        > list limit=500 rv=0
        > state connecting
        # never sooner than our own back-off
        429 retry-after=1
        end
        > list failed: 429; again in 6.4s..12.8s
        > state backing off: 429
        wake
        > list limit=500 rv=0
        > state connecting
        # and not for ever
        429 retry-after=86400
        end
        > list failed: 429; again in 600s
        > state backing off: 429
        ",
    );
}

// C7
#[test]
fn a_forbidden_list_is_told_and_asked_for_slowly() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        refuse 403 Forbidden
        > list failed: 403 Forbidden; again in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > list limit=500 rv=0
        > state connecting
        refuse 403 Forbidden
        > list failed: 403 Forbidden; again in 30s..60s
        > state forbidden: 403 Forbidden
        wake
        > list limit=500 rv=0
        > state connecting
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        during 10m 21..84 list: refuse 403; watch: refuse 403
        > state forbidden: 403
        ",
    );
}

// C7: any 404 is NotServed, whatever its body.
#[test]
fn a_list_that_is_not_found_is_told_and_asked_for_slowly() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        refuse 404 NotFound
        > list failed: 404 NotFound; again in 30s..60s
        > state not served: 404 NotFound
        wake
        > list limit=500 rv=0
        > state connecting
        404 type=text/plain
        bytes 404 page not found
        end
        > list failed: 404; again in 30s..60s
        > state not served: 404
        wake
        > list limit=500 rv=0
        > state connecting
        404
        error broken
        > list failed: 404; again in 30s..60s
        > state not served: 404
        wake
        > list limit=500 rv=0
        > state connecting
        refuse 405 MethodNotAllowed
        > list failed: 405 MethodNotAllowed; again in 30s..60s
        > state not served: 405 MethodNotAllowed
        ",
    );
}

// The headers of a refusal say what matters; a body that does not come is not waited for.
#[test]
fn a_refusal_without_its_body_is_a_refusal_all_the_same() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        404
        deadline
        > deadline in 10s
        after 9s
        bytes {
        after 1s
        > cancel
        > list failed: 404; again in 30s..60s
        > state not served: 404
        wake
        > list limit=500 rv=0
        > state connecting
        403
        error broken
        > list failed: 403; again in 30s..60s
        > state forbidden: 403
        ",
    );
}

#[test]
fn a_refusal_of_any_length_is_read_no_further_than_needed() {
    let page = "x".repeat(70_000);
    check(&format!(
        "
        with lists
        start
        > list limit=500 rv=0
        500
        bytes {page}
        > cancel
        > list failed: 500; again in 800ms..1.6s
        > state backing off: 500
        old bytes more
        old end
        count late
        > late 2
        "
    ));
}

#[test]
fn a_list_whose_body_stops_coming_is_given_up() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        deadline
        > deadline in 120s
        after 1m
        200
        deadline
        > deadline in 60s
        after 50s
        bytes {
        deadline
        > deadline in 60s
        after 59s
        tick
        after 1s
        > cancel
        > list failed: no data received before the timeout; again in 800ms..1.6s
        > state backing off: no data received before the timeout
        old bytes }
        count late
        > late 1
        ",
    );
}

#[test]
fn c11_empty_pages_without_end_are_no_hot_loop() {
    // A server with a fresh token on every empty page was asked a hundred thousand times without a pause. Empty pages are legal,
    // so before they count as a failure everything is asked for at once.
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        list v=9 continue=a
        > list limit=500 continue=a
        list v=9 continue=b
        > list limit=500 continue=b
        list v=9 continue=c
        > list limit=500 continue=c
        list v=9 continue=d
        > list failed: the pages of the list are empty and do not end; again now
        > list rv=0
        list v=9 continue=a
        > list limit=500 continue=a
        list v=9 continue=b
        > list limit=500 continue=b
        list v=9 continue=c
        > list limit=500 continue=c
        list v=9 continue=d
        > list failed: the pages of the list are empty and do not end; again in 800ms..1.6s
        > state backing off: the pages of the list are empty and do not end
        ",
    );
}

#[test]
fn a_version_that_is_not_even_accepted_is_given_up() {
    // A kind that moved to another server answered 400 to our version for ever: no list without a version was ever tried.
    check(
        "
        with lists
        live v=abc
        > state live
        after 20s
        ERROR 410 Expired
        > cancel
        > watch failed: 410 Expired; again now
        > list rv=abc match=NotOlderThan
        > state stale
        400
        end
        > list failed: 400; again in 800ms..1.6s
        > state backing off: 400
        wake
        > list limit=500
        > state stale
        ",
    );
}

#[test]
fn a_request_that_nobody_answers_is_given_up() {
    check(
        "
        with lists
        start
        > list limit=500 rv=0
        after 2m
        > cancel
        > list failed: no response headers within 120s; again in 800ms..1.6s
        > state backing off: no response headers within 120s
        ",
    );
}
