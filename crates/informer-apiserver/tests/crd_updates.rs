//! Objects of definitions that change or have several versions: the storage keeps what was written, and reads follow
//! the current definition.
//!
//! The expected responses are those of kube-apiserver to the same requests.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use crate::common::{CONTENT_TYPE, Watch, raw, send, server, with_timeout};
use http_body_util::BodyExt;
use informer_apiserver::ApiServer;
use serde_json::{Value, json};

const FOOS: &str = "/apis/x.io/v1/namespaces/default/foos";
const OTHERS: &str = "/apis/x.io/v2/namespaces/default/foos";

/// A version whose spec has these fields.
fn version(name: &str, storage: bool, fields: &Value) -> Value {
    let spec = json!({"type": "object", "properties": fields});
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
        "selectableFields": if fields.get("d").is_some() { json!([{"jsonPath": ".spec.d"}]) } else { json!([]) },
    })
}

fn definition(versions: &[Value]) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.x.io"},
        "spec": {
            "group": "x.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": versions,
        },
    })
}

fn define(server: &ApiServer, versions: &[Value]) {
    server.create(&definition(versions)).unwrap();
}

fn redefine(server: &ApiServer, versions: &[Value]) {
    server.update(&definition(versions)).unwrap();
}

fn foo(version: &str, spec: &Value) -> Value {
    let metadata = json!({"name": "x", "namespace": "default"});
    json!({"apiVersion": format!("x.io/{version}"), "kind": "Foo", "metadata": metadata, "spec": spec})
}

/// Returns the response to a write and its warnings.
async fn write(
    server: &ApiServer,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> (Value, Vec<String>) {
    let accept = format!("application/json{CONTENT_TYPE}application/{kind}");
    let response = send(server, method, path, &accept, Some(body.to_string().into_bytes())).await;
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (serde_json::from_slice(&bytes).unwrap(), warnings)
}

async fn patch(server: &ApiServer, path: &str, body: &Value) -> (Value, Vec<String>) {
    write(server, "PATCH", &format!("{path}/x?fieldManager=other"), "merge-patch+json", body).await
}

async fn spec_at(server: &ApiServer, path: &str) -> Value {
    raw(server, &format!("{path}/x")).await.1["spec"].clone()
}

fn managers(object: &Value) -> Vec<&str> {
    let entries = object["metadata"]["managedFields"].as_array().unwrap();
    entries.iter().map(|entry| entry["manager"].as_str().unwrap()).collect()
}

fn texts(names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect()
}

/// The fields `a`, and `d` with a default.
fn with_default(default: &str) -> Value {
    json!({"a": {"type": "string"}, "d": {"type": "string", "default": default}})
}

/// Regression: a patch of an object with a field that its schema no longer has dropped all field owners, so applies
/// no longer conflicted, incremented the generation, and warned the client of a field that it had not sent.
#[tokio::test(start_paused = true)]
async fn field_removed_from_schema_keeps_owners() {
    with_timeout(async {
        let server = server();
        define(&server, &[version("v1", true, &texts(&["a", "b"]))]);
        let config = foo("v1", &json!({"a": "1", "b": "2"}));
        let path = format!("{FOOS}/x?fieldManager=first");
        write(&server, "PATCH", &path, "apply-patch+yaml", &config).await;
        redefine(&server, &[version("v1", true, &texts(&["a"]))]);

        let (labelled, warnings) = patch(&server, FOOS, &json!({"metadata": {"labels": {"l": "1"}}})).await;
        assert_eq!(labelled["metadata"]["generation"], 1);
        assert_eq!(managers(&labelled), ["first", "other"]);
        assert_eq!((labelled["spec"].clone(), warnings), (json!({"a": "1"}), Vec::new()));

        let path = format!("{FOOS}/x?fieldManager=second");
        let (refused, _) =
            write(&server, "PATCH", &path, "apply-patch+yaml", &foo("v1", &json!({"a": "2"}))).await;
        assert_eq!(refused["code"], 409, "{refused}");
    })
    .await;
}

/// Regression: reads returned objects as stored, whatever the definition had become. Reads follow the definition; the
/// stored object changes with the next write only, so a field that is restored in the schema has its value again.
#[tokio::test(start_paused = true)]
async fn reads_follow_current_definition() {
    with_timeout(async {
        let server = server();
        define(&server, &[version("v1", true, &texts(&["a", "b"]))]);
        server.create(&foo("v1", &json!({"a": "1", "b": "2"}))).unwrap();
        let created = server.resource_version();

        redefine(&server, &[version("v1", true, &with_default("d"))]);
        let shown = json!({"a": "1", "d": "d"});
        assert_eq!(spec_at(&server, FOOS).await, shown);
        let (_, list) = raw(&server, FOOS).await;
        assert_eq!(list["items"][0]["spec"], shown);
        assert_eq!(list["items"][0]["metadata"]["resourceVersion"], created.to_string());
        let (_, selected) = raw(&server, &format!("{FOOS}?fieldSelector=spec.d=d")).await;
        assert_eq!(selected["items"].as_array().unwrap().len(), 1);
        let mut watch = Watch::open(&server, &format!("{FOOS}?watch=1&resourceVersion={created}")).await;
        assert!(watch.is_silent(50).await, "a changed definition must not cause events");
        let before = created - 1;
        let mut watch =
            Watch::open(&server, &format!("{FOOS}?watch=1&resourceVersion={before}&fieldSelector=spec.d=d"))
                .await;
        assert_eq!(
            watch.next_summary().await,
            format!("ADDED x {created}"),
            "past states follow the definition too"
        );

        redefine(&server, &[version("v1", true, &texts(&["a", "b"]))]);
        assert_eq!(spec_at(&server, FOOS).await, json!({"a": "1", "b": "2"}));
    })
    .await;
}

/// A write that changes nothing visible still stores the object in its current form, once; storage migrations rely on
/// it.
#[tokio::test(start_paused = true)]
async fn write_stores_object_as_read() {
    with_timeout(async {
        let server = server();
        define(&server, &[version("v1", true, &texts(&["a", "b"]))]);
        server.create(&foo("v1", &json!({"a": "1", "b": "2"}))).unwrap();
        redefine(&server, &[version("v1", true, &with_default("d"))]);

        let before = server.resource_version();
        let (first, _) = patch(&server, FOOS, &json!({})).await;
        assert_eq!((server.resource_version(), &first["metadata"]["generation"]), (before + 1, &json!(1)));
        patch(&server, FOOS, &json!({})).await;
        assert_eq!(server.resource_version(), before + 1);

        redefine(
            &server,
            &[version(
                "v1",
                true,
                &json!({
                    "a": {"type": "string"}, "b": {"type": "string"}, "d": {"type": "string", "default": "e"},
                }),
            )],
        );
        assert_eq!(
            spec_at(&server, FOOS).await,
            json!({"a": "1", "d": "d"}),
            "b was pruned and d was stored"
        );
    })
    .await;
}

/// Regression: an object sent through a version other than the storage version was stored and returned unchanged, so
/// other versions contained fields that they do not have and lacked their defaults.
#[tokio::test(start_paused = true)]
async fn storage_version_prunes_and_each_version_shows_its_fields() {
    with_timeout(async {
        let server = server();
        let other = texts(&["a", "e"]);
        define(&server, &[version("v1", true, &with_default("d")), version("v2", false, &other)]);
        let (created, _) =
            write(&server, "POST", OTHERS, "json", &foo("v2", &json!({"a": "1", "e": "2"}))).await;
        assert_eq!(created["spec"], json!({"a": "1"}));
        assert_eq!(created["apiVersion"], "x.io/v2");
        assert_eq!(spec_at(&server, OTHERS).await, json!({"a": "1"}));
        assert_eq!(spec_at(&server, FOOS).await, json!({"a": "1", "d": "d"}));
        let mut watch = Watch::open(&server, &format!("{OTHERS}?watch=1")).await;
        let crate::common::Got::Frame(frame) = watch.next().await else { panic!("no frame") };
        assert_eq!(frame["object"]["spec"], json!({"a": "1"}));

        let version_before = server.resource_version();
        patch(&server, OTHERS, &json!({})).await;
        assert_eq!(
            server.resource_version(),
            version_before,
            "a version with fewer fields must not change the object"
        );
        let (labelled, _) = patch(&server, FOOS, &json!({"metadata": {"labels": {"l": "1"}}})).await;
        assert_eq!(labelled["metadata"]["generation"], 1);

        // Stored as v1, it is read by the schema of v1 until the next write.
        redefine(&server, &[version("v1", false, &with_default("d")), version("v2", true, &other)]);
        assert_eq!(spec_at(&server, FOOS).await, json!({"a": "1", "d": "d"}));
        let version_before = server.resource_version();
        patch(&server, OTHERS, &json!({})).await;
        assert_eq!(server.resource_version(), version_before + 1);
        assert_eq!(spec_at(&server, FOOS).await, json!({"a": "1"}));
    })
    .await;
}

/// Regression: a field that only another version has was stored, and the next patch through the storage version
/// dropped all field owners.
#[tokio::test(start_paused = true)]
async fn field_of_other_version_keeps_owners() {
    with_timeout(async {
        let server = server();
        let versions = [version("v1", true, &texts(&["a"])), version("v2", false, &texts(&["a", "extra"]))];
        define(&server, &versions);
        let body = foo("v2", &json!({"a": "1", "extra": "2"}));
        write(&server, "POST", &format!("{OTHERS}?fieldManager=first"), "json", &body).await;
        let (labelled, warnings) = patch(&server, FOOS, &json!({"metadata": {"labels": {"l": "1"}}})).await;
        assert_eq!(labelled["metadata"]["generation"], 1);
        assert_eq!(managers(&labelled), ["first", "other"]);
        assert_eq!((labelled["spec"].clone(), warnings), (json!({"a": "1"}), Vec::new()));
    })
    .await;
}

/// kube-apiserver drops field owners too, but only if a value does not have the type of the current definition.
#[tokio::test(start_paused = true)]
async fn value_of_wrong_type_drops_owners() {
    with_timeout(async {
        let server = server();
        define(&server, &[version("v1", true, &texts(&["a"]))]);
        server.create(&foo("v1", &json!({"a": "1"}))).unwrap();
        redefine(&server, &[version("v1", true, &json!({"a": {"type": "integer"}}))]);
        let (labelled, _) = patch(&server, FOOS, &json!({"metadata": {"labels": {"l": "1"}}})).await;
        assert_eq!((&labelled["metadata"]["generation"], &labelled["spec"]["a"]), (&json!(1), &json!("1")));
        assert_eq!(labelled["metadata"].get("managedFields"), None);
    })
    .await;
}
