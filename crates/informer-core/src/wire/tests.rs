//! Tests of the readers on small bodies: their output, their errors, and that both are independent of chunk
//! boundaries.
//!
//! Every body is read whole, split at every byte (a long one only at some), in chunks of three bytes, and
//! byte by byte. All must produce the same output and the same error. Outputs are compared as short texts:
//! see [`item_text`] and [`frame_text`].

mod field_filter;

use super::error::BodyElement;
use super::*;
use crate::key::Key;
use crate::version::ResourceVersion;
use std::fmt;

type Read<T> = (Vec<T>, Result<(), WireError>);

const NO_LIMIT: usize = 1 << 20;

fn pod_type() -> TypeMeta {
    TypeMeta::new("v1", "Pod")
}

/// Reads `body` whole, split in two and in small chunks; all results must be equal.
#[track_caller]
fn read_all_splits<T: PartialEq + fmt::Debug>(body: &[u8], read: impl Fn(&[&[u8]]) -> Read<T>) -> Read<T> {
    let whole = read(&[body]);
    // Long bodies are split near their start and end, and at some positions between.
    let (near, step) = if body.len() < 5000 { (body.len(), 1) } else { (20, body.len() / 8) };
    for split in (0..=body.len())
        .filter(|split| *split < near || split + near > body.len() || split.is_multiple_of(step))
    {
        let (left, right) = body.split_at(split);
        assert_eq!(read(&[left, right]), whole, "split at {split}");
    }
    for size in [1, 3] {
        assert_eq!(read(&body.chunks(size).collect::<Vec<_>>()), whole, "in chunks of {size}");
    }
    whole
}

#[track_caller]
fn read_list(type_meta: &TypeMeta, limit: usize, body: &[u8]) -> Read<ListItem> {
    read_all_splits(body, |chunks| {
        let (mut reader, mut items) = (ListReader::new(type_meta.clone(), Limits::new(limit)), Vec::new());
        let read = chunks.iter().try_for_each(|chunk| reader.read(chunk, |item| items.push(item)));
        (items, read.and_then(|()| reader.finish()))
    })
}

#[track_caller]
fn read_watch(type_meta: &TypeMeta, limit: usize, body: &[u8]) -> Read<Frame> {
    read_all_splits(body, |chunks| {
        let (mut reader, mut frames) = (WatchReader::new(type_meta.clone(), Limits::new(limit)), Vec::new());
        let read = chunks.iter().try_for_each(|chunk| reader.read(chunk, |frame| frames.push(frame)));
        (frames, read.and_then(|()| reader.finish()))
    })
}

fn item_text(item: &ListItem) -> String {
    match item {
        ListItem::Meta(meta) => {
            let token =
                meta.continue_token.as_ref().map_or(String::new(), |token| format!(" continue={token}"));
            let remaining = meta.remaining.map_or(String::new(), |count| format!(" remaining={count}"));
            format!("list {}{token}{remaining}", meta.version)
        }
        ListItem::Object(object) => object_text(object),
        ListItem::Unreadable(unreadable) => unreadable_text(unreadable),
    }
}

fn frame_text(frame: &Frame) -> String {
    match frame {
        Frame::Added(object) => format!("ADDED {}", object_text(object)),
        Frame::Modified(object) => format!("MODIFIED {}", object_text(object)),
        Frame::Deleted(object) => format!("DELETED {}", object_text(object)),
        Frame::Bookmark { version, initial_events_end } => {
            let version = version.as_ref().map_or("-", ResourceVersion::as_str);
            format!("BOOKMARK {version}{}", if *initial_events_end { " end" } else { "" })
        }
        Frame::Error(status) => format!("ERROR {status}"),
        Frame::Unreadable(kind, unreadable) => format!("{kind:?}: {}", unreadable_text(unreadable)),
    }
}

fn object_text(object: &ScannedObject) -> String {
    format!("{}@{}", object.head.key, object.head.version)
}

fn unreadable_text(unreadable: &UnreadableObject) -> String {
    let version = unreadable.version.as_ref().map_or(String::new(), |version| format!("; version {version}"));
    format!("{unreadable}{version}")
}

fn texts<T>((items, end): &Read<T>, text: impl Fn(&T) -> String) -> Vec<String> {
    items.iter().map(text).chain(end.as_ref().err().map(|error| format!("error: {error}"))).collect()
}

#[track_caller]
fn check_list(body: impl AsRef<[u8]>, expected: &[&str]) {
    assert_eq!(texts(&read_list(&pod_type(), NO_LIMIT, body.as_ref()), item_text), expected);
}

#[track_caller]
fn check_watch(body: impl AsRef<[u8]>, expected: &[&str]) {
    assert_eq!(texts(&read_watch(&pod_type(), NO_LIMIT, body.as_ref()), frame_text), expected);
}

/// Returns a list of pods at version 10 with these items. The first starts at byte 63.
fn list_of(items: impl AsRef<[u8]>) -> Vec<u8> {
    [br#"{"kind":"PodList","metadata":{"resourceVersion":"10"},"items":["#, items.as_ref(), b"]}"].concat()
}

/// Checks the output for one item of a list.
#[track_caller]
fn check_item(item: impl AsRef<[u8]>, expected: &str) {
    check_list(list_of(item), &["list 10", expected]);
}

/// Returns the object in a list of `item`.
#[track_caller]
fn scanned(item: impl AsRef<[u8]>) -> ScannedObject {
    let (items, end) = read_list(&pod_type(), NO_LIMIT, &list_of(item));
    assert_eq!(end, Ok(()));
    match &items[..] {
        [ListItem::Meta(_), ListItem::Object(object)] => object.clone(),
        other => panic!("expected one object: {other:?}"),
    }
}

/// Checks the bytes of one item of a list, after apiVersion and kind.
#[track_caller]
fn check_bytes(item: &str, expected: &str) {
    let object = scanned(item);
    let text = std::str::from_utf8(&object.bytes).unwrap();
    assert_eq!(text.strip_prefix(r#"{"apiVersion":"v1","kind":"Pod","#).unwrap(), expected);
    let range = object.head.metadata.start as usize..object.head.metadata.end as usize;
    let metadata: serde_json::Value = serde_json::from_slice(&object.bytes[range]).unwrap();
    assert_eq!(metadata, serde_json::from_slice::<serde_json::Value>(&object.bytes).unwrap()["metadata"]);
}

fn time(text: &str) -> jiff::Timestamp {
    text.parse().unwrap()
}

const A: &str = r#"{"metadata":{"name":"a","namespace":"ns","resourceVersion":"1"}}"#;
const B: &str = r#"{"metadata":{"name":"b","namespace":"ns","resourceVersion":"2"}}"#;

// Heads

#[test]
fn head_contains_the_metadata() {
    let head = scanned(
        r#"{"metadata":{"name":"a","generateName":"a-","namespace":"ns","uid":"u-1","resourceVersion":"7",
        "generation":3,"creationTimestamp":"2026-11-15T01:40:00Z","deletionTimestamp":"2026-11-15T01:40:30Z",
        "labels":{"app":"web","tier":""},"annotations":{"x":"y"},"finalizers":["f"],"ownerReferences":[
        {"apiVersion":"apps/v1","kind":"ReplicaSet","name":"rs","uid":"u-2","controller":true,"blockOwnerDeletion":true},
        {"apiVersion":"v1","kind":"Node","name":"n","uid":"u-3"}]},"spec":{}}"#,
    )
    .head;
    assert_eq!(head.key, Key::new("ns", "a"));
    assert_eq!((&*head.uid, head.version.as_str(), head.generation()), ("u-1", "7", Some(3)));
    assert_eq!(head.creation_timestamp(), Some(time("2026-11-15T01:40:00Z")));
    assert_eq!(head.deletion_timestamp(), Some(time("2026-11-15T01:40:30Z")));
    assert_eq!(head.labels.iter().collect::<Vec<_>>(), [("app", "web"), ("tier", "")]);
    let owner = |api_version, kind, name, uid, controller| Owner { api_version, kind, name, uid, controller };
    let owners = [owner("apps/v1", "ReplicaSet", "rs", "u-2", true), owner("v1", "Node", "n", "u-3", false)];
    assert!(head.owners.iter().eq(owners) && head.owners.len() == 2, "{:?}", head.owners);
    assert_eq!(head.owners.controller(), Some(owners[0]));
}

#[test]
fn optional_metadata_may_be_missing_null_or_empty() {
    let nulls = r#"{"metadata":{"name":"n","resourceVersion":"1","namespace":null,"uid":null,"generation":null,
        "creationTimestamp":null,"deletionTimestamp":null,"labels":null,"annotations":null,"ownerReferences":null}}"#;
    let empties =
        r#"{"metadata":{"name":"n","resourceVersion":"1","namespace":"","labels":{},"ownerReferences":[ ]}}"#;
    for item in [r#"{"metadata":{"name":"n","resourceVersion":"1"}}"#, nulls, empties] {
        let head = scanned(item).head;
        assert_eq!((&head.key, &*head.uid, head.generation()), (&Key::cluster("n"), "", None), "{item}");
        assert_eq!((head.creation_timestamp(), head.deletion_timestamp()), (None, None), "{item}");
        assert!(head.labels.is_empty() && head.owners.is_empty(), "{item}");
    }
}

#[test]
fn escapes_are_decoded_in_the_head_and_unchanged_in_the_bytes() {
    let item = r#"{"metadata":{"name":"\u0061\u002db","namespace":"n\u0073","resourceVersion":"\u0031","uid":"\"",
        "labels":{"a\u002fb":"x\\y","\u00e9":"\ud83d\ude00","é":"\t"}}}"#;
    let ScannedObject { head, bytes, .. } = scanned(item);
    assert_eq!((head.key, head.version.as_str(), &*head.uid), (Key::new("ns", "a-b"), "1", "\""));
    assert_eq!(head.labels.iter().collect::<Vec<_>>(), [("a/b", "x\\y"), ("é", "😀"), ("é", "\t")]);
    assert!(String::from_utf8_lossy(&bytes).contains(r#""name":"\u0061\u002db""#));
}

#[test]
fn last_value_of_a_repeated_field_counts() {
    check_item(r#"{"metadata":{"name":"x","name":"a","resourceVersion":"1"}}"#, "a@1");
    // The second metadata replaces the first completely.
    let twice = r#"{"metadata":{"name":"x","namespace":"old","resourceVersion":"1"},"metadata":{"name":"a","resourceVersion":"2"}}"#;
    check_item(twice, "a@2");
}

// Bytes of objects

#[test]
fn managed_fields_are_removed_at_any_position() {
    let fields = r#""managedFields":[{"manager":"m","fieldsV1":{"f:a":{"k:{\"b\":\"]\"}":{}}}}]"#;
    let check = |before: &str, after: &str, expected: &str| {
        let item = format!(r#"{{"metadata":{{{before}{fields}{after}}},"spec":{{"managedFields":[1]}}}}"#);
        check_bytes(&item, &format!(r#""metadata":{{{expected}}},"spec":{{"managedFields":[1]}}}}"#));
    };
    check("", r#","name":"a","resourceVersion":"1""#, r#""name":"a","resourceVersion":"1""#);
    check(r#""name":"a","#, r#","resourceVersion":"1""#, r#""name":"a","resourceVersion":"1""#);
    check(r#""name":"a","resourceVersion":"1","#, "", r#""name":"a","resourceVersion":"1""#);
    let both = format!(r#"{{"metadata":{{{fields},"name":"a",{fields},"resourceVersion":"1"}}}}"#);
    check_bytes(&both, r#""metadata":{"name":"a","resourceVersion":"1"}}"#);
}

#[test]
fn metadata_with_only_managed_fields_becomes_empty() {
    let location = "#0 at byte 63";
    check_item(
        r#"{"metadata":{"managedFields":[]}}"#,
        &format!("object ? ({location}) is unreadable: metadata.name is missing"),
    );
    // A second metadata makes the object readable, and shows the output for the first.
    let item = r#"{"metadata":{"managedFields":[]},"metadata":{"name":"a","resourceVersion":"1"}}"#;
    let expected =
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{},"metadata":{"name":"a","resourceVersion":"1"}}"#;
    assert_eq!(&*scanned(item).bytes, expected.as_bytes());
}

#[test]
fn metadata_may_follow_the_spec() {
    check_bytes(
        r#"{"spec":{"a":1},"metadata":{"managedFields":[{}],"name":"a","resourceVersion":"1"},"status":{}}"#,
        r#""spec":{"a":1},"metadata":{"name":"a","resourceVersion":"1"},"status":{}}"#,
    );
}

#[test]
fn managed_fields_do_not_count_against_the_limit() {
    let fields = format!(r#"{{"f:x":"{}"}}"#, "y".repeat(100_000));
    let item = format!(r#"{{"metadata":{{"name":"a","managedFields":[{fields}],"resourceVersion":"1"}}}}"#);
    let read = read_list(&pod_type(), 200, &list_of(item));
    assert_eq!(texts(&read, item_text), ["list 10", "a@1"]);
}

#[test]
fn object_has_equal_bytes_in_lists_and_watches() {
    let widgets = TypeMeta::new("example.com/v1", "Widget");
    let rest = r#""metadata":{"name":"a","namespace":"ns","resourceVersion":"1"},"spec":{"size":1.50}}"#;
    let expected = format!(r#"{{"apiVersion":"example.com/v1","kind":"Widget",{rest}"#);
    let built_in = format!("{{{rest}");
    let watched = format!(r#"{{"kind":"Widget","apiVersion":"example.com/v1",{rest}"#);
    let managed = expected.replacen(r#""name":"#, r#""managedFields":[{"a":"b"}],"name":"#, 1);
    let pretty = expected.replacen(r#""namespace":"#, "\n  \"namespace\" :\t", 1).replacen(
        r#","spec":"#,
        ",\r\n \"spec\" : ",
        1,
    );
    let last = format!("{},\"kind\":\"Widget\"}}", built_in.strip_suffix('}').unwrap());
    for item in [&built_in, &expected, &watched, &managed, &pretty, &last] {
        let body = String::from_utf8(list_of(item)).unwrap().replacen("PodList", "WidgetList", 1);
        let (items, end) = read_list(&widgets, NO_LIMIT, body.as_bytes());
        let [ListItem::Meta(_), ListItem::Object(listed)] = &items[..] else { panic!("{items:?}") };
        assert_eq!((String::from_utf8_lossy(&listed.bytes).as_ref(), end), (&*expected, Ok(())));
        let frame = format!(r#"{{"type":"ADDED","object":{item}}}"#);
        assert_eq!(
            read_watch(&widgets, NO_LIMIT, frame.as_bytes()),
            (vec![Frame::Added(listed.clone())], Ok(()))
        );
    }
}

// Unreadable objects

#[test]
fn object_with_malformed_head_is_unreadable() {
    let check = |metadata: &str, expected: &str| {
        let item = format!(r#"{{"metadata":{metadata},"spec":{{}}}},{B}"#);
        let expected = expected.replacen("()", "(#0 at byte 63) is unreadable:", 1);
        check_list(list_of(item), &["list 10", &format!("object {expected}"), "ns/b@2"]);
    };
    check(r#"{"namespace":"ns","resourceVersion":"1"}"#, "? () metadata.name is missing; version 1");
    check(r#"{"name":"","resourceVersion":"1"}"#, "? () metadata.name is missing; version 1");
    check(r#"{"name":null}"#, "? () metadata.name is missing");
    check(r#"{"name":7,"resourceVersion":"1"}"#, "? () metadata.name is not a string; version 1");
    check(r#"{"name":["a"],"resourceVersion":"1"}"#, "? () metadata.name is not a string; version 1");
    check(r#"{"name":"a/b","resourceVersion":"1"}"#, "? () metadata.name is not an object name; version 1");
    check(
        r#"{"name":"a\u0000b","resourceVersion":"1"}"#,
        "? () metadata.name is not an object name; version 1",
    );
    check(r#"{"name":"a\ud800","resourceVersion":"1"}"#, "? () metadata.name is not a string; version 1");
    check(r#"{"name":"a","namespace":"n/s"}"#, "? () metadata.namespace is not an object name");
    check(r#"{"name":"a","namespace":1}"#, "? () metadata.namespace is not a string");
    check(r#"{"name":"a","namespace":"ns"}"#, "ns/a () metadata.resourceVersion is missing");
    check(r#"{"name":"a","resourceVersion":""}"#, "a () metadata.resourceVersion is missing");
    check(r#"{"name":"a","resourceVersion":5}"#, "a () metadata.resourceVersion is not a string");
    check(r#"{"name":"a","resourceVersion":"1","uid":{}}"#, "a () metadata.uid is not a string; version 1");
    let with = |rest: &str| format!(r#"{{"name":"a","resourceVersion":"1",{rest}}}"#);
    check(&with(r#""generation":1.5"#), "a () metadata.generation is not an integer; version 1");
    check(&with(r#""creationTimestamp":"now""#), "a () metadata.creationTimestamp is not a time; version 1");
    check(&with(r#""labels":[]"#), "a () metadata.labels is not a map of strings; version 1");
    check(&with(r#""labels":{"a":1}"#), "a () metadata.labels is not a map of strings; version 1");
    let owners = "a () metadata.ownerReferences is not a list of owner references; version 1";
    for bad in ["[1]", "{}", r#"[{"uid":1}]"#] {
        check(&with(&format!(r#""ownerReferences":{bad}"#)), owners);
    }
    for bad in ["null", "[]", "1", r#""a""#] {
        check(bad, "? () metadata.name is missing");
    }
}

#[test]
fn item_that_is_not_an_object_is_unreadable() {
    // Regression: with a split inside such an item, its second half was parsed as a new item.
    for odd in ["null", "12", r#""a,b""#, r#"[{"metadata":{}},[],1]"#, "-1.5e3", r#""\",""#] {
        let expected = "object ? (#0 at byte 63) is unreadable: not an object";
        check_list(list_of(format!("{odd},{B}")), &["list 10", expected, "ns/b@2"]);
        check_list(list_of(format!("{odd} ")), &["list 10", expected]);
    }
}

#[test]
fn item_of_another_kind_makes_the_list_invalid() {
    let check = |type_meta: &str, found: &str| {
        let item = A.replacen('{', &format!("{{{type_meta},"), 1);
        let byte = 63 + item.len();
        let expected = format!("error: item #0 at byte {byte}: unexpected kind: {found}");
        check_list(list_of(format!("{item},{B}")), &["list 10", &expected]);
    };
    check(r#""kind":"Node","apiVersion":"v1""#, "v1 Node");
    check(r#""kind":"Pod","apiVersion":"v2""#, "v2 Pod");
    check(r#""kind":"Node""#, "Node");
    // A kind that is not a string names no other kind: only the item is unreadable.
    let odd = A.replacen('{', r#"{"kind":5,"#, 1);
    let expected = "object ns/a (#0 at byte 63) is unreadable: unexpected kind: 5; version 1";
    check_list(list_of(format!("{odd},{B}")), &["list 10", expected, "ns/b@2"]);
    // Some encoders escape more than necessary.
    check_item(A.replacen('{', r#"{"kind":"\u0050od","#, 1), "ns/a@1");
    let long = "K".repeat(5000);
    check(&format!(r#""kind":"{long}""#), &long[..511]);
}

#[test]
fn invalid_utf8_is_accepted_outside_of_the_head() {
    let item = b"{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"1\"},\"data\":\"\xff\xfe\"}";
    assert!(scanned(item).bytes.ends_with(b"\"data\":\"\xff\xfe\"}"));
    check_item(
        b"{\"metadata\":{\"name\":\"\xff\",\"resourceVersion\":\"1\"}}",
        "object ? (#0 at byte 63) is unreadable: metadata.name is not a string; version 1",
    );
    check_item(
        b"{\"metadata\":{\"name\":\"a\",\"resourceVersion\":\"1\",\"labels\":{\"\xff\":\"\"}}}",
        "object a (#0 at byte 63) is unreadable: metadata.labels is not a map of strings; version 1",
    );
}

#[test]
fn deep_nesting_is_read() {
    let deep = format!("{}1{}", r#"{"a":["#.repeat(50_000), "]}".repeat(50_000));
    let item = A.replacen('{', &format!(r#"{{"spec":{deep},"#), 1);
    check_item(&item, "ns/a@1");
    let managed = A.replacen(r#""name""#, &format!(r#""managedFields":{deep},"name""#), 1);
    check_bytes(&managed, &A[1..]);
    check_watch(format!(r#"{{"x":{deep},"type":"ADDED","object":{A}}}"#), &["ADDED ns/a@1"]);
    check_watch(format!(r#"{{"type":"ERROR","object":{{"code":410,"details":{deep}}}}}"#), &["ERROR 410"]);
}

// The size limit

const LIMIT: usize = 120;

#[track_caller]
fn check_limited(item: &str, expected: &str) {
    let expected = expected.replacen("too large", "is unreadable: larger than 120 bytes", 1);
    let (listed, framed) =
        (expected.replacen("()", "(#0 at byte 63)", 1), expected.replacen("()", "(#0 at byte 0)", 1));
    let read = read_list(&pod_type(), LIMIT, &list_of(format!("{item},{B}")));
    assert_eq!(texts(&read, item_text), ["list 10", &listed, "ns/b@2"]);
    let stream = format!(r#"{{"type":"MODIFIED","object":{item}}}{{"type":"ADDED","object":{B}}}"#);
    let read = read_watch(&pod_type(), LIMIT, stream.as_bytes());
    assert_eq!(texts(&read, frame_text), [&*format!("Modified: {framed}"), "ADDED ns/b@2"]);
}

#[test]
fn object_over_the_limit_is_unreadable_and_the_next_is_read() {
    let long = "x".repeat(300);
    let known = "object ns/a () too large; version 1";
    check_limited(&A.replacen("}}", &format!(r#"}},"spec":"{long}"}}"#), 1), known);
    check_limited(&A.replacen("}}", &format!(r#"}},"{long}":1}}"#), 1), known);
    check_limited(&A.replacen(r#""}}"#, &format!(r#"","labels":{{"a":"{long}"}}}}}}"#), 1), known);
    // A custom resource may have its largest member first: the head is still found.
    check_limited(&A.replacen('{', &format!(r#"{{"spec":"{long}","#), 1), known);
}

#[test]
fn key_of_truncated_metadata_is_reported_only_if_certain() {
    // Regression: truncation between name and namespace turned a namespaced key into a cluster-scoped one.
    let long = "x".repeat(300);
    let between =
        format!(r#"{{"metadata":{{"name":"a","uid":"{long}","namespace":"ns","resourceVersion":"1"}}}}"#);
    check_limited(&between, "object ? () too large");
    let after = format!(r#"{{"metadata":{{"name":"a","resourceVersion":"1"}},"spec":"{long}"}}"#);
    check_limited(&after, "object a () too large; version 1");
}

#[test]
fn limit_counts_the_bytes_of_the_output() {
    let length = scanned(A).bytes.len();
    let fits = |limit| texts(&read_list(&pod_type(), limit, &list_of(A)), item_text)[1] == "ns/a@1";
    assert!(fits(length) && !fits(length - 1));
    // The type is not part of the output, so it is compared even if nothing fits.
    let typed = A.replacen('{', r#"{"kind":"Pod","apiVersion":"v1","#, 1);
    let read = read_list(&pod_type(), 2, &list_of(typed));
    assert_eq!(texts(&read, item_text)[1], "object ? (#0 at byte 63) is unreadable: larger than 2 bytes");
}

#[test]
fn very_long_names_are_not_buffered() {
    let long = "n".repeat(9 << 20);
    let read = |limit, body: &[u8]| {
        let (mut reader, mut items) = (ListReader::new(pod_type(), Limits::new(limit)), Vec::new());
        let end = body.chunks(4096).try_for_each(|chunk| reader.read(chunk, |item| items.push(item)));
        texts(&(items, end.and_then(|()| reader.finish())), item_text)
    };
    let item = A.replacen("}}", &format!(r#"}},"{long}":1}}"#), 1);
    let unreadable = "object ns/a (#0 at byte 63) is unreadable: larger than 1073741824 bytes; version 1";
    assert_eq!(read(usize::MAX, &list_of(item)), ["list 10", unreadable]);
    let top = format!(r#"{{"{long}":1,"metadata":{{"resourceVersion":"10"}},"items":[{A}]}}"#);
    assert_eq!(read(8 << 20, top.as_bytes()), ["list 10", "ns/a@1"]);
}

// Lists

#[test]
fn list_yields_metadata_and_items() {
    let wrap = |rest: &str| format!(r#"{{"kind":"PodList","apiVersion":"v1",{rest}}}"#);
    check_list(wrap(r#""metadata":{"resourceVersion":"10"},"items":[]"#), &["list 10"]);
    check_list(wrap(r#""metadata":{"resourceVersion":"10"},"items":null"#), &["list 10"]);
    check_list(wrap(r#""items":[],"metadata":{"resourceVersion":"10"}"#), &["list 10"]);
    let items = format!(r#""items":[{A},{B}]"#);
    let meta = r#""metadata":{"selfLink":"","resourceVersion":"10","continue":"c=","remainingItemCount":7}"#;
    let meta_text = "list 10 continue=c= remaining=7";
    check_list(wrap(&format!("{meta},{items}")), &[meta_text, "ns/a@1", "ns/b@2"]);
    check_list(wrap(&format!("{items},{meta}")), &["ns/a@1", "ns/b@2", meta_text]);
    let odd = r#""metadata":{"resourceVersion":"10","continue":"","remainingItemCount":-1},"other":[{"items":[1]}],"items":[]"#;
    check_list(wrap(odd), &["list 10"]);
}

#[test]
fn indented_list_is_read() {
    let body = r#"
        {
          "kind": "PodList",
          "metadata": { "resourceVersion": "10", "continue": "\u0063" },
          "items": [
            { "metadata": { "name": "a" , "resourceVersion": "1" } } ,
            { "metadata" : {
              "name" : "b",
              "resourceVersion" : "2"
            } }
          ]
        }
        "#;
    check_list(body, &["list 10 continue=c", "a@1", "b@2"]);
    check_list(body.replace('\n', "\r\n\t"), &["list 10 continue=c", "a@1", "b@2"]);
}

#[test]
fn list_of_a_built_in_kind_is_named_after_it() {
    check_list(r#"{"metadata":{"resourceVersion":"10"},"items":[]}"#, &["list 10"]);
    check_list(r#"{"kind":"\u0050odList","metadata":{"resourceVersion":"10"},"items":[]}"#, &["list 10"]);
    let found = |kind: &str, byte: usize| format!("error: list at byte {byte}: unexpected kind: {kind}");
    let secrets = r#"{"kind":"SecretList","metadata":{"resourceVersion":"10"},"items":[]}"#;
    check_list(secrets, &[&found("SecretList", 20)]);
    let other_version =
        r#"{"apiVersion":"v2","kind":"PodList","metadata":{"resourceVersion":"10"},"items":[]}"#;
    check_list(other_version, &[&found("PodList of v2", 35)]);
    let kind_last = r#"{"items":[],"metadata":{"resourceVersion":"10"},"kind":"SecretList"}"#;
    check_list(kind_last, &["list 10", &found("SecretList", 67)]);
}

#[test]
fn list_of_a_custom_resource_has_any_name_if_its_items_declare_their_kind() {
    let widgets = TypeMeta::new("example.com/v1", "Widget");
    let read = |body: &str| {
        let (items, end) = read_list(&widgets, NO_LIMIT, body.as_bytes());
        (items.len(), end.map_err(|error| error.kind.to_string()))
    };
    let list = |kind: &str, item: &str| {
        format!(
            r#"{{"apiVersion":"example.com/v1","items":[{item}],"kind":"{kind}","metadata":{{"resourceVersion":"10"}}}}"#
        )
    };
    let metadata = r#""metadata":{"name":"a","resourceVersion":"1"}"#;
    let typed = format!(r#"{{"apiVersion":"example.com/v1","kind":"Widget",{metadata}}}"#);
    let untyped = format!("{{{metadata}}}");
    assert_eq!(read(&list("WidgetList", &typed)), (2, Ok(())));
    assert_eq!(read(&list("WidgetList", &untyped)), (2, Ok(())));
    assert_eq!(read(&list("Widgets", &typed)), (2, Ok(())));
    assert_eq!(read(&list("Widgets", "")), (1, Ok(())));
    let unexpected = |kind: &str| Err(format!("unexpected kind: {kind}"));
    assert_eq!(read(&list("Widgets", &untyped)), (1, unexpected("Widgets of example.com/v1")));
    let other_group = list("WidgetList", "").replace("example.com", "example.org");
    assert_eq!(read(&other_group), (0, unexpected("WidgetList of example.org/v1")));
}

#[test]
fn body_that_is_not_a_list_is_rejected() {
    let status = r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":500}"#;
    check_list(status, &["error: list at byte 16: not a list but a Status"]);
    let table = r#"{"kind":"Table","metadata":{"resourceVersion":"10"},"columnDefinitions":[],"rows":[]}"#;
    check_list(table, &["error: list at byte 15: not a list but a Table"]);
    let pod = r#"{"kind":"Pod","metadata":{"name":"a","resourceVersion":"10"},"items":[]}"#;
    check_list(pod, &["error: list at byte 13: not a list but a Pod"]);
    let node = r#"{"kind":"Node","metadata":{"name":"a","resourceVersion":"10"}}"#;
    check_list(node, &["error: list at byte 14: unexpected kind: Node"]);
    let bare = r#"{"metadata":{"resourceVersion":"10"}}"#;
    check_list(bare, &["list 10", "error: list at byte 37: not a list but a body without items"]);
    for odd in [r#"{"a":[]}"#, "5", "nothing", r#""x""#, "false"] {
        let (body, byte) = (format!(r#"{{"items":{odd}}}"#), 9 + odd.len());
        let expected =
            format!("error: list at byte {byte}: not a list but a body whose items are not a list");
        check_list(body, &[&expected]);
    }
}

#[test]
fn list_without_valid_metadata_is_rejected() {
    let check = |metadata: &str, reason: &str| {
        let body = format!(r#"{{"items":[],"metadata":{metadata}}}"#);
        let byte = 23 + metadata.len();
        check_list(body, &[&format!("error: list at byte {byte}: invalid list metadata: {reason}")]);
    };
    check("{}", "no resourceVersion");
    check(r#"{"resourceVersion":""}"#, "no resourceVersion");
    check(r#"{"resourceVersion":null}"#, "no resourceVersion");
    check(r#"{"resourceVersion":5}"#, "a field has the wrong type");
    check("null", "a field has the wrong type");
    check("[]", "a field has the wrong type");
    let twice = r#"{"metadata":{"resourceVersion":"1"},"metadata":{"resourceVersion":"2"},"items":[]}"#;
    check_list(twice, &["list 1", "error: list at byte 70: invalid list metadata: present twice"]);
    check_list(r#"{"items":[]}"#, &["error: list at byte 12: invalid list metadata: missing"]);
}

#[test]
fn list_metadata_over_the_limit_is_rejected() {
    // Regression: a middle part that did not fit was left out, and the rest parsed as metadata without a
    // token.
    let body = format!(r#"{{"metadata":{{"resourceVersion":"1","continue":"{}"}}}}"#, "c".repeat(70_000));
    let expected = format!("error: list at byte {}: invalid list metadata: ", body.len() - 1);
    check_list(&body, &[&format!("{expected}a field has the wrong type")]);
    let mut reader = ListReader::new(pod_type(), Limits::default());
    let mut read = |chunk: &str| reader.read(chunk.as_bytes(), |_| {});
    assert_eq!((read(&body[..100]), read(&body[100..70_000])), (Ok(()), Ok(())));
    assert!(read(&body[70_000..]).is_err());
}

#[test]
fn malformed_list_is_rejected_at_the_first_invalid_byte() {
    let check = |body: &str, expected: &str| check_list(body, &[&format!("error: {expected}")]);
    check("<html>nope</html>", "list at byte 0: not JSON: expected `{`, found `<`");
    check("\n[]", "list at byte 1: not JSON: expected `{`, found `[`");
    check("404 page not found\n", "list at byte 0: not JSON: expected `{`, found `4`");
    check("\u{1f}\u{8b}", "list at byte 0: not JSON: expected `{`, found byte 0x1f");
    check("{,}", "list at byte 1: not JSON: expected a member or `}`, found `,`");
    check(r#"{"items"[]}"#, "list at byte 8: not JSON: expected `:`, found `[`");
    check(r#"{"items":}"#, "list at byte 9: not JSON: expected a value, found `}`");
    check(r#"{"items":[]"a":1}"#, "list at byte 11: not JSON: expected `,` or `}`, found `\"`");
    check(r#"{"items":[],}"#, "list at byte 12: not JSON: expected a member, found `}`");
    check(r#"{"items":[,]}"#, "list at byte 10: not JSON: expected an item, found `,`");
    check(r#"{"items":[}"#, "list at byte 10: not JSON: expected an item, found `}`");
    check(r#"{"items":[:"#, "list at byte 10: not JSON: expected an item, found `:`");
    check(r#"{"items":[{"metadata":}]}"#, "item #0 at byte 22: not JSON: expected a value, found `}`");
    check(r#"{"items":[{"metadata":{"name"}}]}"#, "item #0 at byte 29: not JSON: expected `:`, found `}`");
    let comma = format!(r#"{{"items":[{A},]}}"#);
    check_list(comma, &["ns/a@1", "error: list at byte 75: not JSON: expected an item, found `]`"]);
    let after = format!(r#"{{"items":[{A} {B}]}}"#);
    check_list(after, &["ns/a@1", "error: list at byte 75: not JSON: expected `,` or `]`, found `{`"]);
    let trailing = [&list_of(A), &b" {}"[..]].concat();
    check_list(
        trailing,
        &["list 10", "ns/a@1", "error: list at byte 130: not JSON: expected the end, found `{`"],
    );
}

#[test]
fn list_that_ends_too_early_is_reported_as_truncated() {
    let body = list_of(format!("{A},{B}"));
    for end in 0..body.len() {
        let (items, result) = read_list(&pod_type(), NO_LIMIT, &body[..end]);
        let index = u64::from(end >= 63 + A.len()) + u64::from(end > 63 + A.len() + B.len());
        let location = BodyLocation { index, byte: end as u64 };
        let (first, second) = (63..63 + A.len(), 64 + A.len()..64 + A.len() + B.len());
        let is_item = [first, second].iter().any(|item| item.start < end && end < item.end);
        let element = if is_item { BodyElement::Item } else { BodyElement::List };
        assert_eq!(result, Err(WireError { element, location, kind: BodyErrorKind::Truncated }), "{end}");
        assert!(items.len() <= 3);
    }
    check_list(&body[..100], &["list 10", "error: item #0 at byte 100: the body ends too early"]);
    check_list("", &["error: list at byte 0: the body ends too early"]);
}

// Watches

#[test]
fn every_frame_type_is_recognized() {
    let stream = format!(
        r#"{{"type":"ADDED","object":{A}}}
{{"type":"MODIFIED","object":{B}}}
{{"object":{A},"type":"DELETED"}}
{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"9"}}}}}}
{{"type":"ERROR","object":{{"kind":"Status","reason":"Expired","message":"too old","code":410}}}}
"#
    );
    let expected =
        ["ADDED ns/a@1", "MODIFIED ns/b@2", "DELETED ns/a@1", "BOOKMARK 9", "ERROR 410 Expired: too old"];
    check_watch(&stream, &expected);
    check_watch(stream.replace('\n', ""), &expected);
    let pretty = stream.replace(r#"":"#, "\" :\n  ").replace(r#",""#, "\r\n ,\t\"").replace('{', "{ ");
    check_watch(pretty, &expected);
    check_watch(" \n", &[]);
    check_watch("", &[]);
}

#[test]
fn bookmark_ends_the_initial_events_only_if_annotated_with_true() {
    let check = |metadata: &str, expected: &str| {
        check_watch(format!(r#"{{"type":"BOOKMARK","object":{{"metadata":{metadata}}}}}"#), &[expected]);
    };
    let annotated = |value: &str| {
        format!(r#"{{"resourceVersion":"9","annotations":{{"a":"b","k8s.io/initial-events-end":{value}}}}}"#)
    };
    check(&annotated(r#""true""#), "BOOKMARK 9 end");
    check(&annotated(r#""tru\u0065""#), "BOOKMARK 9 end");
    check(&annotated(r#""false""#), "BOOKMARK 9");
    check(&annotated(r#""""#), "BOOKMARK 9");
    check(&annotated("true"), "BOOKMARK 9");
    check(r#"{"resourceVersion":"9","annotations":null}"#, "BOOKMARK 9");
    check(r#"{"resourceVersion":"9","creationTimestamp":null}"#, "BOOKMARK 9");
    check(r#"{"resourceVersion":""}"#, "BOOKMARK -");
    check(r#"{"resourceVersion":9}"#, "BOOKMARK -");
    check("{}", "BOOKMARK -");
    check_watch(r#"{"type":"BOOKMARK"}"#, &["BOOKMARK -"]);
    check_watch(r#"{"type":"BOOKMARK","object":null}"#, &["BOOKMARK -"]);
}

#[test]
fn error_frame_contains_the_readable_status_fields() {
    let status = |object: &str| {
        let body = format!(r#"{{"type":"ERROR","object":{object}}}"#);
        match &read_watch(&pod_type(), NO_LIMIT, body.as_bytes()) {
            (frames, Ok(())) if frames.len() == 1 => match &frames[0] {
                Frame::Error(status) => status.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let too_large = status(
        r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: Too large","reason":"Timeout",
        "details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"Too large"}],"retryAfterSeconds":1},"code":504}"#,
    );
    assert_eq!((too_large.code, &*too_large.reason, too_large.version_too_large), (504, "Timeout", true));
    assert_eq!(too_large.retry_after, Some(std::time::Duration::from_secs(1)));
    assert!(status(r#"{"message":"Too large resource version: 9"}"#).version_too_large);
    assert!(!status(r#"{"code":504,"details":{"causes":[{"reason":"Other"}]}}"#).version_too_large);
    let check = |object: &str, expected: &str| assert_eq!(status(object).to_string(), expected, "{object}");
    check(r#"{"reason":"Expired","message":"a \"b\""}"#, "Expired: a \"b\"");
    check(r#"{"code":410}"#, "410");
    check(r#"{"message":"gone","code":410,"details":null}"#, "410: gone");
    for nothing in ["{}", "null", "[]", r#"{"code":"410"}"#, r#"{"code":70000}"#] {
        check(nothing, "a failure without a code");
    }
    check_watch(r#"{"type":"ERROR"}"#, &["ERROR a failure without a code"]);
}

#[test]
fn unreadable_frame_is_skipped_and_the_next_is_read() {
    let check = |frame: &str, expected: &str| {
        // The location is that of the frame's opening bracket, not of the white space before it.
        let stream = format!(
            "{{\"type\":\"ADDED\",\"object\":{A}}}\n \n{frame}\n{{\"type\":\"ADDED\",\"object\":{B}}}"
        );
        let expected = expected.replacen("()", "(#1 at byte 93) is unreadable:", 1);
        check_watch(stream, &["ADDED ns/a@1", &expected, "ADDED ns/b@2"]);
    };
    check(r#"{"type":"ADDED"}"#, "Added: object ? () not an object");
    check(r#"{"type":"ADDED","object":null}"#, "Added: object ? () not an object");
    check(r#"{"type":"DELETED","object":"a{"}"#, "Deleted: object ? () not an object");
    check(r#"{"type":"MODIFIED","object":[{}]}"#, "Modified: object ? () not an object");
    check(r#"{"type":"DELETED","object":{}}"#, "Deleted: object ? () metadata.name is missing");
    check(
        r#"{"type":"ADDED","object":{"metadata":{"name":"a"}}}"#,
        "Added: object a () metadata.resourceVersion is missing",
    );
    check(
        r#"{"type":"ADDED","object":{"kind":"Node","metadata":{"name":"a"}}}"#,
        "Added: object a () unexpected kind: Node",
    );
    check("{}", r#"Unknown(""): object ? () not an object"#);
    let unknown = "object ns/a () unknown frame type; version 1";
    check(&format!(r#"{{"object":{A}}}"#), &format!(r#"Unknown(""): {unknown}"#));
    check(&format!(r#"{{"type":"RENAMED","object":{A}}}"#), &format!(r#"Unknown("RENAMED"): {unknown}"#));
    check(&format!(r#"{{"type":null,"object":{A}}}"#), &format!(r#"Unknown("null"): {unknown}"#));
    let long = "T".repeat(500);
    check(
        &format!(r#"{{"type":"{long}","object":{A}}}"#),
        &format!(r#"Unknown("{}"): {unknown}"#, &long[..63]),
    );
}

#[test]
fn last_type_and_object_of_a_frame_count() {
    let frame = format!(r#"{{"type":"ADDED","object":{A},"x":1,"object":{B},"type":"DELETED"}}"#);
    check_watch(frame, &["DELETED ns/b@2"]);
}

#[test]
fn malformed_stream_is_rejected_at_the_first_invalid_byte() {
    let check = |rest: &str, expected: &str| {
        let stream = format!("{{\"type\":\"ADDED\",\"object\":{A}}}\n{rest}");
        check_watch(stream, &["ADDED ns/a@1", &format!("error: frame #1 at byte {expected}")]);
    };
    check_watch("<html></html>", &["error: frame #0 at byte 0: not JSON: expected `{`, found `<`"]);
    check("too many requests", "91: not JSON: expected `{`, found `t`");
    check("null", "91: not JSON: expected `{`, found `n`");
    check("}", "91: not JSON: expected `{`, found `}`");
    check(r#"{"type"}"#, "98: not JSON: expected `:`, found `}`");
    check(r#"{"type":"ADDED","object":{"metadata":{]"#, "129: not JSON: expected a member or `}`, found `]`");
    check(r#"{"type":"ADDED","object":{"#, "117: the body ends too early");
    check("{", "92: the body ends too early");
}

#[test]
fn stream_that_ends_inside_a_frame_is_reported_as_truncated() {
    let frame = format!("{{\"type\":\"ADDED\",\"object\":{A}}}");
    let stream = format!("{frame}\n{frame}\n");
    for end in 0..=stream.len() {
        let (frames, result) = read_watch(&pod_type(), NO_LIMIT, &stream.as_bytes()[..end]);
        let index = u64::from(end >= frame.len());
        let is_inside = ![0, frame.len(), frame.len() + 1, stream.len() - 1, stream.len()].contains(&end);
        let location = BodyLocation { index, byte: end as u64 };
        let truncated =
            Err(WireError { element: BodyElement::Frame, location, kind: BodyErrorKind::Truncated });
        assert_eq!(result, if is_inside { truncated } else { Ok(()) }, "{end}");
        assert_eq!(
            frames.len(),
            usize::from(end >= frame.len()) + usize::from(end + 1 >= stream.len()),
            "{end}"
        );
    }
}
