//! Custom resource definitions: their lifecycle and what they serve.

use serde_json::{Value, json};

use crate::runner::statements;
use crate::targets::{DEFINITIONS, Target};

statements![
    a_definition_becomes_established,
    a_definition_gets_the_names_it_left_out,
    a_definition_must_be_named_after_plural_and_group,
    a_definition_needs_a_schema,
    a_definition_needs_one_version_that_is_stored,
    names_that_are_taken_are_not_accepted,
    a_definition_shows_in_discovery,
    a_definition_shows_in_the_openapi_documents,
    every_version_that_is_served_shows_all_objects,
    a_version_that_is_not_served_is_not_found,
    a_deprecated_version_causes_a_warning,
    a_deleted_definition_deletes_its_objects,
    a_deleted_definition_ends_its_watches,
    a_recreated_definition_has_no_objects,
    a_resource_of_the_whole_cluster_has_no_namespaces,
    columns_of_a_definition_are_those_of_its_tables,
    a_selectable_field_selects,
];

/// Returns the status of a condition.
fn condition<'a>(definition: &'a Value, kind: &str) -> &'a str {
    let conditions = definition["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|condition| condition["type"] == kind));
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default()
}

async fn a_definition_becomes_established(target: &Target) {
    target.define(|_| {}).await;
    let definition = target.get(&target.definition_path()).await.expect(200).body;
    assert_eq!(condition(&definition, "Established"), "True");
    assert_eq!(condition(&definition, "NamesAccepted"), "True");
    assert_eq!(definition["status"]["storedVersions"], json!(["v1"]));
}

async fn a_definition_gets_the_names_it_left_out(target: &Target) {
    target.define(|_| {}).await;
    let definition = target.get(&target.definition_path()).await.expect(200).body;
    let names =
        json!({"plural": "gadgets", "singular": "gadget", "kind": "Gadget", "listKind": "GadgetList"});
    assert_eq!((&definition["spec"]["names"], &definition["status"]["acceptedNames"]), (&names, &names));
    assert_eq!(definition["spec"]["conversion"], json!({"strategy": "None"}));
}

async fn a_definition_must_be_named_after_plural_and_group(target: &Target) {
    let mut definition = target.definition();
    definition["metadata"]["name"] = format!("others.{}", target.group()).into();
    let response = target.post(DEFINITIONS, &definition).await;
    response.expect_error(422, "Invalid", "metadata.name: Invalid value:");
}

async fn a_definition_needs_a_schema(target: &Target) {
    let mut definition = target.definition();
    definition["spec"]["versions"][0]["schema"].take();
    let response = target.post(DEFINITIONS, &definition).await;
    response.expect_error(422, "Invalid", "spec.versions[0].schema.openAPIV3Schema: Required value");
}

async fn a_definition_needs_one_version_that_is_stored(target: &Target) {
    let mut definition = target.definition();
    definition["spec"]["versions"][0]["storage"] = false.into();
    let response = target.post(DEFINITIONS, &definition).await;
    response.expect_error(422, "Invalid", "must have exactly one version marked as storage version");
}

async fn names_that_are_taken_are_not_accepted(target: &Target) {
    target.define(|_| {}).await;
    let mut second = target.definition();
    second["metadata"]["name"] = format!("others.{}", target.group()).into();
    second["spec"]["names"]["plural"] = "others".into();
    target.keep(&second);
    target.post(DEFINITIONS, &second).await.expect(201);
    let path = format!("{DEFINITIONS}/others.{}", target.group());
    let refused = target.until(async || {
        let definition = target.get(&path).await.expect(200).body;
        (!condition(&definition, "NamesAccepted").is_empty()).then_some(definition)
    });
    let refused = refused.await;
    assert_eq!(condition(&refused, "NamesAccepted"), "False");
    assert_eq!(condition(&refused, "Established"), "False");
}

async fn a_definition_shows_in_discovery(target: &Target) {
    target
        .define(|definition| {
            definition["spec"]["names"]["shortNames"] = json!(["gg"]);
            definition["spec"]["names"]["categories"] = json!(["all"]);
            definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
        })
        .await;
    let path = format!("/apis/{}/v1", target.group());
    let found = target.until(async || {
        let response = target.get(&path).await;
        (response.code == 200).then_some(response.body)
    });
    let found = found.await;
    let names = |entry: &Value| entry["name"].as_str().unwrap().to_owned();
    let resources = found["resources"].as_array().unwrap();
    assert_eq!(resources.iter().map(names).collect::<Vec<_>>(), ["gadgets", "gadgets/status"]);
    assert_eq!((&resources[0]["kind"], &resources[0]["namespaced"]), (&"Gadget".into(), &true.into()));
    assert_eq!((&resources[0]["shortNames"], &resources[0]["categories"]), (&json!(["gg"]), &json!(["all"])));
    let verbs = json!(["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]);
    assert_eq!(resources[0]["verbs"], verbs);
    let group = target.until(async || {
        let response = target.get(&format!("/apis/{}", target.group())).await;
        (response.code == 200).then_some(response.body)
    });
    assert_eq!(group.await["preferredVersion"]["version"], "v1");
}

async fn a_definition_shows_in_the_openapi_documents(target: &Target) {
    target.define(|_| {}).await;
    let path = format!("/openapi/v3/apis/{}/v1", target.group());
    let document = target.until(async || {
        let response = target.get(&path).await;
        (response.code == 200).then_some(response.body)
    });
    let document = document.await;
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let (_, gadget) = schemas.iter().find(|(name, _)| name.ends_with(".v1.Gadget")).unwrap();
    assert_eq!(gadget["properties"]["spec"]["properties"]["size"]["maximum"], 100);
}

fn with_two_versions(definition: &mut Value) {
    let mut old = definition["spec"]["versions"][0].clone();
    old["name"] = "v1beta1".into();
    old["storage"] = false.into();
    definition["spec"]["versions"].as_array_mut().unwrap().push(old);
}

async fn every_version_that_is_served_shows_all_objects(target: &Target) {
    let path = target.define(with_two_versions).await;
    target.post(&path, &target.gadget("g", &json!({"size": 5}))).await.expect(201);
    let old = path.replace("/v1/", "/v1beta1/");
    let got = target.until(async || {
        let response = target.get(&format!("{old}/g")).await;
        (response.code == 200).then_some(response.body)
    });
    let got = got.await;
    assert_eq!(got["apiVersion"], format!("{}/v1beta1", target.group()));
    assert_eq!(got["spec"]["size"], 5);
}

async fn a_version_that_is_not_served_is_not_found(target: &Target) {
    let path = target
        .define(|definition| {
            with_two_versions(definition);
            definition["spec"]["versions"][1]["served"] = false.into();
        })
        .await;
    let response = target.get(&path.replace("/v1/", "/v1beta1/")).await.expect(404);
    assert_eq!(response.body, "404 page not found\n");
}

async fn a_deprecated_version_causes_a_warning(target: &Target) {
    let path = target
        .define(|definition| {
            definition["spec"]["versions"][0]["deprecated"] = true.into();
            definition["spec"]["versions"][0]["deprecationWarning"] = "take another".into();
        })
        .await;
    assert_eq!(target.get(&path).await.expect(200).header("warning"), "299 - \"take another\"");
}

async fn gone(target: &Target) {
    target.delete(&target.definition_path()).await.expect(200);
    target.until(async || (target.get(&target.definition_path()).await.code == 404).then_some(())).await;
    target.until(async || (target.get(&target.gadgets()).await.code == 404).then_some(())).await;
}

async fn a_deleted_definition_deletes_its_objects(target: &Target) {
    let path = target.define(|_| {}).await;
    target.post(&path, &target.gadget("g", &json!({}))).await.expect(201);
    gone(target).await;
    assert_eq!(target.get(&path).await.body, "404 page not found\n");
}

async fn a_deleted_definition_ends_its_watches(target: &Target) {
    let path = target.define(|_| {}).await;
    target.post(&path, &target.gadget("g", &json!({}))).await.expect(201);
    let mut watch = target.watch(&format!("{path}?watch=1")).await;
    watch.expect_frames(&["ADDED g -"]).await;
    target.delete(&target.definition_path()).await.expect(200);
    watch.expect_frames(&["DELETED g -"]).await;
    watch.ends().await;
}

async fn a_recreated_definition_has_no_objects(target: &Target) {
    let path = target.define(|_| {}).await;
    target.post(&path, &target.gadget("g", &json!({}))).await.expect(201);
    gone(target).await;
    let path = target.define(|_| {}).await;
    assert_eq!(target.get(&path).await.expect(200).names(), "");
}

async fn a_resource_of_the_whole_cluster_has_no_namespaces(target: &Target) {
    let mut definition = target.definition();
    definition["spec"]["scope"] = "Cluster".into();
    target.keep(&definition);
    target.post(DEFINITIONS, &definition).await.expect(201);
    let path = format!("/apis/{}/v1/gadgets", target.group());
    target.until(async || (target.get(&path).await.code == 200).then_some(())).await;
    let made = target.post(&path, &target.gadget("g", &json!({}))).await.expect(201).body;
    assert!(made["metadata"]["namespace"].is_null());
    assert_eq!(target.get(&target.gadgets()).await.expect(404).body, "404 page not found\n");
}

async fn columns_of_a_definition_are_those_of_its_tables(target: &Target) {
    let path = target
        .define(|definition| {
            let size = json!({"name": "Size", "type": "integer", "jsonPath": ".spec.size"});
            definition["spec"]["versions"][0]["additionalPrinterColumns"] = json!([size]);
        })
        .await;
    target.post(&path, &target.gadget("g", &json!({"size": 7}))).await.expect(201);
    let table = target.get_as(&path, "application/json;as=Table;g=meta.k8s.io;v=v1").await.expect(200).body;
    let columns = table["columnDefinitions"].as_array().unwrap();
    assert_eq!(columns.iter().map(|column| &column["name"]).collect::<Vec<_>>(), ["Name", "Size"]);
    assert_eq!(table["rows"][0]["cells"], json!(["g", 7]));
}

async fn a_selectable_field_selects(target: &Target) {
    let path = target
        .define(|definition| {
            definition["spec"]["versions"][0]["selectableFields"] = json!([{"jsonPath": ".spec.color"}]);
        })
        .await;
    for (name, color) in [("a", "red"), ("b", "green")] {
        target.post(&path, &target.gadget(name, &json!({"color": color}))).await.expect(201);
    }
    assert_eq!(
        target.get(&format!("{path}?fieldSelector=spec.color%3Dgreen")).await.expect(200).names(),
        "b"
    );
    let refused = target.get(&format!("{path}?fieldSelector=spec.size%3D1")).await;
    refused.expect_error(400, "BadRequest", "field label not supported: spec.size");
}
