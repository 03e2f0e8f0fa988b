//! Recordings of a real server decode equally in both encodings.

use super::bytes::{data, envelope, frame, list, number, object, opened, read_list, read_watch, scanned};
use super::reference_model::{json_object, json_watch, recordings, type_of};
use informer_core::wire::{Frame, Head, Limits, ListItem, ListReader, ScannedObject, Status, TypeMeta};
use informer_core::{FieldPath, Object};
use serde_json::Value;
use std::collections::BTreeSet;

const LIMIT: usize = 8 << 20;

/// Compares everything but the position of the metadata.
#[track_caller]
fn assert_same_head(name: &str, left: &Head, right: &Head) {
    let shown = |head: &Head| {
        let Head { key, uid, version, labels, owners, .. } = head;
        let (times, generation) = ([head.creation_timestamp(), head.deletion_timestamp()], head.generation());
        format!("{key} {uid} {version} {generation:?} {times:?} {labels:?} {owners:?}")
    };
    assert_eq!(shown(left), shown(right), "{name}");
}

#[track_caller]
fn assert_same(name: &str, protobuf: &ScannedObject, json: &ScannedObject) {
    assert_same_head(name, &protobuf.head, &json.head);
    let (protobuf, json) = (object::<Value>(protobuf.clone()), json_object::<Value>(json.clone()));
    assert_eq!(*protobuf.typed().unwrap(), *json.typed().unwrap(), "{name}");
    assert_eq!(protobuf.metadata::<Value>().unwrap(), json.metadata::<Value>().unwrap(), "{name}");
    let written: Value = serde_json::from_slice(&protobuf.to_json().unwrap()).unwrap();
    assert_eq!(written, *json.typed().unwrap(), "{name}");
    assert_same_values(name, &protobuf, &json);
    // A relist in the other encoding finds no change.
    assert!(
        protobuf.entry().is_same_state(json.entry()) && json.entry().is_same_state(protobuf.entry()),
        "{name}"
    );
}

/// Every field has the same values in both, found without decoding.
#[track_caller]
fn assert_same_values(name: &str, protobuf: &Object<Value>, json: &Object<Value>) {
    let mut paths = BTreeSet::new();
    each_path(&json.typed().unwrap(), "", &mut paths);
    for path in &paths {
        let path: FieldPath = path.parse().unwrap();
        let [protobuf, json] = [protobuf, json].map(|object| object.entry().values_at(&path));
        assert_eq!(protobuf, json, "{name}: {path}");
    }
}

/// Paths of an object's fields, and some that do not exist.
fn each_path(value: &Value, path: &str, paths: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| each_path(item, path, paths)),
        Value::Object(members) => {
            for (name, value) in members {
                let path = format!("{path}['{name}']");
                paths.insert(format!("{path}.absent"));
                each_path(value, &path, paths);
                paths.insert(path);
            }
        }
        _ => {}
    }
}

fn json_list(types: &TypeMeta, body: &str) -> Vec<ListItem> {
    let (mut reader, mut items) = (ListReader::new(types.clone(), Limits::default()), Vec::new());
    reader.read(body.as_bytes(), |item| items.push(item)).unwrap();
    reader.finish().unwrap();
    items
}

#[track_caller]
fn check_frames(name: &str, protobuf: &[Frame], json: &[Frame]) {
    assert_eq!(protobuf.len(), json.len(), "{name}");
    for pair in protobuf.iter().zip(json) {
        match pair {
            (Frame::Added(left), Frame::Added(right))
            | (Frame::Modified(left), Frame::Modified(right))
            | (Frame::Deleted(left), Frame::Deleted(right)) => assert_same(name, left, right),
            (left, right) => assert_eq!(left, right, "{name}"),
        }
    }
}

#[test]
fn every_recorded_object_decodes_equally() {
    let mut count = 0;
    for recording in recordings().iter().filter(|recording| recording.is_object()) {
        let types = type_of(&recording.value());
        let json = json_watch(&types, &format!(r#"{{"type":"ADDED","object":{}}}"#, recording.json));
        let (frames, end) = read_watch(&types, LIMIT, &[&frame("ADDED", &recording.protobuf)]);
        assert_eq!(end, Ok(()));
        check_frames(&recording.name, &frames, &json);
        // The bytes are equal whichever request returned the object.
        let (items, end) = read_list(&types, LIMIT, &[&list(&types, &[opened(&recording.protobuf)])]);
        assert_eq!(end, Ok(()));
        let [ListItem::Meta(_), ListItem::Object(item)] = &items[..] else { panic!("{items:?}") };
        assert_eq!(frames, [Frame::Added(item.clone())]);
        count += 1;
    }
    assert_eq!(count, 75);
}

#[test]
fn every_recorded_list_decodes_equally() {
    let mut count = 0;
    for recording in recordings()
        .iter()
        .filter(|recording| !recording.name.contains(".watch") && recording.value().get("items").is_some())
    {
        let types = type_of(&recording.value());
        let (items, end) = read_list(&types, LIMIT, &[&recording.protobuf]);
        assert_eq!(end, Ok(()), "{}", recording.name);
        let json = json_list(&types, &recording.json);
        assert_eq!(items.len(), json.len());
        for pair in items.iter().zip(&json) {
            match pair {
                (ListItem::Object(left), ListItem::Object(right)) => {
                    assert_same(&recording.name, left, right);
                }
                (left, right) => assert_eq!(left, right),
            }
        }
        count += 1;
    }
    assert_eq!(count, 6);
}

#[test]
fn every_recorded_watch_decodes_equally() {
    let mut count = 0;
    for recording in recordings().iter().filter(|recording| recording.name.contains(".watch")) {
        let kind = recording.name.split('.').next().unwrap().rsplit('_').next().unwrap();
        let types = TypeMeta::new("v1", kind.strip_suffix("List").unwrap_or(kind));
        let (frames, end) = read_watch(&types, LIMIT, &[&recording.protobuf]);
        assert_eq!(end, Ok(()), "{}", recording.name);
        check_frames(&recording.name, &frames, &json_watch(&types, &recording.json));
        count += frames.len();
    }
    assert_eq!(count, 17);
}

#[test]
fn every_recorded_status_decodes_equally() {
    let mut count = 0;
    for recording in recordings().iter().filter(|recording| recording.name.starts_with("core_v1_Status")) {
        let expected = Status::from_json(recording.json.as_bytes()).unwrap();
        assert_eq!(Status::from_protobuf(&recording.protobuf), Some(expected.clone()), "{}", recording.name);
        let (frames, _) =
            read_watch(&TypeMeta::new("v1", "Pod"), LIMIT, &[&frame("ERROR", &recording.protobuf)]);
        assert_eq!(frames, [Frame::Error(expected)]);
        count += 1;
    }
    assert_eq!(count, 5);
    assert_eq!(Status::from_protobuf(b"<html>"), None);
    assert_eq!(Status::from_protobuf(&envelope(&TypeMeta::new("v1", "Pod"), b"")), None);
}

/// Regression: a server one version newer adds an empty field to an unchanged object. A relist after the
/// upgrade delivered every object as changed, and an audit reported all of them as drift.
#[test]
fn servers_of_two_versions_encode_an_identical_state() {
    let recording = recordings().into_iter().find(|recording| recording.name == "core_v1_Pod").unwrap();
    let types = type_of(&recording.value());
    let entry = |message: &[u8]| object::<Value>(scanned(&types, message)).entry().clone();
    let message = opened(&recording.protobuf);
    let newer = entry(&[message.clone(), number(200, 0)].concat());
    let (older, other) = (entry(&message), entry(&[message, data(2, &data(10, b"elsewhere"))].concat()));
    assert_ne!(older.bytes(), newer.bytes());
    assert!(older.is_same_state(&newer) && newer.is_same_state(&older));
    assert!(!older.is_same_state(&other), "another node is a change");
}
