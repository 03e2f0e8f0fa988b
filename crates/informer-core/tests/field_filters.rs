//! Field filters against a reference model: parse the object, decide for every position whether a path names it
//! or leads through it, and rebuild the object. Any object, any paths, any pieces.
//!
//! A failing case is printed shrunk. Small cases with order and formatting are in
//! `wire/tests/field_filter.rs`.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use informer_core::wire::{Frame, Limits, ListItem, ListReader, ScannedObject, WatchReader};
use informer_core::{FieldFilter, TypeMeta};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Map, Value, json};
use std::fmt::Write;

fn types() -> TypeMeta {
    TypeMeta::new("example.com/v1", "Widget")
}

/// 256 cases each; `PROPTEST_CASES` sets another number.
fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::default() }
}

// Reference model

/// A step of a path, or of a position, where `Each` is any element.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Name(&'static str),
    Each,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// The path does not contain the position.
    Apart,
    /// The path leads through the position.
    OnTheWay,
    /// The path names the position or a parent of it.
    Named,
}

/// Relation of a path to the `value` at a position.
fn verdict(path: &[Step], position: &[String], value: &Value) -> Verdict {
    let (mut left, mut in_list) = (path, false);
    for step in position {
        left = match (left.first(), step.as_str()) {
            (None, _) => return Verdict::Named,
            (Some(Step::Each), "[]") => &left[1..],
            // A path step goes through a list, but not through a list inside another.
            (Some(Step::Name(_)), "[]") if !in_list => left,
            (Some(Step::Name(name)), step) if *name == step => &left[1..],
            _ => return Verdict::Apart,
        };
        in_list = step == "[]";
    }
    match (left.first(), value) {
        (None, _) => Verdict::Named,
        (Some(Step::Name(_)), Value::Object(_)) | (Some(Step::Each), Value::Array(_)) => Verdict::OnTheWay,
        (Some(Step::Name(_)), Value::Array(_)) if !in_list => Verdict::OnTheWay,
        _ => Verdict::Apart,
    }
}

/// Rebuilds the value at `position` from the children that stay.
fn rebuild(position: &mut Vec<String>, value: &Value, stays: &dyn Fn(&[String], &Value) -> bool) -> Value {
    let mut inside = |step: &str, value: &Value| {
        position.push(step.to_owned());
        let rebuilt = stays(position, value).then(|| rebuild(position, value, stays));
        position.pop();
        rebuilt
    };
    match value {
        Value::Object(members) => {
            let kept = members.iter().filter_map(|(name, value)| Some((name.clone(), inside(name, value)?)));
            Value::Object(kept.collect())
        }
        Value::Array(elements) => elements.iter().filter_map(|element| inside("[]", element)).collect(),
        plain => plain.clone(),
    }
}

const PROTECTED_FIELDS: [&str; 10] = [
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

fn filtered(keep: bool, paths: &[Vec<Step>], object: &Value) -> Value {
    let is_one = |position: &[String], value: &Value, wanted: &[Verdict]| {
        paths.iter().any(|path| wanted.contains(&verdict(path, position, value)))
    };
    let stays = |position: &[String], value: &Value| {
        let position_names: Vec<&str> = position.iter().map(String::as_str).collect();
        match position_names[..] {
            ["apiVersion" | "kind" | "metadata"] => true,
            ["metadata", field, ..] if PROTECTED_FIELDS.contains(&field) => true,
            ["metadata", "labels", ..] if keep => true,
            _ if keep => is_one(position, value, &[Verdict::Named, Verdict::OnTheWay]),
            _ => !is_one(position, value, &[Verdict::Named]),
        }
    };
    rebuild(&mut Vec::new(), object, &stays)
}

// Objects and paths, from a few common names

const NAMES: [&str; 6] = ["a", "b", "spec", "c.d/e", "it's", "é\""];

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<i32>().prop_map(Value::from),
        select(vec!["", "a", "{\"a\":1}", "]", "\\", "é"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            members(inner).prop_map(Value::from),
        ]
    })
}

fn members(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Map<String, Value>> {
    let members = prop::collection::vec((select(NAMES.to_vec()), value), 0..5);
    members.prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}

prop_compose! {
    fn object()(
        mut object in members(any_json()),
        mut metadata in members(any_json()),
        labels in prop::option::of(prop::collection::btree_map("[ab]", "[xy]", 0..3)),
        annotations in prop::option::of(any_json()),
    ) -> Value {
        metadata.insert("name".to_owned(), "n".into());
        metadata.insert("resourceVersion".to_owned(), "1".into());
        metadata.insert("uid".to_owned(), "u".into());
        labels.map(|labels| metadata.insert("labels".to_owned(), json!(labels)));
        annotations.map(|annotations| metadata.insert("annotations".to_owned(), annotations));
        object.insert("metadata".to_owned(), metadata.into());
        object.insert("apiVersion".to_owned(), types().api_version.into());
        object.insert("kind".to_owned(), types().kind.into());
        object.into()
    }
}

fn path() -> impl Strategy<Value = Vec<Step>> {
    let name = || select(NAMES.to_vec()).prop_map(Step::Name);
    let first = prop_oneof![
        2 => name().prop_map(|name| vec![name]),
        1 => select(vec!["annotations", "labels", "a", "b"])
            .prop_map(|name| vec![Step::Name("metadata"), Step::Name(name)]),
    ];
    let rest = prop::collection::vec(prop_oneof![2 => name(), 1 => Just(Step::Each)], 0..4);
    (first, rest).prop_map(|(first, rest)| [first, rest].concat())
}

fn written(path: &[Step]) -> String {
    let mut text = String::new();
    for step in path {
        match step {
            Step::Each => text.push_str("[*]"),
            Step::Name(name) if name.contains('"') => write!(text, "['{name}']").unwrap(),
            Step::Name(name) if name.contains(['.', '\'']) => write!(text, "[\"{name}\"]").unwrap(),
            Step::Name(name) => write!(text, ".{name}").unwrap(),
        }
    }
    text
}

/// The object's JSON, with this space around all tokens and, if `escaped`, with escaped names of deeper
/// members.
fn json_of(value: &Value, space: &str, escaped: bool, deep: bool) -> String {
    let join = |parts: Vec<String>| parts.join(&format!("{space},{space}"));
    match value {
        Value::Array(elements) => {
            let parts = elements.iter().map(|element| json_of(element, space, escaped, true)).collect();
            format!("[{space}{}{space}]", join(parts))
        }
        Value::Object(members) => {
            let parts = members.iter().map(|(name, value)| {
                let mut spelt = String::from("\"");
                name.encode_utf16().for_each(|unit| write!(spelt, "\\u{unit:04x}").unwrap());
                // The reader recognizes its own field names only unescaped.
                let own = ["metadata", "apiVersion", "kind", "name", "resourceVersion", "uid", "labels"];
                let plain = !escaped || (!deep && own.contains(&&**name));
                let spelt = if plain { Value::from(&**name).to_string() } else { spelt + "\"" };
                let deep = deep || name != "metadata";
                format!("{spelt}{space}:{space}{}", json_of(value, space, escaped, deep))
            });
            format!("{{{space}{}{space}}}", join(parts.collect()))
        }
        plain => plain.to_string(),
    }
}

// Reading

/// Splits `body` at each of `cuts`.
fn cut<'a>(body: &'a str, cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut ends: Vec<usize> =
        cuts.iter().map(|cut| cut.index(body.len() + 1)).chain([0, body.len()]).collect();
    ends.sort_unstable();
    ends.windows(2).map(|ends| &body.as_bytes()[ends[0]..ends[1]]).collect()
}

fn read_list(filter: &FieldFilter, body: &str, cuts: &[Index]) -> ScannedObject {
    let mut reader = ListReader::new(types(), Limits::default()).with_field_filter(Some(filter.clone()));
    let mut found = Vec::new();
    for piece in cut(body, cuts) {
        reader.read(piece, |item| found.push(item)).unwrap();
    }
    reader.finish().unwrap();
    match found.pop() {
        Some(ListItem::Object(object)) => object,
        other => panic!("{other:?}"),
    }
}

fn read_watch(filter: &FieldFilter, body: &str, cuts: &[Index]) -> ScannedObject {
    let mut reader = WatchReader::new(types(), Limits::default()).with_field_filter(Some(filter.clone()));
    let mut found = Vec::new();
    for piece in cut(body, cuts) {
        reader.read(piece, |frame| found.push(frame)).unwrap();
    }
    reader.finish().unwrap();
    match found.pop() {
        Some(Frame::Deleted(object)) => object,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn field_filter_matches_the_model(
        object in object(),
        paths in prop::collection::vec(path(), 0..4),
        keep in any::<bool>(),
        space in select(vec!["", " ", "\r\n\t"]),
        escaped in any::<bool>(),
        cuts in prop::collection::vec(any::<Index>(), 0..6),
    ) {
        let texts: Vec<String> = paths.iter().map(|path| written(path)).collect();
        let filter = if keep { FieldFilter::keep(&texts) } else { FieldFilter::drop(&texts) }.unwrap();
        let json = json_of(&object, space, escaped, false);
        let list = format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{json}]}}"#);
        let read = read_list(&filter, &list, &cuts);

        prop_assert_eq!(serde_json::from_slice::<Value>(&read.bytes).unwrap(), filtered(keep, &paths, &object));
        let labels = filtered(keep, &paths, &object)["metadata"]["labels"].as_object().cloned().unwrap_or_default();
        let head: Map<_, _> = read.head.labels.iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
        prop_assert_eq!(head, labels);
        prop_assert_eq!(&*read.head.uid, "u");

        prop_assert_eq!(&read_list(&filter, &list, &[]), &read, "whole");
        let typed_first = format!(r#"{{"type":"DELETED","object":{json}}}"#);
        prop_assert_eq!(&read_watch(&filter, &typed_first, &cuts), &read, "in a frame");
        let typed_last = format!(r#"{{"object":{json},"type":"DELETED"}}"#);
        prop_assert_eq!(&read_watch(&filter, &typed_last, &cuts), &read, "in a frame with the type last");
        // A second pass of the filter changes nothing.
        let left = std::str::from_utf8(&read.bytes).unwrap();
        let again = format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{left}]}}"#);
        prop_assert_eq!(&read_list(&filter, &again, &[]), &read, "again");
    }
}
