//! Patches: JSON, merge and strategic merge, and their errors.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, thing, version};

statements![
    a_json_patch_does_its_operations_in_order,
    a_json_patch_whose_test_fails_changes_nothing,
    a_json_patch_that_removes_what_is_not_there_is_refused,
    a_json_patch_that_is_no_list_is_refused,
    a_merge_patch_adds_changes_and_removes,
    a_merge_patch_replaces_lists,
    a_strategic_patch_merges_lists_by_their_key,
    a_strategic_patch_removes_entries,
    a_strategic_patch_replaces_with_a_directive,
    a_patch_that_changes_nothing_keeps_the_version,
    a_patch_at_an_old_version_is_a_conflict,
    a_patch_of_what_is_not_there_is_refused,
    a_patch_cannot_rename,
    a_patch_cannot_change_the_uid,
    a_patch_of_an_unknown_type_is_refused,
    a_patch_that_is_no_json_is_refused,
    a_patch_that_makes_the_object_invalid_is_refused,
    a_strict_patch_with_an_unknown_field_is_refused,
    a_dry_run_of_a_patch_changes_nothing,
];

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/$name/deployments";

async fn deploy(target: &Target) -> String {
    let mut made = crate::targets::deployment("d");
    let env = json!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]);
    made["spec"]["template"]["spec"]["containers"][0]["env"] = env;
    target.post(DEPLOYMENTS, &made).await.expect(201);
    format!("{DEPLOYMENTS}/d")
}

fn env(deployment: &Value) -> Vec<String> {
    let entries = deployment.pointer("/spec/template/spec/containers/0/env").and_then(Value::as_array);
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let entries = entries.map_or(&[][..], Vec::as_slice).iter();
    let mut found: Vec<String> = entries.map(|it| text(it, "name") + "=" + &text(it, "value")).collect();
    found.sort();
    found
}

fn with_env(env: &Value) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "env": env}]}}}})
}

async fn a_json_patch_does_its_operations_in_order(target: &Target) {
    target.make("a", "1").await;
    let patch = json!([
        {"op": "test", "path": "/metadata/annotations/value", "value": "1"},
        {"op": "add", "path": "/metadata/annotations/more~1so", "value": "x"},
        {"op": "copy", "from": "/metadata/annotations/value", "path": "/metadata/annotations/old"},
        {"op": "replace", "path": "/metadata/annotations/value", "value": "2"},
        {"op": "move", "from": "/metadata/annotations/more~1so", "path": "/metadata/annotations/moved"},
    ]);
    let patched = target.json_patch("$things/a", &patch).await.expect(200).body;
    assert_eq!(patched["metadata"]["annotations"], json!({"value": "2", "old": "1", "moved": "x"}));
}

async fn a_json_patch_whose_test_fails_changes_nothing(target: &Target) {
    let made = target.make("a", "1").await;
    let patch = json!([
        {"op": "replace", "path": "/metadata/annotations/value", "value": "2"},
        {"op": "test", "path": "/type", "value": "other"},
    ]);
    target.json_patch("$things/a", &patch).await.expect_error(
        422,
        "Invalid",
        "the server rejected our request",
    );
    assert_eq!(target.get("$things/a").await.version(), version(&made));
}

async fn a_json_patch_that_removes_what_is_not_there_is_refused(target: &Target) {
    target.make("a", "1").await;
    let patch = json!([{"op": "remove", "path": "/metadata/labels/x"}]);
    target.json_patch("$things/a", &patch).await.expect_error(
        422,
        "Invalid",
        "the server rejected our request",
    );
}

async fn a_json_patch_that_is_no_list_is_refused(target: &Target) {
    target.make("a", "1").await;
    let patch = json!({"op": "remove", "path": "/type"});
    target.json_patch("$things/a", &patch).await.expect_error(
        400,
        "BadRequest",
        "json: cannot unmarshal object",
    );
}

async fn a_merge_patch_adds_changes_and_removes(target: &Target) {
    let mut thing = thing("a", "1");
    thing["data"] = json!({"x": "eA==", "y": "eQ=="});
    target.post("$things", &thing).await.expect(201);
    let patch = json!({"data": {"x": null, "y": "eA==", "z": "eg==", "absent": null}});
    let patched = target.merge("$things/a", &patch).await.expect(200).body;
    assert_eq!(patched["data"], json!({"y": "eA==", "z": "eg=="}));
}

async fn a_merge_patch_replaces_lists(target: &Target) {
    let deployment = deploy(target).await;
    let patch = json!({"spec": {"template": {"spec": {"containers": [{
        "name": "app", "image": "registry.example/app:2", "env": [{"name": "C", "value": "3"}],
    }]}}}});
    assert_eq!(env(&target.merge(&deployment, &patch).await.expect(200).body), ["C=3"]);
}

async fn a_strategic_patch_merges_lists_by_their_key(target: &Target) {
    let deployment = deploy(target).await;
    let patch = with_env(&json!([{"name": "B", "value": "9"}, {"name": "C", "value": "3"}]));
    assert_eq!(env(&target.strategic(&deployment, &patch).await.expect(200).body), ["A=1", "B=9", "C=3"]);
}

async fn a_strategic_patch_removes_entries(target: &Target) {
    let deployment = deploy(target).await;
    let patch = with_env(&json!([{"name": "A", "$patch": "delete"}]));
    assert_eq!(env(&target.strategic(&deployment, &patch).await.expect(200).body), ["B=2"]);
}

async fn a_strategic_patch_replaces_with_a_directive(target: &Target) {
    let deployment = deploy(target).await;
    let patch = with_env(&json!([{"$patch": "replace"}, {"name": "C", "value": "3"}]));
    assert_eq!(env(&target.strategic(&deployment, &patch).await.expect(200).body), ["C=3"]);
}

async fn a_patch_that_changes_nothing_keeps_the_version(target: &Target) {
    let made = target.make("a", "1").await;
    let patch = json!({"metadata": {"annotations": {"value": "1"}}});
    assert_eq!(target.merge("$things/a", &patch).await.expect(200).body, made);
    assert_eq!(target.strategic("$things/a", &patch).await.expect(200).body, made);
    assert_eq!(target.json_patch("$things/a", &json!([])).await.expect(200).body, made);
}

async fn a_patch_at_an_old_version_is_a_conflict(target: &Target) {
    let made = target.make("a", "1").await;
    target.set("a", "2").await;
    let patch = json!({"metadata": {"resourceVersion": version(&made), "annotations": {"value": "3"}}});
    let words = "the object has been modified; please apply your changes to the latest version";
    target.merge("$things/a", &patch).await.expect_error(409, "Conflict", words);
}

async fn a_patch_of_what_is_not_there_is_refused(target: &Target) {
    let patch = json!({"metadata": {"annotations": {"value": "1"}}});
    target.merge("$things/a", &patch).await.expect_error(404, "NotFound", "secrets \"a\" not found");
}

async fn a_patch_cannot_rename(target: &Target) {
    target.make("a", "1").await;
    let response = target.merge("$things/a", &json!({"metadata": {"name": "b"}})).await;
    response.expect_error(
        400,
        "BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    );
}

async fn a_patch_cannot_change_the_uid(target: &Target) {
    target.make("a", "1").await;
    let response = target.merge("$things/a", &json!({"metadata": {"uid": "mine"}})).await;
    response.expect_error(422, "Invalid", "metadata.uid: Invalid value: \"mine\": field is immutable");
}

async fn a_patch_of_an_unknown_type_is_refused(target: &Target) {
    target.make("a", "1").await;
    let headers = [("content-type", "application/json"), ("accept", "application/json")];
    let response = target.request("PATCH", "$things/a", &headers, b"{}".to_vec()).await;
    response.expect_error(415, "UnsupportedMediaType", "415: Unsupported Media Type");
}

async fn a_patch_that_is_no_json_is_refused(target: &Target) {
    target.make("a", "1").await;
    for kind in ["merge-patch", "strategic-merge-patch", "json-patch"] {
        let content_type = format!("application/{kind}+json");
        let headers = [("content-type", content_type.as_str()), ("accept", "application/json")];
        let response = target.request("PATCH", "$things/a", &headers, b"{\"a".to_vec()).await;
        assert_eq!(response.expect(400).body["reason"], "BadRequest", "{kind}");
    }
}

async fn a_patch_that_makes_the_object_invalid_is_refused(target: &Target) {
    let made = target.make("a", "1").await;
    let response = target.merge("$things/a", &json!({"metadata": {"labels": {"x": "not good"}}})).await;
    response.expect_error(422, "Invalid", "metadata.labels: Invalid value: \"not good\"");
    assert_eq!(target.get("$things/a").await.body, made);
}

async fn a_strict_patch_with_an_unknown_field_is_refused(target: &Target) {
    target.make("a", "1").await;
    let response = target.merge("$things/a?fieldValidation=Strict", &json!({"flavour": "sweet"})).await;
    response.expect_error(422, "Invalid", "strict decoding error: unknown field \"flavour\"");
}

async fn a_dry_run_of_a_patch_changes_nothing(target: &Target) {
    let made = target.make("a", "1").await;
    let patch = json!({"metadata": {"annotations": {"value": "2"}}});
    let dry = target.merge("$things/a?dryRun=All", &patch).await.expect(200);
    assert_eq!(dry.body["metadata"]["annotations"]["value"], "2");
    assert_eq!(target.get("$things/a").await.body, made);
}
