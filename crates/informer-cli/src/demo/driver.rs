//! Plays the demo against a server: a loop without opinions.

use super::write::{Answer, At, Kind, What, Write};
use super::{Demo, any_seed};
use http::Request;
use informer_apiserver::{ApiServer, Status};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often a change is tried that somebody else's comes before.
const ATTEMPTS: usize = 3;

/// The demo while it is played; dropping this ends it, and leaves the objects as they are.
#[derive(Debug)]
pub(crate) struct Running {
    playing: JoinHandle<()>,
    stands: watch::Receiver<bool>,
}

impl Running {
    /// Waits until the cluster stands.
    pub(crate) async fn stands(&self) {
        let mut stands = self.stands.clone();
        // An error would mean that it is not played any more, and there is nothing to wait for.
        drop(stands.wait_for(|stands| *stands).await);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.playing.abort();
    }
}

/// Builds a cluster of about so many pods on a server, and keeps it moving.
pub(crate) fn start(server: &ApiServer, pods: u64) -> Running {
    let now = Timestamp::now();
    let mut demo = Demo::new(any_seed(), usize::try_from(pods).unwrap_or(usize::MAX), now);
    let stage = Stage::new(server);
    let (stand, stands) = watch::channel(false);
    let playing = tokio::spawn(async move {
        while stage.play(&mut demo, now).await {}
        demo.let_live();
        stand.send_replace(true);
        loop {
            let wait = demo.next().duration_since(Timestamp::now());
            let wait = Duration::try_from(wait).unwrap_or_default();
            // Not without a pause: whatever the demo wants, others want the thread too.
            tokio::time::sleep(wait.max(Duration::from_millis(5))).await;
            stage.play(&mut demo, Timestamp::now()).await;
        }
    });
    Running { playing, stands }
}

/// A server, and a client for what can only be said to it as a client.
pub(super) struct Stage {
    server: ApiServer,
    client: kube::Client,
}

impl Stage {
    pub(super) fn new(server: &ApiServer) -> Self {
        Self { server: server.clone(), client: server.client() }
    }

    /// Does what there is to do now; whether there was anything.
    pub(super) async fn play(&self, demo: &mut Demo, now: Timestamp) -> bool {
        let writes = demo.tick(now);
        for (number, write) in writes.iter().enumerate() {
            let answer = self.apply(write).await;
            demo.answer(write, &answer);
            if number % 50 == 49 {
                tokio::task::yield_now().await;
            }
        }
        !writes.is_empty()
    }

    /// Does one thing.
    pub(super) async fn apply(&self, write: &Write) -> Answer {
        let at = &write.at;
        let answer = match &write.what {
            What::Create(object) => match self.server.create(object) {
                Err(status) if status.reason == "AlreadyExists" => {
                    return self.get(at).map_or(Answer::Refused, Answer::Done);
                }
                answer => answer,
            },
            What::Merge(patch) => return self.change(at, patch, ApiServer::update),
            What::MergeStatus(status) => {
                return self.change(at, &json!({"status": status}), ApiServer::update_status);
            }
            What::Bind(node) => return self.bind(at, node).await,
            What::Delete => return self.delete(at).await,
            What::Kill => {
                return match self.server.delete(
                    at.kind.api_version(),
                    at.kind.plural(),
                    namespace(at),
                    &at.name,
                ) {
                    Ok(Some(object)) => Answer::Done(object),
                    Ok(None) => Answer::Gone,
                    Err(status) => refused(&status),
                };
            }
            What::Look => return self.get(at).map_or(Answer::Gone, Answer::Done),
            What::Finalize => return self.finalize(&at.name).await,
        };
        answer.map_or_else(|status| refused(&status), Answer::Done)
    }

    fn get(&self, at: &At) -> Option<Value> {
        self.server.get(at.kind.api_version(), at.kind.plural(), namespace(at), &at.name)
    }

    /// Puts fields into the object as it is there; what somebody else changed stays.
    fn change(
        &self,
        at: &At,
        patch: &Value,
        update: fn(&ApiServer, &Value) -> Result<Value, Status>,
    ) -> Answer {
        let mut answer = Answer::Refused;
        for _ in 0..ATTEMPTS {
            let Some(mut object) = self.get(at) else { return Answer::Gone };
            merge(&mut object, patch);
            match update(&self.server, &object) {
                Ok(object) => return Answer::Done(object),
                Err(status) => answer = refused(&status),
            }
        }
        answer
    }

    /// As a scheduler does it: a pod's node cannot be set in any other way.
    async fn bind(&self, at: &At, node: &str) -> Answer {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": at.name, "namespace": at.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        match self.ask("POST", &format!("{}/binding", path(at)), &binding).await {
            // The pod is there, so that was about the binding.
            Answer::Gone if self.get(at).is_some() => Answer::Refused,
            answer => answer,
        }
    }

    /// As a controller does it, with the grace that pods have.
    async fn delete(&self, at: &At) -> Answer {
        self.ask("DELETE", &path(at), &json!({"kind": "DeleteOptions", "apiVersion": "v1"})).await
    }

    /// As the namespace controller does it, with what people put into a demo.
    async fn finalize(&self, name: &str) -> Answer {
        for kind in Kind::IN_NAMESPACES {
            for object in self.server.list(kind.api_version(), kind.plural(), Some(name)) {
                let object = object["metadata"]["name"].as_str().unwrap_or_default();
                // What does not want to go stays until this is asked again.
                drop(self.server.delete(kind.api_version(), kind.plural(), Some(name), object));
            }
        }
        let place = At::new(Kind::Namespace, "", name);
        let Some(mut object) = self.get(&place) else { return Answer::Gone };
        object["spec"]["finalizers"] = json!([]);
        self.ask("PUT", &format!("/api/v1/namespaces/{name}/finalize"), &object).await
    }

    async fn ask(&self, method: &str, path: &str, body: &Value) -> Answer {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        let Ok(request) = request.body(body.to_string().into_bytes()) else { return Answer::Refused };
        match self.client.request::<Value>(request).await {
            // A deletion that is complete is answered with the object that was, or with a status.
            Ok(object) if method == "DELETE" && object["metadata"]["deletionTimestamp"].is_null() => {
                Answer::Gone
            }
            Ok(object) => Answer::Done(object),
            Err(kube::Error::Api(status)) if status.code == 404 => Answer::Gone,
            Err(_) => Answer::Refused,
        }
    }
}

fn path(at: &At) -> String {
    // Only pods are spoken of this way.
    format!("/api/v1/namespaces/{}/{}/{}", at.namespace, at.kind.plural(), at.name)
}

fn namespace(at: &At) -> Option<&str> {
    (!matches!(at.kind, Kind::Namespace | Kind::Node)).then_some(at.namespace.as_str())
}

fn refused(status: &Status) -> Answer {
    if status.code == 404 { Answer::Gone } else { Answer::Refused }
}

/// A merge patch (RFC 7396): what is null goes, objects are merged, everything else is replaced.
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
