//! Server-side apply: field ownership and conflicts.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, thing, version};

statements![
    an_apply_creates_what_is_not_there,
    an_apply_of_the_same_keeps_the_version,
    an_apply_without_a_manager_is_refused,
    an_apply_of_a_field_with_another_owner_is_a_conflict_that_names_it,
    an_apply_with_force_takes_the_field,
    an_apply_of_the_same_value_shares_the_field,
    a_field_left_out_of_an_apply_is_removed,
    a_field_left_out_that_another_owns_too_stays,
    an_apply_without_fields_releases_all_owned_fields,
    an_update_takes_over_what_it_changes,
    an_apply_at_an_old_version_is_a_conflict,
    an_apply_with_managed_fields_is_refused,
    an_apply_of_another_name_is_refused,
    an_apply_of_another_kind_is_refused,
    an_apply_can_be_yaml,
    an_apply_merges_lists_by_their_key,
    a_dry_run_of_an_apply_stores_nothing,
    managed_fields_can_be_cleared,
];

fn settings(values: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}, "data": values})
}

const PATH: &str = "$ns/configmaps/s";

async fn apply(target: &Target, manager: &str, values: &Value) -> crate::targets::Response {
    target.apply(&format!("{PATH}?fieldManager={manager}"), &settings(values)).await
}

/// Returns the keys of `data` that a manager owns.
fn owned(object: &Value, manager: &str) -> String {
    let entries = object["metadata"]["managedFields"].as_array();
    let entry = entries.and_then(|entries| entries.iter().find(|entry| entry["manager"] == manager));
    let fields = entry.and_then(|entry| entry["fieldsV1"]["f:data"].as_object());
    let keys = fields.into_iter().flatten().filter_map(|(key, _)| key.strip_prefix("f:"));
    keys.collect::<Vec<_>>().join(" ")
}

async fn an_apply_creates_what_is_not_there(target: &Target) {
    let made = apply(target, "one", &json!({"a": "1"})).await.expect(201).body;
    let entry = &made["metadata"]["managedFields"][0];
    assert_eq!((&entry["manager"], &entry["operation"]), (&"one".into(), &"Apply".into()));
    assert_eq!(entry["fieldsV1"], json!({"f:data": {"f:a": {}}}));
}

async fn an_apply_of_the_same_keeps_the_version(target: &Target) {
    let made = apply(target, "one", &json!({"a": "1"})).await.expect(201).body;
    assert_eq!(apply(target, "one", &json!({"a": "1"})).await.expect(200).body, made);
}

async fn an_apply_without_a_manager_is_refused(target: &Target) {
    let response = target.apply(PATH, &settings(&json!({}))).await;
    response.expect_error(422, "Invalid", "fieldManager: Required value: is required for apply patch");
}

async fn an_apply_of_a_field_with_another_owner_is_a_conflict_that_names_it(target: &Target) {
    apply(target, "one", &json!({"a": "1", "b": "1"})).await.expect(201);
    let response = apply(target, "two", &json!({"a": "2", "b": "1"})).await;
    let response = response.expect_error(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .data.a",
    );
    let cause =
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".data.a"});
    assert_eq!(response.body["details"]["causes"], json!([cause]));
    assert_eq!(target.get(PATH).await.body["data"]["a"], "1");
}

async fn an_apply_with_force_takes_the_field(target: &Target) {
    apply(target, "one", &json!({"a": "1", "b": "1"})).await.expect(201);
    let forced =
        target.apply(&format!("{PATH}?fieldManager=two&force=true"), &settings(&json!({"a": "2"}))).await;
    let forced = forced.expect(200).body;
    assert_eq!(forced["data"], json!({"a": "2", "b": "1"}));
    assert_eq!((owned(&forced, "one"), owned(&forced, "two")), ("b".to_owned(), "a".to_owned()));
}

async fn an_apply_of_the_same_value_shares_the_field(target: &Target) {
    apply(target, "one", &json!({"a": "1"})).await.expect(201);
    let shared = apply(target, "two", &json!({"a": "1"})).await.expect(200).body;
    assert_eq!((owned(&shared, "one"), owned(&shared, "two")), ("a".to_owned(), "a".to_owned()));
}

async fn a_field_left_out_of_an_apply_is_removed(target: &Target) {
    apply(target, "one", &json!({"a": "1", "b": "1"})).await.expect(201);
    let less = apply(target, "one", &json!({"b": "1"})).await.expect(200).body;
    assert_eq!((&less["data"], owned(&less, "one")), (&json!({"b": "1"}), "b".to_owned()));
}

async fn a_field_left_out_that_another_owns_too_stays(target: &Target) {
    apply(target, "one", &json!({"a": "1", "b": "1"})).await.expect(201);
    apply(target, "two", &json!({"a": "1"})).await.expect(200);
    let less = apply(target, "one", &json!({"b": "1"})).await.expect(200).body;
    assert_eq!(less["data"], json!({"a": "1", "b": "1"}));
    assert_eq!((owned(&less, "one"), owned(&less, "two")), ("b".to_owned(), "a".to_owned()));
}

async fn an_apply_without_fields_releases_all_owned_fields(target: &Target) {
    apply(target, "one", &json!({"a": "1"})).await.expect(201);
    let nothing = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "s"}});
    let empty = target.apply(&format!("{PATH}?fieldManager=one"), &nothing).await.expect(200).body;
    assert!(empty["data"].is_null() && empty["metadata"]["managedFields"].is_null(), "{empty}");
}

async fn an_update_takes_over_what_it_changes(target: &Target) {
    apply(target, "one", &json!({"a": "1", "b": "1"})).await.expect(201);
    let patch = json!({"data": {"a": "2"}});
    let changed = target.merge(&format!("{PATH}?fieldManager=two"), &patch).await.expect(200).body;
    assert_eq!((owned(&changed, "one"), owned(&changed, "two")), ("b".to_owned(), "a".to_owned()));
    let words = "conflict with \"two\" using v1";
    apply(target, "one", &json!({"a": "1", "b": "1"})).await.expect_error(409, "Conflict", words);
}

async fn an_apply_at_an_old_version_is_a_conflict(target: &Target) {
    let made = apply(target, "one", &json!({"a": "1"})).await.expect(201).body;
    apply(target, "one", &json!({"a": "2"})).await.expect(200);
    let mut old = settings(&json!({"a": "3"}));
    old["metadata"]["resourceVersion"] = version(&made).into();
    let response = target.apply(&format!("{PATH}?fieldManager=one"), &old).await;
    response.expect_error(409, "Conflict", "the object has been modified");
}

async fn an_apply_with_managed_fields_is_refused(target: &Target) {
    let made = apply(target, "one", &json!({"a": "1"})).await.expect(201).body;
    let response = target.apply(&format!("{PATH}?fieldManager=one"), &made).await;
    response.expect_error(400, "BadRequest", "metadata.managedFields must be nil");
}

async fn an_apply_of_another_name_is_refused(target: &Target) {
    let response = target.apply("$ns/configmaps/other?fieldManager=one", &settings(&json!({}))).await;
    response.expect_error(
        400,
        "BadRequest",
        "the name of the object (s) does not match the name on the URL (other)",
    );
}

async fn an_apply_of_another_kind_is_refused(target: &Target) {
    let response = target.apply(&format!("{PATH}?fieldManager=one"), &thing("s", "1")).await;
    assert!((400..=500).contains(&response.code), "{response:?}");
    target.get(PATH).await.expect(404);
}

async fn an_apply_can_be_yaml(target: &Target) {
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: s\ndata:\n  a: |\n    one\n    two\n";
    let headers = [("content-type", "application/apply-patch+yaml"), ("accept", "application/json")];
    let path = format!("{PATH}?fieldManager=one");
    let made = target.request("PATCH", &path, &headers, yaml.into()).await.expect(201).body;
    assert_eq!(made["data"]["a"], "one\ntwo\n");
}

async fn an_apply_merges_lists_by_their_key(target: &Target) {
    let service = |port: Value| json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [port]}});
    let (web, admin) = (json!({"name": "web", "port": 80}), json!({"name": "admin", "port": 81}));
    target.apply("$ns/services/s?fieldManager=one", &service(web)).await.expect(201);
    let both = target.apply("$ns/services/s?fieldManager=two", &service(admin)).await.expect(200).body;
    let mut ports: Vec<_> = both["spec"]["ports"].as_array().unwrap().iter().map(|it| &it["port"]).collect();
    ports.sort_by_key(|port| port.as_u64());
    assert_eq!(ports, [80, 81]);
}

async fn a_dry_run_of_an_apply_stores_nothing(target: &Target) {
    target
        .apply(&format!("{PATH}?fieldManager=one&dryRun=All"), &settings(&json!({"a": "1"})))
        .await
        .expect(201);
    target.get(PATH).await.expect(404);
}

async fn managed_fields_can_be_cleared(target: &Target) {
    apply(target, "one", &json!({"a": "1"})).await.expect(201);
    let patch = json!({"metadata": {"managedFields": [{}]}});
    let cleared = target.merge(PATH, &patch).await.expect(200).body;
    assert!(cleared["metadata"]["managedFields"].is_null(), "{cleared}");
}
