//! The control plane as a test sees it: clients, a namespace of its own, raw requests, and waiting.
//!
//! Knows nothing about informers; also used by the tests of the examples. Namespaces are left behind because
//! no controller empties them; cluster-scoped objects are removed.

#![allow(dead_code, reason = "each suite uses a part of it")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Request;
use kube::api::{Api, ListParams};
use kube::config::{Config, KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use kube::{Client, Resource};
use serde_json::{Value, json};

use crate::runner::{self, Needs};

/// Environment variable with the path of the kubeconfig.
const KUBECONFIG_VARIABLE: &str = "INFORMER_CONTROL_PLANE_KUBECONFIG";
/// Environment variable with the address of etcd.
const ETCD_VARIABLE: &str = "INFORMER_CONTROL_PLANE_ETCD";
/// Environment variable with the path of the control socket.
const CONTROL_VARIABLE: &str = "INFORMER_CONTROL_PLANE_CONTROL";

/// Timeout of every wait except for starting servers, long enough for a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(40);

/// The control plane, if there is one.
pub(crate) struct Targets {
    config: Option<Config>,
    etcd: Option<String>,
    control: Option<PathBuf>,
    /// Makes names differ from those of other runs.
    run: String,
    count: AtomicUsize,
}

impl Targets {
    pub(crate) async fn open() -> Self {
        let config = match std::env::var_os(KUBECONFIG_VARIABLE).filter(|path| !path.is_empty()) {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).expect(KUBECONFIG_VARIABLE);
                let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
                Some(config.unwrap())
            }
            None => None,
        };
        let etcd = std::env::var(ETCD_VARIABLE).ok();
        let control = std::env::var_os(CONTROL_VARIABLE).map(PathBuf::from);
        let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        Self { config, etcd, control, run: format!("{:x}", nanos & 0xffff_ffff), count: AtomicUsize::new(0) }
    }
}

impl runner::Targets for Targets {
    type Target = Target;

    fn names(&self) -> Vec<&'static str> {
        self.config.iter().map(|_| "real").collect()
    }

    fn left_out(&self) -> Option<String> {
        let why = format!(
            "all tests skipped: {KUBECONFIG_VARIABLE} is not set (see `cargo xtask control-plane test`)"
        );
        self.config.is_none().then_some(why)
    }

    fn lacks(&self, _arm: &str, needs: Needs) -> Option<String> {
        match needs {
            Needs::Compaction if self.etcd.is_none() => Some(format!("{ETCD_VARIABLE} is not set")),
            Needs::Control if self.control.is_none() => {
                Some("the control plane must not be damaged".to_owned())
            }
            _ => None,
        }
    }

    async fn target(&self, _name: &'static str) -> Target {
        let config = self.config.clone().unwrap();
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("tests-{}-{count}", self.run);
        let (etcd, control) = (self.etcd.clone(), self.control.clone());
        let client = informer::client(config.clone()).unwrap();
        let target = Target { client, config, namespace, etcd, control, cluster_scoped: Arc::default() };
        target.post("/api/v1/namespaces", &json!({"metadata": {"name": target.namespace}})).await;
        target
    }

    async fn clean(&self, target: Target) {
        let cluster_scoped = target.cluster_scoped.lock().unwrap().split_off(0);
        for path in cluster_scoped.iter().rev().map(String::as_str).chain(["$ns"]) {
            // It may be deleted already, and a failure shows in the next test.
            let _ = target.request("DELETE", path, None).await;
        }
    }
}

/// The control plane, for one test.
pub(crate) struct Target {
    /// Client with all rights.
    pub(crate) client: Client,
    pub(crate) config: Config,
    /// Namespace used by this test only.
    pub(crate) namespace: String,
    /// Address of etcd and path of the control socket, if known.
    pub(crate) etcd: Option<String>,
    pub(crate) control: Option<PathBuf>,
    /// Paths of cluster-scoped objects that the test created.
    cluster_scoped: Arc<Mutex<Vec<String>>>,
}

impl Target {
    /// A copy with its own client, for another runtime or a concurrent task.
    pub(crate) fn again(&self) -> Self {
        Self {
            client: informer::client(self.config.clone()).unwrap(),
            config: self.config.clone(),
            namespace: self.namespace.clone(),
            etcd: self.etcd.clone(),
            control: self.control.clone(),
            cluster_scoped: Arc::clone(&self.cluster_scoped),
        }
    }

    /// A client that authenticates with a token.
    pub(crate) fn client_of(&self, token: &str) -> Client {
        let mut config = self.config.clone();
        config.auth_info = serde_json::from_value(json!({"token": token})).unwrap();
        informer::client(config).unwrap()
    }

    /// A client that connects through another address.
    pub(crate) fn client_by(&self, address: std::net::SocketAddr) -> Client {
        let mut config = self.config.clone();
        config.cluster_url = format!("https://{address}").parse().unwrap();
        informer::client(config).unwrap()
    }

    /// Sends a request. In paths, `$ns` is replaced by the path of the namespace, and `$name` by its name.
    pub(crate) async fn request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, kube::Error> {
        let path = path.replace("$ns", "/api/v1/namespaces/$name").replace("$name", &self.namespace);
        let content_type =
            if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let body = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        self.client.request(request.body(body).unwrap()).await
    }

    #[track_caller]
    pub(crate) fn post(&self, path: &str, body: &Value) -> impl Future<Output = Value> {
        self.request_ok("POST", path, Some(body))
    }

    #[track_caller]
    pub(crate) fn merge(&self, path: &str, change: &Value) -> impl Future<Output = Value> {
        self.request_ok("PATCH", path, Some(change))
    }

    /// Deletes immediately, since there is no kubelet to wait for.
    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> impl Future<Output = Value> {
        self.request_ok("DELETE", path, None)
    }

    #[track_caller]
    fn request_ok(&self, method: &str, path: &str, body: Option<&Value>) -> impl Future<Output = Value> {
        let location = std::panic::Location::caller();
        async move {
            let answer = self.request(method, path, body).await;
            answer.unwrap_or_else(|error| panic!("{method} {path} at {location}: {error}"))
        }
    }

    /// Creates a cluster-scoped object and registers it for removal.
    pub(crate) async fn post_outside(&self, path: &str, object: &Value) -> Value {
        let created = self.post(path, object).await;
        self.keep(&format!("{path}/{}", created["metadata"]["name"].as_str().unwrap()));
        created
    }

    /// Registers the object at this path for removal.
    pub(crate) fn keep(&self, path: &str) {
        self.cluster_scoped.lock().unwrap().push(path.to_owned());
    }

    /// Lists all objects of a kind in the namespace, consistently.
    pub(crate) async fn list<K: Resource<DynamicType = ()>>(&self) -> Vec<DynamicObject> {
        self.list_of(&ApiResource::erase::<K>(&()), true).await
    }

    /// Lists all objects of a kind known only at run time.
    pub(crate) async fn list_of(&self, resource: &ApiResource, in_namespace: bool) -> Vec<DynamicObject> {
        let api: Api<DynamicObject> = if in_namespace {
            Api::namespaced_with(self.client.clone(), &self.namespace, resource)
        } else {
            Api::all_with(self.client.clone(), resource)
        };
        api.list(&ListParams::default()).await.unwrap().items
    }
}

/// Polls until the condition holds. Fails with `what` if it does not in time.
#[track_caller]
pub(crate) fn until<H: AsyncFnMut() -> bool>(
    what: &str,
    mut condition: H,
) -> impl Future<Output = ()> + use<H> {
    let (what, location) = (what.to_owned(), std::panic::Location::caller());
    async move {
        let mut interval = tokio::time::interval(Duration::from_millis(20));
        let poll = async {
            while !condition().await {
                interval.tick().await;
            }
        };
        assert!(
            tokio::time::timeout(TIMEOUT, poll).await.is_ok(),
            "{what}: condition not met in time, at {location}"
        );
    }
}

/// A config map.
pub(crate) fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"v": value}})
}

/// A merge patch that changes the value of a config map.
pub(crate) fn value(value: &str) -> Value {
    json!({"data": {"v": value}})
}
