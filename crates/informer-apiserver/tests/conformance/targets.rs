//! The three targets and their operations: raw requests, watches read frame by frame, and a few objects.
//!
//! A statement gets an [`Target`] with its own namespace, so that all of them can run concurrently on a shared server.
//! The objects of most statements, *things*, are Secrets, because no controller creates any in a new namespace.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use informer_apiserver::{ApiServer, ListenOptions, RunningServer};
use kube::Client;
use kube::client::Body;
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use serde_json::{Value, json};

use crate::runner::{self, Needs};
use crate::watch_stream::Watch;

/// Variable with the path of a kubeconfig of kube-apiserver.
const REAL: &str = "INFORMER_CONTROL_PLANE_KUBECONFIG";
/// Variable with the address of its etcd, such as `http://127.0.0.1:2379`. Without it, that server cannot be
/// compacted.
const REAL_ETCD: &str = "INFORMER_CONTROL_PLANE_ETCD";

/// Time limit of one response, frame or condition.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// All targets.
pub(crate) struct Targets {
    embedded: (ApiServer, Client),
    https: (ApiServer, Client, RunningServer),
    real: Option<Client>,
    etcd: Option<String>,
    /// Part of the namespaces that distinguishes runs.
    run: String,
    count: AtomicUsize,
}

impl Targets {
    pub(crate) async fn open() -> Self {
        let server = ApiServer::new();
        let embedded = (server.clone(), server.client());
        let server = ApiServer::new();
        let listening = server.listen(ListenOptions::https()).await.unwrap();
        let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap();
        let https = (server, client(kubeconfig).await, listening);
        let real = match std::env::var_os(REAL) {
            Some(path) => Some(client(Kubeconfig::read_from(path).expect(REAL)).await),
            None => None,
        };
        let etcd = std::env::var(REAL_ETCD).ok();
        let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let run = format!("{:x}", nanos & 0xffff_ffff);
        Targets { embedded, https, real, etcd, run, count: AtomicUsize::new(0) }
    }
}

impl runner::Targets for Targets {
    type Target = Target;

    fn names(&self) -> Vec<&'static str> {
        let real = self.real.is_some().then_some("real");
        ["embedded", "https"].into_iter().chain(real).collect()
    }

    fn left_out(&self) -> Option<String> {
        let why =
            format!("skipping the target `real`: {REAL} is not set (see `cargo xtask control-plane test`)");
        self.real.is_none().then_some(why)
    }

    fn lacks(&self, target: &str, needs: Needs) -> Option<String> {
        let can = match needs {
            Needs::Nothing | Needs::Quiet => true,
            Needs::Compaction => target != "real" || self.etcd.is_some(),
            Needs::Control => false,
        };
        (!can).then(|| format!("{REAL_ETCD} is not set"))
    }

    /// Creates an target with its own namespace.
    async fn target(&self, name: &'static str) -> Target {
        let (client, server) = match name {
            "embedded" => (self.embedded.1.clone(), Some(self.embedded.0.clone())),
            "https" => (self.https.1.clone(), Some(self.https.0.clone())),
            _ => (self.real.clone().unwrap(), None),
        };
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("conformance-{}-{count}", self.run);
        let etcd = self.etcd.clone();
        let target = Target { client, server, etcd, namespace, definitions: Mutex::default() };
        let namespace = json!({"metadata": {"name": target.namespace}});
        target.post("/api/v1/namespaces", &namespace).await.expect(201);
        target
    }

    /// Deletes the namespace. Without controllers it stays, but no other statement uses it.
    async fn clean(&self, target: Target) {
        let definitions = target.definitions.lock().unwrap().split_off(0);
        for name in definitions {
            target.delete(&format!("{DEFINITIONS}/{name}")).await;
        }
        target.delete("$ns").await;
    }
}

/// A client without retries and decompression, because statements check error responses and bytes.
async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let mut config = config.unwrap();
    config.default_retry = false;
    config.disable_compression = true;
    Client::try_from(config).unwrap()
}

/// A server as seen by one statement.
pub(crate) struct Target {
    client: Client,
    server: Option<ApiServer>,
    etcd: Option<String>,
    /// Namespace of this statement.
    pub(crate) namespace: String,
    /// Paths to delete at the end.
    definitions: Mutex<Vec<String>>,
}

impl Target {
    /// Expands `$ns` to the path of the statement's namespace and `$things` to its collection of things.
    fn path(&self, path: &str) -> String {
        path.replace("$things", "$ns/secrets")
            .replace("$ns", &format!("/api/v1/namespaces/{}", self.namespace))
            .replace("$name", &self.namespace)
    }

    pub(crate) async fn response(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> http::Response<Body> {
        let path = self.path(path);
        let mut request = Request::builder().method(method).uri(&path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = self.client.send(request.body(Body::from(body)).unwrap());
        let response = tokio::time::timeout(WAIT_TIMEOUT, response).await;
        response.unwrap_or_else(|_| panic!("{method} {path}: no response")).unwrap()
    }

    /// Sends a request and reads the whole response.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Response {
        let response = self.response(method, path, headers, body).await;
        let (code, headers) = (response.status().as_u16(), response.headers().clone());
        let bytes = response.into_body().collect().await.unwrap().to_bytes().to_vec();
        let body = serde_json::from_slice(&bytes);
        let body = body.unwrap_or_else(|_| Value::from(String::from_utf8_lossy(&bytes).into_owned()));
        Response { request: format!("{method} {}", self.path(path)), code, headers, bytes, body }
    }

    async fn send(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Response {
        let headers = [("accept", "application/json"), ("content-type", content_type)];
        self.request(method, path, &headers, body.to_string().into_bytes()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Response {
        self.get_as(path, "application/json").await
    }

    pub(crate) async fn get_as(&self, path: &str, accept: &str) -> Response {
        self.request("GET", path, &[("accept", accept)], Vec::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Response {
        self.send("POST", path, "application/json", body).await
    }

    pub(crate) async fn put(&self, path: &str, body: &Value) -> Response {
        self.send("PUT", path, "application/json", body).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Response {
        self.request("DELETE", path, &[("accept", "application/json")], Vec::new()).await
    }

    pub(crate) async fn delete_with(&self, path: &str, options: &Value) -> Response {
        self.send("DELETE", path, "application/json", options).await
    }

    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Response {
        self.send("PATCH", path, "application/merge-patch+json", change).await
    }

    pub(crate) async fn json_patch(&self, path: &str, change: &Value) -> Response {
        self.send("PATCH", path, "application/json-patch+json", change).await
    }

    pub(crate) async fn strategic(&self, path: &str, change: &Value) -> Response {
        self.send("PATCH", path, "application/strategic-merge-patch+json", change).await
    }

    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Response {
        self.send("PATCH", path, "application/apply-patch+yaml", object).await
    }

    pub(crate) async fn watch(&self, path: &str) -> Watch {
        self.watch_as(path, "application/json").await
    }

    pub(crate) async fn watch_as(&self, path: &str, accept: &str) -> Watch {
        let response = self.response("GET", path, &[("accept", accept)], Vec::new()).await;
        let code = response.status().as_u16();
        let watch = Watch::new(self.path(path), response);
        if code == 200 { watch } else { panic!("{path} gave {code}: {}", watch.rest().await) }
    }

    /// Creates a thing.
    pub(crate) async fn make(&self, name: &str, value: &str) -> Value {
        self.post("$things", &thing(name, value)).await.expect(201).body
    }

    /// Sets the value of a thing, whatever its version.
    pub(crate) async fn set(&self, name: &str, value: &str) -> Value {
        let patch = json!({"metadata": {"annotations": {"value": value}}});
        self.merge(&format!("$things/{name}"), &patch).await.expect(200).body
    }

    /// Deletes a thing.
    pub(crate) async fn unmake(&self, name: &str) {
        self.delete(&format!("$things/{name}")).await.expect(200);
    }

    /// Returns the current version of the collection.
    pub(crate) async fn version(&self) -> String {
        self.get("$things").await.expect(200).version()
    }

    /// Creates a pod that is never scheduled. On a control plane, its service account appears shortly after the
    /// namespace.
    pub(crate) async fn make_pod(&self, name: &str) -> Value {
        let made = self.until(async || {
            let made = self.post("$ns/pods", &pod(name)).await;
            (made.code != 403).then_some(made)
        });
        made.await.expect(201).body
    }

    /// Stores a definition of `gadgets`, modified by `change`, in a group of this statement, waits until it is
    /// served, and returns the path of its collection.
    pub(crate) async fn define(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut definition = self.definition();
        change(&mut definition);
        self.keep(&definition);
        self.post(DEFINITIONS, &definition).await.expect(201);
        let path = self.gadgets();
        // Watches may be rejected slightly longer than lists.
        let watch = format!("{path}?watch=1&resourceVersion=0&timeoutSeconds=-1");
        self.until(async || (self.get(&watch).await.code == 200).then_some(())).await;
        path
    }

    /// Deletes a definition at the end of the statement.
    pub(crate) fn keep(&self, definition: &Value) {
        let name = definition["metadata"]["name"].as_str().unwrap().to_owned();
        self.definitions.lock().unwrap().push(name);
    }

    pub(crate) fn group(&self) -> String {
        format!("{}.example.com", self.namespace)
    }

    /// Returns the path of the gadgets.
    pub(crate) fn gadgets(&self) -> String {
        format!("/apis/{}/v1/namespaces/{}/gadgets", self.group(), self.namespace)
    }

    /// Returns the path of their definition.
    pub(crate) fn definition_path(&self) -> String {
        format!("{DEFINITIONS}/gadgets.{}", self.group())
    }

    pub(crate) fn definition(&self) -> Value {
        let spec = json!({"type": "object", "properties": {
            "size": {"type": "integer", "minimum": 0, "maximum": 100, "default": 1},
            "color": {"type": "string", "enum": ["red", "green"]},
        }});
        let status = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let schema = json!({"type": "object", "properties": {"spec": spec, "status": status}});
        let group = self.group();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("gadgets.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"plural": "gadgets", "kind": "Gadget"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        })
    }

    pub(crate) fn gadget(&self, name: &str, spec: &Value) -> Value {
        let api_version = format!("{}/v1", self.group());
        json!({"apiVersion": api_version, "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
    }

    /// Compacts the storage, as etcd does every few minutes.
    pub(crate) async fn compact(&self) {
        // Two writes: the compacted version itself is kept, so a watch from the version before it is still served.
        self.make("compacts-behind-this", "1").await;
        let newest = self.set("compacts-behind-this", "2").await;
        if let Some(server) = &self.server {
            return server.compact_etcd();
        }
        crate::etcd::compact(self.etcd.as_ref().unwrap(), number(&newest)).await;
    }

    /// Repeats the check until it returns a value.
    pub(crate) async fn until<T>(&self, check: impl AsyncFn() -> Option<T>) -> T {
        within(WAIT_TIMEOUT, check).await
    }

    /// Repeats the check on kube-apiserver, which may need a moment. The embedded server applies changes immediately,
    /// so it is checked once.
    pub(crate) async fn soon<T>(&self, check: impl AsyncFn() -> Option<T>) -> T {
        match self.server {
            Some(_) => check().await.expect("condition does not hold"),
            None => self.until(check).await,
        }
    }
}

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn within<T>(timeout: Duration, check: impl AsyncFn() -> Option<T>) -> T {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    let found = tokio::time::timeout(timeout, async {
        loop {
            pace.tick().await;
            if let Some(found) = check().await {
                return found;
            }
        }
    });
    found.await.expect("condition did not hold in time")
}

/// A response.
#[derive(Debug)]
pub(crate) struct Response {
    request: String,
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) bytes: Vec<u8>,
    /// The body as JSON, or as text.
    pub(crate) body: Value,
}

impl Response {
    /// Returns the response if it has this code.
    #[track_caller]
    pub(crate) fn expect(self, code: u16) -> Self {
        assert_eq!(self.code, code, "{}: {}", self.request, self.body);
        self
    }

    /// Fails unless the response is an error with this code and reason whose message contains `words`.
    #[track_caller]
    pub(crate) fn expect_error(self, code: u16, reason: &str, words: &str) -> Self {
        let response = self.expect(code);
        assert_eq!(response.body["reason"].as_str().unwrap_or_default(), reason, "{}", response.body);
        let message = response.body["message"].as_str().unwrap_or_default();
        assert!(message.contains(words), "{message}");
        response
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn version(&self) -> String {
        version(&self.body)
    }

    pub(crate) fn items(&self) -> &[Value] {
        self.body["items"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the names of the items, separated by spaces.
    pub(crate) fn names(&self) -> String {
        self.items().iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

pub(crate) fn thing(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "annotations": {"value": value}}})
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "schedulerName": "nobody.example", "automountServiceAccountToken": false,
            "containers": [{"name": "app", "image": "registry.example/app:1"}],
        },
    })
}

pub(crate) fn deployment(name: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]},
            },
        },
    })
}

pub(crate) fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or("-")
}

pub(crate) fn value(object: &Value) -> &str {
    object.pointer("/metadata/annotations/value").and_then(Value::as_str).unwrap_or("-")
}

pub(crate) fn version(object: &Value) -> String {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}

/// Returns the version of an object or list as a number.
pub(crate) fn number(object: &Value) -> u64 {
    version(object).parse().unwrap_or_else(|_| panic!("no version in {object}"))
}
