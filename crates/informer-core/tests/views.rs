//! Views of cached objects: typed, dynamic and raw.
//!
//! A view is decoded on access, shared while in use, and equal whichever request returned the object.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use informer_core::wire::{Frame, Limits, ListItem, ListReader, ScannedObject, WatchReader};
use informer_core::{Entry, Object, Retention, TypeMeta, Typed};
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Widget {
    api_version: String,
    kind: String,
    spec: Spec,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Spec {
    parts: Vec<Part>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Part {
    name: String,
    count: u32,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Meta {
    name: String,
    labels: std::collections::BTreeMap<String, String>,
}

/// Another view of the same bytes.
#[derive(Debug, PartialEq, Deserialize)]
struct OnlyKind {
    kind: String,
}

/// A type that no object's metadata matches.
#[derive(Debug, Deserialize)]
struct WrongMeta {
    #[expect(dead_code, reason = "only its type matters")]
    labels: u8,
}

fn widget(count: &Value) -> Value {
    json!({
        "metadata": {
            "name": "x", "namespace": "a", "uid": "u1", "resourceVersion": "7", "labels": { "app": "web" },
            "managedFields": [{ "manager": "kubectl" }],
        },
        "spec": { "parts": [{ "name": "bolt", "count": 1 }, { "name": "secret-nut", "count": count }] },
    })
}

fn types() -> TypeMeta {
    TypeMeta::new("example.com/v1", "Widget")
}

/// Watch frames contain the type; items of a list do not.
fn typed_json(object: &Value) -> Value {
    let mut typed = object.clone();
    typed["apiVersion"] = types().api_version.into();
    typed["kind"] = types().kind.into();
    typed
}

fn by_watch(kind: &str, object: &Value) -> ScannedObject {
    let mut found = Vec::new();
    let frame = json!({ "type": kind, "object": typed_json(object) }).to_string();
    WatchReader::new(types(), Limits::default()).read(frame.as_bytes(), |frame| found.push(frame)).unwrap();
    match found.pop() {
        Some(Frame::Added(scanned) | Frame::Modified(scanned)) => scanned,
        other => panic!("{other:?}"),
    }
}

fn by_list(object: &Value) -> ScannedObject {
    let mut found = Vec::new();
    let body = json!({ "metadata": { "resourceVersion": "9" }, "items": [object] }).to_string();
    let mut reader = ListReader::new(types(), Limits::default());
    let take = |item| {
        if let ListItem::Object(scanned) = item {
            found.push(scanned);
        }
    };
    reader.read(body.as_bytes(), take).unwrap();
    found.pop().unwrap()
}

fn object<K>(scanned: ScannedObject, retention: Retention) -> Object<K> {
    Object::new(Arc::new(Entry::new(scanned, retention)))
}

fn good<K>() -> Object<K> {
    object(by_list(&widget(&json!(2))), Retention::Bytes)
}

/// A type that counts how often it is decoded and dropped; one per test, since tests run in parallel.
macro_rules! counted {
    ($name:ident, $decoded:ident, $dropped:ident) => {
        static $decoded: AtomicUsize = AtomicUsize::new(0);
        static $dropped: AtomicUsize = AtomicUsize::new(0);

        struct $name;

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                serde::de::IgnoredAny::deserialize(from)?;
                $decoded.fetch_add(1, Ordering::SeqCst);
                Ok(Self)
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                $dropped.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
}

fn now(counter: &AtomicUsize) -> usize {
    counter.load(Ordering::SeqCst)
}

#[test]
fn typed_view_is_shared_while_in_use_and_freed_afterwards() {
    counted!(Counted, DECODED, DROPPED);
    let object = good::<Counted>();
    let first = object.typed().unwrap();
    let second = object.clone().typed().unwrap();
    let third = Object::<Counted>::new(Arc::clone(object.entry())).typed().unwrap();
    assert!(Typed::ptr_eq(&first, &second) && Typed::ptr_eq(&first, &third));
    assert_eq!((now(&DECODED), now(&DROPPED)), (1, 0));
    drop((first, second));
    assert_eq!(now(&DROPPED), 0, "still in use");
    drop(third);
    assert_eq!(now(&DROPPED), 1, "no longer in use");
    drop(object.typed().unwrap());
    assert_eq!((now(&DECODED), now(&DROPPED)), (2, 2), "decoded again");
}

#[test]
fn typed_view_outlives_its_object() {
    let typed = good::<Widget>().typed().unwrap();
    assert_eq!(typed.spec.parts[1].count, 2);
}

#[test]
fn decoded_retention_keeps_the_view_until_the_entry_is_dropped() {
    counted!(Counted, DECODED, DROPPED);
    let object: Object<Counted> = object(by_list(&widget(&json!(2))), Retention::Decoded);
    assert_eq!(now(&DECODED), 0, "not before the first access");
    for _ in 0..3 {
        drop(object.typed().unwrap());
    }
    assert_eq!((now(&DECODED), now(&DROPPED)), (1, 0));
    drop(object);
    assert_eq!(now(&DROPPED), 1);
}

#[test]
fn views_of_two_types_coexist() {
    for retention in [Retention::Bytes, Retention::Decoded] {
        let object: Object<Widget> = object(by_list(&widget(&json!(2))), retention);
        let (widget, kind) = (object.typed().unwrap(), object.cast::<OnlyKind>().typed().unwrap());
        assert_eq!(*kind, OnlyKind { kind: "Widget".to_owned() });
        assert!(Typed::ptr_eq(&widget, &object.typed().unwrap()));
        assert!(Typed::ptr_eq(&kind, &object.cast().typed().unwrap()));
    }
}

#[test]
fn c9_a_decode_error_names_the_object_and_the_field() {
    let object: Object<Widget> = object(by_list(&widget(&json!("many"))), Retention::Bytes);
    let error = object.typed().unwrap_err();
    assert_eq!(&*error.field_path, "spec.parts[1].count");
    assert_eq!((error.key.to_string().as_str(), error.version.as_str()), ("a/x", "7"));
    let text = error.to_string();
    assert!(text.starts_with("a/x at version 7 does not decode as "), "{text}");
    assert!(text.contains("Widget, at spec.parts[1].count: "), "{text}");
    assert_eq!(object.name(), "x", "the head is readable");
    assert!(object.cast::<OnlyKind>().typed().is_ok(), "other views decode");
    assert_eq!(object.typed().unwrap_err(), error, "a second access returns the same error");
}

#[test]
fn metadata_decodes_without_the_rest() {
    // The spec does not decode; the metadata decodes nevertheless.
    let object: Object<Widget> = object(by_watch("ADDED", &widget(&json!("many"))), Retention::Bytes);
    let meta: Meta = object.metadata().unwrap();
    assert_eq!((meta.name.as_str(), meta.labels["app"].as_str()), ("x", "web"));
    let all: Value = object.metadata().unwrap();
    assert!(all.get("managedFields").is_none());
    assert_eq!(&*object.metadata::<WrongMeta>().unwrap_err().field_path, "labels");
}

#[test]
fn fields_and_annotations_are_read_without_decoding_the_object() {
    // The spec does not decode as a `Widget`.
    let mut json = widget(&json!("many"));
    let without: Object<Widget> = object(by_watch("ADDED", &json), Retention::Bytes);
    assert!(without.annotations().unwrap().is_empty());
    json["metadata"]["annotations"] = json!({"example.com/note": "a \"note\""});
    let object: Object<Widget> = object(by_watch("ADDED", &json), Retention::Bytes);
    assert_eq!(object.annotations().unwrap()["example.com/note"], "a \"note\"");
    assert_eq!(object.field("metadata.annotations['example.com/note']").unwrap(), "a \"note\"");
    assert_eq!(object.field("spec.parts.name").unwrap(), "bolt", "the first of several");
    assert_eq!(object.field("spec.parts.count").unwrap(), "1");
    assert_eq!(object.field("spec"), None, "not a scalar");
    assert_eq!(object.field("spec..parts"), None, "not a path");
}

#[test]
fn views_are_equal_whichever_request_returned_the_object() {
    let json = widget(&json!(2));
    // A watch-list sends the objects as ADDED frames; a change is a MODIFIED frame.
    let ways = [by_list(&json), by_watch("ADDED", &json), by_watch("MODIFIED", &json)];
    let [listed, initial, modified] = ways.map(|scanned| object::<Widget>(scanned, Retention::Bytes));
    let mut expected = typed_json(&json);
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    for other in [&listed, &initial, &modified] {
        assert_eq!(other.raw_bytes(), listed.raw_bytes());
        assert_eq!(*other.cast::<Value>().typed().unwrap(), expected, "dynamic");
        assert_eq!(*other.typed().unwrap(), *listed.typed().unwrap(), "typed");
        assert_eq!(other.typed().unwrap().kind, "Widget");
        assert_eq!(other.entry().head(), listed.entry().head());
        assert_eq!(other.entry(), listed.entry());
    }
}

#[test]
fn debug_prints_key_and_version_and_no_contents() {
    let object = good::<Widget>();
    assert_eq!(format!("{object:?} {:?}", object.entry()), "a/x@7 a/x@7");
    assert_eq!(format!("{:#?}", object.cast::<Value>()), "a/x@7");
}
