//! Malformed bodies and unreadable objects, which affect nothing else (C9).

use super::check;

#[test]
fn list_that_ends_too_early_fails() {
    check(
        r#"
        with watch-list never
        start
        > list limit=500 rv=0
        200
        > state listing 0
        bytes {"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[
        end
        > list failed: list at byte 62: the body ends too early; retry in 800ms..1.6s
        > state backing off: list at byte 62: the body ends too early
        wake
        > list limit=500 rv=0
        > state connecting
        200
        > state listing 0
        end
        > list failed: list at byte 0: the body ends too early; retry in 1.6s..3.2s
        > state backing off: list at byte 0: the body ends too early
        "#,
    );
}

#[test]
fn list_that_is_not_json_fails() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        200
        > state listing 0
        bytes hello
        > cancel
        > list failed: list at byte 0: not JSON: expected `{`, found `h`; retry in 800ms..1.6s
        > state backing off: list at byte 0: not JSON: expected `{`, found `h`
        wake
        > list limit=500 rv=0
        > state connecting
        200 type=text/html
        bytes <html>password: hunter2</html>
        end
        > list failed: expected JSON or protobuf, got text/html (a proxy's page?); retry in 1.6s..3.2s
        > state backing off: expected JSON or protobuf, got text/html (a proxy's page?)
        ",
    );
}

#[test]
fn body_is_read_in_the_declared_encoding() {
    check(
        r#"
        with watch-list never
        start
        > list limit=500 rv=0
        200 type=application/vnd.kubernetes.protobuf
        > state listing 0
        bytes {"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}
        > cancel
        > list failed: list at byte 0: not protobuf: no Kubernetes magic number at the start; retry in 800ms..1.6s
        > state backing off: list at byte 0: not protobuf: no Kubernetes magic number at the start
        wake
        > list limit=500 rv=0
        > state connecting
        200 type=application/json
        > state listing 0
        bytes {"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}
        end
        > push replaced @9 []
        > watch rv=9
        > state stale
        200 type=application/json
        > state live
        bytes k8s
        > cancel
        > watch failed: frame #0 at byte 0: not JSON: expected `{`, found `k`; retry in 1.6s..3.2s
        > state backing off: frame #0 at byte 0: not JSON: expected `{`, found `k`
        "#,
    );
}

// Regression: behind a proxy that treats bodies as text, every protobuf body was malformed, and the cache
// never synced because the next request accepted protobuf again.
#[test]
fn second_malformed_protobuf_list_disables_protobuf() {
    check(
        r#"
        with watch-list never
        start
        > list limit=500 rv=0
        200 type=application/vnd.kubernetes.protobuf
        > state listing 0
        bytes �k8s
        > cancel
        > list failed: list at byte 0: not protobuf: no Kubernetes magic number at the start; retry in 800ms..1.6s
        > state backing off: list at byte 0: not protobuf: no Kubernetes magic number at the start
        wake
        > list limit=500 rv=0
        > state connecting
        200 type=application/vnd.kubernetes.protobuf
        > state listing 0
        bytes �k8s
        > protobuf disabled: list at byte 0: not protobuf: no Kubernetes magic number at the start
        > cancel
        > list failed: list at byte 0: not protobuf: no Kubernetes magic number at the start; retry in 1.6s..3.2s
        > state backing off: list at byte 0: not protobuf: no Kubernetes magic number at the start
        wake
        > list limit=500 rv=0 in JSON
        > state connecting
        200 type=application/json
        > state listing 0
        bytes {"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}
        end
        > push replaced @9 []
        > watch rv=9 in JSON
        > state stale
        "#,
    );
}

// Regression: behind a proxy that treats bodies as text, every watch failed as well.
#[test]
fn second_malformed_protobuf_watch_disables_protobuf() {
    check(
        r#"
        with watch-list never
        start
        > list limit=500 rv=0
        200 type=application/json
        > state listing 0
        bytes {"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}
        end
        > push replaced @9 []
        > watch rv=9
        > state stale
        200 type=application/vnd.kubernetes.protobuf;stream=watch
        > state live
        bytes zzzz
        > cancel
        > watch failed: frame #0 at byte 4: not protobuf: a frame of 2054847098 bytes exceeds the limit; retry in 800ms..1.6s
        > state backing off: frame #0 at byte 4: not protobuf: a frame of 2054847098 bytes exceeds the limit
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        200 type=application/json
        bytes {"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[]}
        end
        > watch rv=9
        200 type=application/vnd.kubernetes.protobuf;stream=watch
        > state live
        bytes zzzz
        > protobuf disabled: frame #0 at byte 4: not protobuf: a frame of 2054847098 bytes exceeds the limit
        > cancel
        > watch failed: frame #0 at byte 4: not protobuf: a frame of 2054847098 bytes exceeds the limit; retry in 1.6s..3.2s
        > state backing off: frame #0 at byte 4: not protobuf: a frame of 2054847098 bytes exceeds the limit
        wake
        > list limit=1 rv=9 match=NotOlderThan in JSON
        > state stale
        "#,
    );
}

#[test]
fn truncated_protobuf_body_does_not_disable_protobuf() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        200 type=application/vnd.kubernetes.protobuf
        > state listing 0
        bytes k8s
        end
        > list failed: list at byte 3: the body ends too early; retry in 800ms..1.6s
        > state backing off: list at byte 3: the body ends too early
        wake
        > list limit=500 rv=0
        > state connecting
        200 type=application/vnd.kubernetes.protobuf
        > state listing 0
        bytes k8s
        end
        > list failed: list at byte 3: the body ends too early; retry in 1.6s..3.2s
        > state backing off: list at byte 3: the body ends too early
        wake
        > list limit=500 rv=0
        > state connecting
        ",
    );
}

#[test]
fn body_that_is_not_a_list_fails() {
    check(
        r#"
        with watch-list never
        start
        > list limit=500 rv=0
        200
        > state listing 0
        bytes {"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"rows":[]}
        > cancel
        > list failed: list at byte 15: not a list but a Table; retry in 800ms..1.6s
        > state backing off: list at byte 15: not a list but a Table
        wake
        > list limit=500 rv=0
        > state connecting
        200
        > state listing 0
        bytes {"kind":"Status","status":"Failure","code":500}
        > cancel
        > list failed: list at byte 16: not a list but a Status; retry in 1.6s..3.2s
        > state backing off: list at byte 16: not a list but a Status
        wake
        > list limit=500 rv=0
        > state connecting
        200
        > state listing 0
        bytes {"metadata":{"resourceVersion":"9"}}
        end
        > list failed: list at byte 36: not a list but a body without items; retry in 3.2s..6.4s
        > state backing off: list at byte 36: not a list but a body without items
        "#,
    );
}

#[test]
fn list_without_a_version_fails() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        200
        > state listing 0
        page a/x@5
        > cancel
        > list failed: list at byte 49: invalid list metadata: no resourceVersion; retry in 800ms..1.6s
        > state backing off: list at byte 49: invalid list metadata: no resourceVersion
        wake
        > list limit=500 rv=0
        > state connecting
        200
        > state listing 0
        page v= a/x@5
        > cancel
        > list failed: list at byte 69: invalid list metadata: no resourceVersion; retry in 1.6s..3.2s
        > state backing off: list at byte 69: invalid list metadata: no resourceVersion
        ",
    );
}

// C9, P12
#[test]
fn unreadable_items_of_a_list_are_skipped_and_reported() {
    check(
        "
        with watch-list never
        with max-object-size 300
        start
        > list limit=500 rv=0
        200
        > state listing 0
        page v=9 a/x@5 a/no-version @6 a/big@7;big =17 =null a/y@6
        > unreadable a/no-version: metadata.resourceVersion is missing
        > unreadable ?@6: metadata.name is missing
        > unreadable a/big@7: larger than 300 bytes
        > unreadable ?: not an object
        > unreadable ?: not an object
        > state listing 7
        end
        > push replaced @9 [a/x@5, a/y@6] unreadable [a/no-version, ?@6, a/big@7, ?, ?]
        > watch rv=9
        > state stale
        count unreadable
        > unreadable 5
        200
        > state live
        after 10s
        end
        > watch rv=9
        ",
    );
}

// C9, C7
#[test]
fn unreadable_items_are_counted_as_received() {
    check(
        "
        with watch-list never
        start
        > list limit=500 rv=0
        200
        > state listing 0
        page v=9 continue=t remaining=1 a/no-version
        > unreadable a/no-version: metadata.resourceVersion is missing
        > state listing 1
        end
        > list limit=500 continue=t
        > state listing 1/2
        list v=9 a/x@5
        > push replaced @9 [a/x@5] unreadable [a/no-version]
        > watch rv=9
        > state stale
        ",
    );
}

// C9
#[test]
fn unreadable_objects_of_a_watch_list_are_skipped_and_reported() {
    check(
        "
        with max-object-size 300
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        ADDED a/no-version
        > unreadable a/no-version: metadata.resourceVersion is missing
        ADDED @6
        > unreadable ?@6: metadata.name is missing
        ADDED a/big@7;big
        > unreadable a/big@7: larger than 300 bytes
        ADDED =17
        > unreadable ?: not an object
        BOOKMARK @9 end
        > push replaced @9 [a/x@5] unreadable [a/big@7, a/no-version]
        > state live
        count unreadable
        > unreadable 4
        ",
    );
}

// C9: the last frame of an object decides.
#[test]
fn last_frame_of_an_object_in_a_watch_list_decides_whether_it_is_readable() {
    check(
        "
        with max-object-size 300
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5;big
        > unreadable a/x@5: larger than 300 bytes
        MODIFIED a/x@6
        > state listing 1
        ADDED a/y@5
        > state listing 2
        MODIFIED a/y@6;big
        > unreadable a/y@6: larger than 300 bytes
        ADDED a/z@5;big
        > unreadable a/z@5: larger than 300 bytes
        DELETED a/z@6;big
        > unreadable a/z@6: larger than 300 bytes
        ADDED a/w@5;big
        > unreadable a/w@5: larger than 300 bytes
        DELETED a/w@6
        BOOKMARK @9 end
        > push replaced @9 [a/x@6, a/y@5] unreadable [a/y@6]
        > state live
        ",
    );
}

// C9
#[test]
fn frames_of_an_unknown_type_do_not_change_a_watch_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        PING a/x@7
        > unreadable a/x@7: unknown frame type
        BOOKMARK @9 end
        > push replaced @9 [a/x@5]
        > state live
        ",
    );
}

/// Regression: a list of another kind replaced the cache: its items were delivered as additions and all
/// cached objects as deletions. If the items declared their own kind, the cache was emptied and still live.
#[test]
fn list_of_another_kind_does_not_replace_the_cache() {
    check(
        r#"
        with watch-list never
        start
        > list limit=500 rv=0
        200
        > state listing 0
        bytes {"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[]}
        > cancel
        > list failed: list at byte 20: unexpected kind: SecretList; retry in 800ms..1.6s
        > state backing off: list at byte 20: unexpected kind: SecretList
        wake
        > list limit=500 rv=0
        > state connecting
        200
        > state listing 0
        page v=9 a/x@5 a/y@8;kind=Secret
        > cancel
        > list failed: item #1 at byte 290: unexpected kind: v1 Secret; retry in 1.6s..3.2s
        > state backing off: item #1 at byte 290: unexpected kind: v1 Secret
        "#,
    );
}

/// Regression: a watch-list of another kind emptied the cache. The bookmark that ends its initial events
/// belongs to that kind, too.
#[test]
fn watch_list_of_another_kind_does_not_replace_the_cache() {
    for frame in ["ADDED a/x@5;kind=Secret", "DELETED a/x@5;kind=Secret"] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            200
            > state listing 0
            {frame}
            > unreadable a/x@5: unexpected kind: v1 Secret
            > cancel
            > watch-list failed: the stream contains another kind; retry now
            > list limit=500 rv=0
            > state connecting
            ",
        ));
    }
    check(
        r#"
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        bytes {"type":"BOOKMARK","object":{"kind":"Secret","apiVersion":"v1","metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}}
        > unreadable ?@9: unexpected kind: v1 Secret
        > cancel
        > watch-list failed: the stream contains another kind; retry now
        > list limit=500 rv=0
        > state connecting
        "#,
    );
}

// C9, P11
#[test]
fn unreadable_objects_of_a_watch_are_reported_and_advance_the_position() {
    check(
        "
        with watch-list never
        with max-object-size 300
        start
        > list limit=500 rv=0
        list v=9 a/x@5
        > push replaced @9 [a/x@5]
        > watch rv=9
        > state stale
        200
        > state live
        MODIFIED a/x@10;big
        > push unreadable a/x@10
        > unreadable a/x@10: larger than 300 bytes
        ADDED a/no-version
        > push unreadable a/no-version
        > unreadable a/no-version: metadata.resourceVersion is missing
        ADDED @11
        > push unreadable ?@11
        > unreadable ?@11: metadata.name is missing
        ADDED =17
        > push unreadable ?
        > unreadable ?: not an object
        DELETED a/x@12;big
        > push deleted a/x@12 (last state unreadable)
        > unreadable a/x@12: larger than 300 bytes
        PING a/x@13
        > unreadable a/x@13: unknown frame type
        after 10s
        end
        > watch rv=12
        count unreadable
        > unreadable 6
        ",
    );
}

// C2: only a full list can reveal which object was deleted.
#[test]
fn deletion_of_an_unknown_object_causes_a_relist() {
    check(
        "
        live v=9 a/x@5
        > state live
        after 10s
        DELETED @11 + MODIFIED a/x@12
        > unreadable ?@11: metadata.name is missing
        > cancel
        > watch failed: a deletion could not be read; retry in 800ms..1.6s
        > state backing off: a deletion could not be read
        wake
        > list rv=11 match=NotOlderThan
        > state stale
        list v=12
        > push replaced @12 []
        > watch rv=12
        ",
    );
}

// C2
#[test]
fn deletion_of_an_unknown_object_fails_a_watch_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        DELETED =17
        > unreadable ?: not an object
        > cancel
        > watch-list failed: a deletion could not be read; retry now
        > list limit=500 rv=0
        > state connecting
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        ",
    );
}

// The key and version of an object of another kind do not belong to this cache.
#[test]
fn object_of_another_kind_is_reported_and_does_not_advance_the_position() {
    check(
        "
        live v=9 a/x@5
        > state live
        MODIFIED a/x@70;kind=Node
        > unreadable a/x@70: unexpected kind: v1 Node
        DELETED a/x@71;kind=Node
        > unreadable a/x@71: unexpected kind: v1 Node
        after 10s
        end
        > watch rv=9
        ",
    );
}

// C9: no relist and no hot loop, however many objects are unreadable.
#[test]
fn watch_with_only_unreadable_objects_stays_open() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/no-version
        > unreadable a/no-version: metadata.resourceVersion is missing
        BOOKMARK @9 end
        > push replaced @9 [] unreadable [a/no-version]
        > state live
        ADDED a/no-version
        > push unreadable a/no-version
        > unreadable a/no-version: metadata.resourceVersion is missing
        ADDED a/no-version
        > push unreadable a/no-version
        > unreadable a/no-version: metadata.resourceVersion is missing
        ADDED a/no-version
        > push unreadable a/no-version
        > unreadable a/no-version: metadata.resourceVersion is missing
        ADDED @10
        > push unreadable ?@10
        > unreadable ?@10: metadata.name is missing
        after 10s
        end
        > watch rv=10
        count unreadable watch_lists lists watches
        > unreadable 5 watch_lists 1 lists 0 watches 1
        ",
    );
}

#[test]
fn truncated_frame_is_received_again_by_the_next_watch() {
    check(
        r#"
        live v=9
        > state live
        after 10s
        ADDED a/x@10
        > push added a/x@10
        bytes {"type":"ADDED","object":{"metadata":{"name":"y"
        end
        > watch failed: frame #1 at byte 179: the body ends too early; retry now
        > watch rv=10
        > state stale
        "#,
    );
}

#[test]
fn watch_that_is_not_json_fails() {
    check(
        "
        live v=9
        > state live
        bytes hello
        > cancel
        > watch failed: frame #0 at byte 0: not JSON: expected `{`, found `h`; retry in 800ms..1.6s
        > state backing off: frame #0 at byte 0: not JSON: expected `{`, found `h`
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200 type=text/html
        bytes <html>password: hunter2</html>
        end
        > watch failed: expected JSON or protobuf, got text/html (a proxy's page?); retry in 1.6s..3.2s
        > state backing off: expected JSON or protobuf, got text/html (a proxy's page?)
        ",
    );
}

#[test]
fn frames_before_malformed_bytes_are_applied() {
    check(
        r#"
        live v=9
        > state live
        bytes {"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"10"}}}]
        > push bookmark @10
        > cancel
        > watch failed: frame #1 at byte 66: not JSON: expected `{`, found `]`; retry in 800ms..1.6s
        > state backing off: frame #1 at byte 66: not JSON: expected `{`, found `]`
        wake
        > list limit=1 rv=10 match=NotOlderThan
        > state stale
        list v=10
        > watch rv=10
        "#,
    );
}

#[test]
fn watch_list_that_is_not_json_is_replaced_by_a_list() {
    check(
        "
        start
        > watch-list match=NotOlderThan rv=
        200
        > state listing 0
        ADDED a/x@5
        > state listing 1
        bytes ]
        > cancel
        > watch-list failed: frame #1 at byte 130: not JSON: expected `{`, found `]`; retry now
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
        200 type=text/html
        bytes <html>password: hunter2</html>
        end
        > watch-list failed: expected JSON or protobuf, got text/html (a proxy's page?); retry now
        > list rv=9 match=NotOlderThan
        ",
    );
}

#[test]
fn error_frame_without_a_code_is_a_transient_failure() {
    check(
        r#"
        live v=9
        > state live
        ERROR
        > cancel
        > watch failed: a failure without a code; retry in 800ms..1.6s
        > state backing off: a failure without a code
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        bytes {"type":"ERROR","object":{"code":"many"}}
        > cancel
        > watch failed: a failure without a code; retry in 1.6s..3.2s
        > state backing off: a failure without a code
        wake
        > list limit=1 rv=9 match=NotOlderThan
        > state stale
        list v=9
        > watch rv=9
        200
        > state live
        bytes {"type":"ERROR"}
        > cancel
        > watch failed: a failure without a code; retry in 3.2s..6.4s
        > state backing off: a failure without a code
        "#,
    );
}

// A bare `Status` in a watch is read as a frame of unknown type, which is not progress.
#[test]
fn watch_with_a_bare_status_is_unproductive() {
    check(
        r#"
        with watch-list never
        start
        > list limit=500 rv=0
        list v=9
        > push replaced @9 []
        > watch rv=9
        > state stale
        during 10m 15..60 list: list v=9; watch: 200 / bytes {"kind":"Status","code":410} / end
        > state backing off: the watch ended early
        "#,
    );
}

#[test]
fn malformed_bodies_cause_no_hot_loop() {
    for (responses, failure) in [
        (
            "list: 200 / bytes ]; watch-list: 200 / bytes ]",
            "list at byte 0: not JSON: expected `{`, found `]`",
        ),
        (
            "watch-list: reject 500; list: list v=9; watch: 200 / bytes ]",
            "frame #0 at byte 0: not JSON: expected `{`, found `]`",
        ),
        ("watch-list: 200 / BOOKMARK @9 end / DELETED @9", "a deletion could not be read"),
    ] {
        check(&format!(
            "
            start
            > watch-list match=NotOlderThan rv=
            during 10m 12..80 {responses}
            > state backing off: {failure}
            "
        ));
    }
}
