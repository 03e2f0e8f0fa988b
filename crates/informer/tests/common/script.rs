//! A source controlled by the test: each request waits until the test responds to it.
//!
//! Requests are returned as short texts, so that a test reads like a protocol.
#![allow(dead_code, unreachable_pub)]

use bytes::Bytes;
use futures::channel::mpsc::{self, UnboundedReceiver, UnboundedSender};
use futures::stream::StreamExt as _;
use informer::source::{ListRequest, WatchRequest};
use informer::source::{Response, ResponseFuture, Source, SourceError};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::oneshot;

/// The informer's end of the script.
pub struct Script {
    requests: UnboundedSender<Request>,
}

/// The test's end of the script.
pub struct Server {
    requests: UnboundedReceiver<Request>,
}

/// A request waiting for its response.
pub struct Request {
    pub text: String,
    answer: oneshot::Sender<Result<Response, SourceError>>,
}

/// The body of a response, written piece by piece. Dropping it ends the body.
pub struct Body(UnboundedSender<Result<Bytes, SourceError>>);

/// Creates a source and the server that responds to it.
pub fn script() -> (Script, Server) {
    let (sender, receiver) = mpsc::unbounded();
    (Script { requests: sender }, Server { requests: receiver })
}

impl Script {
    fn send_request(&self, verb: &str, query: Vec<(&'static str, String)>) -> ResponseFuture {
        let noise = ["watch", "allowWatchBookmarks", "timeoutSeconds", "resourceVersionMatch"];
        let query = query.into_iter().filter(|(name, _)| !noise.contains(name));
        let text = query.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&");
        let (answer, response) = oneshot::channel();
        let request = Request { text: format!("{verb} {text}"), answer };
        let _ = self.requests.unbounded_send(request);
        Box::pin(async move {
            let test_over = || SourceError::Connect { refused: true, source: "the test is over".into() };
            response.await.unwrap_or_else(|_| Err(test_over()))
        })
    }
}

impl Source for Script {
    fn list(&self, request: ListRequest) -> ResponseFuture {
        self.send_request("list", request.query())
    }

    fn watch(&self, request: WatchRequest) -> ResponseFuture {
        self.send_request("watch", request.query())
    }
}

impl Server {
    /// Returns the next request. Fails if there is none for an hour of virtual time.
    pub async fn next(&mut self) -> Request {
        let request = tokio::time::timeout(Duration::from_secs(3600), self.requests.next()).await;
        request.expect("no request was sent").expect("the source was dropped")
    }

    /// Returns the next request. Fails unless it is this one.
    pub async fn expect(&mut self, text: &str) -> Request {
        let request = self.next().await;
        assert_eq!(request.text, text);
        request
    }

    /// Responds to the first request with these objects as a watch-list and returns the open stream.
    pub async fn sync(&mut self, objects: &[Value], version: u64) -> Body {
        let body = self.expect("watch sendInitialEvents=true&resourceVersion=").await.open();
        for object in objects {
            body.frame("ADDED", object);
        }
        body.end_initial(version);
        body
    }
}

impl Request {
    /// Responds with status 200 and a body to be written later.
    pub fn open(self) -> Body {
        let (sender, receiver) = mpsc::unbounded();
        let response = Response::new(200, receiver).with_content_type("application/json");
        let _ = self.answer.send(Ok(response));
        Body(sender)
    }

    /// Responds with a complete body.
    pub fn reply(self, status: u16, body: impl Into<Bytes>) {
        let _ = self.answer.send(Ok(Response::from_chunks(status, [body.into()])));
    }

    /// Responds with status 200 and a list.
    pub fn list(self, objects: &[Value], version: u64) {
        let list = json!({"kind": "PodList", "apiVersion": "v1",
            "metadata": {"resourceVersion": version.to_string()}, "items": objects});
        self.reply(200, list.to_string());
    }

    /// Fails the request.
    pub fn fail(self, error: SourceError) {
        let _ = self.answer.send(Err(error));
    }
}

impl Body {
    /// Sends bytes.
    pub fn send(&self, bytes: impl Into<Bytes>) {
        let _ = self.0.unbounded_send(Ok(bytes.into()));
    }

    /// Sends one frame.
    pub fn frame(&self, kind: &str, object: &Value) {
        self.send(json!({"type": kind, "object": object}).to_string() + "\n");
    }

    /// Sends the bookmark that ends the initial events.
    pub fn end_initial(&self, version: u64) {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        self.frame(
            "BOOKMARK",
            &json!({"kind": "Pod", "apiVersion": "v1",
            "metadata": {"resourceVersion": version.to_string(), "annotations": annotations}}),
        );
    }

    /// Sends the ERROR frame for an expired position.
    pub fn expire(&self) {
        self.frame(
            "ERROR",
            &json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"}),
        );
    }

    /// Whether the informer has dropped the body.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

/// A pod in namespace `ns`, on node `node-VERSION`.
pub fn pod(name: &str, version: u64) -> Value {
    pod_with_uid(name, version, &format!("uid-{name}"))
}

/// A pod of a certain incarnation.
pub fn pod_with_uid(name: &str, version: u64, uid: &str) -> Value {
    json!({"kind": "Pod", "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "ns", "uid": uid, "resourceVersion": version.to_string(),
            "labels": {"app": name}, "managedFields": [{"manager": "test"}]},
        "spec": {"nodeName": format!("node-{version}"), "containers": []}})
}
