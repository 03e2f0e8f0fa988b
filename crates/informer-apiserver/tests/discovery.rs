//! Discovery, health checks and `OpenAPI` documents compared with recordings of kube-apiserver: whole bodies and
//! headers, byte for byte.
//!
//! Not compared are encodings other than JSON and values specific to one server: its address, its build, and hashes
//! of documents whose text differs.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;

use crate::common::{definition, server, with_timeout};
use http::Request;
use http_body_util::BodyExt;
use informer_apiserver::ApiServer;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Recorded steps that are not replayed, each with the reason.
const SKIPPED: &[(&str, &str)] = &[
    ("apis-aggregated-protobuf", "protobuf"),
    ("api-protobuf", "protobuf"),
    ("apis-protobuf", "protobuf"),
    ("core-v1-protobuf", "protobuf"),
    ("core-v1-yaml", "yaml"),
    ("openapi-v3-core-v1", "named by the hash of another document"),
];

/// Headers that differ between runs or belong to the connection.
const IGNORED_HEADERS: &[&str] =
    &["transfer-encoding", "last-modified", "expires", "process-start-time-unix"];

struct Got {
    code: u16,
    headers: BTreeMap<String, Vec<String>>,
    body: String,
}

async fn send_request(server: &ApiServer, method: &str, path: &str, headers: &[(&str, &str)]) -> Got {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    let response = server.service().oneshot(request).await.unwrap();
    let mut headers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in response.headers() {
        headers.entry(name.to_string()).or_default().push(value.to_str().unwrap().to_owned());
    }
    let code = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    Got { code, headers, body: String::from_utf8_lossy(&body).into_owned() }
}

async fn json_at(server: &ApiServer, path: &str) -> Value {
    let got = send_request(server, "GET", path, &[("accept", "application/json")]).await;
    assert_eq!(got.code, 200, "{path}: {}", got.body);
    serde_json::from_str(&got.body).unwrap()
}

fn steps(file: &str) -> Vec<String> {
    // Parsing would lose the order of keys, so each step stays text.
    let path = format!("{}/../../testdata/recordings/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let steps: Vec<Box<serde_json::value::RawValue>> = serde_json::from_str(&text).unwrap();
    steps.into_iter().map(|step| step.get().to_owned()).collect()
}

/// Returns the recorded body as sent, with its keys in the original order.
fn body_of(step: &str) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Step<'a> {
        #[serde(borrow)]
        response: Response<'a>,
    }
    #[derive(serde::Deserialize)]
    struct Response<'a> {
        #[serde(borrow)]
        body: Option<&'a serde_json::value::RawValue>,
        body_text: Option<String>,
        body_bytes: Option<usize>,
    }
    let response = serde_json::from_str::<Step<'_>>(step).unwrap().response;
    let Some(body) = response.body else {
        return response.body_text.filter(|text| Some(text.len()) == response.body_bytes);
    };
    Some(compact(body.get()))
}

/// Removes whitespace outside string literals from JSON.
fn compact(text: &str) -> String {
    let mut out = String::new();
    let (mut quoted, mut escaped) = (false, false);
    for symbol in text.chars() {
        if quoted || !symbol.is_whitespace() {
            out.push(symbol);
        }
        match (quoted, escaped, symbol) {
            (_, true, _) => escaped = false,
            (true, false, '\\') => escaped = true,
            (_, false, '"') => quoted = !quoted,
            _ => {}
        }
    }
    out
}

/// Replaces values that are specific to one server, such as its address and hashes, with placeholders.
fn normalize(body: &str) -> String {
    let mut body = body.to_owned();
    for (before, after) in [("\"serverAddress\":\"", "\""), ("?hash=", "\"")] {
        let mut parts = body.split(before);
        let mut out = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let (_, rest) = part.split_once(after).unwrap();
            out.extend([before, "x", after, rest]);
        }
        body = out;
    }
    body
}

async fn compare(server: &ApiServer, text: &str, mismatches: &mut Vec<String>) {
    let step: Value = serde_json::from_str(text).unwrap();
    let name = step["name"].as_str().unwrap();
    let (request, response) = (&step["request"], &step["response"]);
    let headers: Vec<(&str, &str)> = request["headers"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
        .collect();
    let (method, path) = (request["method"].as_str().unwrap(), request["path"].as_str().unwrap());
    let got = send_request(server, method, path, &headers).await;
    if response["status"] != got.code {
        mismatches.push(format!("{name}: {} instead of {}", got.code, response["status"]));
        return;
    }
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in response["headers"].as_object().unwrap() {
        let values = value.as_array().map_or_else(|| vec![value.clone()], Clone::clone);
        let values = values.iter().map(|value| value.as_str().unwrap().to_owned()).collect();
        expected.insert(name.clone(), values);
    }
    let mut found = got.headers.clone();
    // Not part of the recordings; checked in `tests/conformance`.
    found.remove("audit-id");
    let foreign_tag = path.starts_with("/openapi");
    for name in IGNORED_HEADERS.iter().copied().chain(foreign_tag.then_some("etag")) {
        let present = (expected.remove(name).is_some(), found.remove(name).is_some());
        let optional = matches!(name, "transfer-encoding" | "process-start-time-unix");
        if present.0 != present.1 && !optional {
            mismatches.push(format!("{path}: {name}: recorded {}, actual {}", present.0, present.1));
        }
    }
    if found != expected {
        mismatches.push(format!("{name}: headers\n  {found:?}\n  {expected:?}"));
    }
    let Some(body) = body_of(text) else { return };
    if path == "/version" {
        let keys = |body: &str| body.split('"').skip(1).step_by(4).map(str::to_owned).collect::<Vec<_>>();
        if keys(&got.body) != keys(&body) {
            mismatches.push(format!("{name}: {}", got.body));
        }
        return;
    }
    let (actual, recorded) = (normalize(&compact(&got.body)), normalize(&compact(&body)));
    if actual != recorded {
        let at = actual.bytes().zip(recorded.bytes()).take_while(|(a, b)| a == b).count();
        let near = |text: &str| {
            text.get(at.saturating_sub(80)..).unwrap_or_default().chars().take(240).collect::<String>()
        };
        mismatches.push(format!("{name}: body\n  {}\n  {}", near(&actual), near(&recorded)));
    }
    // Without server-specific values, whitespace and the final newline must match too.
    if actual == compact(&got.body) && Some(got.body.len() as u64) != response["body_bytes"].as_u64() {
        mismatches.push(format!("{name}: {} bytes instead of {}", got.body.len(), response["body_bytes"]));
    }
}

#[tokio::test(start_paused = true)]
async fn discovery_matches_recordings() {
    with_timeout(async {
        let server = server();
        let mut mismatches = Vec::new();
        let mut replayed = 0;
        for step in steps("discovery") {
            let name = serde_json::from_str::<Value>(&step).unwrap()["name"].as_str().unwrap().to_owned();
            if SKIPPED.iter().all(|(skipped, _)| *skipped != name) {
                replayed += 1;
                compare(&server, &step, &mut mismatches).await;
            }
        }
        assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
        assert_eq!(replayed, 46);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn discovery_of_definition_matches_recordings() {
    with_timeout(async {
        let server = server();
        let mut mismatches = Vec::new();
        for step in steps("crd") {
            let parsed: Value = serde_json::from_str(&step).unwrap();
            match parsed["name"].as_str().unwrap() {
                "create" => {
                    server.create(&parsed["request"]["body"]).unwrap();
                }
                "discovery-before" | "discovery-group" | "discovery-version" | "discovery-version-alpha" => {
                    compare(&server, &step, &mut mismatches).await;
                }
                _ => {}
            }
        }
        assert!(mismatches.is_empty(), "{}", mismatches.join("\n"));
    })
    .await;
}

/// Whether PATCH of the kind accepts the query parameter; kubectl checks this before it sends `fieldValidation` or
/// `dryRun`.
fn patch_takes(document: &Value, gvk: &Value, parameter: &str) -> bool {
    let paths = document["paths"].as_object().unwrap().values();
    let mut of_kind =
        paths.map(|path| &path["patch"]).filter(|patch| patch["x-kubernetes-group-version-kind"] == *gvk);
    of_kind.any(|patch| {
        let parameters = patch["parameters"].as_array().unwrap();
        parameters.iter().any(|found| found["name"] == parameter && found["in"] == "query")
    })
}

/// Returns the schema of a kind, found the way `kubectl explain` does.
fn schema_of<'a>(document: &'a Value, gvk: &Value) -> &'a Value {
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let mut found = schemas.values().filter(|schema| {
        let marks = schema["x-kubernetes-group-version-kind"].as_array();
        marks.is_some_and(|marks| marks.contains(gvk))
    });
    found.next().unwrap_or_else(|| panic!("no schema for {gvk}"))
}

#[tokio::test(start_paused = true)]
async fn openapi_documents_contain_what_kubectl_needs() {
    with_timeout(async {
        let server = server();
        let index = json_at(&server, "/openapi/v3").await;
        let of = |name: &str| index["paths"][name]["serverRelativeURL"].as_str().unwrap().to_owned();
        for (name, group, kind, path) in [
            ("api/v1", "", "Pod", "/api/v1/namespaces/{namespace}/pods"),
            ("apis/apps/v1", "apps", "Deployment", "/apis/apps/v1/namespaces/{namespace}/deployments/{name}"),
            (
                "apis/storage.k8s.io/v1",
                "storage.k8s.io",
                "StorageClass",
                "/apis/storage.k8s.io/v1/storageclasses",
            ),
        ] {
            let document = json_at(&server, &of(name)).await;
            let gvk = json!({"group": group, "version": "v1", "kind": kind});
            for parameter in ["fieldValidation", "dryRun", "force"] {
                assert!(patch_takes(&document, &gvk, parameter), "{kind} {parameter}");
            }
            assert!(!patch_takes(&document, &gvk, "nothing"));
            assert_eq!(document["paths"][path]["get"]["x-kubernetes-group-version-kind"], gvk, "{path}");
            assert!(schema_of(&document, &gvk)["properties"]["metadata"].is_object());
        }
        let whole = json_at(&server, "/openapi/v2").await;
        assert_eq!(whole["swagger"], "2.0");
        let pod = &whole["definitions"]["io.k8s.api.core.v1.Pod"];
        assert_eq!(pod["x-kubernetes-group-version-kind"][0]["kind"], "Pod");
        let protobuf = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf";
        let response = send_request(&server, "GET", "/openapi/v2", &[("accept", protobuf)]).await;
        assert!(response.code == 200 && response.body.starts_with("\n\u{3}2.0"), "{}", response.code);
        let newer = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf";
        assert_eq!(send_request(&server, "GET", "/openapi/v2", &[("accept", newer)]).await.code, 406);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn openapi_document_exists_while_definition_is_served() {
    with_timeout(async {
        let server = server();
        let path = "/openapi/v3/apis/rec.example.com/v1";
        assert_eq!(send_request(&server, "GET", path, &[]).await.code, 404);
        let mut widgets = definition();
        let size = json!({"type": "integer", "description": "How large it is."});
        widgets["spec"]["versions"][1]["schema"]["openAPIV3Schema"] = json!({
            "type": "object", "description": "A thing.",
            "properties": {"spec": {"type": "object", "properties": {"size": size}}},
        });
        server.create(&widgets).unwrap();

        let document = json_at(&server, path).await;
        let gvk = json!({"group": "rec.example.com", "version": "v1", "kind": "Widget"});
        let schema = schema_of(&document, &gvk);
        assert_eq!(schema["description"], "A thing.");
        assert_eq!(schema["properties"]["spec"]["properties"]["size"], size);
        assert!(schema["properties"]["metadata"]["allOf"][0]["$ref"].is_string());
        assert!(patch_takes(&document, &gvk, "fieldValidation"));
        let index = json_at(&server, "/openapi/v3").await;
        assert!(index["paths"]["apis/rec.example.com/v1"].is_object());
        let whole = json_at(&server, "/openapi/v2").await;
        assert_eq!(whole["definitions"]["com.example.rec.v1.Widget"]["description"], "A thing.");
        let groups = send_request(&server, "GET", "/apis", &[("accept", AGGREGATED)]).await.body;
        let kind = r#""responseKind":{"group":"rec.example.com","version":"v1","kind":"Widget"}"#;
        assert!(groups.contains(kind), "{groups}");
        let paths = json_at(&server, "/").await["paths"].to_string();
        assert!(paths.contains("/apis/rec.example.com/v1alpha1"), "{paths}");

        server
            .delete("apiextensions.k8s.io/v1", "customresourcedefinitions", None, "widgets.rec.example.com")
            .unwrap();
        assert_eq!(send_request(&server, "GET", path, &[]).await.code, 404);
    })
    .await;
}

const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

#[tokio::test(start_paused = true)]
async fn openapi_document_is_cacheable_by_hash() {
    with_timeout(async {
        let server = server();
        let path = "/openapi/v3/apis/batch/v1";
        let got = send_request(&server, "GET", path, &[]).await;
        let tag = got.headers["etag"][0].clone();
        let by_hash = format!("{path}?hash={}", tag.trim_matches('"'));
        let right = send_request(&server, "GET", &by_hash, &[]).await;
        assert_eq!((right.code, right.headers["cache-control"][0].as_str()), (200, "public, immutable"));
        let wrong = send_request(&server, "GET", &format!("{path}?hash=A"), &[]).await;
        assert_eq!((wrong.code, &wrong.headers["location"][0]), (301, &by_hash));
        let known = send_request(&server, "GET", path, &[("if-none-match", &tag)]).await;
        assert_eq!((known.code, known.body.as_str()), (304, ""));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn all_versions_enables_alpha_and_beta_versions() {
    with_timeout(async {
        let groups = |server: ApiServer| async move { json_at(&server, "/apis").await.to_string() };
        let off = groups(server()).await;
        let on = groups(ApiServer::builder().all_versions().build()).await;
        assert!(!off.contains("alpha") && !off.contains("beta"), "{off}");
        for version in [
            "resource.k8s.io/v1beta2",
            "storagemigration.k8s.io/v1beta1",
            "internal.apiserver.k8s.io/v1alpha1",
        ] {
            assert!(on.contains(version), "{on}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn excluded_health_checks_are_reported() {
    with_timeout(async {
        let server = server();
        let got = send_request(&server, "GET", "/readyz?verbose&exclude=b&exclude=a&exclude=etcd", &[]).await;
        assert!(got.body.contains("[+]etcd excluded: ok\n"), "{}", got.body);
        let end =
            "warn: some health checks cannot be excluded: no matches for \"a\",\"b\"\nreadyz check passed\n";
        assert!(got.body.ends_with(end), "{}", got.body);
    })
    .await;
}
