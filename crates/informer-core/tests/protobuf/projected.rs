//! Projections cut the same out of protobuf as out of JSON.
//!
//! Protobuf has no empty lists and maps, and what JSON always has is `null` where it was cut out; both say nothing. And what is not in the bytes
//! cannot be cut out of them: the type of a claim's template.

use super::bytes::{frame, object, read_watch_by};
use super::twins::{json_object, twins, type_of};
use informer_core::Projection;
use informer_core::wire::{Frame, Limits, Scanned, TypeMeta, WatchReader};
use serde_json::{Map, Value};

/// Without what says nothing, and without the types of templates.
fn lean(value: Value) -> Value {
    let says = |value: &Value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    };
    match value {
        Value::Object(mut fields) => {
            let templates = fields.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
            for template in templates.into_iter().flatten().filter_map(Value::as_object_mut) {
                template.retain(|name, _| name != "kind" && name != "apiVersion");
            }
            let fields = fields.into_iter().map(|(name, value)| (name, lean(value)));
            Value::Object(fields.filter(|(_, value)| says(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(lean).filter(says).collect(),
        other => other,
    }
}

/// The first place where two values differ.
fn difference(left: &Value, right: &Value) -> String {
    match (left, right) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys()).find(|name| one.get(*name) != other.get(*name));
            names.map_or(String::new(), |name| format!(".{name}{}", difference(&left[name], &right[name])))
        }
        _ => format!(": {left} or {right}"),
    }
}

fn only(frames: Vec<Frame>) -> Scanned {
    match <[Frame; 1]>::try_from(frames) {
        Ok([Frame::Added(scanned)]) => scanned,
        other => panic!("{other:?}"),
    }
}

fn from_json(types: &TypeMeta, by: &Projection, json: &str) -> Scanned {
    let reader = WatchReader::new(types.clone(), Limits::default());
    let (mut reader, mut frames) = (reader.projecting(Some(by.clone())), Vec::new());
    let body = format!(r#"{{"type":"ADDED","object":{json}}}"#);
    reader.read(body.as_bytes(), |frame| frames.push(frame)).unwrap();
    only(frames)
}

/// Every path in a value, lists gone into, some of them with stars.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let plain = name.chars().all(|sign| sign.is_ascii_alphanumeric());
                let step = if plain { format!(".{name}") } else { format!("['{name}']") };
                let path = format!("{at}{step}");
                found.push(path.clone());
                paths(value, &path, found);
            }
        }
        Value::Array(items) => {
            found.push(format!("{at}[*]"));
            for (index, item) in items.iter().enumerate() {
                let step = if index % 2 == 0 { "" } else { "[*]" };
                paths(item, &format!("{at}{step}"), found);
            }
        }
        _ => {}
    }
}

#[test]
fn what_goes_from_json_goes_from_protobuf() {
    let mut count = 0;
    for twin in twins().iter().filter(|twin| twin.is_object()) {
        let (value, types) = (twin.value(), type_of(&twin.value()));
        let mut all = Vec::new();
        paths(&value, "", &mut all);
        all.retain(|path| !path.contains("managedFields") && !path.contains("[*][*]"));
        // One path at a time, and some together.
        let sets = all.chunks(1).chain(all.chunks(5).step_by(3)).chain(all.chunks(40));
        for set in sets {
            for by in [Projection::drop(set), Projection::keep(set)].into_iter().flatten() {
                let json = json_object::<Value>(from_json(&types, &by, &twin.json));
                let body = frame("ADDED", &twin.protobuf);
                let (frames, end) = read_watch_by(&types, Some(&by), usize::MAX, &[&body]);
                assert_eq!(end, Ok(()));
                let protobuf = object::<Value>(&types, only(frames));
                let (json, protobuf) = (json.typed().unwrap(), protobuf.typed().unwrap());
                let [protobuf, json] = [protobuf, json].map(|view| lean((*view).clone()));
                assert!(protobuf == json, "{} {by:?}: {}", twin.name, difference(&protobuf, &json));
                count += 1;
            }
        }
    }
    assert!(count > 5000, "{count}");
}
