//! The server of a test: an embedded one on a socket, or a new namespace on an existing server.
//!
//! Nothing here sleeps: every wait is limited by [`with_timeout`].

use std::future::Future;
use std::time::Duration;

use informer_apiserver::{ApiServer, ListenOptions, RunningServer};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use kube::api::{Patch, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Variable with the kubeconfig of another server to test.
const EXTERNAL_KUBECONFIG: &str = "PEER_KUBECONFIG";

pub(crate) struct World {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    _listening: Option<RunningServer>,
}

impl World {
    pub(crate) async fn new() -> Self {
        match std::env::var(EXTERNAL_KUBECONFIG) {
            Ok(path) => World::external(&path).await,
            Err(_) => World::embedded().await.1,
        }
    }

    /// Starts the embedded server, for tests that only it supports.
    pub(crate) async fn embedded() -> (ApiServer, Self) {
        let server = ApiServer::new();
        let listening = server.listen(ListenOptions::https()).await.unwrap();
        let client = client(Kubeconfig::from_yaml(&listening.kubeconfig()).unwrap()).await;
        (server, World { client, namespace: "default".to_owned(), _listening: Some(listening) })
    }

    async fn external(path: &str) -> Self {
        let client = client(Kubeconfig::read_from(path).unwrap()).await;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let namespace = object(json!({"metadata": {"generateName": "peer-"}}));
        let namespace = namespaces.create(&PostParams::default(), &namespace).await.unwrap().name_any();
        World { client, namespace, _listening: None }
    }

    pub(crate) fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) fn maps(&self) -> Api<ConfigMap> {
        self.api()
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        self.api()
    }

    /// Creates config maps without content.
    pub(crate) async fn create_maps(&self, names: &[&str]) {
        for name in names {
            self.maps().create(&PostParams::default(), &config_map(name, "1")).await.unwrap();
        }
    }
}

/// A client without retries: by default, kube-rs retries responses with 429, 503 and 504 for over a minute.
pub(crate) async fn client(kubeconfig: Kubeconfig) -> Client {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

/// Limits a future to a time far beyond what a busy machine needs. Boxed, as futures of kube-rs are large.
pub(crate) fn with_timeout<T>(future: impl Future<Output = T>) -> impl Future<Output = T> {
    let limited = tokio::time::timeout(Duration::from_secs(60), Box::pin(future));
    async { limited.await.expect("timed out") }
}

/// Deserializes an object of any type.
pub(crate) fn object<K: DeserializeOwned>(json: Value) -> K {
    serde_json::from_value(json).unwrap()
}

pub(crate) fn config_map(name: &str, value: &str) -> ConfigMap {
    object(json!({"metadata": {"name": name}, "data": {"k": value}}))
}

pub(crate) fn pod(name: &str) -> Pod {
    let containers = json!([{"name": "app", "image": "registry.example/app:1"}]);
    object(json!({"metadata": {"name": name, "labels": {"app": "web"}}, "spec": {"containers": containers}}))
}

pub(crate) fn deployment(name: &str) -> k8s_openapi::api::apps::v1::Deployment {
    object(json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [
                    {"name": "app", "image": "registry.example/app:1"},
                    {"name": "side", "image": "registry.example/side:1"},
                ]},
            },
        },
    }))
}

pub(crate) fn merge(patch: Value) -> Patch<Value> {
    Patch::Merge(patch)
}

/// A JSON patch; its type belongs to a crate that kube does not re-export.
pub(crate) fn json_patch(operations: Value) -> Patch<()> {
    Patch::Json(serde_json::from_value(operations).unwrap())
}
