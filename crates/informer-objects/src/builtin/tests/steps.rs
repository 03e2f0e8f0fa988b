//! Replays every create and update of a built-in kind in the recorded scenarios, and compares the stored
//! object or the error.

use std::collections::BTreeMap;

use super::*;

/// Steps whose response is determined by another module.
const DECIDED_ELSEWHERE: &[(&str, &str)] = &[
    ("crud/create-service-ip-taken", "the caller allocates addresses"),
    ("crud/create-service-ip-outside", "the caller allocates addresses"),
    ("crud/update-resource-version-garbage", "the storage rejects the version"),
    ("crud/create-over-large", "the caller rejects the body"),
];

/// A request on a built-in kind.
struct Request<'a> {
    resource: &'static informer_schema::Resource,
    namespace: String,
    /// Group, plural, namespace and name; for a create, the name in the response.
    key: String,
    /// Whether the request is for the whole object, not a subresource.
    whole: bool,
    step: &'a Value,
}

fn request(step: &Value) -> Option<Request<'_>> {
    let request = step.get("request")?;
    let path = request["path"].as_str()?.split('?').next()?;
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, rest) = match parts.as_slice() {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..]
            if !rest.is_empty() && !matches!(rest, ["status" | "finalize"]) =>
        {
            (*namespace, rest)
        }
        rest => ("", rest),
    };
    let (plural, name) = match rest {
        [plural] => (*plural, None),
        [plural, name] | [plural, name, "status" | "finalize"] => (*plural, Some(*name)),
        _ => return None,
    };
    let whole = rest.len() < 3;
    let resource = RESOURCES.iter().find(|resource| {
        resource.group == group
            && resource.version == version
            && resource.plural == plural
            && resource.verbs.contains(&"get")
    })?;
    let name = name.or_else(|| step["response"]["body"]["metadata"]["name"].as_str()).unwrap_or_default();
    let key = format!("{group}/{plural}/{namespace}/{name}");
    Some(Request { resource, namespace: namespace.to_owned(), key, whole, step })
}

/// Processes the object of a request; the error has the form of [`expected`].
fn process(request: &Request<'_>, body: Value, old: Option<&Value>) -> Result<Value, String> {
    let informer_schema::Resource { group, version, kind, .. } = *request.resource;
    let now: Timestamp = "2024-01-02T03:04:05Z".parse().unwrap();
    let type_id = type_of(group, version, kind).unwrap();
    let mut object = decode(type_id, kind, version, body).map_err(|status| status.message)?.object;
    default(group, version, kind, &mut object);
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("namespace");
    if !request.namespace.is_empty() {
        metadata.insert("namespace".to_owned(), request.namespace.clone().into());
    }
    let causes = if let Some(old) = old {
        if let Some(version) = old["metadata"].get("resourceVersion") {
            metadata.entry("resourceVersion").or_insert_with(|| version.clone());
        }
        metadata.remove("managedFields");
        match old["metadata"].get("generation") {
            Some(generation) => metadata.insert("generation".to_owned(), generation.clone()),
            None => metadata.remove("generation"),
        };
        prepare_update(group, kind, old, &mut object);
        validate::update(group, kind, old, &object)
    } else {
        // The response contains the name and uid that the server generated.
        let response = &request.step["response"]["body"];
        let name = response["details"]["name"].as_str().or(response["metadata"]["name"].as_str());
        if metadata.get("generateName").is_some() && metadata.get("name").is_none() {
            metadata.insert("name".to_owned(), name.unwrap_or_default().into());
        }
        metadata.insert("uid".to_owned(), response["metadata"]["uid"].clone());
        metadata.remove("creationTimestamp");
        prepare_create(group, kind, &mut object, now);
        validate::create(group, kind, &object)
    };
    if causes.is_empty() {
        return Ok(object);
    }
    Err(serde_json::to_string_pretty(&causes).unwrap())
}

/// The start of a diff of Go structs, which kube-apiserver appends to errors of updates of pods and volumes.
///
/// Our errors end before it, so it is not compared.
const GO_DIFFERENCE: &str = "\n@@ -";

/// Returns the recorded response in the form of `process`.
fn expected(step: &Value) -> Result<Value, String> {
    let body = &step["response"]["body"];
    match step["response"]["status"].as_u64() {
        Some(200 | 201) => Ok(body.clone()),
        Some(422) => {
            let causes: Vec<crate::status::StatusCause> = body["details"]["causes"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|cause| {
                    let text = |field: &str| cause[field].as_str().unwrap_or_default().to_owned();
                    let message = text("message");
                    let message =
                        message.split_once(GO_DIFFERENCE).map_or(message.as_str(), |(line, _)| line);
                    crate::status::StatusCause::new(&text("reason"), &text("field"), message)
                })
                .collect();
            Err(serde_json::to_string_pretty(&causes).unwrap())
        }
        _ => Err(body["message"].as_str().unwrap_or_default().to_owned()),
    }
}

/// Whether the response is determined by this module.
fn is_decided_here(step: &Value) -> bool {
    let body = &step["response"]["body"];
    let message = body["message"].as_str().unwrap_or_default();
    match step["response"]["status"].as_u64() {
        Some(200 | 201) => body["kind"] != "Status",
        Some(422) => !message.contains("Options.meta.k8s.io") && body["details"]["kind"] != Value::Null,
        Some(400) => {
            message.contains("cannot be handled as")
                && !message.contains("unknown conversion")
                && !message.contains("is registered for version")
                && !message.contains("strict decoding")
        }
        _ => false,
    }
}

/// Replays a scenario in which this module determines at least `at_least` responses.
fn check(file: &str, at_least: usize) {
    let steps = recording(&format!("{file}.json"));
    let mut stored: BTreeMap<String, Value> = BTreeMap::new();
    let (mut lines, mut checked) = (Vec::new(), 0);
    for step in steps.as_array().unwrap() {
        let Some(request) = request(step) else { continue };
        let name = format!("{file}/{}", step["name"].as_str().unwrap());
        let method = step["request"]["method"].as_str().unwrap();
        let response = &step["response"]["body"];
        let elsewhere = DECIDED_ELSEWHERE.iter().any(|(known, _)| *known == name);
        if request.whole
            && is_decided_here(step)
            && !elsewhere
            && (method != "POST" || !stored.contains_key(&request.key))
        {
            let old = stored.get(&request.key);
            let sent = match (method, old) {
                ("POST", _) => body_of(step).map(|body| (body, None)),
                ("PUT", old) => body_of(step).map(|body| (body, old)),
                // The patches of these steps replace whole lists, so each of them can be applied as a JSON
                // merge patch.
                ("PATCH", Some(old)) if step["response"]["status"] == 422 => {
                    step["request"].get("body").map(|patch| {
                        let mut body = old.clone();
                        json_merge(&mut body, patch);
                        (body, Some(old))
                    })
                }
                _ => None,
            };
            if let Some((body, old)) = sent {
                checked += 1;
                compare(&name, process(&request, body, old), expected(step), &mut lines);
            }
        }
        let is_stored = !step["request"]["path"].as_str().unwrap().contains("dryRun");
        match (method, step["response"]["status"].as_u64()) {
            ("DELETE", Some(200)) if is_stored && response["kind"] == "Status" => {
                stored.remove(&request.key);
            }
            (_, Some(200 | 201)) if is_stored && response["kind"] == request.resource.kind => {
                stored.insert(request.key.clone(), response.clone());
            }
            _ => {}
        }
    }
    assert!(checked >= at_least, "{file}: only {checked} steps");
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

fn body_of(step: &Value) -> Option<Value> {
    let request = &step["request"];
    request.get("body").cloned().or_else(|| serde_json::from_str(request["body_text"].as_str()?).ok())
}

fn json_merge(target: &mut Value, patch: &Value) {
    let Some(patch) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(key);
        } else {
            json_merge(&mut target[key.as_str()], value);
        }
    }
}

fn compare(
    name: &str,
    actual: Result<Value, String>,
    expected: Result<Value, String>,
    lines: &mut Vec<String>,
) {
    match (actual, expected) {
        (Ok(mut actual), Ok(mut expected)) => {
            for object in [&mut actual, &mut expected] {
                strip(object);
                strip_allocated(object);
                let fields = object.as_object_mut().unwrap();
                fields.retain(|field, _| !matches!(field.as_str(), "kind" | "apiVersion"));
            }
            differences(name, &actual, &expected, lines);
        }
        (actual, expected) if actual == expected => {}
        (actual, expected) => lines.push(format!("{name}: actual {actual:#?}\n expected {expected:#?}")),
    }
}

/// Removes addresses and ports, which the caller allocates.
fn strip_allocated(object: &mut Value) {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("clusterIP");
        spec.remove("clusterIPs");
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            port.as_object_mut().map(|port| port.remove("nodePort"));
        }
    }
}

#[test]
fn crud_steps_equal_the_recording() {
    check("crud", 91);
}

#[test]
fn lease_and_event_steps_equal_the_recording() {
    check("leases_events", 14);
}

#[test]
fn namespace_steps_equal_the_recording() {
    check("namespaces", 6);
}

#[test]
fn delete_steps_equal_the_recording() {
    check("delete", 21);
}

#[test]
fn patch_steps_equal_the_recording() {
    check("patch", 10);
}

#[test]
fn auth_steps_equal_the_recording() {
    check("auth", 3);
}

/// Unknown fields are reported in the order of kube-apiserver.
#[test]
fn unknown_fields_equal_the_recorded_ones() {
    let mut checked = 0;
    let steps = recording("crud.json");
    for step in steps.as_array().unwrap() {
        let message = step["response"]["body"]["message"].as_str().unwrap_or_default();
        let Some((_, list)) = message.split_once("strict decoding error: ") else { continue };
        let (Some(request), Some(body)) = (request(step), step["request"].get("body")) else { continue };
        let unknown = read(request.resource.type_id.unwrap(), body.clone()).unwrap().unknown;
        let unknown: Vec<String> = unknown.iter().map(|path| format!("unknown field {path:?}")).collect();
        assert_eq!(unknown.join(", "), list);
        checked += 1;
    }
    assert!(checked >= 2);
}

/// Objects stored by kube-apiserver are valid.
#[test]
fn stored_objects_are_accepted() {
    let mut lines = Vec::new();
    for (name, _, stored) in super::kinds::objects() {
        let (group, _, kind) = type_text(&stored);
        // The event was created in the core group, which does not have the rules of `events.k8s.io`. A scale
        // is not stored.
        if name == "events.k8s.io_v1_Event.from-core" || kind == "Scale" {
            continue;
        }
        let causes = validate::create(&group, &kind, &stored);
        lines.extend(causes.iter().map(|cause| format!("{name}: {}: {}", cause.field, cause.message)));
        let causes = validate::update(&group, &kind, &stored, &stored);
        lines.extend(causes.iter().map(|cause| format!("{name} again: {}: {}", cause.field, cause.message)));
    }
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
