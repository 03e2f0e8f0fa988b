//! Objects of definitions that change, and of definitions whose versions differ: storage keeps what was written, and whoever reads sees
//! what the definition has now.
//!
//! The answers that are expected here are those of a real server to the same requests.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod common;

use common::{CONTENT_TYPE, Watch, by, raw, send, server};
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

/// The answer to a write, and what is warned of.
async fn write(
    server: &ApiServer,
    method: &str,
    path: &str,
    kind: &str,
    body: &Value,
) -> (Value, Vec<String>) {
    let accept = format!("application/json{CONTENT_TYPE}application/{kind}");
    let answer = send(server, method, path, &accept, Some(body.to_string().into_bytes())).await;
    let warnings = answer.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().unwrap().to_owned()).collect();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
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

/// An object with a field that its schema had lost was patched: its owners were all forgotten, so nothing it was applied with
/// conflicted any more, its generation rose, and the client was warned of a field that it had not sent.
#[tokio::test(start_paused = true)]
async fn a_lost_field_costs_no_owner() {
    by(async {
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

/// Objects were shown as they were stored, whatever became of their definition. What is shown follows it; what is stored stays until the
/// next write, so a field that comes back comes back with its value.
#[tokio::test(start_paused = true)]
async fn reads_show_what_the_definition_has_now() {
    by(async {
        let server = server();
        define(&server, &[version("v1", true, &texts(&["a", "b"]))]);
        server.create(&foo("v1", &json!({"a": "1", "b": "2"}))).unwrap();
        let created = server.version();

        redefine(&server, &[version("v1", true, &with_default("d"))]);
        let shown = json!({"a": "1", "d": "d"});
        assert_eq!(spec_at(&server, FOOS).await, shown);
        let (_, list) = raw(&server, FOOS).await;
        assert_eq!(list["items"][0]["spec"], shown);
        assert_eq!(list["items"][0]["metadata"]["resourceVersion"], created.to_string());
        let (_, selected) = raw(&server, &format!("{FOOS}?fieldSelector=spec.d=d")).await;
        assert_eq!(selected["items"].as_array().unwrap().len(), 1);
        let mut watch = Watch::open(&server, &format!("{FOOS}?watch=1&resourceVersion={created}")).await;
        assert!(watch.is_silent(50).await, "nobody is told");
        let before = created - 1;
        let mut watch =
            Watch::open(&server, &format!("{FOOS}?watch=1&resourceVersion={before}&fieldSelector=spec.d=d"))
                .await;
        assert_eq!(watch.told().await, format!("ADDED x {created}"), "the past is shown alike");

        redefine(&server, &[version("v1", true, &texts(&["a", "b"]))]);
        assert_eq!(spec_at(&server, FOOS).await, json!({"a": "1", "b": "2"}));
    })
    .await;
}

/// A write that changes nothing of what is shown still writes it down, as migrations of storage count on, and only once.
#[tokio::test(start_paused = true)]
async fn a_write_stores_what_was_shown() {
    by(async {
        let server = server();
        define(&server, &[version("v1", true, &texts(&["a", "b"]))]);
        server.create(&foo("v1", &json!({"a": "1", "b": "2"}))).unwrap();
        redefine(&server, &[version("v1", true, &with_default("d"))]);

        let before = server.version();
        let (first, _) = patch(&server, FOOS, &json!({})).await;
        assert_eq!((server.version(), &first["metadata"]["generation"]), (before + 1, &json!(1)));
        patch(&server, FOOS, &json!({})).await;
        assert_eq!(server.version(), before + 1);

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
        assert_eq!(spec_at(&server, FOOS).await, json!({"a": "1", "d": "d"}), "b is gone, and d was stored");
    })
    .await;
}

/// Whatever was sent through a version that is not the stored one was stored and shown, so that the other versions showed fields which
/// they do not have and lacked their defaults.
#[tokio::test(start_paused = true)]
async fn the_stored_version_decides_and_each_shows_its_part() {
    by(async {
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
        let common::Got::Frame(frame) = watch.next().await else { panic!("no frame") };
        assert_eq!(frame["object"]["spec"], json!({"a": "1"}));

        let version_before = server.version();
        patch(&server, OTHERS, &json!({})).await;
        assert_eq!(server.version(), version_before, "nothing changes through a version that shows less");
        let (labelled, _) = patch(&server, FOOS, &json!({"metadata": {"labels": {"l": "1"}}})).await;
        assert_eq!(labelled["metadata"]["generation"], 1);

        // Written under v1, it is read by v1 until it is written again.
        redefine(&server, &[version("v1", false, &with_default("d")), version("v2", true, &other)]);
        assert_eq!(spec_at(&server, FOOS).await, json!({"a": "1", "d": "d"}));
        let version_before = server.version();
        patch(&server, OTHERS, &json!({})).await;
        assert_eq!(server.version(), version_before + 1);
        assert_eq!(spec_at(&server, FOOS).await, json!({"a": "1"}));
    })
    .await;
}

/// A field that only another version has was stored, and the next patch through the stored version forgot all owners for it.
#[tokio::test(start_paused = true)]
async fn a_field_of_another_version_costs_no_owner() {
    by(async {
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

/// Owners are lost on a real server too where a value does not have the type that the definition gives it now, and only there.
#[tokio::test(start_paused = true)]
async fn a_value_of_another_type_costs_the_owners() {
    by(async {
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
