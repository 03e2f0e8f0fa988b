//! All recorded patches: their results, or the errors with which kube-apiserver rejected them.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;

use informer_schema::{RESOURCES, TypeId};
use serde_json::{Value, json};

use super::*;

fn steps(file: &str) -> Vec<Value> {
    let path = format!("{}/../../testdata/recordings/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn sent(step: &Value) -> Vec<u8> {
    let request = &step["request"];
    match (request.get("body"), request["body_text"].as_str()) {
        (_, Some(text)) => text.as_bytes().to_vec(),
        (Some(body), None) => body.to_string().into_bytes(),
        (None, None) if request["body_description"] == "10001 test operations" => {
            let test = json!({"op": "test", "path": "/kind", "value": "ConfigMap"});
            Value::from(vec![test; 10_001]).to_string().into_bytes()
        }
        (None, None) => Vec::new(),
    }
}

/// Returns the type of the objects at a path, if it is a built-in one.
fn type_of(path: &str) -> Option<TypeId> {
    let path = path.split('?').next().unwrap();
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let plural = match rest {
        ["namespaces", _, plural, ..] if !matches!(*plural, "status" | "finalize") => plural,
        [plural, ..] => plural,
        [] => return None,
    };
    let is_match = |resource: &&informer_schema::Resource| {
        resource.group == group && resource.version == version && resource.plural == *plural
    };
    RESOURCES.iter().find(is_match).and_then(|resource| resource.type_id)
}

fn patch(step: &Value, object: &Value) -> Result<Value, Status> {
    let path = step["request"]["path"].as_str().unwrap();
    let content_type = step["request"]["headers"]["content-type"].as_str().unwrap_or_default();
    let type_id = type_of(path);
    match (PatchKind::accepted(content_type, type_id.is_none())?, type_id) {
        (PatchKind::Json, _) => super::json(object, &sent(step)),
        (PatchKind::Merge, _) => super::merge(object, &sent(step)),
        (PatchKind::Strategic, Some(type_id)) => super::strategic(type_id, object, &sent(step)),
        (kind, _) => panic!("{kind:?}"),
    }
}

/// Returns an object without the fields that the server sets and that may differ from the recording.
fn plain(object: &Value) -> Value {
    let mut object = object.clone();
    for field in ["resourceVersion", "managedFields", "generation"] {
        object["metadata"].as_object_mut().unwrap().remove(field);
    }
    drop_empty(&mut object);
    object
}

/// Removes empty lists and maps of optional fields, which are not stored.
fn drop_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        for field in ["finalizers", "labels", "annotations"] {
            let empty = fields.get(field).is_some_and(|value| *value == json!([]) || *value == json!({}));
            if empty {
                fields.remove(field);
            }
        }
        fields.values_mut().for_each(drop_empty);
    }
}

/// Whether a value is contained in another, which may have more fields; lists must have the same entries in
/// the same order.
fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Object(part), Value::Object(whole)) => {
            part.iter().all(|(name, value)| whole.get(name).is_some_and(|whole| is_part(value, whole)))
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_part(part, whole))
        }
        _ => part == whole,
    }
}

/// Steps of the recordings in which something other than the patch changes fields: step, fields and reason.
const LATER_CHANGES: &[(&str, &[&str], &str)] = &[
    ("strategic-replace-list", &["/spec/template/spec/containers"], "defaults of a new container"),
    ("strategic-add-container", &["/spec/template/spec/containers"], "defaults of a new container"),
    ("strategic-ports-merge", &["/spec/template/spec/containers"], "the default protocol of a port"),
    ("strategic-volume-retain-keys", &["/spec/template/spec/volumes"], "the default mode of a volume"),
    ("strategic-null-field", &["/spec/replicas"], "the default of replicas"),
    ("merge", &["/spec/replicas"], "a scale was written in between"),
    ("merge-null-default", &["/spec/color"], "the default of the color"),
    ("merge-unknown-field", &["/nothing"], "unknown fields are dropped by the decoder"),
    ("patch-status-subresource", &["/spec/replicas"], "only the status of a status patch counts"),
    ("crd-add-column", &["/status"], "the definition's own conditions"),
    (
        "finish-held",
        &["/metadata/deletionTimestamp", "/metadata/deletionGracePeriodSeconds"],
        "the definition was deleted in between",
    ),
    ("status-condition", &["/status/conditions"], "a time that is not given is shown as null"),
    ("lease-offset", &["/spec/renewTime"], "times are shown in UTC"),
];

#[test]
fn recorded_patches_have_the_recorded_result() {
    let (mut succeeded, mut rejected, mut mismatches) = (0, 0, Vec::new());
    for file in ["patch", "crd", "crud", "leases_events", "delete", "namespaces"] {
        let mut objects: BTreeMap<String, Value> = BTreeMap::new();
        for step in steps(file) {
            let name = step["name"].as_str().unwrap();
            let Some(path) = step["request"]["path"].as_str() else { continue };
            let (response, plain_path) = (&step["response"], path.split('?').next().unwrap());
            let object_path = plain_path.trim_end_matches("/status").to_owned();
            let status = response["status"].as_u64().unwrap();
            let applies = step["request"]["headers"]["content-type"] == "application/apply-patch+yaml";
            if step["request"]["method"] == "PATCH" && !applies {
                let actual = objects.get(&object_path).map(|object| patch(&step, object));
                match actual {
                    Some(Ok(actual)) if status == 200 && response["body"]["kind"] == actual["kind"] => {
                        let (mut actual, mut expected) = (plain(&actual), plain(&response["body"]));
                        let (_, fields, _) =
                            LATER_CHANGES.iter().find(|(step, ..)| *step == name).unwrap_or(&("", &[], ""));
                        for field in *fields {
                            // Entries get defaults, but the patch determines which entries there are and
                            // their order.
                            if let (Some(Value::Array(actual)), Some(Value::Array(expected))) =
                                (actual.pointer(field), expected.pointer(field))
                                && !is_part(&actual.clone().into(), &expected.clone().into())
                            {
                                mismatches
                                    .push(format!("{file}/{name} {field}\n  {actual:?}\n  {expected:?}"));
                            }
                            for object in [&mut actual, &mut expected] {
                                let (parent, field) = field.rsplit_once('/').unwrap();
                                object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field);
                            }
                        }
                        if actual != expected {
                            mismatches.push(format!("{file}/{name}\n  {actual}\n  {expected}"));
                        }
                        succeeded += 1;
                    }
                    Some(Err(actual)) => {
                        let actual: Value = serde_json::from_slice(&actual.to_json()).unwrap();
                        if actual != response["body"] {
                            mismatches.push(format!("{file}/{name}\n  {actual}\n  {}", response["body"]));
                        }
                        rejected += 1;
                    }
                    // The response is a table, metadata or protobuf.
                    Some(Ok(actual)) if status == 200 => drop(objects.insert(object_path.clone(), actual)),
                    // The request is rejected after the patch was applied, or there is no object.
                    Some(Ok(_)) | None => {}
                }
            }
            record_object(&mut objects, &object_path, response);
        }
    }
    assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
    assert!(succeeded >= 55 && rejected >= 18, "{succeeded} {rejected}");
}

/// Records an object by its path.
fn record_object(objects: &mut BTreeMap<String, Value>, path: &str, response: &Value) {
    let body = &response["body"];
    let Some(name) = body["metadata"]["name"].as_str() else { return };
    if body["kind"] == "PartialObjectMetadata" || body["kind"] == "Scale" {
        return;
    }
    let path = if path.ends_with(&format!("/{name}")) { path.to_owned() } else { format!("{path}/{name}") };
    objects.insert(path, body.clone());
}

#[test]
fn content_types_determine_the_patch_kind() {
    assert_eq!(PatchKind::of("application/merge-patch+json; charset=utf-8"), Some(PatchKind::Merge));
    assert_eq!(PatchKind::of("application/json"), None);
    assert_eq!(PatchKind::of("application/apply-patch+cbor"), None);
    assert!(PatchKind::accepted("application/strategic-merge-patch+json", true).is_err());
}

/// Results of Go's libraries for the same objects and patches; an error is `null`.
#[test]
fn json_patches_equal_those_of_go() {
    for (object, operations, expected) in [
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/1", "value": 9}]), json!({"a": [1, 9, 2]})),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/-1", "value": 9}]), json!({"a": [1, 2, 9]})),
        (json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/3", "value": 9}]), json!(null)),
        (json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), json!({"a": [1]})),
        (json!({"a": [1, 2]}), json!([{"op": "replace", "path": "/a/2", "value": 9}]), json!(null)),
        // Not in the RFC: an absent field can be replaced.
        (json!({}), json!([{"op": "replace", "path": "/b", "value": 9}]), json!({"b": 9})),
        (json!({}), json!([{"op": "add", "path": "/b"}]), json!({"b": null})),
        (json!({"a": 1}), json!([{"op": "add", "path": "x/b", "value": 2}]), json!({"a": 1, "b": 2})),
        (json!({"a": 1}), json!([{"op": "add", "path": "", "value": {}}]), json!(null)),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": {"b": 1}}]), json!({"b": 1})),
        (json!({"a": 1}), json!([{"op": "replace", "path": "", "value": 5}]), json!(null)),
        (json!({}), json!([{"op": "copy", "from": "/x", "path": "/y"}]), json!({"y": null})),
        (json!({}), json!([{"op": "move", "from": "/x", "path": "/y"}]), json!(null)),
        (json!({"a/b": 1, "c~d": 2}), json!([{"op": "remove", "path": "/a~1b"}]), json!({"c~d": 2})),
        (json!({"a/b": 1, "c~d": 2}), json!([{"op": "remove", "path": "/c~0d"}]), json!({"a/b": 1})),
        (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), json!({"a": 1})),
        (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1.0}]), json!(null)),
        (json!({"a": "<"}), json!([{"op": "test", "path": "/a", "value": "<"}]), json!(null)),
        (
            json!({"a": {"b": [1]}}),
            json!([{"op": "test", "path": "", "value": {"a": {"b": [1]}}}]),
            json!({"a": {"b": [1]}}),
        ),
        (json!({"a": 1}), json!([{"op": "test", "path": "/x"}]), json!({"a": 1})),
        (json!({"a": 1}), json!([{"op": "test", "path": "/x", "value": null}]), json!({"a": 1})),
        (json!({"a": 1}), json!([{"op": "test", "path": "/x", "value": 1}]), json!(null)),
        (json!({"a": 1}), json!([null]), json!(null)),
        (json!({"a": 1}), json!(null), json!({"a": 1})),
    ] {
        let actual = super::json(&object, operations.to_string().as_bytes()).unwrap_or(Value::Null);
        assert_eq!(actual, expected, "{object} {operations}");
    }
    for (operations, expected) in [
        (
            json!([{"op": 5}]),
            "json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string",
        ),
        (json!([[]]), "json: cannot unmarshal array into Go value of type handlers.jsonPatchOp"),
    ] {
        let error = super::json(&json!({}), operations.to_string().as_bytes()).unwrap_err();
        assert_eq!(error.message, format!("error decoding patch: {expected}"));
    }
}

/// One operation with a duplicate `value` hid the values of all operations, so that every `test` of a value
/// other than `null` was rejected. Go uses the last one.
#[test]
fn json_patch_with_duplicate_values_uses_the_last_one() {
    let object = json!({"a": 1});
    for (patch, expected) in [
        (r#"[{"op":"test","path":"/a","value":2,"value":1}]"#, json!({"a": 1})),
        (r#"[{"op":"test","path":"/a","value":1,"value":2}]"#, json!(null)),
        (r#"[{"op":"test","path":"/a","value":1,"value":null}]"#, json!(null)),
        (
            r#"[{"op":"test","path":"/a","value":1},{"op":"add","path":"/b","value":2,"value":3}]"#,
            json!({"a": 1, "b": 3}),
        ),
    ] {
        let actual = super::json(&object, patch.as_bytes()).unwrap_or(Value::Null);
        assert_eq!(actual, expected, "{patch}");
    }
}

#[test]
fn duplicate_and_unknown_fields_of_patches_are_reported() {
    let patch = br#"[{"op":"add","path":"/a","path":"/b","value":{"x":1,"x":2},"more":1}]"#;
    assert_eq!(
        problems(PatchKind::Json, patch),
        [
            r#"json patch duplicate field "[0].path""#,
            r#"json patch duplicate field "[0].value.x""#,
            r#"json patch unknown field "[0].more""#,
        ]
    );
    let patch = br#"{"data":{"a":"1","a":"2"}}"#;
    assert_eq!(problems(PatchKind::Merge, patch), [r#"duplicate field "data.a""#]);
}

/// Hostile patches: copies of copies, and moves that only increase the depth.
#[test]
fn growth_by_patches_is_limited() {
    let double = json!({"op": "copy", "from": "/a", "path": "/a/x"});
    let doubled = Value::from(vec![double; 10_000]).to_string();
    let object = json!({"a": {"y": "x".repeat(1000)}});
    assert_eq!(super::json(&object, doubled.as_bytes()).unwrap_err().code, 422);
    let mut deeper = Vec::new();
    for _ in 0..3000 {
        deeper.push(json!({"op": "add", "path": "/b", "value": {}}));
        deeper.push(json!({"op": "move", "from": "/a", "path": "/b/a"}));
        deeper.push(json!({"op": "move", "from": "/b", "path": "/a"}));
    }
    for operations in [300, 9000] {
        let patch = Value::from(deeper.get(..operations).unwrap().to_vec()).to_string();
        let patched = super::json(&json!({"a": {}}), patch.as_bytes());
        assert_eq!(patched.is_ok(), operations == 300);
    }
}

#[test]
fn merge_patches_equal_those_of_go() {
    for (object, patch, expected) in [
        (json!({"a": {"b": 1}}), json!({"a": {"b": null, "c": 2}}), json!({"a": {"c": 2}})),
        (json!({}), json!({"a": {"b": null, "c": [{"d": null}, null]}}), json!({"a": {"c": [{}, null]}})),
        (json!({"a": [1]}), json!({"a": [{"b": null}]}), json!({"a": [{}]})),
        // Go's library does not examine a list that replaces an object.
        (json!({"a": {}}), json!({"a": [{"b": null}]}), json!({"a": [{"b": null}]})),
        (json!({"a": null}), json!({"a": {"b": null}}), json!({"a": {}})),
        (json!({"a": 1}), json!({"a": {"b": {"c": null}}}), json!({"a": {"b": {}}})),
    ] {
        assert_eq!(super::merge(&object, patch.to_string().as_bytes()).unwrap(), expected, "{patch}");
    }
    assert_eq!(super::merge(&json!({}), b"null").unwrap_err().message, "Invalid JSON Patch");
}

/// Objects, patches, and the results of Go's library; all are parts of a Deployment.
const STRATEGIC: &[[&str; 3]] = &[
    [
        r#"{"metadata":{"finalizers":["a","b"]}}"#,
        r#"{"metadata":{"finalizers":["c","b"]}}"#,
        r#"{"metadata":{"finalizers":["c","a","b"]}}"#,
    ],
    [
        r#"{"metadata":{"finalizers":["a","b"]}}"#,
        r#"{"metadata":{"$setElementOrder/finalizers":["b","c","a"],"finalizers":["c"]}}"#,
        r#"{"metadata":{"finalizers":["b","c","a"]}}"#,
    ],
    [
        r#"{"metadata":{"finalizers":["a","b","z"]}}"#,
        r#"{"metadata":{"$deleteFromPrimitiveList/finalizers":["a","q"]}}"#,
        r#"{"metadata":{"finalizers":["b","z"]}}"#,
    ],
    [
        r#"{"metadata":{"labels":{"a":"1"}}}"#,
        r#"{"metadata":{"labels":{"$patch":"delete"}}}"#,
        r#"{"metadata":{"labels":{}}}"#,
    ],
    [
        r#"{"metadata":{"labels":{"a":"1"}}}"#,
        r#"{"metadata":{"labels":{"$patch":"merge","b":"1"}}}"#,
        "ERR unknown patch type: merge in map: map[$patch:merge b:1]",
    ],
    [
        r#"{"metadata":{"labels":{"a":"1"}}}"#,
        r#"{"metadata":{"labels":{"b":null,"c":"1"}}}"#,
        r#"{"metadata":{"labels":{"a":"1","c":"1"}}}"#,
    ],
    [r#"{"metadata":{}}"#, r#"{"metadata":{"labels":{"b":null,"$patch":"replace"}}}"#, r#"{"metadata":{}}"#],
    [
        r#"{"metadata":{}}"#,
        r#"{"metadata":{"annotations":{"b":null,"c":"1"}}}"#,
        r#"{"metadata":{"annotations":{"c":"1"}}}"#,
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","image":"1"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"b","image":"2"},{"name":"c","env":[{"name":"X","$patch":"delete"}]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"image":"1","name":"a"},{"image":"2","name":"b"},{"env":[{"$patch":"delete","name":"X"}],"name":"c"}]}}}}"#,
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"},{"name":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","$patch":"delete"},{"name":"c"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"c"},{"name":"b"}]}}}}"#,
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"$patch":"replace"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[]}}}}"#,
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"$patch":"merge"}]}}}}"#,
        "ERR merging lists cannot yet be specified in the patch",
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":["x"]}}}}"#,
        "ERR list element types are not identical: [[map[name:a]] [x]]",
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"$patch":"delete"}]}}}}"#,
        "ERR map: map[$patch:delete] does not contain declared merge key: name",
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":null}}}}"#,
        r#"{"spec":{"template":{"spec":{}}}}"#,
    ],
    [
        r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"b"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"tolerations":[{"key":"b"}]}}}}"#,
    ],
    [
        r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","emptyDir":{}}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"volumes":[{"name":"v","$retainKeys":["name"],"configMap":{}}]}}}}"#,
        "ERR invalid patch format of retainKeys",
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder/containers":"x"}}}}"#,
        "ERR expected a []interface {}, but received a string",
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a"}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"$setElementOrder":[]}}}}"#,
        "ERR invalid patch format of setElementOrder list",
    ],
    [
        r#"{"spec":{"template":{"spec":{"nothing":[1]}}}}"#,
        r#"{"spec":{"template":{"spec":{"nothing":[2]}}}}"#,
        r#"ERR unable to find api field in struct PodSpec for the json field "nothing""#,
    ],
    [
        r#"{"metadata":{"labels":{"a":{"b":1}}}}"#,
        r#"{"metadata":{"labels":{"a":{"c":1}}}}"#,
        "ERR merging an object in json but data type is not struct, instead is: map",
    ],
    [
        r#"{"spec":{"replicas":1}}"#,
        r#"{"spec":{"replicas":{"a":null,"b":[{"$patch":"x"},1]}}}"#,
        r#"{"spec":{"replicas":{"b":[1]}}}"#,
    ],
    [
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","args":["x"]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"a","args":["y"]}]}}}}"#,
        r#"{"spec":{"template":{"spec":{"containers":[{"args":["y"],"name":"a"}]}}}}"#,
    ],
];

#[test]
fn strategic_merge_patches_equal_those_of_go() {
    let type_id = type_of("/apis/apps/v1/namespaces/x/deployments/y").unwrap();
    for [object, patch, expected] in STRATEGIC {
        let object = serde_json::from_str(object).unwrap();
        let actual = match super::strategic(type_id, &object, patch.as_bytes()) {
            Ok(patched) => text::compact(&patched),
            Err(status) => format!("ERR {}", status.message),
        };
        assert_eq!(actual, *expected, "{object} {patch}");
    }
}
