//! What a real kube-apiserver answered, asked again: same requests, same codes, reasons, messages and frames.
//!
//! Versions, uids and tokens differ between servers, so each that an answer shows is remembered beside ours and put in its
//! place in later requests. Patches are turned into updates, since the server does not know them yet. Steps that need what is not
//! built yet are named in each test, with the reason.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::{CONTENT_TYPE, Got, Watch, by, raw_with, server, told};
use informer_apiserver::ApiServer;
use serde_json::{Value, json};

/// A scenario on its way through our server.
struct Replay {
    server: ApiServer,
    /// Theirs to ours: versions, uids and tokens.
    names: BTreeMap<String, String>,
    watches: Vec<Open>,
    asked: usize,
    problems: Vec<String>,
}

/// A watch that is open while other steps go on.
struct Open {
    step: String,
    watch: Watch,
    expected: Vec<String>,
    got: Vec<String>,
}

fn scenario(file: &str) -> Vec<Value> {
    let path = format!("{}/../../testdata/recordings/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

async fn replay(file: &str, prepare: impl FnOnce(&ApiServer), skip: &[&str]) -> Replay {
    let mut replay = Replay {
        server: server(),
        names: BTreeMap::new(),
        watches: Vec::new(),
        asked: 0,
        problems: Vec::new(),
    };
    prepare(&replay.server);
    for step in scenario(file) {
        let name = step["name"].as_str().unwrap().to_owned();
        let path = step["request"]["path"].as_str().unwrap_or_default();
        let accept = step["request"]["headers"]["accept"].as_str().unwrap_or_default();
        let foreign = ["protobuf", "yaml", "Table", "cbor"].iter().any(|form| accept.contains(form));
        let skipped = skip.iter().any(|prefix| name.starts_with(prefix));
        let odd_body =
            ["body_description", "body_base64"].iter().any(|body| step["request"].get(body).is_some());
        if foreign || skipped || path.is_empty() || odd_body {
            continue;
        }
        let sent = step["request"]["headers"]["content-type"].as_str().unwrap_or("application/json");
        replay.step(&name, &step, &format!("{accept}{CONTENT_TYPE}{sent}")).await;
        replay.drain().await;
    }
    replay.finish();
    replay
}

impl Replay {
    async fn step(&mut self, name: &str, step: &Value, accept: &str) {
        let (request, response) = (&step["request"], &step["response"]);
        let method = request["method"].as_str().unwrap();
        let path = self.translate_path(request["path"].as_str().unwrap());
        self.asked += 1;
        if let Some(frames) = response["frames"].as_array() {
            return self.open(name, &path, accept, frames, response).await;
        }
        let body = match (request.get("body"), request.get("body_text")) {
            (Some(body), _) => Some(self.translate(body.clone()).to_string().into_bytes()),
            (None, Some(text)) => text.as_str().map(|text| text.as_bytes().to_vec()),
            (None, None) => None,
        };
        let (code, ours) = match method {
            "PATCH" => self.patch(&path, &body.unwrap_or_default()).await,
            method => raw_with(&self.server, method, &path, accept, body).await,
        };
        let expected = response["status"].as_u64().unwrap();
        let theirs = response.get("body").or(response.get("body_text")).cloned().unwrap_or_default();
        self.learn(&theirs, &ours);
        self.compare(name, "code", &json!(expected), &json!(code));
        if u64::from(code) == expected {
            self.compare_bodies(name, &theirs, &ours);
        }
    }

    /// A merge patch, done by hand.
    async fn patch(&self, path: &str, changes: &[u8]) -> (u16, Value) {
        let plain = path.split('?').next().unwrap().trim_end_matches("/status");
        let (code, mut object) = raw_with(&self.server, "GET", plain, "application/json", None).await;
        if code != 200 {
            return (code, object);
        }
        merge(&mut object, &serde_json::from_slice(changes).unwrap());
        let body = object.to_string().into_bytes();
        raw_with(&self.server, "PUT", path, "application/json", Some(body)).await
    }

    async fn open(&mut self, step: &str, path: &str, accept: &str, frames: &[Value], response: &Value) {
        let mut watch = Watch::open_as(&self.server, path, accept).await;
        let expected: Vec<String> = frames.iter().filter_map(|frame| shown(&frame["event"])).collect();
        let timeout = path.split("timeoutSeconds=").nth(1).and_then(|rest| rest.split('&').next());
        let timeout: i64 = timeout.and_then(|seconds| seconds.parse().ok()).unwrap_or(i64::MAX);
        let at_once = response["ended"] == "clean end of chunked body" && timeout < 5;
        if !at_once {
            self.watches.push(Open { step: step.to_owned(), watch, expected, got: Vec::new() });
            return;
        }
        let mut got = Vec::new();
        loop {
            match watch.next().await {
                Got::Frame(frame) => got.extend(shown(&frame)),
                Got::End => break,
                other => got.push(format!("{other:?}")),
            }
        }
        self.compare_frames(step, &expected, &got);
    }

    /// Reads what the open watches have, without letting much time pass.
    async fn drain(&mut self) {
        for open in &mut self.watches {
            let soon = Duration::from_millis(1);
            while let Ok(Got::Frame(frame)) = tokio::time::timeout(soon, open.watch.next()).await {
                open.got.extend(shown(&frame));
            }
        }
    }

    /// A watch that the recorder closed may have brought us more than it brought it.
    fn finish(&mut self) {
        for mut open in std::mem::take(&mut self.watches) {
            open.got.truncate(open.expected.len());
            self.compare_frames(&open.step, &open.expected, &open.got);
        }
    }

    /// Compares frames; those whose version no answer showed, by type and name.
    fn compare_frames(&mut self, step: &str, theirs: &[String], ours: &[String]) {
        let mut expected = Vec::new();
        let mut got = ours.to_vec();
        for (place, frame) in theirs.iter().enumerate() {
            let (what, version) = frame.rsplit_once(' ').unwrap_or((frame, ""));
            if let Some(version) = self.names.get(version) {
                expected.push(format!("{what} {version}"));
                continue;
            }
            expected.push(what.to_owned());
            if let Some(frame) = got.get_mut(place) {
                *frame = frame.rsplit_once(' ').map_or(frame.as_str(), |(what, _)| what).to_owned();
            }
        }
        self.compare(step, "frames", &json!(expected), &json!(got));
    }

    fn compare_bodies(&mut self, step: &str, theirs: &Value, ours: &Value) {
        if theirs.is_string() {
            return self.compare(step, "text", theirs, ours);
        }
        for field in ["kind", "apiVersion", "status", "reason", "code", "data"] {
            if field != "status" || theirs["kind"] == "Status" {
                self.compare(step, field, &theirs[field], &ours[field]);
            }
        }
        let bare = |text: &str| text.split(", current: ").next().unwrap_or_default().to_owned();
        let message = theirs["message"].as_str().map(|text| bare(&self.rename(text)));
        self.compare(step, "message", &json!(message), &json!(ours["message"].as_str().map(bare)));
        for field in ["name", "generation", "labels", "finalizers", "remainingItemCount", "resourceVersion"] {
            let expected = match &theirs["metadata"][field] {
                Value::String(text) if !text.contains("gen-") => json!(self.rename(text)),
                Value::String(_) => continue,
                other => other.clone(),
            };
            self.compare(step, field, &expected, &ours["metadata"][field]);
        }
        let names = |list: &Value| -> Value {
            let items = list["items"].as_array();
            items
                .map(|items| items.iter().map(|item| item["metadata"]["name"].clone()).collect())
                .unwrap_or_default()
        };
        self.compare(step, "items", &names(theirs), &names(ours));
        let causes = |status: &Value| status.pointer("/details/causes/0/reason").cloned();
        self.compare(step, "cause", &json!(causes(theirs)), &json!(causes(ours)));
        self.compare(step, "details", &json!(theirs["details"]["kind"]), &json!(ours["details"]["kind"]));
    }

    fn compare(&mut self, step: &str, what: &str, theirs: &Value, ours: &Value) {
        if theirs != ours {
            self.problems.push(format!("{step}: {what}\n   theirs {theirs}\n     ours {ours}"));
        }
    }

    /// Remembers which of our versions, uids and tokens stands for which of theirs.
    fn learn(&mut self, theirs: &Value, ours: &Value) {
        let mut pairs = vec![(&theirs["metadata"], &ours["metadata"])];
        if let (Some(theirs), Some(ours)) = (theirs["items"].as_array(), ours["items"].as_array()) {
            pairs.extend(
                theirs.iter().zip(ours).map(|(theirs, ours)| (&theirs["metadata"], &ours["metadata"])),
            );
        }
        for (theirs, ours) in pairs {
            for field in ["resourceVersion", "uid", "continue"] {
                if let (Some(theirs), Some(ours)) = (theirs[field].as_str(), ours[field].as_str()) {
                    self.names.entry(theirs.to_owned()).or_insert_with(|| ours.to_owned());
                }
            }
        }
    }

    /// Replaces whole words.
    fn rename(&self, text: &str) -> String {
        let word = |symbol: char| symbol.is_alphanumeric() || symbol == '-' || symbol == '_';
        let mut out = String::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(|symbol| !word(symbol)).unwrap_or(rest.len());
            let found = &rest[..end];
            out.push_str(self.names.get(found).map_or(found, String::as_str));
            let next = rest[end..].chars().next();
            out.extend(next);
            rest = &rest[end + next.map_or(0, char::len_utf8)..];
        }
        out
    }

    fn translate_path(&self, path: &str) -> String {
        let Some((plain, query)) = path.split_once('?') else { return path.to_owned() };
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some((name @ ("resourceVersion" | "continue"), value)) => {
                format!("{name}={}", self.names.get(value).map_or(value, String::as_str))
            }
            _ => pair.to_owned(),
        });
        format!("{plain}?{}", pairs.collect::<Vec<_>>().join("&"))
    }

    fn translate(&self, mut body: Value) -> Value {
        for pointer in ["/metadata", "/preconditions"] {
            for field in ["resourceVersion", "uid"] {
                if let Some(Value::String(text)) = body.pointer_mut(&format!("{pointer}/{field}")) {
                    *text = self.rename(text);
                }
            }
        }
        if let Some(metadata) = body.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        body
    }

    fn assert_alike(self, at_least: usize) {
        let count = self.problems.len();
        assert!(self.problems.is_empty(), "{count} differences:\n{}", self.problems.join("\n"));
        assert!(self.asked >= at_least, "only {} steps were asked", self.asked);
    }
}

/// A frame as text, but for bookmarks that only say that time passed.
fn shown(frame: &Value) -> Option<String> {
    let told = told(frame);
    let told = if told.starts_with("ERROR") { told.split(": ").next().unwrap().to_owned() } else { told };
    let told = told.strip_suffix(" end").map(|_| "BOOKMARK end".to_owned()).unwrap_or(told);
    (!told.starts_with("BOOKMARK -")).then_some(told)
}

fn merge(target: &mut Value, patch: &Value) {
    let Some(fields) = patch.as_object() else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (name, value) in fields {
        if value.is_null() {
            target.as_object_mut().unwrap().remove(name);
        } else {
            merge(&mut target[name.as_str()], value);
        }
    }
}

fn namespaces(names: &'static [&'static str]) -> impl FnOnce(&ApiServer) {
    move |server| {
        for name in names {
            server
                .create(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
                .unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists() {
    let prepare = |server: &ApiServer| {
        namespaces(&["rec-list", "rec-list-b"])(server);
        server
            .create(&json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "rec-list-b", "labels": {"color": "red"}}}))
            .unwrap();
    };
    // Other namespaces were there; we name fewer media types.
    let skip = &["list-cluster-scoped", "metadata-unknown-as"];
    by(replay("list", prepare, skip)).await.assert_alike(126);
}

#[tokio::test(start_paused = true)]
async fn watches() {
    let skip = &[
        // Bindings are not served, and the pods of these steps are bound.
        "pod",
        // Other namespaces were there.
        "legacy-path-cluster",
        // Needs a watch cache that forgets on its own; `watches.rs` has these.
        "version-too-old",
        "version-before",
        "version-oldest",
        "list-exact-forgotten",
        // Show writes that are no steps.
        "end-timeout-5-bookmarks-moving",
        "initial-events-false-rv",
        "mid-from-before",
        "version-1-of",
        "watch-all-namespaces",
        "watch-bookmarks-long",
        "watch-field-namespace",
        // We name fewer media types.
        "unacceptable",
    ];
    by(replay("watch", namespaces(&["rec-watch"]), skip)).await.assert_alike(74);
}

#[tokio::test(start_paused = true)]
async fn writes() {
    let skip = &[
        // Validation, defaults and field managers are not built yet, nor what follows from them.
        "create-deployment-bad",
        "create-deployment-no",
        "create-deployment-selector",
        "create-field-manager-too-long",
        "create-generate-name-invalid",
        "create-invalid-many",
        "create-label-too-long",
        "create-list-kind",
        "create-pod-",
        "create-secret-bad",
        "create-service-",
        "create-wrong-type",
        "delete-pod",
        "field-validation",
        "get-pod-deleted",
        "put-creates-endpoints",
        "update-deployment-selector",
        "update-immutable",
        "update-pod-",
        "update-secret-type",
        "update-service-",
        "update-sets-deletion",
        // Parse errors are worded by another parser.
        "create-empty-body",
        "create-json-array",
        "create-malformed",
        "create-not-json",
        // Dry runs are refused; made-up names differ; other encodings are not served.
        "create-generate-name-long",
        "create-patch-content-type",
        "create-unacceptable",
        "create-wrong-content-type",
        "create-yaml",
        "dot-segments",
        "dry-run",
        "get-configmap-accept-text-html",
        "get-unacceptable",
        "head-configmap",
        "list-unacceptable",
        "unicode-raw",
    ];
    by(replay("crud", namespaces(&["rec-crud", "rec-crud-other"]), skip)).await.assert_alike(105);
}

#[tokio::test(start_paused = true)]
async fn deletions() {
    let skip = &[
        // Deletion of collections, dry runs, other encodings and owner rules are not built yet.
        "create-two-controllers",
        "delete-bad-dry-run",
        "delete-grace-on-configmap",
        "delete-negative-grace",
        "delete-policy-and-orphan",
        "delete-text-options",
        "delete-unknown-field",
        "delete-yaml-options",
        "deletecollection",
        "finish-deletecollection",
        "finish-table-finalizer",
        "list-after-deletecollection",
        "watch-deletecollection",
        // A pod on a node is gone at once: there is no kubelet to wait for.
        "create-pod-bound",
        "create-pod-own-grace",
        "delete-pod-bound",
        "delete-pod-finalizer-force",
        "delete-pod-own-grace",
        "get-pod-bound",
        "watch-pods",
    ];
    by(replay("delete", namespaces(&["rec-delete"]), skip)).await.assert_alike(52);
}

#[tokio::test(start_paused = true)]
async fn the_life_of_a_namespace() {
    // Names of namespaces are checked like all others, and there is no apply.
    let skip = &["create-invalid", "apply-in-terminating"];
    by(replay("namespaces", |_| {}, skip)).await.assert_alike(41);
}

#[tokio::test(start_paused = true)]
async fn custom_resources() {
    let skip = &[
        // Schemas are not looked at yet: no validation, no defaults, no pruning.
        "bad-",
        "create-bad-schema",
        "create-no-schema",
        "create-no-storage-version",
        "create-unknown-strict",
        "crd-drop-stored-version",
        // Scale, the other patches and the deletion of collections are not built yet, nor what follows from them.
        "apply",
        "crd-add-column",
        "delete-crd",
        "deletecollection",
        "get-crd-terminating",
        "get-scale",
        "json",
        "list",
        "merge",
        "patch-scale",
        "rv-0",
        "strategic",
        "watch-before-crd-delete",
        "watch-objects",
        // A definition is served at once, and its watches at once after a change.
        "objects-at-once",
        "watch-crd",
        "watch-right-after",
        // Follow from `delete-crd`.
        "create-object-while-terminating",
        "discovery-after",
        "finish-held",
        "get-crd-gone",
        "objects-after",
        "watch-after",
    ];
    by(replay("crd", namespaces(&["rec-crd"]), skip)).await.assert_alike(40);
}
