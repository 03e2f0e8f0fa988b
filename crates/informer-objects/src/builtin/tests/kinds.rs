//! One object of every kind with many fields.

use super::*;

/// Returns name, sent object (if any) and stored object of each recording, except lists, statuses and similar
/// kinds.
pub(super) fn objects() -> Vec<(String, Option<Value>, Value)> {
    let index = recording("kinds/index.json");
    let mut objects = Vec::new();
    for entry in index.as_array().unwrap() {
        let Some(name) = entry["name"].as_str() else { continue };
        let skipped = ["List", "Status", "PartialObject", "API", "watch"];
        let is_api_service = name.contains("APIService") && !name.contains("List");
        if skipped.iter().any(|word| name.contains(word)) && !is_api_service {
            continue;
        }
        let stored = recording(&format!("kinds/{name}.json"));
        objects.push((name.to_owned(), entry.get("sent").cloned(), stored));
    }
    objects
}

/// Decoding and defaulting a stored object changes nothing.
#[test]
fn stored_objects_are_unchanged_by_decoding_and_defaults() {
    let mut lines = Vec::new();
    for (name, _, stored) in objects() {
        let (group, version, kind) = type_text(&stored);
        let Some(type_id) = type_of(&group, &version, &kind) else {
            lines.push(format!("{name}: no type"));
            continue;
        };
        let decoded = match decode(type_id, &kind, &version, stored.clone()) {
            Ok(decoded) => decoded,
            Err(status) => {
                lines.push(format!("{name}: {status}"));
                continue;
            }
        };
        lines.extend(decoded.unknown.iter().map(|path| format!("{name}: unknown {path}")));
        differences(&format!("{name} decoded"), &decoded.object, &stored, &mut lines);
        let mut defaulted = decoded.object.clone();
        default(&group, &version, &kind, &mut defaulted);
        differences(&format!("{name} defaulted"), &defaulted, &decoded.object, &mut lines);
    }
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}

/// Processing a sent object results in the stored one.
#[test]
fn processed_objects_equal_the_stored_ones() {
    let now: Timestamp = "2024-01-02T03:04:05Z".parse().unwrap();
    let mut lines = Vec::new();
    for (name, sent, mut stored) in objects() {
        let Some(sent) = sent else { continue };
        let (group, version, kind) = type_text(&sent);
        let type_id = type_of(&group, &version, &kind).unwrap();
        let mut actual = match decode(type_id, &kind, &version, sent) {
            Ok(decoded) => decoded.object,
            Err(status) => {
                lines.push(format!("{name}: {status}"));
                continue;
            }
        };
        default(&group, &version, &kind, &mut actual);
        actual["metadata"]["uid"] = stored["metadata"]["uid"].clone();
        if actual["spec"].get("priorityClassName").is_some() && kind == "Pod" {
            set_priority(&mut actual, Some(&recording("kinds/scheduling.k8s.io_v1_PriorityClass.json")));
            set_runtime_class(&mut actual, &recording("kinds/node.k8s.io_v1_RuntimeClass.json"));
        }
        prepare_create(&group, &kind, &mut actual, now);
        if kind == "CertificateSigningRequest" {
            set_requester(&mut actual, "admin", "admin", &["system:masters", "system:authenticated"]);
        }
        // kube-apiserver derives this annotation of `autoscaling/v1` from the status.
        if let Some(annotations) = stored["metadata"].get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("autoscaling.alpha.kubernetes.io/current-metrics");
        }
        strip(&mut actual);
        strip(&mut stored);
        // The status of all but the bare objects was written by a second request.
        if !name.contains(".bare") {
            actual.as_object_mut().unwrap().remove("status");
            stored.as_object_mut().unwrap().remove("status");
        }
        differences(&name, &actual, &stored, &mut lines);
    }
    assert!(lines.is_empty(), "{}", lines.join("\n"));
}
