//! Watch-lists that arrive slowly or never end.

use super::check;

// C11: some servers never end the initial events.
#[test]
fn endless_initial_events_are_replaced_by_a_list_and_disable_watch_lists() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        deadline
        > deadline in 120s
        200
        > state listing 0
        deadline
        > deadline in 10s
        ADDED a/x@5
        > state listing 1
        after 10s
        after 10s
        > cancel
        > watch-list disabled: the initial events did not complete
        > watch-list failed: the initial events did not complete; retry now
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
        > watch failed: 410 Expired; retry now
        > list rv=9 match=NotOlderThan
        > state stale
        count stray_responses watch_lists
        > stray_responses 1 watch_lists 1
        ",
    );
}

#[test]
fn silent_watch_list_is_replaced_by_a_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        after 10s
        > cancel
        > watch-list disabled: the initial events did not complete
        > watch-list failed: the initial events did not complete; retry now
        > list limit=500 rv=0
        > state connecting
        ",
    );
}

// Live changes of a busy cluster are not progress, because they never end.
#[test]
fn changes_of_known_objects_are_not_progress() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
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
        > watch-list disabled: the initial events did not complete
        > watch-list failed: the initial events did not complete; retry now
        > list limit=500 rv=0
        > state connecting
        ",
    );
}

#[test]
fn watch_list_that_grows_by_one_percent_or_less_is_replaced_by_a_list() {
    let objects: Vec<_> = (0..300).map(|n| format!("ADDED a/x{n}@5")).collect();
    let objects = objects.join(" + ");
    check(&format!(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        {objects}
        > state listing 300
        after 10s
        ADDED b/w@6 + ADDED b/x@6 + ADDED b/y@6 + ADDED b/z@6
        > state listing 304
        after 10s
        ADDED c/x@6 + ADDED c/y@6 + ADDED c/z@6
        > state listing 307
        after 10s
        > cancel
        > watch-list disabled: the initial events did not complete
        > watch-list failed: the initial events did not complete; retry now
        > list limit=500 rv=0
        > state connecting
        "
    ));
}

#[test]
fn slow_watch_list_with_progress_completes() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
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
