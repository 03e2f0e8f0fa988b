//! The wire readers against a reference model: parse the whole body with `serde_json`, then extract what the
//! readers extract. A valid body gives the same objects in any pieces; arbitrary bytes give the same result
//! in any pieces and never a panic.
//!
//! A failing case is printed shrunk, as the body and the positions where it was split.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use informer_core::wire::{
    BodyErrorKind, Frame, FrameKind, Limits, ListItem, ListReader, ScannedObject, Status, TypeMeta,
    WatchReader, WireError,
};
use informer_core::{FieldFilter, FieldPath, Key, ResourceVersion};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use std::fmt::Write;

type Read<T> = (Vec<T>, Result<(), WireError>);

fn types() -> TypeMeta {
    TypeMeta::new("example.com/v1", "Widget")
}

/// 256 cases each; `PROPTEST_CASES` sets another number.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

// Reading

fn read_list(limit: usize, pieces: &[&[u8]]) -> Read<ListItem> {
    read_list_by(None, limit, pieces)
}

fn read_list_by(by: Option<&FieldFilter>, limit: usize, pieces: &[&[u8]]) -> Read<ListItem> {
    let reader = ListReader::new(types(), Limits::new(limit)).with_field_filter(by.cloned());
    let (mut reader, mut items) = (reader, Vec::new());
    let read = pieces.iter().try_for_each(|piece| reader.read(piece, |item| items.push(item)));
    (items, read.and_then(|()| reader.finish()))
}

fn read_watch(limit: usize, pieces: &[&[u8]]) -> Read<Frame> {
    read_watch_by(None, limit, pieces)
}

fn read_watch_by(by: Option<&FieldFilter>, limit: usize, pieces: &[&[u8]]) -> Read<Frame> {
    let reader = WatchReader::new(types(), Limits::new(limit)).with_field_filter(by.cloned());
    let (mut reader, mut frames) = (reader, Vec::new());
    let read = pieces.iter().try_for_each(|piece| reader.read(piece, |frame| frames.push(frame)));
    (frames, read.and_then(|()| reader.finish()))
}

/// Splits `body` at each of `cuts`.
fn cut<'a>(body: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> =
        cuts.iter().map(|cut| cut.index(body.len() + 1)).chain([0, body.len()]).collect();
    ends.sort_unstable();
    ends.windows(2).map(|ends| &body[ends[0]..ends[1]]).collect()
}

/// Reads `body` whole, split at `cuts`, and byte by byte: the results must be equal.
#[track_caller]
fn read_in_all_splits<T: PartialEq + std::fmt::Debug>(
    body: &[u8],
    cuts: &[Index],
    read: impl Fn(&[&[u8]]) -> Read<T>,
) -> Read<T> {
    let whole = read(&[body]);
    assert_eq!(read(&cut(body, cuts)), whole, "split");
    assert_eq!(read(&body.chunks(1).collect::<Vec<_>>()), whole, "byte by byte");
    whole
}

// Reference model

/// The parts of a readable object that the readers keep.
fn kept(object: &Value) -> Option<Value> {
    let mut kept = object.clone();
    kept["metadata"].as_object_mut()?.remove("managedFields");
    kept["apiVersion"] = types().api_version.into();
    kept["kind"] = types().kind.into();
    Some(kept)
}

/// Compares a scanned object with the object.
fn check_object(read: &ScannedObject, object: &Value) -> Result<(), TestCaseError> {
    prop_assert_eq!(serde_json::from_slice::<Value>(&read.bytes).ok(), kept(object));
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    prop_assert_eq!(&read.head.key, &Key::new(text("namespace"), text("name")));
    prop_assert_eq!(read.head.version.as_str(), text("resourceVersion"));
    prop_assert_eq!(&*read.head.uid, text("uid"));
    prop_assert_eq!(read.head.generation(), metadata["generation"].as_i64().filter(|number| *number != 0));
    let labels: Map<_, _> =
        read.head.labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    prop_assert_eq!(labels, metadata["labels"].as_object().cloned().unwrap_or_default());
    Ok(())
}

/// Items are widgets or arbitrary values; only widgets are readable.
fn is_widget(item: &Value) -> bool {
    item["metadata"]["name"].is_string()
}

// Bodies

/// How a body is formatted, which the readers must ignore.
#[derive(Debug, Clone)]
struct Style {
    /// Space around brackets, commas and colons.
    space: &'static str,
    /// Whether strings are written as `\uXXXX`; member names are not.
    escaped: bool,
    /// By how much the members of each object are rotated.
    rotation: usize,
}

impl Style {
    fn write(&self, value: &Value) -> String {
        let space = self.space;
        match value {
            Value::String(text) if self.escaped => {
                let mut escaped = String::from("\"");
                text.encode_utf16().for_each(|unit| write!(escaped, "\\u{unit:04x}").unwrap());
                escaped + "\""
            }
            Value::Array(elements) => {
                let written: Vec<_> = elements.iter().map(|element| self.write(element)).collect();
                format!("[{space}{}{space}]", written.join(&format!("{space},{space}")))
            }
            Value::Object(members) => {
                let mut written: Vec<_> = members
                    .iter()
                    .map(|(name, value)| {
                        format!("{}{space}:{space}{}", Value::from(&**name), self.write(value))
                    })
                    .collect();
                let rotation = self.rotation % written.len().max(1);
                written.rotate_left(rotation);
                format!("{{{space}{}{space}}}", written.join(&format!("{space},{space}")))
            }
            plain => plain.to_string(),
        }
    }
}

fn style() -> impl Strategy<Value = Style> {
    let space = select(vec!["", "", " ", "\n  ", "\r\n\t"]);
    (space, any::<bool>(), 0..7_usize).prop_map(|(space, escaped, rotation)| Style {
        space,
        escaped,
        rotation,
    })
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z]{0,8}",
        "[\"\\\\/{}\\[\\],: \u{0}\u{1f}\u{7f}é\u{2028}😀]{0,8}",
        select(vec!["metadata", "managedFields", "items", "kind", "object"]).prop_map(ToOwned::to_owned),
    ]
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<i32>().prop_map(|eighths| Value::from(f64::from(eighths) / 8.0)),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(text(), inner, 0..4)
                .prop_map(|members| members.into_iter().collect()),
        ]
    })
}

prop_compose! {
    fn metadata()(
        name in "[a-z0-9.:é-]{1,9}",
        namespace in prop::option::of("[a-z-]{0,5}"),
        version in "[1-9][0-9]{0,9}",
        uid in prop::option::of(text()),
        generation in prop::option::of(any::<i64>()),
        labels in prop::option::of(prop::collection::btree_map(text(), text(), 0..4)),
        managed in prop::option::of(any_json()),
        other in prop::option::of(any_json()),
    ) -> Value {
        let all = [
            ("name", Some(json!(name))),
            ("namespace", namespace.map(Value::from)),
            ("resourceVersion", Some(json!(version))),
            ("uid", uid.map(Value::from)),
            ("generation", generation.map(Value::from)),
            ("labels", labels.map(|labels| json!(labels))),
            ("managedFields", managed),
            ("finalizers", other),
        ];
        all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }
}

prop_compose! {
    fn widget()(
        metadata in metadata(),
        rest in prop::collection::btree_map("[a-z\"\\\\é]{1,6}", any_json(), 0..3),
        typed in any::<bool>(),
    ) -> Value {
        let mut widget: Value = rest.into_iter().collect();
        widget["metadata"] = metadata;
        if typed {
            widget["kind"] = types().kind.into();
            widget["apiVersion"] = types().api_version.into();
        }
        widget
    }
}

fn items() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(prop_oneof![5 => widget(), 1 => any_json()], 0..5)
}

fn list_body(items: &[Value], style: &Style) -> String {
    style.write(&json!({
        "kind": "WidgetList", "metadata": {"resourceVersion": "7", "continue": "token"}, "items": items, "other": {},
    }))
}

fn stream(frames: &[(&str, Value)], style: &Style) -> String {
    let written = frames.iter().map(|(kind, object)| style.write(&json!({"type": kind, "object": object})));
    written.map(|frame| frame + style.space).collect()
}

fn frames() -> impl Strategy<Value = Vec<(&'static str, Value)>> {
    let kind = select(vec!["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR", "OTHER"]);
    prop::collection::vec((kind, prop_oneof![5 => widget(), 1 => any_json()]), 0..5)
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..8)
}

// Properties of valid bodies

proptest! {
    #![proptest_config(config())]

    #[test]
    fn list_items_do_not_depend_on_format_and_splits(items in items(), style in style(), cuts in cuts()) {
        let body = list_body(&items, &style);
        let (read, end) = read_in_all_splits(body.as_bytes(), &cuts, |pieces| read_list(1 << 20, pieces));
        if items.iter().any(is_of_another_kind) {
            let kind = end.as_ref().map_err(|error| &error.kind);
            prop_assert!(matches!(kind, Err(BodyErrorKind::OtherKind { .. })), "{kind:?}");
            return Ok(());
        }
        prop_assert_eq!(end, Ok(()));
        let (metas, read): (Vec<_>, Vec<_>) = read.iter().partition(|item| matches!(item, ListItem::Meta(_)));
        prop_assert_eq!(metas.len(), 1);
        prop_assert_eq!(read.len(), items.len());
        for (read, item) in read.into_iter().zip(&items) {
            match read {
                ListItem::Object(object) => check_object(object, item)?,
                other => prop_assert!(!is_widget(item), "{other:?}"),
            }
        }
    }

    #[test]
    fn watch_frames_do_not_depend_on_format_and_splits(frames in frames(), style in style(), cuts in cuts()) {
        // Frame types are not escaped, as in real responses.
        let style = Style { escaped: false, ..style };
        let body = stream(&frames, &style);
        let (read, end) = read_in_all_splits(body.as_bytes(), &cuts, |pieces| read_watch(1 << 20, pieces));
        prop_assert_eq!(end, Ok(()));
        prop_assert_eq!(read.len(), frames.len());
        for (read, (kind, object)) in read.iter().zip(&frames) {
            check_frame(read, kind, object)?;
        }
    }
}

/// Returns whether an item declares another type than the list.
fn is_of_another_kind(item: &Value) -> bool {
    let differs = |name: &str, expected: &str| item[name].as_str().is_some_and(|found| found != expected);
    item.is_object() && (differs("kind", &types().kind) || differs("apiVersion", &types().api_version))
}

fn check_frame(read: &Frame, kind: &str, object: &Value) -> Result<(), TestCaseError> {
    let version = object["metadata"]["resourceVersion"].as_str().map(ResourceVersion::new);
    match (kind, read) {
        ("ADDED", Frame::Added(read))
        | ("MODIFIED", Frame::Modified(read))
        | ("DELETED", Frame::Deleted(read)) => check_object(read, object),
        ("BOOKMARK", Frame::Bookmark { version: read, initial_events_end: false }) => {
            prop_assert_eq!(read, &version);
            Ok(())
        }
        ("ERROR", Frame::Error(_)) => Ok(()),
        ("OTHER", Frame::Unreadable(FrameKind::Unknown(kind), _)) => {
            prop_assert_eq!(&**kind, "OTHER");
            Ok(())
        }
        (_, read) => {
            prop_assert!(matches!(read, Frame::Unreadable(..)) && !is_widget(object), "{kind}: {read:?}");
            Ok(())
        }
    }
}

// Properties of any bytes

/// Changes to a body: at each position a byte is replaced, inserted or removed.
fn changes() -> impl Strategy<Value = Vec<(Index, u8, u8)>> {
    let byte = prop_oneof![any::<u8>(), select(b"{}[],:\"\\ n0".to_vec())];
    prop::collection::vec((any::<Index>(), 0..3_u8, byte), 0..6)
}

fn changed(body: &str, changes: &[(Index, u8, u8)]) -> Vec<u8> {
    let mut body = body.as_bytes().to_vec();
    for (place, how, byte) in changes {
        match (place.index(body.len().max(1)), how) {
            (at, 0) => body.insert(at, *byte),
            (at, 1) => drop(body.splice(at..(at + 1).min(body.len()), [*byte])),
            (at, _) => drop(body.drain(at..(at + 1).min(body.len()))),
        }
    }
    body
}

/// Bytes with fragments of JSON.
fn fragments() -> impl Strategy<Value = Vec<u8>> {
    let tokens: [&[u8]; 22] = [
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"\"",
        b"\\",
        b" ",
        b"\n",
        b"null",
        b"12",
        b"\"a\"",
        b"\xff",
        b"\"items\":[",
        b"\"metadata\":{",
        b"\"resourceVersion\":\"1\"",
        b"\"name\":\"n\"",
        b"\"managedFields\":",
        b"{\"type\":\"ADDED\",",
        b"\"object\":{",
        b"\"kind\":",
    ];
    let token = prop_oneof![9 => select(tokens.map(<[u8]>::to_vec).to_vec()), 1 => prop::collection::vec(any::<u8>(), 0..4)];
    prop::collection::vec(token, 0..30).prop_map(|tokens| tokens.concat())
}

/// The result must not depend on the splits, and valid JSON must not be reported as invalid.
fn check_any(body: &[u8], limit: usize, cuts: &[Index]) -> Result<(), TestCaseError> {
    let (_, list_end) = read_in_all_splits(body, cuts, |pieces| read_list(limit, pieces));
    let (_, watch_end) = read_in_all_splits(body, cuts, |pieces| read_watch(limit, pieces));
    let blamed = |end: Result<(), WireError>| {
        end.err()
            .map(|error| error.to_string())
            .filter(|text| text.contains("not JSON") || text.contains("too early"))
    };
    // A field filter does not change where a body is malformed.
    let paths = ["a", "name.items", "items[*].kind", "metadata.annotations.items"];
    for by in [FieldFilter::drop(paths).unwrap(), FieldFilter::keep(paths).unwrap()] {
        let (_, end) = read_in_all_splits(body, cuts, |pieces| read_list_by(Some(&by), limit, pieces));
        prop_assert_eq!(&end, &list_end);
        let (_, end) = read_in_all_splits(body, cuts, |pieces| read_watch_by(Some(&by), limit, pieces));
        prop_assert_eq!(&end, &watch_end);
    }
    if serde_json::from_slice::<Map<_, _>>(body).is_ok() {
        prop_assert_eq!(blamed(list_end), None);
    }
    let mut values = serde_json::Deserializer::from_slice(body).into_iter::<Map<String, Value>>();
    if values.all(|value| value.is_ok()) {
        prop_assert_eq!(blamed(watch_end), None);
    }
    let _ = Status::from_json(body);
    let _ = "metadata.items".parse::<FieldPath>().unwrap().values_in(body);
    Ok(())
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn malformed_list_result_does_not_depend_on_splits(
        items in items(), style in style(), changes in changes(), limit in 0..400_usize, cuts in cuts(),
    ) {
        check_any(&changed(&list_body(&items, &style), &changes), limit, &cuts)?;
    }

    #[test]
    fn malformed_watch_result_does_not_depend_on_splits(
        frames in frames(), style in style(), changes in changes(), limit in 0..400_usize, cuts in cuts(),
    ) {
        check_any(&changed(&stream(&frames, &style), &changes), limit, &cuts)?;
    }

    #[test]
    fn fragments_result_does_not_depend_on_splits(fragments in fragments(), limit in 0..100_usize, cuts in cuts()) {
        check_any(&fragments, limit, &cuts)?;
        check_any(&[br#"{"metadata":{"resourceVersion":"1"},"items":["#, &fragments[..], b"]}"].concat(), limit, &cuts)?;
        check_any(&[br#"{"type":"ADDED","object":{"metadata":{"name":"a","#, &fragments[..], b"}}"].concat(), limit, &cuts)?;
    }
}
