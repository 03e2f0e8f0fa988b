//! Cases that the recorded responses of kube-apiserver do not cover.

use serde_json::{Value, json};

use super::super::{ApplyError, Manager, applied, fields_text, keep_times, updated};
use super::{built_in, manager, structural};
use crate::schema::Node;

fn config_map(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "uid": "u"}, "data": data})
}

fn config_map_schema() -> Node<'static> {
    built_in("v1", "ConfigMap").unwrap()
}

fn by(name: &str) -> Manager<'_> {
    manager(name, "v1", "ConfigMap")
}

/// Returns the owners as `manager operation: fields`.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().into_iter().flatten();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |entry: &Value| {
        format!(
            "{} {}: {}",
            text(&entry["manager"]),
            text(&entry["operation"]),
            fields_text(&entry["fieldsV1"])
        )
    };
    entries.map(line).collect()
}

fn pod(spec: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
}

fn apply_pod(live: Option<&Value>, spec: &Value, name: &str) -> Result<Value, ApplyError> {
    applied(built_in("v1", "Pod").unwrap(), live, &pod(spec), &manager(name, "v1", "Pod"), false)
}

#[test]
fn fields_before_the_first_apply_have_an_owner() {
    let live = config_map(&json!({"a": "1", "b": "1"}));
    let config = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "1", "c": "1"}});
    let object = applied(config_map_schema(), Some(&live), &config, &by("me"), false).unwrap();
    assert_eq!(object["data"], json!({"a": "1", "b": "1", "c": "1"}));
    assert_eq!(
        owners(&object),
        [
            r#"me Apply: {"f:data":{"f:a":{},"f:c":{}}}"#,
            r#"before-first-apply Update: {"f:data":{".":{},"f:a":{},"f:b":{}}}"#
        ]
    );
    let config =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "2"}});
    let error = applied(config_map_schema(), Some(&live), &config, &by("me"), false).unwrap_err();
    assert_eq!(
        error.to_status().message,
        r#"Apply failed with 1 conflict: conflict with "before-first-apply" using v1: .data.a"#
    );
}

#[test]
fn updated_object_without_owners_stays_without_owners() {
    let mut new = config_map(&json!({"a": "2"}));
    updated(config_map_schema(), Some(&config_map(&json!({"a": "1"}))), &mut new, &by("me"));
    assert_eq!(new["metadata"].get("managedFields"), None);
}

#[test]
fn managed_fields_of_requests_are_used_except_in_subresources() {
    let entry = |name: &str| {
        json!([{"manager": name, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": {"f:data": {"f:a": {}}}}])
    };
    let mut old = config_map(&json!({"a": "1"}));
    old["metadata"]["managedFields"] = entry("old");
    for (requested, subresource, expected) in [
        (entry("given"), "", r#"given Update: {"f:data":{"f:a":{}}}"#),
        (entry("given"), "status", r#"old Update: {"f:data":{"f:a":{}}}"#),
        (Value::Null, "", r#"old Update: {"f:data":{"f:a":{}}}"#),
        (json!([{"manager": "x"}]), "", r#"old Update: {"f:data":{"f:a":{}}}"#),
        (json!([]), "", ""),
        (json!([{}]), "", ""),
        (json!([{"manager": "", "time": null}]), "", ""),
    ] {
        let mut new = config_map(&json!({"a": "1"}));
        new["metadata"]["managedFields"] = requested.clone();
        updated(config_map_schema(), Some(&old), &mut new, &Manager { subresource, ..by("me") });
        assert_eq!(owners(&new).join("\n"), expected, "{requested}");
    }
}

#[test]
fn oldest_updaters_are_merged() {
    let mut last: Option<Value> = None;
    for at in 0..12 {
        let data: serde_json::Map<String, Value> =
            (0..=at).map(|at| (format!("k{at:02}"), "v".into())).collect();
        let mut new = config_map(&data.into());
        let (name, time) = (format!("m{at:02}"), format!("2024-01-01T00:00:{at:02}Z"));
        updated(config_map_schema(), last.as_ref(), &mut new, &Manager { time: &time, ..by(&name) });
        last = Some(new);
    }
    let owners = owners(&last.unwrap());
    assert_eq!(owners.len(), 10);
    assert_eq!(owners[0], r#"ancient-changes Update: {"f:data":{".":{},"f:k00":{},"f:k01":{},"f:k02":{}}}"#);
    assert_eq!(owners[1], r#"m03 Update: {"f:data":{"f:k03":{}}}"#);
}

#[test]
fn port_without_protocol_equals_port_with_default_protocol() {
    let spec =
        json!({"containers": [{"name": "a", "ports": [{"containerPort": 443}, {"containerPort": 80}]}]});
    let live = apply_pod(None, &spec, "one").unwrap();
    let ports = r#""f:ports":{"k:{\"containerPort\":80,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}},"k:{\"containerPort\":443,\"protocol\":\"TCP\"}":{".":{},"f:containerPort":{}}}"#;
    assert!(owners(&live)[0].contains(ports), "{:?}", owners(&live));

    // The second manager applies one of the ports and sets its protocol.
    let spec = json!({"containers": [{"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}]}]});
    let both = apply_pod(Some(&live), &spec, "two").unwrap();
    assert_eq!(
        both["spec"]["containers"][0]["ports"],
        json!([{"containerPort": 443}, {"containerPort": 80, "protocol": "TCP", "name": "web"}])
    );
}

#[test]
fn merged_lists_keep_the_order_of_the_configuration() {
    let node = |entries: &[&str]| {
        let entries: Vec<Value> = entries.iter().map(|name| json!({"name": name, "image": "i"})).collect();
        json!({"containers": entries})
    };
    for (live, config, expected) in [
        (&["a", "b", "c"][..], &["c", "a"][..], "b c a"),
        (&["a", "b", "c"], &["x", "b"], "a x b c"),
        (&["a", "b", "c"], &["x"], "a b c x"),
        (&["a", "b", "c", "d"], &["d", "y", "b"], "a c d y b"),
    ] {
        let live = apply_pod(None, &node(live), "one").unwrap();
        let both = apply_pod(Some(&live), &node(config), "two").unwrap();
        let names =
            both["spec"]["containers"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>().join(" "), expected, "{config:?}");
    }
}

#[test]
fn entry_with_fields_of_another_owner_is_kept() {
    let one = json!({"containers": [{"name": "a", "image": "i"}]});
    let two = json!({"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}]}]});
    let live = apply_pod(None, &one, "one").unwrap();
    let live = apply_pod(Some(&live), &two, "two").unwrap();
    let after = apply_pod(Some(&live), &json!({"hostname": "h"}), "one").unwrap();
    assert_eq!(after["spec"]["containers"], two["containers"]);
}

#[test]
fn conflicts_of_several_managers_are_listed_by_manager() {
    let mut live = config_map(&json!({"a": "1"}));
    updated(config_map_schema(), None, &mut live, &by("curl"));
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
    let live =
        applied(config_map_schema(), Some(&live), &config(json!({"b": "1", "c": "1"})), &by("alpha"), false)
            .unwrap();
    let error = applied(
        config_map_schema(),
        Some(&live),
        &config(json!({"a": "2", "b": "2", "c": "2"})),
        &by("me"),
        false,
    );
    let status = error.unwrap_err().to_status();
    assert_eq!(
        status.message,
        "Apply failed with 3 conflicts: conflicts with \"alpha\":\n- .data.b\n- .data.c\nconflicts with \"curl\" using v1:\n- .data.a"
    );
    assert_eq!((status.code, status.details.unwrap().causes.len()), (409, 3));
}

#[test]
fn mismatching_configurations_are_rejected_as_by_kube_apiserver() {
    let check = |spec: Value, expected: &str| {
        let error = apply_pod(None, &spec, "me").unwrap_err();
        let message = error.to_status().message;
        let expected = format!("failed to create typed patch object (/p; /v1, Kind=Pod): {expected}");
        assert_eq!(message, expected);
    };
    check(json!({"nothing": 1}), ".spec.nothing: field not declared in schema");
    check(json!({"hostname": 1}), ".spec.hostname: expected string, got &value.valueUnstructured{Value:1}");
    check(json!({"hostNetwork": "x"}), ".spec.hostNetwork: expected boolean, got &{x}");
    check(json!({"priority": "x"}), ".spec.priority: expected numeric (int or float), got string");
    check(json!({"containers": {"a": 1}}), ".spec.containers: expected list, got &{map[a:1]}");
    check(json!({"nodeSelector": ["a"]}), ".spec.nodeSelector: expected map, got &{[a]}");
    check(
        json!({"hostname": 1, "priority": true}),
        "errors:\n  .spec.hostname: expected string, got &value.valueUnstructured{Value:1}\n  .spec.priority: expected \
         numeric (int or float), got bool",
    );
}

#[test]
fn entry_without_any_key_is_rejected() {
    let keyed = json!({"type": "object", "properties": {"items": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k", "p"], "items": {"type": "object",
            "properties": {"k": {"type": "string"}, "p": {"type": "string"}, "v": {"type": "string"}}}}}});
    let schema = structural(&keyed);
    let apply = |items: Value| {
        let config = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "items": items});
        applied(Node::Custom(&schema), None, &config, &manager("one", "x/v1", "X"), false)
    };
    assert!(apply(json!([{"k": "a"}, {"p": "a"}, {"k": "a", "p": "a"}])).is_ok());
    let error = |items: Value| apply(items).unwrap_err().to_status().message;
    assert_eq!(
        error(json!([{"k": "a"}, {"v": "a"}])),
        "failed to create typed patch object (/x; x/v1, Kind=X): .items: element 1: associative list with keys has an \
         element that omits all key fields [\"k\" \"p\"] (and doesn't have default values for any key fields)"
    );
    assert!(
        error(json!([null])).ends_with("element 0: associative list with keys may not have a null element")
    );
    assert!(
        error(json!(["a"])).ends_with("element 0: associative list with keys may not have non-map elements")
    );
}

#[test]
fn list_that_became_atomic_has_one_owner() {
    let keyed = json!({"type": "object", "properties": {"items": {"type": "array", "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["k"], "items": {"type": "object", "properties": {"k": {"type": "string"}}}}}});
    let mut atomic = keyed.clone();
    atomic["properties"]["items"]["x-kubernetes-list-type"] = "atomic".into();
    let (keyed, atomic) = (structural(&keyed), structural(&atomic));
    let config = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "items": [{"k": "a"}]});
    let live = applied(Node::Custom(&keyed), None, &config, &manager("one", "x/v1", "X"), false).unwrap();
    assert_eq!(owners(&live), [r#"one Apply: {"f:items":{"k:{\"k\":\"a\"}":{".":{},"f:k":{}}}}"#]);
    let mut other = config.clone();
    other["items"][0]["k"] = "b".into();
    let error =
        applied(Node::Custom(&atomic), Some(&live), &other, &manager("two", "x/v1", "X"), false).unwrap_err();
    assert_eq!(error.to_status().message, r#"Apply failed with 1 conflict: conflict with "one": .items"#);
}

#[test]
fn kubectl_takes_over_its_client_side_apply() {
    let last =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{},"name":"a"},"data":{"a":"1"}}"#;
    let annotations = json!({"kubectl.kubernetes.io/last-applied-configuration": last});
    let mut live = config_map(&json!({"a": "1", "b": "1"}));
    live["metadata"]["annotations"] = annotations;
    updated(config_map_schema(), None, &mut live, &by("kubectl-client-side-apply"));
    let config = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});

    let after =
        applied(config_map_schema(), Some(&live), &config(json!({"a": "2"})), &by("kubectl"), false).unwrap();
    assert_eq!(after["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(
        after["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"],
        "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"2\"},\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"a\"}}\n"
    );
    let result = applied(
        config_map_schema(),
        Some(&live),
        &config(json!({"a": "2", "b": "2"})),
        &by("kubectl"),
        false,
    );
    let message = result.unwrap_err().to_status().message;
    assert_eq!(
        message,
        r#"Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.b"#
    );
    assert!(
        applied(config_map_schema(), Some(&live), &config(json!({"a": "2"})), &by("other"), false).is_err()
    );
}

#[test]
fn times_of_an_unchanged_object_are_kept() {
    let mut old = config_map(&json!({"a": "1"}));
    updated(config_map_schema(), None, &mut old, &by("me"));
    let mut new = old.clone();
    new["metadata"]["managedFields"][0]["time"] = "2025-01-01T00:00:00Z".into();
    let mut changed = new.clone();
    changed["data"]["a"] = "2".into();
    keep_times(&old, &mut new);
    assert_eq!(new, old);
    let before = changed.clone();
    keep_times(&old, &mut changed);
    assert_eq!(changed, before);
}

#[test]
fn keys_are_escaped_as_by_kube_apiserver() {
    let spec =
        json!({"containers": [{"name": "a", "volumeMounts": [{"name": "v", "mountPath": "/<\"&\\"}]}]});
    let live = apply_pod(None, &spec, "one").unwrap();
    let key = r#"k:{\"mountPath\":\"/\\u003c\\\"\\u0026\\\\\"}"#;
    assert!(owners(&live)[0].contains(key), "{:?}", owners(&live));
    let again = apply_pod(Some(&live), &spec, "one").unwrap();
    assert_eq!(again, live);
}

#[test]
fn too_deep_object_is_rejected_and_has_no_owners() {
    let mut deep = json!({});
    for _ in 0..1000 {
        deep = json!({"a": deep});
    }
    let free = structural(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}));
    let mut object = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "x"}, "spec": deep});
    let error = applied(Node::Custom(&free), None, &object, &manager("me", "x/v1", "X"), false);
    assert!(matches!(error, Err(ApplyError::Internal(_))));
    updated(Node::Custom(&free), None, &mut object, &manager("me", "x/v1", "X"));
    assert_eq!(object["metadata"].get("managedFields"), None);
}
