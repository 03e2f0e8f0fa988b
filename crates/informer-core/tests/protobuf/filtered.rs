//! Field filters drop the same fields from protobuf as from JSON.
//!
//! Protobuf has no empty lists and maps, and required fields are `null` in JSON when dropped; both are equal
//! to missing. The type of a claim template is not part of the protobuf bytes and cannot be dropped.

use super::bytes::{frame, object, read_watch_by};
use super::reference_model::{json_object, recordings, type_of};
use informer_core::FieldFilter;
use informer_core::wire::{Frame, Limits, ScannedObject, TypeMeta, WatchReader};
use serde_json::{Map, Value};

/// The value without empty parts and without the types of templates.
fn normalized(value: Value) -> Value {
    let is_present = |value: &Value| match value {
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
            let fields = fields.into_iter().map(|(name, value)| (name, normalized(value)));
            Value::Object(fields.filter(|(_, value)| is_present(value)).collect::<Map<_, _>>())
        }
        Value::Array(items) => items.into_iter().map(normalized).filter(is_present).collect(),
        other => other,
    }
}

/// Path of the first difference between two values.
fn difference(left: &Value, right: &Value) -> String {
    match (left, right) {
        (Value::Object(one), Value::Object(other)) => {
            let names = one.keys().chain(other.keys()).find(|name| one.get(*name) != other.get(*name));
            names.map_or(String::new(), |name| format!(".{name}{}", difference(&left[name], &right[name])))
        }
        _ => format!(": {left} or {right}"),
    }
}

fn single_object(frames: Vec<Frame>) -> ScannedObject {
    match <[Frame; 1]>::try_from(frames) {
        Ok([Frame::Added(scanned)]) => scanned,
        other => panic!("{other:?}"),
    }
}

fn from_json(types: &TypeMeta, by: &FieldFilter, json: &str) -> ScannedObject {
    let reader = WatchReader::new(types.clone(), Limits::default());
    let (mut reader, mut frames) = (reader.with_field_filter(Some(by.clone())), Vec::new());
    let body = format!(r#"{{"type":"ADDED","object":{json}}}"#);
    reader.read(body.as_bytes(), |frame| frames.push(frame)).unwrap();
    single_object(frames)
}

/// Every path in a value, through lists, some of them with wildcards.
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
fn field_filter_is_equal_for_json_and_protobuf() {
    let mut count = 0;
    for recording in recordings().iter().filter(|recording| recording.is_object()) {
        let (value, types) = (recording.value(), type_of(&recording.value()));
        let mut all = Vec::new();
        paths(&value, "", &mut all);
        all.retain(|path| !path.contains("managedFields") && !path.contains("[*][*]"));
        // Single paths, and some sets of paths.
        let sets = all.chunks(1).chain(all.chunks(5).step_by(3)).chain(all.chunks(40));
        for set in sets {
            for by in [FieldFilter::drop(set), FieldFilter::keep(set)].into_iter().flatten() {
                let json = json_object::<Value>(from_json(&types, &by, &recording.json));
                let body = frame("ADDED", &recording.protobuf);
                let (frames, end) = read_watch_by(&types, Some(&by), usize::MAX, &[&body]);
                assert_eq!(end, Ok(()));
                let protobuf = object::<Value>(single_object(frames));
                let (json, protobuf) = (json.typed().unwrap(), protobuf.typed().unwrap());
                let [protobuf, json] = [protobuf, json].map(|view| normalized((*view).clone()));
                assert!(protobuf == json, "{} {by:?}: {}", recording.name, difference(&protobuf, &json));
                count += 1;
            }
        }
    }
    assert!(count > 5000, "{count}");
}
