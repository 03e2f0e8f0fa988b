//! Runs the demo on a server: executes its operations and returns the results.

use super::write::{Kind, ObjectId, Operation, Write, WriteResult};
use super::{Demo, any_seed};
use http::Request;
use informer_apiserver::{ApiServer, Status};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Maximum number of attempts of an update; each attempt reads the object again.
const MAX_ATTEMPTS: usize = 3;

/// The running demo; dropping it stops the task and leaves the objects.
#[derive(Debug)]
pub(crate) struct Running {
    task: JoinHandle<()>,
    ready: watch::Receiver<bool>,
}

impl Running {
    /// Waits until the cluster is complete.
    pub(crate) async fn wait_until_ready(&self) {
        let mut ready = self.ready.clone();
        // The sender is dropped only if the task has ended.
        drop(ready.wait_for(|ready| *ready).await);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Builds a demo cluster of about this many pods on a server and keeps changing it.
pub(crate) fn start(server: &ApiServer, pods: u64) -> Running {
    let now = Timestamp::now();
    let mut demo = Demo::new(any_seed(), usize::try_from(pods).unwrap_or(usize::MAX), now);
    let driver = ServerDriver::new(server);
    let (ready_sender, ready) = watch::channel(false);
    let task = tokio::spawn(async move {
        while driver.apply_writes(&mut demo, now).await {}
        demo.start_incidents();
        ready_sender.send_replace(true);
        loop {
            let wait = demo.next().duration_since(Timestamp::now());
            let wait = Duration::try_from(wait).unwrap_or_default();
            // A minimum delay leaves time for other tasks.
            tokio::time::sleep(wait.max(Duration::from_millis(5))).await;
            driver.apply_writes(&mut demo, Timestamp::now()).await;
        }
    });
    Running { task, ready }
}

/// A server, and a client for operations that need one.
pub(super) struct ServerDriver {
    server: ApiServer,
    client: kube::Client,
}

impl ServerDriver {
    pub(super) fn new(server: &ApiServer) -> Self {
        Self { server: server.clone(), client: server.client() }
    }

    /// Executes the operations that the demo has for this time; returns whether there were any.
    pub(super) async fn apply_writes(&self, demo: &mut Demo, now: Timestamp) -> bool {
        let writes = demo.tick(now);
        for (number, write) in writes.iter().enumerate() {
            let result = self.apply(write).await;
            demo.handle_result(write, &result);
            if number % 50 == 49 {
                tokio::task::yield_now().await;
            }
        }
        !writes.is_empty()
    }

    /// Executes one operation.
    pub(super) async fn apply(&self, write: &Write) -> WriteResult {
        let at = &write.at;
        let result = match &write.operation {
            Operation::Create(object) => match self.server.create(object) {
                Err(status) if status.reason == "AlreadyExists" => {
                    return self.get(at).map_or(WriteResult::Rejected, WriteResult::Done);
                }
                result => result,
            },
            Operation::Merge(patch) => return self.change(at, patch, ApiServer::update),
            Operation::MergeStatus(status) => {
                return self.change(at, &json!({"status": status}), ApiServer::update_status);
            }
            Operation::Bind(node) => return self.bind(at, node).await,
            Operation::Delete => return self.delete(at).await,
            Operation::DeleteNow => {
                return match self.server.delete(
                    at.kind.api_version(),
                    at.kind.plural(),
                    namespace(at),
                    &at.name,
                ) {
                    Ok(Some(object)) => WriteResult::Done(object),
                    Ok(None) => WriteResult::Gone,
                    Err(status) => rejected(&status),
                };
            }
            Operation::Read => return self.get(at).map_or(WriteResult::Gone, WriteResult::Done),
            Operation::Finalize => return self.finalize(&at.name).await,
        };
        result.map_or_else(|status| rejected(&status), WriteResult::Done)
    }

    fn get(&self, at: &ObjectId) -> Option<Value> {
        self.server.get(at.kind.api_version(), at.kind.plural(), namespace(at), &at.name)
    }

    /// Merges a patch into the current object and updates it; other fields keep their current values.
    fn change(
        &self,
        at: &ObjectId,
        patch: &Value,
        update: fn(&ApiServer, &Value) -> Result<Value, Status>,
    ) -> WriteResult {
        let mut result = WriteResult::Rejected;
        for _ in 0..MAX_ATTEMPTS {
            let Some(mut object) = self.get(at) else { return WriteResult::Gone };
            merge(&mut object, patch);
            match update(&self.server, &object) {
                Ok(object) => return WriteResult::Done(object),
                Err(status) => result = rejected(&status),
            }
        }
        result
    }

    /// Binds a pod like a scheduler; its node cannot be set otherwise.
    async fn bind(&self, at: &ObjectId, node: &str) -> WriteResult {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": at.name, "namespace": at.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match self.request("POST", &format!("{}/binding", path(at)), &binding).await {
            // The pod exists, so 404 refers to the node.
            WriteResult::Gone if self.get(at).is_some() => WriteResult::Rejected,
            result => result,
        }
    }

    /// Deletes gracefully, like a controller.
    async fn delete(&self, at: &ObjectId) -> WriteResult {
        self.request("DELETE", &path(at), &json!({"kind": "DeleteOptions", "apiVersion": "v1"})).await
    }

    /// Deletes the contents of a namespace and finalizes it, like the namespace controller.
    async fn finalize(&self, name: &str) -> WriteResult {
        for kind in Kind::IN_NAMESPACES {
            for object in self.server.list(kind.api_version(), kind.plural(), Some(name)) {
                let object = object["metadata"]["name"].as_str().unwrap_or_default();
                // Objects that cannot be deleted are retried with the next call.
                drop(self.server.delete(kind.api_version(), kind.plural(), Some(name), object));
            }
        }
        let id = ObjectId::new(Kind::Namespace, "", name);
        let Some(mut object) = self.get(&id) else { return WriteResult::Gone };
        object["spec"]["finalizers"] = json!([]);
        self.request("PUT", &format!("/api/v1/namespaces/{name}/finalize"), &object).await
    }

    async fn request(&self, method: &str, path: &str, body: &Value) -> WriteResult {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let Ok(request) = request.body(body.to_string().into_bytes()) else { return WriteResult::Rejected };
        match self.client.request::<Value>(request).await {
            // A completed deletion returns the last object or a status.
            Ok(object) if method == "DELETE" && object["metadata"]["deletionTimestamp"].is_null() => {
                WriteResult::Gone
            }
            Ok(object) => WriteResult::Done(object),
            Err(kube::Error::Api(status)) if status.code == 404 => WriteResult::Gone,
            Err(_) => WriteResult::Rejected,
        }
    }
}

/// Returns the path of an object in a namespace whose kind is in the core group. Used for pods only.
fn path(at: &ObjectId) -> String {
    format!("/api/v1/namespaces/{}/{}/{}", at.namespace, at.kind.plural(), at.name)
}

fn namespace(at: &ObjectId) -> Option<&str> {
    (!matches!(at.kind, Kind::Namespace | Kind::Node)).then_some(at.namespace.as_str())
}

fn rejected(status: &Status) -> WriteResult {
    if status.code == 404 { WriteResult::Gone } else { WriteResult::Rejected }
}

/// Applies a merge patch (RFC 7396): null removes, objects are merged, other values are replaced.
pub(super) fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        object.clone_from(patch);
        return;
    };
    if !object.is_object() {
        *object = Value::Object(Map::new());
    }
    let Some(target) = object.as_object_mut() else { return };
    for (name, value) in fields {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
