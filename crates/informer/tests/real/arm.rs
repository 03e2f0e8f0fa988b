//! The real server as a story sees it: clients, a namespace nobody else uses, requests in the raw, and waiting.
//!
//! It knows nothing of informers, and serves the suite of the examples too. Namespaces stay behind, since no controller empties them; what lies outside of them is removed.

#![allow(dead_code, reason = "each suite uses its part")]

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

/// Names the kubeconfig of a real server.
const REAL: &str = "INFORMER_REAL_KUBECONFIG";
/// Says where the etcd behind it listens.
const REAL_ETCD: &str = "INFORMER_REAL_ETCD";
/// Says whom to ask for what harms it.
const REAL_CONTROL: &str = "INFORMER_REAL_CONTROL";

/// How long anything may take that does not wait for servers to start, also on a machine that is busy.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// The server, if there is one.
pub(crate) struct Arms {
    config: Option<Config>,
    etcd: Option<String>,
    control: Option<PathBuf>,
    /// What makes names differ from those of other runs.
    run: String,
    count: AtomicUsize,
}

impl Arms {
    pub(crate) async fn open() -> Self {
        let config = match std::env::var_os(REAL).filter(|path| !path.is_empty()) {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).expect(REAL);
                let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
                Some(config.unwrap())
            }
            None => None,
        };
        let etcd = std::env::var(REAL_ETCD).ok();
        let control = std::env::var_os(REAL_CONTROL).map(PathBuf::from);
        let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        Self { config, etcd, control, run: format!("{:x}", nanos & 0xffff_ffff), count: AtomicUsize::new(0) }
    }
}

impl runner::Arms for Arms {
    type Arm = Arm;

    fn names(&self) -> Vec<&'static str> {
        self.config.iter().map(|_| "real").collect()
    }

    fn left_out(&self) -> Option<String> {
        let why = format!("everything is left out: {REAL} names no kubeconfig (see `cargo xtask real test`)");
        self.config.is_none().then_some(why)
    }

    fn lacks(&self, _arm: &str, needs: Needs) -> Option<String> {
        match needs {
            Needs::Compaction if self.etcd.is_none() => {
                Some(format!("{REAL_ETCD} does not say where its etcd is"))
            }
            Needs::Control if self.control.is_none() => Some("the server is not ours to harm".to_owned()),
            _ => None,
        }
    }

    async fn arm(&self, _name: &'static str) -> Arm {
        let config = self.config.clone().unwrap();
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("stories-{}-{count}", self.run);
        let (etcd, control) = (self.etcd.clone(), self.control.clone());
        let client = informer::client(config.clone()).unwrap();
        let arm = Arm { client, config, namespace, etcd, control, outside: Arc::default() };
        arm.post("/api/v1/namespaces", &json!({"metadata": {"name": arm.namespace}})).await;
        arm
    }

    async fn clean(&self, arm: Arm) {
        let outside = arm.outside.lock().unwrap().split_off(0);
        for path in outside.iter().rev().map(String::as_str).chain(["$ns"]) {
            // It may be gone, and what is in the way of others will be told by them.
            let _ = arm.request("DELETE", path, None).await;
        }
    }
}

/// The server, for one story.
pub(crate) struct Arm {
    /// May everything.
    pub(crate) client: Client,
    pub(crate) config: Config,
    /// Nobody else's.
    pub(crate) namespace: String,
    /// Where its storage is, and whom to ask for what harms it, if that is known.
    pub(crate) etcd: Option<String>,
    pub(crate) control: Option<PathBuf>,
    /// What was made outside the namespace.
    outside: Arc<Mutex<Vec<String>>>,
}

impl Arm {
    /// The same with a client of its own, for what runs on another runtime or beside the story.
    pub(crate) fn again(&self) -> Self {
        Self {
            client: informer::client(self.config.clone()).unwrap(),
            config: self.config.clone(),
            namespace: self.namespace.clone(),
            etcd: self.etcd.clone(),
            control: self.control.clone(),
            outside: Arc::clone(&self.outside),
        }
    }

    /// A client for whoever has a token.
    pub(crate) fn client_of(&self, token: &str) -> Client {
        let mut config = self.config.clone();
        config.auth_info = serde_json::from_value(json!({"token": token})).unwrap();
        informer::client(config).unwrap()
    }

    /// A client that goes by another way.
    pub(crate) fn client_by(&self, address: std::net::SocketAddr) -> Client {
        let mut config = self.config.clone();
        config.cluster_url = format!("https://{address}").parse().unwrap();
        informer::client(config).unwrap()
    }

    /// Sends a request. In paths, `$ns` stands for that of the namespace, and `$name` for its name.
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
        self.must("POST", path, Some(body))
    }

    #[track_caller]
    pub(crate) fn merge(&self, path: &str, change: &Value) -> impl Future<Output = Value> {
        self.must("PATCH", path, Some(change))
    }

    /// Nothing waits for a kubelet.
    #[track_caller]
    pub(crate) fn delete(&self, path: &str) -> impl Future<Output = Value> {
        self.must("DELETE", path, None)
    }

    #[track_caller]
    fn must(&self, method: &str, path: &str, body: Option<&Value>) -> impl Future<Output = Value> {
        let place = std::panic::Location::caller();
        async move {
            let answer = self.request(method, path, body).await;
            answer.unwrap_or_else(|error| panic!("{method} {path} at {place}: {error}"))
        }
    }

    /// Makes an object outside the namespace, and remembers to remove it.
    pub(crate) async fn post_outside(&self, path: &str, object: &Value) -> Value {
        let made = self.post(path, object).await;
        self.keep(&format!("{path}/{}", made["metadata"]["name"].as_str().unwrap()));
        made
    }

    /// Remembers to remove what is at a path.
    pub(crate) fn keep(&self, path: &str) {
        self.outside.lock().unwrap().push(path.to_owned());
    }

    /// Everything of a kind in the namespace, read consistently.
    pub(crate) async fn list<K: Resource<DynamicType = ()>>(&self) -> Vec<DynamicObject> {
        self.list_of(&ApiResource::erase::<K>(&()), true).await
    }

    /// The same for a kind that is known only at run time.
    pub(crate) async fn list_of(&self, resource: &ApiResource, in_namespace: bool) -> Vec<DynamicObject> {
        let api: Api<DynamicObject> = if in_namespace {
            Api::namespaced_with(self.client.clone(), &self.namespace, resource)
        } else {
            Api::all_with(self.client.clone(), resource)
        };
        api.list(&ListParams::default()).await.unwrap().items
    }
}

/// Asks again until it holds. What does not hold in time is said by `what`.
#[track_caller]
pub(crate) fn until<H: AsyncFnMut() -> bool>(what: &str, mut holds: H) -> impl Future<Output = ()> + use<H> {
    let (what, place) = (what.to_owned(), std::panic::Location::caller());
    async move {
        let mut looks = tokio::time::interval(Duration::from_millis(20));
        let look = async {
            while !holds().await {
                looks.tick().await;
            }
        };
        assert!(tokio::time::timeout(PATIENCE, look).await.is_ok(), "{what}: never came true, at {place}");
    }
}

/// A config map.
pub(crate) fn map(name: &str, value: &str) -> Value {
    json!({"metadata": {"name": name}, "data": {"v": value}})
}

/// The change of a config map's value.
pub(crate) fn value(value: &str) -> Value {
    json!({"data": {"v": value}})
}
