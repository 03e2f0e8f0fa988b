//! Reading and changing fields of objects as JSON.
//!
//! Absent fields read as empty text or `None`; no function panics on an object of another shape.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::random::fnv1a;

/// Returns the value at a path of fields and indexes, for example `/spec/containers/0/name`. Unlike a JSON
/// pointer, a path has no escapes.
pub(crate) fn at<'a>(object: &'a Value, path: &str) -> Option<&'a Value> {
    let (mut value, mut rest) = (object, path);
    while let Some(path) = rest.strip_prefix('/') {
        // Segments are short: a plain loop is faster than `split`.
        let end = path.bytes().position(|byte| byte == b'/').unwrap_or(path.len());
        let (segment, next) = path.split_at_checked(end)?;
        value = match value {
            Value::Object(fields) => fields.get(segment)?,
            Value::Array(items) => items.get(segment.parse::<usize>().ok()?)?,
            _ => return None,
        };
        rest = next;
    }
    Some(value)
}

/// Returns the text at a path; empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the number at a path.
pub(crate) fn number(object: &Value, path: &str) -> Option<i64> {
    at(object, path).and_then(Value::as_i64)
}

/// Returns the elements of the list at a path.
pub(crate) fn items<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "/metadata/name")
}

pub(crate) fn namespace(object: &Value) -> &str {
    text(object, "/metadata/namespace")
}

pub(crate) fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Returns the namespace and the name, by which actors identify objects of one resource.
pub(crate) fn key(object: &Value) -> (String, String) {
    (namespace(object).to_owned(), name(object).to_owned())
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    at(object, "/metadata/deletionTimestamp").is_some()
}

/// Returns whether an object is controlled by the object with this uid.
pub(crate) fn is_controlled_by(object: &Value, owner_uid: &str) -> bool {
    controller(object).is_some_and(|owner| text(owner, "/uid") == owner_uid)
}

/// Returns the owner reference of the controller.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    owner_references(object).iter().find(|owner| owner["controller"] == Value::Bool(true))
}

pub(crate) fn owner_references(object: &Value) -> &[Value] {
    items(object, "/metadata/ownerReferences")
}

/// Returns the owner reference that makes `owner` the controller of another object.
pub(crate) fn controller_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": name(owner), "uid": uid(owner),
        "controller": true, "blockOwnerDeletion": true,
    })
}

pub(crate) fn has_finalizer(object: &Value, finalizer: &str) -> bool {
    items(object, "/metadata/finalizers").iter().any(|other| other == finalizer)
}

/// Returns the finalizers of an object without one of them.
pub(crate) fn finalizers_without(object: &Value, finalizer: &str) -> Vec<Value> {
    items(object, "/metadata/finalizers").iter().filter(|other| *other != finalizer).cloned().collect()
}

/// Returns the status of a condition: `True`, `False` or `Unknown`; empty if there is no such condition.
pub(crate) fn condition_status<'a>(object: &'a Value, kind: &str) -> &'a str {
    let conditions = items(object, "/status/conditions");
    conditions
        .iter()
        .find(|condition| condition["type"] == kind)
        .map_or("", |condition| text(condition, "/status"))
}

/// Returns whether a taint follows from the state of its node.
pub(crate) fn is_state_taint(taint: &Value) -> bool {
    let key = text(taint, "/key").strip_prefix("node.kubernetes.io/");
    matches!(key, Some("not-ready" | "unreachable" | "unschedulable"))
}

/// Returns whether a pod is ready.
pub(crate) fn is_pod_ready(pod: &Value) -> bool {
    text(pod, "/status/phase") == "Running" && condition_status(pod, "Ready") == "True"
}

/// Returns whether the containers of a pod have ended for good.
pub(crate) fn is_pod_finished(pod: &Value) -> bool {
    matches!(text(pod, "/status/phase"), "Succeeded" | "Failed")
}

/// Returns whether a pod is neither finished nor terminating.
pub(crate) fn is_pod_active(pod: &Value) -> bool {
    !is_pod_finished(pod) && !is_terminating(pod)
}

/// Formats a time for objects, in whole seconds.
pub(crate) fn time(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the time at a path.
pub(crate) fn time_at(object: &Value, path: &str) -> Option<Timestamp> {
    text(object, path).parse().ok()
}

/// Returns `None` for zero, which the API omits.
pub(crate) fn nonzero(count: i64) -> Option<i64> {
    (count != 0).then_some(count)
}

/// Applies a merge patch (RFC 7396): null removes, objects are merged, other values are replaced.
pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Some(target) = target.as_object_mut() else { return };
    for (name, value) in fields {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Creates a pod from the template of a controller, without a name.
pub(crate) fn pod_from_template(owner: &Value, template: &Value) -> Value {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": namespace(owner), "ownerReferences": [controller_reference(owner)],
            "generateName": format!("{}-", name(owner)),
        },
        "spec": template["spec"],
    });
    for field in ["labels", "annotations", "finalizers"] {
        if let Some(value) = template["metadata"].get(field) {
            pod["metadata"][field] = value.clone();
        }
    }
    pod
}

/// Returns the hash of a pod template, in the letters that Kubernetes uses in names.
pub(crate) fn template_hash(template: &Value, collisions: Option<i64>) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let text = format!("{template}{}", collisions.map_or(String::new(), |count| count.to_string()));
    let digits = fnv1a(text.as_bytes()).to_string();
    digits
        .bytes()
        .map(|digit| char::from(LETTERS.get(usize::from(digit) % LETTERS.len()).copied().unwrap_or(b'x')))
        .collect()
}

/// Returns whether a label selector of an object (`matchLabels`, `matchExpressions`) selects labels. An empty
/// selector selects nothing.
pub(crate) fn selects(selector: &Value, labels: Option<&Value>) -> bool {
    let label = |key: &str| labels.and_then(|labels| labels.get(key)).and_then(Value::as_str);
    let equal: BTreeMap<&str, &str> = selector
        .get("matchLabels")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
        .collect();
    let expressions = items(selector, "/matchExpressions");
    if equal.is_empty() && expressions.is_empty() {
        return false;
    }
    let holds = |expression: &Value| {
        let value = label(text(expression, "/key"));
        let is_listed =
            value.is_some_and(|value| items(expression, "/values").iter().any(|item| item == value));
        match text(expression, "/operator") {
            "In" => is_listed,
            "NotIn" => !is_listed,
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    };
    equal.iter().all(|(key, value)| label(key) == Some(*value)) && expressions.iter().all(holds)
}

/// Sets a condition. Its `lastTransitionTime` stays if its status is the one in `before`.
pub(crate) fn put_condition(conditions: &mut Vec<Value>, before: &[Value], mut condition: Value) {
    let old = before.iter().find(|old| old["type"] == condition["type"]);
    if let Some(old) = old.filter(|old| old["status"] == condition["status"]) {
        condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
    }
    match conditions.iter_mut().find(|other| other["type"] == condition["type"]) {
        Some(other) => *other = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selector_requires_labels_and_expressions() {
        let selector = json!({
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["a", "b"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        });
        assert!(selects(&selector, Some(&json!({"app": "web", "tier": "b"}))));
        assert!(!selects(&selector, Some(&json!({"app": "web", "tier": "c"}))));
        assert!(!selects(&selector, Some(&json!({"app": "web", "tier": "a", "old": ""}))));
        assert!(!selects(&selector, None));
        assert!(!selects(&json!({}), Some(&json!({"app": "web"}))), "an empty selector selects nothing");
    }

    #[test]
    fn merge_removes_null_and_keeps_other_fields() {
        let mut object = json!({"a": {"b": 1, "c": 2}, "d": [1]});
        merge(&mut object, &json!({"a": {"b": null, "e": 3}, "d": [2]}));
        assert_eq!(object, json!({"a": {"c": 2, "e": 3}, "d": [2]}));
    }

    #[test]
    fn condition_keeps_its_transition_time_while_its_status_stays() {
        let before = [json!({"type": "Ready", "status": "True", "lastTransitionTime": "t1", "reason": "A"})];
        let mut conditions = Vec::new();
        let ready = |status: &str| json!({"type": "Ready", "status": status, "lastTransitionTime": "t2", "reason": "B"});
        put_condition(&mut conditions, &before, ready("True"));
        assert_eq!(
            (&conditions[0]["lastTransitionTime"], &conditions[0]["reason"]),
            (&json!("t1"), &json!("B"))
        );
        put_condition(&mut conditions, &before, ready("False"));
        assert_eq!((conditions.len(), &conditions[0]["lastTransitionTime"]), (1, &json!("t2")));
    }
}
