//! Lists in pages.

use super::check;

#[test]
fn relist_requests_the_last_version_or_newer_without_pages() {
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
        list v=12 a/x@5
        > push replaced @12 [a/x@5]
        > watch rv=12
        ",
    );
}

#[test]
fn pages_are_followed_and_the_first_sets_the_version() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        200
        > state listing 0
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
        count lists full_lists
        > lists 3 full_lists 1
        ",
    );
}

// A server that pages lists at "any version" has no watch cache in front of its storage.
#[test]
fn all_lists_are_paged_after_a_paged_list_of_any_version() {
    check(
        "
        with watch-list never
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
        > watch failed: 410 Expired; retry now
        > list limit=500 rv=9 match=NotOlderThan
        > state stale
        list v=12 continue=t2 a/x@5
        > list limit=500 continue=t2
        ",
    );
}

#[test]
fn configured_page_size_applies_to_every_list() {
    check(
        "
        with watch-list never
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
        > watch failed: 410 Expired; retry now
        > list limit=2 rv=9 match=NotOlderThan
        > state stale
        reject 410 Expired
        > list failed: 410 Expired; retry now
        > list limit=2
        ",
    );
}

#[test]
fn unrequested_pages_are_followed() {
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
fn expired_token_causes_a_list_without_pages_at_the_same_version() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9 continue=t1 a/x@5
        > list limit=500 continue=t1
        > state listing 1
        reject 410 Expired
        > list failed: 410 Expired; retry now
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

// C11. The server pages although the request has no limit, and its tokens expire immediately.
// Regression: the list was repeated without a delay.
#[test]
fn tokens_that_always_expire_cause_no_hot_loop() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9 continue=t1 a/x@5
        > list limit=500 continue=t1
        > state listing 1
        reject 410 Expired
        > list failed: 410 Expired; retry now
        > list rv=0
        > state connecting
        list v=9 continue=t2 a/x@5
        > list limit=500 continue=t2
        > state listing 1
        reject 410 Expired
        > list failed: 410 Expired; retry now
        > list limit=500
        > state connecting
        list v=9 continue=t3 a/x@5
        > list limit=500 continue=t3
        > state listing 1
        reject 410 Expired
        > list failed: 410 Expired; retry now
        > list
        > state connecting
        list v=9 continue=t4 a/x@5
        > list limit=500 continue=t4
        > state listing 1
        reject 410 Expired
        > list failed: 410 Expired; retry in 800ms..1.6s
        > state backing off: 410 Expired
        ",
    );
}

// C11. The server ignores tokens and returns the first page for each of them.
// Regression: pages were requested without a delay, and memory grew.
#[test]
fn repeating_pages_cause_no_hot_loop() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9 continue=t1 a/x@5
        > list limit=500 continue=t1
        > state listing 1
        list v=9 continue=t1 a/x@5
        > list failed: the pages of the list repeat; retry in 800ms..1.6s
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
        > list failed: the pages of the list repeat; retry in 1.6s..3.2s
        > state backing off: the pages of the list repeat
        ",
    );
}

#[test]
fn failed_page_restarts_the_list_after_a_backoff() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9 continue=t1 remaining=1 a/x@5
        > list limit=500 continue=t1
        > state listing 1/2
        reject 500
        > list failed: 500; retry in 800ms..1.6s
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

#[test]
fn c11_endless_empty_pages_cause_no_hot_loop() {
    // Regression: a server that sent a new token with every empty page received 100,000 requests without a
    // delay. Empty pages are legal, so before they count as a failure, the whole list is requested without
    // pages.
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9 continue=a
        > list limit=500 continue=a
        list v=9 continue=b
        > list limit=500 continue=b
        list v=9 continue=c
        > list limit=500 continue=c
        list v=9 continue=d
        > list failed: the pages of the list bring no new objects and do not end; retry now
        > list rv=0
        list v=9 continue=a
        > list limit=500 continue=a
        list v=9 continue=b
        > list limit=500 continue=b
        list v=9 continue=c
        > list limit=500 continue=c
        list v=9 continue=d
        > list failed: the pages of the list bring no new objects and do not end; retry in 800ms..1.6s
        > state backing off: the pages of the list bring no new objects and do not end
        ",
    );
}

/// Regression: pages that repeated the same item with fresh tokens were requested 20,000 times per second.
/// Only new keys are progress; then the whole list is requested without pages, with backoff.
#[test]
fn c11_endless_pages_without_new_objects_cause_no_hot_loop() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        during 10m 50..150 list: list v=9 continue=t# a/x@5
        > state backing off: the pages of the list bring no new objects and do not end
        count full_lists
        > full_lists 0
        ",
    );
}

/// C11: pages with one new object each are replaced by a list without pages, which the server can serve.
#[test]
fn tiny_pages_are_replaced_by_a_list_without_pages() {
    let page = |number: u32| {
        format!(
            "list v=9 continue=t{number} a/x{number}@5\n> list limit=500 continue=t{number}\n> state listing {number}"
        )
    };
    let pages = (1..21).map(page).collect::<Vec<_>>().join("\n");
    check(&format!(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        {pages}
        list v=9 continue=t21 a/x21@5
        > list failed: the pages of the list bring no new objects and do not end; retry now
        > list rv=0
        > state connecting
        list v=9 a/x@5
        > push replaced @9 [a/x@5]
        > watch rv=9
        > state stale
        "
    ));
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        during 10m 300..1200 list: list v=9 continue=t# a/x#@5
        > state backing off: the pages of the list bring no new objects and do not end
        ",
    );
}

/// Regression: a server that never sends more than 20 objects per page was not listed at all, because such
/// pages counted as tiny also in the list without a page size.
#[test]
fn server_with_its_own_small_pages_is_listed() {
    const PAGES: u32 = 40;
    let objects = |page: u32| (0..20).map(|item| format!("a/x{:03}@5", page * 20 + item)).collect::<Vec<_>>();
    let page = |page: u32, list: &str| {
        let (body, received) = (objects(page).join(" "), (page + 1) * 20);
        format!(
            "list v=9 continue={list}{page} {body}\n> list limit=500 continue={list}{page}\n> state listing {received}"
        )
    };
    let paged = (0..33).map(|number| page(number, "p")).collect::<Vec<_>>().join("\n");
    let unpaged = (0..PAGES - 1).map(|number| page(number, "u")).collect::<Vec<_>>().join("\n");
    let (tiny, last) = (objects(33).join(" "), objects(PAGES - 1).join(" "));
    let all = (0..PAGES).flat_map(objects).collect::<Vec<_>>().join(", ");
    check(&format!(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        {paged}
        list v=9 continue=p33 {tiny}
        > list failed: the pages of the list bring no new objects and do not end; retry now
        > list rv=0
        > state connecting
        {unpaged}
        list v=9 {last}
        > push replaced @9 [{all}]
        > watch rv=9
        > state stale
        "
    ));
}
