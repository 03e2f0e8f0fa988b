//! Tests of field filters on small objects, independent of chunk boundaries. `tests/field_filters.rs`
//! compares random filters of random objects with a reference model.

use super::*;
use crate::error::ConfigError;

#[track_caller]
fn dropping(paths: &[&str]) -> FieldFilter {
    FieldFilter::drop(paths).unwrap()
}

#[track_caller]
fn keeping(paths: &[&str]) -> FieldFilter {
    FieldFilter::keep(paths).unwrap()
}

#[track_caller]
fn read_list_by(filter: &FieldFilter, limit: usize, body: &[u8]) -> Read<ListItem> {
    read_all_splits(body, |chunks| {
        let reader = ListReader::new(pod_type(), Limits::new(limit));
        let (mut reader, mut items) = (reader.with_field_filter(Some(filter.clone())), Vec::new());
        let read = chunks.iter().try_for_each(|chunk| reader.read(chunk, |item| items.push(item)));
        (items, read.and_then(|()| reader.finish()))
    })
}

#[track_caller]
fn read_watch_by(filter: &FieldFilter, limit: usize, body: &[u8]) -> Read<Frame> {
    read_all_splits(body, |chunks| {
        let reader = WatchReader::new(pod_type(), Limits::new(limit));
        let (mut reader, mut frames) = (reader.with_field_filter(Some(filter.clone())), Vec::new());
        let read = chunks.iter().try_for_each(|chunk| reader.read(chunk, |frame| frames.push(frame)));
        (frames, read.and_then(|()| reader.finish()))
    })
}

/// Returns the filtered object in a list of `item`, which must be equal in a frame.
#[track_caller]
fn filtered(filter: &FieldFilter, item: &str) -> ScannedObject {
    let (items, end) = read_list_by(filter, NO_LIMIT, &list_of(item));
    assert_eq!(end, Ok(()));
    let [ListItem::Meta(_), ListItem::Object(object)] = &items[..] else { panic!("{items:?}") };
    for frame in [
        format!(r#"{{"type":"MODIFIED","object":{item}}}"#),
        format!(r#"{{"object":{item},"type":"MODIFIED"}}"#),
    ] {
        let frames = read_watch_by(filter, NO_LIMIT, frame.as_bytes());
        assert_eq!(frames, (vec![Frame::Modified(object.clone())], Ok(())));
    }
    object.clone()
}

/// Checks the bytes of a filtered object, after apiVersion and kind.
#[track_caller]
fn check_filtered(filter: &FieldFilter, item: &str, expected: &str) {
    let object = filtered(filter, item);
    let text = std::str::from_utf8(&object.bytes).unwrap();
    assert_eq!(text.strip_prefix(r#"{"apiVersion":"v1","kind":"Pod","#).unwrap(), expected);
    let range = object.head.metadata.start as usize..object.head.metadata.end as usize;
    let whole: serde_json::Value = serde_json::from_slice(&object.bytes).unwrap();
    assert_eq!(serde_json::from_slice::<serde_json::Value>(&object.bytes[range]).unwrap(), whole["metadata"]);
}

const HEAD: &str = r#""metadata":{"name":"a","resourceVersion":"1"}"#;

/// Checks the filtered members after a minimal head.
#[track_caller]
fn check_rest(filter: &FieldFilter, rest: &str, expected: &str) {
    let comma = |text: &str| if text.is_empty() { String::new() } else { format!(",{text}") };
    check_filtered(filter, &format!("{{{HEAD}{}}}", comma(rest)), &format!("{HEAD}{}}}", comma(expected)));
}

/// Checks the filtered members of `metadata`, after name and version.
#[track_caller]
fn check_metadata(filter: &FieldFilter, rest: &str, expected: &str) {
    let comma = |text: &str| if text.is_empty() { String::new() } else { format!(",{text}") };
    let head = r#""metadata":{"name":"a","resourceVersion":"1""#;
    check_filtered(
        filter,
        &format!("{{{head}{}}},\"spec\":1}}", comma(rest)),
        &format!("{head}{}}},\"spec\":1}}", comma(expected)),
    );
}

// Dropping

#[test]
fn dropped_members_leave_the_order_of_others() {
    let status = dropping(&["status"]);
    check_rest(
        &status,
        r#""spec":{"b":1,"a":2},"status":{"phase":"Running"},"data":[1]"#,
        r#""spec":{"b":1,"a":2},"data":[1]"#,
    );
    check_rest(&status, r#""status":{}"#, "");
    check_rest(&status, r#""status":null,"status":"twice","spec":{"status":1}"#, r#""spec":{"status":1}"#);
    let first = r#"{"status":{"x":[1]},"spec":{},"metadata":{"name":"a","resourceVersion":"1"}}"#;
    check_filtered(&status, first, r#""spec":{},"metadata":{"name":"a","resourceVersion":"1"}}"#);
}

#[test]
fn metadata_members_are_dropped_at_any_position() {
    let annotations = dropping(&["metadata.annotations", "metadata.generateName"]);
    check_metadata(
        &annotations,
        r#""annotations":{"a":"b"},"labels":{"x":"y"},"generateName":"f""#,
        r#""labels":{"x":"y"}"#,
    );
    let first = r#"{"metadata":{"annotations":{"a":"b"},"name":"a","managedFields":[1],"resourceVersion":"1","generateName":""}}"#;
    check_filtered(&annotations, first, r#""metadata":{"name":"a","resourceVersion":"1"}}"#);
}

#[test]
fn nested_members_are_dropped() {
    let paths = dropping(&["spec.a.b", "spec.c"]);
    check_rest(&paths, r#""spec":{"a":{"b":1,"x":2},"c":3,"d":4}"#, r#""spec":{"a":{"x":2},"d":4}"#);
    check_rest(&paths, r#""spec":{"a":{"b":1},"c":{}},"x":[]"#, r#""spec":{"a":{}},"x":[]"#);
    check_rest(&paths, r#""spec":{"c":1}"#, r#""spec":{}"#);
    check_rest(
        &paths,
        r#""spec":{"x":{"b":1,"c":2}},"a":{"b":1}"#,
        r#""spec":{"x":{"b":1,"c":2}},"a":{"b":1}"#,
    );
}

#[test]
fn lists_are_entered_with_and_without_brackets() {
    let pod = r#""spec":{"containers":[{"name":"x","env":[{"name":"e"}]},{"env":[]},{"name":"y"}],"env":1}"#;
    let left = r#""spec":{"containers":[{"name":"x"},{},{"name":"y"}],"env":1}"#;
    check_rest(&dropping(&["spec.containers[*].env"]), pod, left);
    check_rest(&dropping(&["spec.containers.env"]), pod, left);
    check_rest(&dropping(&["spec.containers[*]"]), pod, r#""spec":{"containers":[],"env":1}"#);
    check_rest(&dropping(&["spec.containers[*].env[*].name"]), pod, &pod.replace(r#"{"name":"e"}"#, "{}"));
    // Paths with and without `[*]` may be used for one list.
    check_rest(
        &dropping(&["spec.a[*].b", "spec.a.c"]),
        r#""spec":{"a":[{"b":1,"c":2,"d":3}]}"#,
        r#""spec":{"a":[{"d":3}]}"#,
    );
    // A list directly inside a list is entered only by `[*]`.
    let nested = r#""spec":{"a":[[{"b":1}],{"b":2}]}"#;
    check_rest(&dropping(&["spec.a.b"]), nested, r#""spec":{"a":[[{"b":1}],{}]}"#);
    check_rest(&dropping(&["spec.a[*].b"]), nested, r#""spec":{"a":[[{"b":1}],{}]}"#);
    check_rest(&dropping(&["spec.a[*][*].b"]), nested, r#""spec":{"a":[[{}],{"b":2}]}"#);
    // A member that is a list itself.
    check_rest(
        &dropping(&["items.b", "others[*]"]),
        r#""items":[{"b":1,"c":2}],"others":[1,2]"#,
        r#""items":[{"c":2}],"others":[]"#,
    );
}

#[test]
fn dropping_leaves_values_that_cannot_be_entered() {
    for path in ["spec.a", "spec.a.b", "spec[*].a", "spec[*]"] {
        for value in ["null", "1", r#""a""#, "true", "[]", "{}", "[1,null]"] {
            let left = if path == "spec[*]" && value == "[1,null]" { "[]" } else { value };
            check_rest(&dropping(&[path]), &format!(r#""spec":{value}"#), &format!(r#""spec":{left}"#));
        }
    }
    // `[*]` enters lists only.
    check_rest(&dropping(&["spec[*].a"]), r#""spec":{"a":1}"#, r#""spec":{"a":1}"#);
    // A value that is malformed inside is kept: reading it only skips to its end.
    let malformed = format!(r#"{{{HEAD},"spec":{{"a":1 "b":2}}}}"#);
    let object = filtered(&dropping(&["spec.a"]), &malformed);
    assert!(object.bytes.ends_with(br#""spec":{"a":1 "b":2}}"#));
}

#[test]
fn names_are_compared_without_quotes_and_escapes() {
    let both = dropping(&["status", "metadata.annotations['a.b/c']"]);
    check_metadata(&both, r#""annotations":{"a.b/c":"x","a":{"b/c":1}}"#, r#""annotations":{"a":{"b/c":1}}"#);
    check_metadata(&both, r#""annotations":{"\u0061.b\/c":"x","y":1}"#, r#""annotations":{"y":1}"#);
    check_rest(&both, r#""sta\u0074us":{},"spec":1,"\u0073tatu":2"#, r#""spec":1,"\u0073tatu":2"#);
    check_rest(&both, r#""\\u0073tatus":1"#, r#""\\u0073tatus":1"#);
    // No path can name an invalid string.
    let odd = filtered(&both, &format!(r#"{{{HEAD},"sta\ud800tus":1}}"#));
    assert!(odd.bytes.ends_with(br#""sta\ud800tus":1}"#));
    let quoted = dropping(&[r#"data['it"s']"#, r#"data["it's"]"#]);
    check_rest(&quoted, r#""data":{"it\"s":1,"it's":2,"its":3}"#, r#""data":{"its":3}"#);
}

#[test]
fn remaining_values_are_unchanged() {
    let item =
        format!("{{ {HEAD} , \"spec\" : {{ \"a\" : 1 , \"b\" : [ 1.50, \"\\u0061\" ] , \"c\":1e3 }} }}");
    check_filtered(
        &dropping(&["spec.a"]),
        &item,
        &format!("{HEAD},\"spec\":{{\"b\":[ 1.50, \"\\u0061\" ],\"c\":1e3}}}}"),
    );
}

// Keeping

#[test]
fn only_named_values_are_kept() {
    let paths = keeping(&["status.phase", "spec.nodeName"]);
    let pod = r#""spec":{"containers":[],"nodeName":"n","x":1},"data":{"a":1},"status":{"phase":"Running","ip":"x"}"#;
    check_rest(&paths, pod, r#""spec":{"nodeName":"n"},"status":{"phase":"Running"}"#);
    check_rest(&paths, r#""data":1"#, "");
    // Objects on the path are kept, even if they become empty.
    check_rest(&paths, r#""spec":{"x":1},"status":{}"#, r#""spec":{},"status":{}"#);
    check_rest(&keeping(&["spec"]), pod, r#""spec":{"containers":[],"nodeName":"n","x":1}"#);
}

#[test]
fn keeping_drops_values_that_cannot_be_entered() {
    for value in ["null", "1", r#""nodeName""#, "true"] {
        check_rest(&keeping(&["spec.nodeName", "x"]), &format!(r#""spec":{value},"x":1"#), r#""x":1"#);
        check_rest(&keeping(&["spec[*]", "x"]), &format!(r#""spec":{value},"x":1"#), r#""x":1"#);
    }
    check_rest(&keeping(&["spec[*].a"]), r#""spec":{"a":1}"#, "");
    check_rest(&keeping(&["spec.a"]), r#""spec":[]"#, r#""spec":[]"#);
    check_rest(
        &keeping(&["spec.a"]),
        r#""spec":[1,{"a":2,"b":3},null,[{"a":4}],{"b":5}]"#,
        r#""spec":[{"a":2},{}]"#,
    );
    check_rest(&keeping(&["spec.a.b"]), r#""spec":{"a":"text","c":1}"#, r#""spec":{}"#);
    check_rest(&keeping(&["spec.a"]), r#""spec":{"a":1 "b":2},"data":1"#, "");
}

#[test]
fn elements_of_lists_are_kept_by_path() {
    let pod = r#""spec":{"containers":[{"name":"x","image":"i"},{"image":"j"}]}"#;
    for path in ["spec.containers.name", "spec.containers[*].name"] {
        check_rest(&keeping(&[path]), pod, r#""spec":{"containers":[{"name":"x"},{}]}"#);
    }
    check_rest(&keeping(&["spec.containers[*]"]), pod, pod);
    check_rest(&keeping(&["spec.containers[*].name", "spec.containers.image"]), pod, pod);
}

#[test]
fn head_is_always_kept() {
    let head = r#""namespace":"ns","uid":"u","generation":3,"creationTimestamp":"2026-11-15T01:40:00Z",
        "deletionTimestamp":"2026-11-15T01:40:30Z","labels":{"x":"y"},"ownerReferences":[{"uid":"o"}],
        "finalizers":["f"],"deletionGracePeriodSeconds":30"#;
    let head = head.replace("\n        ", "");
    let rest = r#""annotations":{"a":"b","c":"d"},"generateName":"a-""#;
    let all = format!("{head},{rest}");
    check_metadata(&keeping(&["spec"]), &all, &head);
    check_metadata(&keeping(&["spec", "metadata.labels.none", "metadata.name.x"]), &all, &head);
    check_metadata(
        &keeping(&["spec", "metadata.annotations.a"]),
        &all,
        &format!(r#"{head},"annotations":{{"a":"b"}}"#),
    );
    check_metadata(
        &keeping(&["spec", "metadata.generateName"]),
        &all,
        &format!(r#"{head},"generateName":"a-""#),
    );
    check_metadata(&keeping(&["spec", "metadata"]), &format!(r#"{all},"managedFields":[]"#), &all);
    check_metadata(&keeping(&["spec", "metadata[*].annotations"]), &all, &head);
    check_metadata(&keeping(&["spec", "metadata.annotations.a"]), r#""annotations":"text""#, "");
    // The head is kept even if its names contain escapes.
    check_metadata(&keeping(&["spec"]), r#""l\u0061bels":{},"annot\u0061tions":{}"#, r#""l\u0061bels":{}"#);
    let object =
        filtered(&keeping(&[]), &format!(r#"{{"metadata":{{"name":"a","resourceVersion":"1",{all}}}}}"#));
    assert_eq!(object.head.labels.get("x"), Some("y"));
    assert_eq!((&*object.head.uid, object.head.owners.len()), ("u", 1));
}

// Paths

#[test]
fn filter_without_paths_keeps_everything_or_only_the_head() {
    let item = format!(r#"{{{HEAD},"spec":{{"a":1}}}}"#);
    assert_eq!(filtered(&dropping(&[]), &item), scanned(&item));
    assert_eq!(filtered(&keeping(&[]), &item), scanned(A.replace("\"namespace\":\"ns\",", "")));
}

#[test]
fn order_repetition_and_overlap_do_not_matter() {
    let one = dropping(&["spec", "status.a"]);
    for same in [
        &["status.a", "spec"][..],
        &["spec", "status.a", "spec", "status['a']", ".spec"],
        &["spec.a", "spec", "status.a.b[*].c", "status.a", "spec.a[*]"],
    ] {
        assert_eq!(dropping(same), one);
    }
    assert_ne!(one, keeping(&["spec", "status.a"]));
    assert_ne!(one, dropping(&["spec", "status"]));
    check_rest(&one, r#""spec":{"a":1},"status":{"a":1,"ab":2},"specs":1"#, r#""status":{"ab":2},"specs":1"#);
    check_rest(
        &keeping(&["spec.a", "spec", "status.a.b", "status.a"]),
        r#""spec":{"b":1},"status":{"a":2,"b":3}"#,
        r#""spec":{"b":1},"status":{"a":2}"#,
    );
}

#[test]
fn protected_fields_cannot_be_dropped() {
    let metadata = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "ownerReferences",
        "finalizers",
        "deletionGracePeriodSeconds",
    ];
    let metadata = metadata.map(|field| format!("metadata.{field}"));
    let others = [
        "apiVersion",
        "kind",
        "metadata",
        ".metadata",
        "['metadata']['uid']",
        "metadata[*]",
        "metadata[*].x",
        "metadata.name.x",
        "metadata.ownerReferences[*].uid",
        "metadata.finalizers[*]",
    ];
    for path in metadata.iter().map(String::as_str).chain(others) {
        let error = FieldFilter::drop(["status", path]).unwrap_err();
        assert_eq!(error, ConfigError::RequiredField { path: path.into() });
        assert_eq!(
            error.to_string(),
            format!(
                "field filter: `{path}` cannot be dropped (it identifies the object, or controllers depend on it)"
            )
        );
        assert!(FieldFilter::keep([path]).is_ok());
    }
    for path in ["metadata.labels", "metadata.managedFields", "spec.name", "metadata.x.uid"] {
        assert!(FieldFilter::drop([path]).is_ok(), "{path}");
    }
    for path in ["", "a..b", "a[0]", "[*].a"] {
        let error = FieldFilter::keep([path]).unwrap_err();
        assert!(error.to_string().starts_with(&format!("field path {path:?}: expected ")), "{error}");
        assert_eq!(FieldFilter::drop([path]), Err(error));
    }
}

#[test]
fn dropped_labels_are_not_in_the_head() {
    let item = r#"{"metadata":{"name":"a","resourceVersion":"1","labels":{"x":"y","z":""},"uid":"u","ownerReferences":[{"uid":"o","name":"n"}]}}"#;
    let head = filtered(&dropping(&["metadata.labels.x"]), item).head;
    assert_eq!(head.labels.iter().collect::<Vec<_>>(), [("z", "")]);
    let head = filtered(&dropping(&["metadata.labels"]), item).head;
    assert!(head.labels.is_empty());
    let owner = head.owners.iter().next().unwrap();
    assert_eq!((&*head.uid, owner.name, owner.uid), ("u", "n", "o"));
}

// Limits, frames and other kinds

#[test]
fn members_dropped_at_the_top_or_in_metadata_do_not_count_against_the_limit() {
    let long = "x".repeat(500);
    let item = format!(
        r#"{{"status":{{"a":"{long}"}},"metadata":{{"name":"a","annotations":{{"a":"{long}"}},"resourceVersion":"1"}},"data":"{long}"}}"#
    );
    let check = |filter: &FieldFilter, item: &str, expected: &str| {
        let read = read_list_by(filter, 100, &list_of(format!("{item},{B}")));
        let expected = expected.replacen("()", "(#0 at byte 63) is unreadable: larger than 100 bytes", 1);
        assert_eq!(texts(&read, item_text), ["list 10", &*expected, "ns/b@2"]);
        let frame = format!(r#"{{"type":"ADDED","object":{item}}}"#);
        let read = texts(&read_watch_by(filter, 100, frame.as_bytes()), frame_text);
        assert_eq!(read[0].contains("larger"), expected.contains("larger"));
    };
    check(&dropping(&["status", "data", "metadata.annotations"]), &item, "a@1");
    check(&keeping(&["spec"]), &item, "a@1");
    check(&dropping(&["status", "data"]), &item, "object ? ()");
    check(&dropping(&["status", "metadata.annotations"]), &item, "object a (); version 1");
    // Deeper fields: the member around them must fit before it is pruned.
    let deep = format!(r#"{{{HEAD},"spec":{{"a":"{long}"}}}}"#);
    check(&dropping(&["spec.a"]), &deep, "object a (); version 1");
    check(&keeping(&["spec.b"]), &deep, "object a (); version 1");
    // Members are pruned one by one: dropped bytes are available to the next.
    let half = "x".repeat(25);
    let two = format!(r#"{{{HEAD},"s":{{"a":"{half}"}},"t":{{"a":"{half}"}}}}"#);
    let limit = format!(r#"{{"apiVersion":"v1","kind":"Pod",{HEAD},"s":{{}},"t":{{"a":"{half}"}}}}"#).len();
    let read = |limit| texts(&read_list_by(&dropping(&["s.a"]), limit, &list_of(&two)), item_text).remove(1);
    assert_eq!(read(limit), "a@1");
    assert!(read(limit - 1).contains("larger"));
}

#[test]
fn bookmarks_and_errors_are_not_filtered() {
    let end = r#"{"metadata":{"resourceVersion":"9","annotations":{"k8s.io/initial-events-end":"true"}}}"#;
    let gone = r#"{"kind":"Status","status":"Failure","reason":"Expired","message":"too old","code":410}"#;
    let error = frame_text(&Frame::Error(Status::from_json(gone.as_bytes()).unwrap()));
    assert!(error.contains("Expired"));
    let named = ["status", "reason", "code", "message", "metadata.annotations"];
    for filter in [keeping(&[]), dropping(&named)] {
        let check = |frame: &str, expected: &str| {
            // The frame follows a change, and has a frame without an object on both sides.
            let odd = r#"{"type":"ADDED"}"#;
            let body = format!(r#"{{"type":"ADDED","object":{A}}}{odd}{frame}{odd}"#);
            let texts = texts(&read_watch_by(&filter, NO_LIMIT, body.as_bytes()), frame_text);
            let [object, first, frame, second] = &texts[..] else { panic!("{texts:?}") };
            assert_eq!((&**object, &**frame), ("ADDED ns/a@1", expected));
            assert!(first.ends_with("not an object") && second.ends_with("not an object"), "{texts:?}");
        };
        check(&format!(r#"{{"type":"BOOKMARK","object":{end}}}"#), "BOOKMARK 9 end");
        check(&format!(r#"{{"object":{end},"type":"BOOKMARK"}}"#), "BOOKMARK 9 end");
        check(&format!(r#"{{"type":"ERROR","object":{gone}}}"#), &error);
        check(&format!(r#"{{"object":{gone},"type":"ERROR"}}"#), &error);
    }
}

#[test]
fn object_of_another_kind_is_unreadable() {
    let item = A.replacen('{', r#"{"kind":"Node","#, 1);
    for frame in
        [format!(r#"{{"type":"ADDED","object":{item}}}"#), format!(r#"{{"object":{item},"type":"ADDED"}}"#)]
    {
        let read = texts(&read_watch_by(&keeping(&[]), NO_LIMIT, frame.as_bytes()), frame_text);
        assert!(read[0].ends_with("unexpected kind: Node; version 1"), "{read:?}");
    }
}
