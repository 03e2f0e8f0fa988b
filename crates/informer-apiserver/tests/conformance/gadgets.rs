//! Custom resources: schemas, defaults, pruning, validation rules and subresources.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, number, version};

statements![
    defaults_of_the_schema_are_filled_in,
    fields_that_the_schema_does_not_know_are_dropped,
    fields_are_kept_where_the_schema_says_so,
    a_value_outside_of_the_schema_is_refused,
    a_value_of_the_wrong_type_is_refused,
    a_missing_field_that_is_required_is_refused,
    a_rule_of_the_schema_is_enforced,
    a_transition_rule_sees_the_old_value,
    a_custom_object_needs_kind_and_version,
    an_update_of_a_custom_object_needs_a_version,
    a_strategic_patch_of_a_custom_object_is_refused,
    items_of_a_custom_list_have_their_kind,
    a_custom_object_has_a_generation_that_rises_with_its_spec,
    without_the_subresource_status_is_an_ordinary_field,
    a_write_to_a_custom_object_leaves_its_status,
    a_write_to_a_custom_status_leaves_the_rest,
    a_custom_object_scales,
    custom_objects_are_watched,
    custom_objects_are_applied,
];

fn subresources(definition: &mut Value) {
    definition["spec"]["versions"][0]["subresources"] = json!({
        "status": {},
        "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
    });
}

fn spec_schema(definition: &mut Value) -> &mut Value {
    definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap()
}

async fn defaults_of_the_schema_are_filled_in(target: &Target) {
    let path = target.define(|_| {}).await;
    let made = target.post(&path, &target.gadget("g", &json!({}))).await.expect(201).body;
    assert_eq!(made["spec"], json!({"size": 1}));
    // Defaults are set only within objects that are present.
    let mut bare = target.gadget("h", &json!({}));
    bare.as_object_mut().unwrap().remove("spec");
    assert!(target.post(&path, &bare).await.expect(201).body["spec"].is_null());
}

async fn fields_that_the_schema_does_not_know_are_dropped(target: &Target) {
    let path = target.define(|_| {}).await;
    let response =
        target.post(&path, &target.gadget("g", &json!({"size": 2, "weight": 3}))).await.expect(201);
    assert_eq!(response.body["spec"], json!({"size": 2}));
    assert_eq!(response.header("warning"), "299 - \"unknown field \\\"spec.weight\\\"\"");
    let strict = format!("{path}?fieldValidation=Strict");
    let response = target.post(&strict, &target.gadget("h", &json!({"weight": 3}))).await;
    response.expect_error(400, "BadRequest", "strict decoding error: unknown field \"spec.weight\"");
}

async fn fields_are_kept_where_the_schema_says_so(target: &Target) {
    let path = target
        .define(|definition| spec_schema(definition)["x-kubernetes-preserve-unknown-fields"] = true.into())
        .await;
    let spec = json!({"size": 1, "any": {"thing": [1, "two", null, {"x": 0.5}]}});
    assert_eq!(target.post(&path, &target.gadget("g", &spec)).await.expect(201).body["spec"], spec);
}

async fn a_value_outside_of_the_schema_is_refused(target: &Target) {
    let path = target.define(|_| {}).await;
    let response = target.post(&path, &target.gadget("g", &json!({"size": 101, "color": "blue"}))).await;
    let response = response.expect_error(422, "Invalid", "Gadget.");
    let message = response.body["message"].as_str().unwrap();
    assert!(message.contains("spec.size in body should be less than or equal to 100"), "{message}");
    assert!(
        message.contains("spec.color: Unsupported value: \"blue\": supported values: \"red\", \"green\"")
    );
    assert_eq!(response.body["details"]["group"], target.group());
}

async fn a_value_of_the_wrong_type_is_refused(target: &Target) {
    let path = target.define(|_| {}).await;
    let response = target.post(&path, &target.gadget("g", &json!({"size": "big"}))).await;
    response.expect_error(422, "Invalid", "spec.size in body must be of type integer: \"string\"");
}

async fn a_missing_field_that_is_required_is_refused(target: &Target) {
    let path = target.define(|definition| spec_schema(definition)["required"] = json!(["color"])).await;
    let response = target.post(&path, &target.gadget("g", &json!({}))).await;
    response.expect_error(422, "Invalid", "spec.color: Required value");
}

fn with_rule(definition: &mut Value, rule: &str) {
    let rule = json!([{"rule": rule, "message": "not like this"}]);
    spec_schema(definition)["x-kubernetes-validations"] = rule;
}

async fn a_rule_of_the_schema_is_enforced(target: &Target) {
    let path = target.define(|definition| with_rule(definition, "self.size % 2 == 1")).await;
    target.post(&path, &target.gadget("g", &json!({"size": 3}))).await.expect(201);
    let response = target.post(&path, &target.gadget("h", &json!({"size": 4}))).await;
    response.expect_error(422, "Invalid", "spec: Invalid value: not like this");
}

async fn a_transition_rule_sees_the_old_value(target: &Target) {
    let path = target.define(|definition| with_rule(definition, "self.size >= oldSelf.size")).await;
    target.post(&path, &target.gadget("g", &json!({"size": 3}))).await.expect(201);
    let path = format!("{path}/g");
    target.merge(&path, &json!({"spec": {"size": 4}})).await.expect(200);
    let response = target.merge(&path, &json!({"spec": {"size": 2}})).await;
    response.expect_error(422, "Invalid", "not like this");
}

async fn a_custom_object_needs_kind_and_version(target: &Target) {
    let path = target.define(|_| {}).await;
    let response = target.post(&path, &json!({"metadata": {"name": "g"}})).await;
    assert_eq!(response.expect(400).body["reason"], "BadRequest");
}

async fn an_update_of_a_custom_object_needs_a_version(target: &Target) {
    let path = target.define(|_| {}).await;
    let gadget = target.gadget("g", &json!({}));
    target.post(&path, &gadget).await.expect(201);
    let response = target.put(&format!("{path}/g"), &gadget).await;
    response.expect_error(
        422,
        "Invalid",
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    );
}

async fn a_strategic_patch_of_a_custom_object_is_refused(target: &Target) {
    let path = target.define(|_| {}).await;
    target.post(&path, &target.gadget("g", &json!({}))).await.expect(201);
    let response = target.strategic(&format!("{path}/g"), &json!({"spec": {"size": 2}})).await;
    response.expect_error(415, "UnsupportedMediaType", "the body of the request was in an unknown format");
}

async fn items_of_a_custom_list_have_their_kind(target: &Target) {
    let path = target.define(|_| {}).await;
    target.post(&path, &target.gadget("g", &json!({}))).await.expect(201);
    let list = target.get(&path).await.expect(200);
    assert_eq!((&list.body["kind"], &list.items()[0]["kind"]), (&"GadgetList".into(), &"Gadget".into()));
}

async fn a_custom_object_has_a_generation_that_rises_with_its_spec(target: &Target) {
    let path = target.define(subresources).await;
    let made = target.post(&path, &target.gadget("g", &json!({}))).await.expect(201).body;
    assert_eq!(made["metadata"]["generation"], 1);
    let path = format!("{path}/g");
    let generation = async |path: &str, patch: Value| {
        target.merge(path, &patch).await.expect(200).body["metadata"]["generation"].clone()
    };
    assert_eq!(generation(&path, json!({"metadata": {"labels": {"a": "b"}}})).await, 1);
    assert_eq!(generation(&path, json!({"spec": {"size": 2}})).await, 2);
    assert_eq!(generation(&format!("{path}/status"), json!({"status": {"x": 1}})).await, 2);
}

async fn without_the_subresource_status_is_an_ordinary_field(target: &Target) {
    let path = target.define(|_| {}).await;
    let mut gadget = target.gadget("g", &json!({}));
    gadget["status"] = json!({"x": 1});
    assert_eq!(target.post(&path, &gadget).await.expect(201).body["status"], json!({"x": 1}));
    target.get(&format!("{path}/g/status")).await.expect_error(404, "NotFound", "\"g\" not found");
}

async fn a_write_to_a_custom_object_leaves_its_status(target: &Target) {
    let path = target.define(subresources).await;
    let mut gadget = target.gadget("g", &json!({}));
    gadget["status"] = json!({"x": 1});
    assert!(target.post(&path, &gadget).await.expect(201).body["status"].is_null());
    let path = format!("{path}/g");
    target.merge(&format!("{path}/status"), &json!({"status": {"x": 2}})).await.expect(200);
    let change = json!({"spec": {"size": 2}, "status": {"x": 3}});
    let written = target.merge(&path, &change).await.expect(200).body;
    assert_eq!((&written["spec"]["size"], &written["status"]), (&2.into(), &json!({"x": 2})));
}

async fn a_write_to_a_custom_status_leaves_the_rest(target: &Target) {
    let path = target.define(subresources).await;
    target.post(&path, &target.gadget("g", &json!({"size": 4}))).await.expect(201);
    let change = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"size": 9}, "status": {"x": 1}});
    let written = target.merge(&format!("{path}/g/status"), &change).await.expect(200).body;
    assert_eq!((&written["spec"]["size"], &written["status"]), (&4.into(), &json!({"x": 1})));
    assert!(written["metadata"]["labels"].is_null());
}

async fn a_custom_object_scales(target: &Target) {
    let path = target.define(subresources).await;
    target.post(&path, &target.gadget("g", &json!({"size": 4}))).await.expect(201);
    let scale = format!("{path}/g/scale");
    let got = target.get(&scale).await.expect(200).body;
    assert_eq!((&got["kind"], &got["apiVersion"]), (&"Scale".into(), &"autoscaling/v1".into()));
    assert_eq!(got["spec"], json!({"replicas": 4}));
    target.merge(&scale, &json!({"spec": {"replicas": 6}})).await.expect(200);
    assert_eq!(target.get(&format!("{path}/g")).await.body["spec"]["size"], 6);
}

async fn custom_objects_are_watched(target: &Target) {
    let path = target.define(|_| {}).await;
    let mut watch = target.watch(&format!("{path}?watch=1")).await;
    let made = target.post(&path, &target.gadget("g", &json!({}))).await.expect(201).body;
    assert_eq!(watch.object("ADDED").await, made);
    let changed = target.merge(&format!("{path}/g"), &json!({"spec": {"size": 2}})).await.expect(200).body;
    assert_eq!(watch.object("MODIFIED").await, changed);
    target.delete(&format!("{path}/g")).await.expect(200);
    assert!(number(&watch.object("DELETED").await) > number(&changed));
}

async fn custom_objects_are_applied(target: &Target) {
    let path = format!("{}/g", target.define(|_| {}).await);
    let one = format!("{path}?fieldManager=one");
    let made = target.apply(&one, &target.gadget("g", &json!({"size": 2}))).await.expect(201).body;
    assert_eq!(made["metadata"]["managedFields"][0]["fieldsV1"], json!({"f:spec": {"f:size": {}}}));
    let two =
        target.apply(&format!("{path}?fieldManager=two"), &target.gadget("g", &json!({"size": 3}))).await;
    two.expect_error(409, "Conflict", "conflict with \"one\": .spec.size");
    let again = target.apply(&one, &target.gadget("g", &json!({"size": 2}))).await.expect(200);
    assert_eq!(again.version(), version(&made));
}
