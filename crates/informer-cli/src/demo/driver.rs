//! Runs the demo on a server: executes its operations and returns the results.

use super::write::{Kind, ObjectId, Operation, Write, WriteResult};
use super::{Demo, any_seed};
use http::Request;
use informer_apiserver::{ApiServer, Status};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Maximum number of attempts of an update; each attempt reads the object again.
const MAX_ATTEMPTS: usize = 3;

/// The running demo; dropping it stops the demo and leaves the objects.
#[derive(Debug)]
pub(crate) struct Running {
    /// Never sent to: the demo stops when the sender is dropped.
    _stop: oneshot::Sender<()>,
    ready: watch::Receiver<bool>,
}

impl Running {
    /// Waits until the cluster is complete.
    pub(crate) async fn wait_until_ready(&self) {
        let mut ready = self.ready.clone();
        // The sender is dropped only if the demo has ended.
        drop(ready.wait_for(|ready| *ready).await);
    }
}

/// Builds a demo cluster of about this many pods on a server and keeps changing it. Fails if there are no
/// resources for another thread.
///
/// The demo has a thread of its own, because it writes almost all objects and glibc's allocator has an arena
/// per thread: freed memory is reused only in the arena that it came from. As a task that moves between the
/// threads of a runtime, the demo would fill one arena while the history that it drops frees memory in others,
/// and memory would grow with the number of threads.
pub(crate) fn start(server: &ApiServer, pods: u64) -> std::io::Result<Running> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let (ready_sender, ready) = watch::channel(false);
    let (stop, stopped) = oneshot::channel();
    let server = server.clone();
    std::thread::Builder::new().name("demo".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = run(&server, pods, &ready_sender) => {}
                _ = stopped => {}
            }
        });
    })?;
    Ok(Running { _stop: stop, ready })
}

/// Runs the demo forever.
async fn run(server: &ApiServer, pods: u64, ready: &watch::Sender<bool>) {
    let now = Timestamp::now();
    let mut demo = Demo::new(any_seed(), usize::try_from(pods).unwrap_or(usize::MAX), now);
    let driver = ServerDriver::new(server);
    while driver.apply_writes(&mut demo, now).await {}
    demo.start_incidents();
    ready.send_replace(true);
    loop {
        let wait = demo.next_action_time().duration_since(Timestamp::now());
        let wait = Duration::try_from(wait).unwrap_or_default();
        // A minimum delay leaves time for other tasks.
        tokio::time::sleep(wait.max(Duration::from_millis(5))).await;
        driver.apply_writes(&mut demo, Timestamp::now()).await;
    }
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
            // Lets other tasks run.
            if number % 50 == 49 {
                tokio::task::yield_now().await;
            }
        }
        !writes.is_empty()
    }

    /// Executes one operation.
    pub(super) async fn apply(&self, write: &Write) -> WriteResult {
        let object_id = &write.object_id;
        let result = match &write.operation {
            Operation::Create(object) => match self.server.create(object) {
                Err(status) if status.reason == "AlreadyExists" => {
                    return self.get(object_id).map_or(WriteResult::Rejected, WriteResult::Done);
                }
                result => result,
            },
            Operation::Merge(patch) => return self.merge_and_update(object_id, patch, ApiServer::update),
            Operation::MergeStatus(status) => {
                return self.merge_and_update(
                    object_id,
                    &json!({"status": status}),
                    ApiServer::update_status,
                );
            }
            Operation::Bind(node) => return self.bind(object_id, node).await,
            Operation::Delete => return self.delete(object_id).await,
            Operation::DeleteNow => {
                return match self.server.delete(
                    object_id.kind.api_version(),
                    object_id.kind.plural(),
                    namespace(object_id),
                    &object_id.name,
                ) {
                    Ok(Some(object)) => WriteResult::Done(object),
                    Ok(None) => WriteResult::Gone,
                    Err(status) => failure_result(&status),
                };
            }
            Operation::Read => return self.get(object_id).map_or(WriteResult::Gone, WriteResult::Done),
            Operation::Finalize => return self.finalize(&object_id.name).await,
        };
        result.map_or_else(|status| failure_result(&status), WriteResult::Done)
    }

    fn get(&self, object_id: &ObjectId) -> Option<Value> {
        self.server.get(
            object_id.kind.api_version(),
            object_id.kind.plural(),
            namespace(object_id),
            &object_id.name,
        )
    }

    /// Merges a patch into the current object and updates it; other fields keep their current values.
    fn merge_and_update(
        &self,
        object_id: &ObjectId,
        patch: &Value,
        update: fn(&ApiServer, &Value) -> Result<Value, Status>,
    ) -> WriteResult {
        let mut result = WriteResult::Rejected;
        for _ in 0..MAX_ATTEMPTS {
            let Some(mut object) = self.get(object_id) else { return WriteResult::Gone };
            merge(&mut object, patch);
            match update(&self.server, &object) {
                Ok(object) => return WriteResult::Done(object),
                Err(status) => result = failure_result(&status),
            }
        }
        result
    }

    /// Binds a pod to a node, as kube-scheduler does. The node of an existing pod can be set in no other way.
    async fn bind(&self, object_id: &ObjectId, node: &str) -> WriteResult {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": object_id.name, "namespace": object_id.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match self.request("POST", &format!("{}/binding", path(object_id)), &binding).await {
            // The pod exists, so 404 refers to the node.
            WriteResult::Gone if self.get(object_id).is_some() => WriteResult::Rejected,
            result => result,
        }
    }

    /// Deletes an object gracefully, as a controller does.
    async fn delete(&self, object_id: &ObjectId) -> WriteResult {
        self.request("DELETE", &path(object_id), &json!({"kind": "DeleteOptions", "apiVersion": "v1"})).await
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
            // The object still exists if it has a deletion timestamp. The response to a completed deletion is
            // the last state, without a timestamp, or a status.
            Ok(object) if method == "DELETE" && object["metadata"]["deletionTimestamp"].is_null() => {
                WriteResult::Gone
            }
            Ok(object) => WriteResult::Done(object),
            Err(kube::Error::Api(status)) if status.code == 404 => WriteResult::Gone,
            Err(_) => WriteResult::Rejected,
        }
    }
}

/// Returns the URL path of a namespaced object of the core group. Used for pods only.
fn path(object_id: &ObjectId) -> String {
    format!("/api/v1/namespaces/{}/{}/{}", object_id.namespace, object_id.kind.plural(), object_id.name)
}

fn namespace(object_id: &ObjectId) -> Option<&str> {
    (!matches!(object_id.kind, Kind::Namespace | Kind::Node)).then_some(object_id.namespace.as_str())
}

/// Returns the result of an operation that the server rejected; 404 means that the object does not exist.
fn failure_result(status: &Status) -> WriteResult {
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
