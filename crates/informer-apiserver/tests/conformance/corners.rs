//! Rare requests with surprising responses.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{Target, pod, thing, version};

statements![
    an_apply_to_the_status_has_its_own_managed_fields_entry,
    a_status_at_an_old_version_is_a_conflict,
    an_update_of_a_custom_status_requires_a_version,
    force_is_rejected_except_for_applies,
    a_manager_with_a_long_name_is_refused,
    an_unknown_field_validation_is_refused,
    a_duplicate_field_causes_a_warning,
    a_duplicate_environment_variable_causes_a_warning,
    a_deprecated_kind_causes_a_warning,
    accept_of_any_type_returns_json,
    an_incomplete_media_type_is_acceptable_for_custom_objects_only,
    the_media_type_with_the_greatest_weight_is_used,
    a_head_is_not_allowed,
    a_watch_with_a_selector_that_cannot_be_read_is_refused,
    an_unknown_include_object_policy_is_refused,
    a_part_of_a_collection_can_be_deleted_by_name,
    a_dry_run_of_a_collection_deletes_nothing,
    the_scope_of_a_definition_cannot_change,
    a_version_that_has_objects_cannot_be_taken_away,
    a_definition_that_changes_ends_its_watches,
    a_schema_that_changes_holds_for_the_next_write,
    an_unchanged_invalid_field_is_accepted,
    a_set_rejects_duplicate_entries,
    a_keyed_list_rejects_duplicate_keys,
    a_field_can_be_a_number_or_text,
    a_custom_collection_can_be_deleted,
    a_custom_table_has_name_and_age,
    a_name_of_a_custom_object_is_checked,
    a_self_subject_review_returns_the_user,
    a_user_without_permission_is_refused,
    an_eviction_can_be_a_dry_run,
    a_finished_pod_is_evicted_against_a_budget,
    an_event_is_served_in_both_groups,
    a_verbose_health_check_lists_its_checks,
    a_negative_limit_is_ignored,
    a_patch_with_many_operations_is_refused,
    an_object_can_be_watched_by_the_deprecated_path,
];

async fn an_apply_to_the_status_has_its_own_managed_fields_entry(target: &Target) {
    target.make_pod("p").await;
    let status =
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "status": {"message": "m"}});
    let pod = target.apply("$ns/pods/p/status?fieldManager=one", &status).await.expect(200).body;
    let entries = pod["metadata"]["managedFields"].as_array().unwrap();
    let entry = entries.iter().find(|entry| entry["manager"] == "one").unwrap();
    assert_eq!((&entry["subresource"], &entry["operation"]), (&"status".into(), &"Apply".into()));
    assert_eq!(entry["fieldsV1"], json!({"f:status": {"f:message": {}}}));
}

async fn a_status_at_an_old_version_is_a_conflict(target: &Target) {
    let made = target.make_pod("p").await;
    target.merge("$ns/pods/p", &json!({"metadata": {"labels": {"x": "y"}}})).await.expect(200);
    target.put("$ns/pods/p/status", &made).await.expect_error(
        409,
        "Conflict",
        "the object has been modified",
    );
}

fn with_status(definition: &mut Value) {
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
}

async fn an_update_of_a_custom_status_requires_a_version(target: &Target) {
    let path = target.define(with_status).await;
    let gadget = target.gadget("g", &json!({}));
    target.post(&path, &gadget).await.expect(201);
    let response = target.put(&format!("{path}/g/status"), &gadget).await;
    response.expect_error(
        422,
        "Invalid",
        "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
    );
}

async fn force_is_rejected_except_for_applies(target: &Target) {
    target.make("a", "1").await;
    let response = target.merge("$things/a?force=true", &json!({})).await;
    response.expect_error(422, "Invalid", "force: Forbidden: may not be specified for non-apply patch");
}

async fn a_manager_with_a_long_name_is_refused(target: &Target) {
    let response = target.post(&format!("$things?fieldManager={}", "m".repeat(129)), &thing("a", "1")).await;
    response.expect_error(422, "Invalid", "fieldManager: Too long: may not be more than 128 bytes");
}

async fn an_unknown_field_validation_is_refused(target: &Target) {
    let response = target.post("$things?fieldValidation=Perhaps", &thing("a", "1")).await;
    response.expect_error(422, "Invalid", "fieldValidation: Unsupported value: \"Perhaps\"");
}

async fn a_duplicate_field_causes_a_warning(target: &Target) {
    let body = r#"{"metadata":{"name":"a"},"type":"Opaque","type":"example.com/other"}"#;
    let headers = [("content-type", "application/json"), ("accept", "application/json")];
    let response = target.request("POST", "$things", &headers, body.into()).await.expect(201);
    assert_eq!(response.header("warning"), "299 - \"duplicate field \\\"type\\\"\"");
    assert_eq!(response.body["type"], "example.com/other");
}

/// Creates a modified pod.
async fn changed(target: &Target, change: impl Fn(&mut Value)) -> crate::targets::Response {
    let mut pod = pod("p");
    change(&mut pod);
    let made = target.until(async || {
        let made = target.post("$ns/pods", &pod).await;
        (made.code != 403).then_some(made)
    });
    made.await.expect(201)
}

async fn a_duplicate_environment_variable_causes_a_warning(target: &Target) {
    let env = json!([{"name": "A", "value": "1"}, {"name": "A", "value": "2"}]);
    let made = changed(target, |pod| pod["spec"]["containers"][0]["env"] = env.clone()).await;
    let warning = made.header("warning");
    assert!(
        warning.contains("spec.containers[0].env[1]: hides previous definition of \\\"A\\\""),
        "the warning is {warning:?}"
    );
}

async fn a_deprecated_kind_causes_a_warning(target: &Target) {
    let warning = "299 - \"v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice\"";
    let endpoints = json!({"metadata": {"name": "e"}});
    let responses = [
        target.get("$ns/endpoints").await.expect(200),
        target.get("$ns/endpoints/e").await.expect(404),
        target.post("$ns/endpoints", &endpoints).await.expect(201),
        target.delete("$ns/endpoints/e").await.expect(200),
    ];
    for response in &responses {
        assert_eq!(response.headers.get_all("warning").iter().collect::<Vec<_>>(), [warning], "{response:?}");
    }
}

async fn accept_of_any_type_returns_json(target: &Target) {
    target.make("a", "1").await;
    for accept in ["*/*", "application/*, */*", "application/json, */*"] {
        let response = target.get_as("$things/a", accept).await.expect(200);
        assert_eq!(response.header("content-type"), "application/json", "{accept}");
    }
    let response = target.request("GET", "$things/a", &[], Vec::new()).await.expect(200);
    assert_eq!(response.header("content-type"), "application/json");
}

async fn an_incomplete_media_type_is_acceptable_for_custom_objects_only(target: &Target) {
    let response = target.get_as("$things", "application/*").await;
    response.expect_error(
        406,
        "NotAcceptable",
        "Available representations: application/json, application/yaml",
    );
    let gadgets = target.define(|_| {}).await;
    target.get_as(&gadgets, "application/*").await.expect(200);
    let response = target.get_as(&gadgets, "image/png").await;
    response.expect_error(
        406,
        "NotAcceptable",
        "only the following media types are accepted: application/json",
    );
}

async fn the_media_type_with_the_greatest_weight_is_used(target: &Target) {
    target.make("a", "1").await;
    let response =
        target.get_as("$things/a", "application/json;q=0.1, application/yaml;q=0.9").await.expect(200);
    assert_eq!(response.header("content-type"), "application/yaml");
}

async fn a_head_is_not_allowed(target: &Target) {
    target.make("a", "1").await;
    let response = target.request("HEAD", "$things/a", &[], Vec::new()).await.expect(405);
    assert!(response.bytes.is_empty());
}

async fn a_watch_with_a_selector_that_cannot_be_read_is_refused(target: &Target) {
    for query in ["labelSelector=a%20b", "fieldSelector=a%20b", "fieldSelector=data.x%3Dy"] {
        let response = target.get(&format!("$ns/configmaps?watch=1&{query}")).await;
        assert_eq!(response.expect(400).body["reason"], "BadRequest", "{query}");
    }
}

async fn an_unknown_include_object_policy_is_refused(target: &Target) {
    let accept = "application/json;as=Table;g=meta.k8s.io;v=v1";
    target.get_as("$things?includeObject=Some", accept).await.expect_error(
        400,
        "BadRequest",
        "must be 'Metadata', 'Object', 'None', or empty",
    );
}

async fn a_part_of_a_collection_can_be_deleted_by_name(target: &Target) {
    target.make("a", "1").await;
    target.make("b", "1").await;
    target.delete("$things?fieldSelector=metadata.name%3Da").await.expect(200);
    assert_eq!(target.get("$things").await.names(), "b");
}

async fn a_dry_run_of_a_collection_deletes_nothing(target: &Target) {
    target.make("a", "1").await;
    target.delete("$things?dryRun=All").await.expect(200);
    assert_eq!(target.get("$things").await.names(), "a");
}

async fn the_scope_of_a_definition_cannot_change(target: &Target) {
    target.define(|_| {}).await;
    let response = target.merge(&target.definition_path(), &json!({"spec": {"scope": "Cluster"}})).await;
    response.expect_error(422, "Invalid", "spec.scope: Invalid value: \"Cluster\": field is immutable");
}

async fn a_version_that_has_objects_cannot_be_taken_away(target: &Target) {
    target.define(|_| {}).await;
    let change = json!([{"op": "replace", "path": "/spec/versions/0/name", "value": "v2"}]);
    let response = target.json_patch(&target.definition_path(), &change).await;
    response.expect_error(422, "Invalid", "status.storedVersions[0]: Invalid value: \"v1\"");
}

/// Adds an allowed color to the schema.
async fn widen(target: &Target) {
    let color = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/color/enum/-";
    let change = json!([{"op": "add", "path": color, "value": "blue"}]);
    target.json_patch(&target.definition_path(), &change).await.expect(200);
}

async fn a_definition_that_changes_ends_its_watches(target: &Target) {
    let path = target.define(|_| {}).await;
    let mut watch = target.watch(&format!("{path}?watch=1")).await;
    widen(target).await;
    watch.ends().await;
}

async fn a_schema_that_changes_holds_for_the_next_write(target: &Target) {
    let path = target.define(|_| {}).await;
    let blue = target.gadget("g", &json!({"color": "blue"}));
    target.post(&path, &blue).await.expect(422);
    widen(target).await;
    target.until(async || (target.post(&path, &blue).await.code == 201).then_some(())).await;
}

async fn an_unchanged_invalid_field_is_accepted(target: &Target) {
    let path = target.define(|_| {}).await;
    target.post(&path, &target.gadget("g", &json!({"size": 50}))).await.expect(201);
    let most = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/maximum";
    let change = json!([{"op": "replace", "path": most, "value": 10}]);
    target.json_patch(&target.definition_path(), &change).await.expect(200);
    target
        .until(async || {
            (target.post(&path, &target.gadget("h", &json!({"size": 50}))).await.code == 422).then_some(())
        })
        .await;
    target.merge(&format!("{path}/g"), &json!({"spec": {"color": "red"}})).await.expect(200);
    target.merge(&format!("{path}/g"), &json!({"spec": {"size": 51}})).await.expect(422);
}

/// Defines gadgets whose spec has one more field.
async fn with_field(target: &Target, schema: Value) -> String {
    target
        .define(|definition| {
            let spec =
                definition.pointer_mut("/spec/versions/0/schema/openAPIV3Schema/properties/spec").unwrap();
            spec["properties"]["more"] = schema;
        })
        .await
}

async fn a_set_rejects_duplicate_entries(target: &Target) {
    let schema = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}});
    let path = with_field(target, schema).await;
    let response = target.post(&path, &target.gadget("g", &json!({"more": ["a", "b", "a"]}))).await;
    response.expect_error(422, "Invalid", "spec.more[2]: Duplicate value: \"a\"");
}

async fn a_keyed_list_rejects_duplicate_keys(target: &Target) {
    let item = json!({"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
    let schema = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item,
    });
    let path = with_field(target, schema).await;
    let response =
        target.post(&path, &target.gadget("g", &json!({"more": [{"k": "a"}, {"k": "a", "v": 1}]}))).await;
    response.expect_error(422, "Invalid", "spec.more[1]: Duplicate value: {\"k\":\"a\"}");
}

async fn a_field_can_be_a_number_or_text(target: &Target) {
    let path = with_field(target, json!({"x-kubernetes-int-or-string": true})).await;
    for (name, more) in [("a", json!(1)), ("b", json!("10%"))] {
        let made = target.post(&path, &target.gadget(name, &json!({"more": more}))).await.expect(201).body;
        assert_eq!(made["spec"]["more"], more);
    }
    target.post(&path, &target.gadget("c", &json!({"more": true}))).await.expect(422);
}

async fn a_custom_collection_can_be_deleted(target: &Target) {
    let path = target.define(|_| {}).await;
    for name in ["a", "b"] {
        target.post(&path, &target.gadget(name, &json!({}))).await.expect(201);
    }
    assert_eq!(target.delete(&path).await.expect(200).body["kind"], "GadgetList");
    assert_eq!(target.get(&path).await.expect(200).names(), "");
}

async fn a_custom_table_has_name_and_age(target: &Target) {
    let path = target.define(|_| {}).await;
    let table = target.get_as(&path, "application/json;as=Table;g=meta.k8s.io;v=v1").await.expect(200).body;
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(columns.iter().map(|column| &column["name"]).collect::<Vec<_>>(), ["Name", "Age"]);
    assert_eq!(table["rows"], json!([]));
}

async fn a_name_of_a_custom_object_is_checked(target: &Target) {
    let path = target.define(|_| {}).await;
    let response = target.post(&path, &target.gadget("Big_One", &json!({}))).await;
    response.expect_error(422, "Invalid", "metadata.name: Invalid value: \"Big_One\"");
}

async fn a_self_subject_review_returns_the_user(target: &Target) {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let response =
        target.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review).await.expect(201);
    let user = &response.body["status"]["userInfo"];
    assert!(user["username"].is_string() && user["groups"].is_array(), "{user}");
}

async fn a_user_without_permission_is_refused(target: &Target) {
    let headers = [("accept", "application/json"), ("impersonate-user", "nobody")];
    let response = target.request("GET", "$things", &headers, Vec::new()).await;
    let words = format!(
        "secrets is forbidden: User \"nobody\" cannot list resource \"secrets\" in API group \"\" in the namespace \"{}\"",
        target.namespace
    );
    response.expect_error(403, "Forbidden", &words);
}

async fn an_eviction_can_be_a_dry_run(target: &Target) {
    target.make_pod("p").await;
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}, "deleteOptions": {"dryRun": ["All"]},
    });
    target.post("$ns/pods/p/eviction", &eviction).await.expect(201);
    target.get("$ns/pods/p").await.expect(200);
}

async fn a_finished_pod_is_evicted_against_a_budget(target: &Target) {
    changed(target, |pod| pod["metadata"]["labels"] = json!({"app": "p"})).await;
    target.merge("$ns/pods/p/status", &json!({"status": {"phase": "Succeeded"}})).await.expect(200);
    let budget = json!({
        "metadata": {"name": "b"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "p"}}},
    });
    target.post("/apis/policy/v1/namespaces/$name/poddisruptionbudgets", &budget).await.expect(201);
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    target.post("$ns/pods/p/eviction", &eviction).await.expect(201);
    target.get("$ns/pods/p").await.expect(404);
}

async fn an_event_is_served_in_both_groups(target: &Target) {
    let about = json!({"kind": "Pod", "name": "p", "namespace": target.namespace});
    let event = json!({"metadata": {"name": "e"}, "involvedObject": about, "reason": "Tested", "message": "m", "type": "Normal"});
    let made = target.post("$ns/events", &event).await.expect(201);
    let other = target.get("/apis/events.k8s.io/v1/namespaces/$name/events/e").await.expect(200);
    assert_eq!((&other.body["regarding"], &other.body["note"]), (&about, &"m".into()));
    assert_eq!(other.version(), made.version());
}

async fn a_verbose_health_check_lists_its_checks(target: &Target) {
    let response = target.get("/readyz?verbose").await.expect(200);
    let text = response.body.as_str().unwrap();
    assert!(text.contains("[+]ping ok\n") && text.ends_with("readyz check passed\n"), "{text}");
    assert_eq!(target.get("/livez/ping").await.expect(200).body, "ok");
}

async fn a_negative_limit_is_ignored(target: &Target) {
    target.make("a", "1").await;
    target.make("b", "1").await;
    assert_eq!(target.get("$things?limit=-1").await.expect(200).names(), "a b");
}

async fn a_patch_with_many_operations_is_refused(target: &Target) {
    target.make("a", "1").await;
    let operation = json!({"op": "test", "path": "/type", "value": "Opaque"});
    let response = target.json_patch("$things/a", &Value::from(vec![operation; 10_001])).await;
    response.expect_error(
        413,
        "RequestEntityTooLarge",
        "The allowed maximum operations in a JSON patch is 10000, got 10001",
    );
}

async fn an_object_can_be_watched_by_the_deprecated_path(target: &Target) {
    let made = target.make("a", "1").await;
    target.make("b", "1").await;
    let mut watch = target.watch("/api/v1/watch/namespaces/$name/secrets/a").await;
    assert_eq!(version(&watch.object("ADDED").await), version(&made));
    target.set("b", "2").await;
    target.set("a", "3").await;
    watch.expect_frames(&["MODIFIED a 3"]).await;
}
