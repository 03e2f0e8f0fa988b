//! Shared helpers: objects, raw requests, and watches that are read frame by frame.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test file uses a part of it; tests fail by panicking"
)]

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::Request;
use http_body_util::{BodyExt, BodyStream};
use informer_apiserver::{ApiServer, ResponseBody};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Separator between the `Accept` value and the content type of the request body, for bodies that are not JSON.
pub(crate) const CONTENT_TYPE: &str = " content-type ";

/// Fails the test if it hangs. Time is paused in most tests, so the timeout costs nothing.
pub(crate) async fn with_timeout<T>(test: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10_800), test).await.expect("the test timed out")
}

/// Advances the paused clock and runs everything that becomes due.
pub(crate) async fn advance_time(time: Duration) {
    let _ = tokio::time::timeout(time, std::future::pending::<()>()).await;
}

pub(crate) fn server() -> ApiServer {
    ApiServer::builder().seed(1).build()
}

pub(crate) fn configmap(name: &str, value: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"}, "data": {"k": value},
    })
}

pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
        "spec": {"containers": [{"name": "app", "image": "registry.example/app:1"}]},
    })
}

pub(crate) fn definition() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name, "served": true, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            "subresources": {"status": {}},
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.rec.example.com"},
        "spec": {
            "group": "rec.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [version("v1alpha1", false), version("v1", true)],
        },
    })
}

pub(crate) fn widget(name: &str) -> Value {
    json!({
        "apiVersion": "rec.example.com/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"size": 1},
    })
}

pub(crate) async fn raw(server: &ApiServer, path: &str) -> (u16, Value) {
    raw_with(server, "GET", path, "application/json", None).await
}

/// Sends a request and reads the whole response; a body that is not JSON is returned as a string.
pub(crate) async fn raw_with(
    server: &ApiServer,
    method: &str,
    path: &str,
    accept: &str,
    body: Option<Vec<u8>>,
) -> (u16, Value) {
    let response = send(server, method, path, accept, body).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let text = || Value::from(String::from_utf8_lossy(&bytes).into_owned());
    (code, serde_json::from_slice(&bytes).unwrap_or_else(|_| text()))
}

pub(crate) async fn send(
    server: &ApiServer,
    method: &str,
    path: &str,
    accept: &str,
    body: Option<Vec<u8>>,
) -> http::Response<ResponseBody> {
    let body = kube::client::Body::from(body.unwrap_or_default());
    let (accept, content_type) = accept.split_once(CONTENT_TYPE).unwrap_or((accept, "application/json"));
    let request = Request::builder().method(method).uri(path);
    let request = request.header("accept", accept).header("content-type", content_type).body(body).unwrap();
    server.service().oneshot(request).await.unwrap()
}

pub(crate) async fn chunks(server: &ApiServer, path: &str) -> usize {
    let response = send(server, "GET", path, "application/json", None).await;
    BodyStream::new(response.into_body()).count().await
}

/// A watch, read frame by frame.
pub(crate) struct Watch {
    body: BodyStream<ResponseBody>,
    buffer: Vec<u8>,
}

/// One item read from a watch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Got {
    Frame(Value),
    Line(String),
    End,
    Broken,
}

impl Watch {
    pub(crate) async fn open(server: &ApiServer, path: &str) -> Self {
        Watch::open_as(server, path, "application/json").await
    }

    pub(crate) async fn open_as(server: &ApiServer, path: &str, accept: &str) -> Self {
        let response = send(server, "GET", path, accept, None).await;
        assert_eq!(response.status(), 200, "{path}");
        Watch { body: BodyStream::new(response.into_body()), buffer: Vec::new() }
    }

    pub(crate) async fn next(&mut self) -> Got {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return match serde_json::from_slice(&line) {
                    Ok(frame) => Got::Frame(frame),
                    Err(_) => Got::Line(String::from_utf8_lossy(&line).trim_end().to_owned()),
                };
            }
            match self.body.next().await {
                Some(Ok(frame)) => {
                    let data: Bytes = frame.into_data().unwrap();
                    self.buffer.extend_from_slice(&data);
                }
                Some(Err(_)) => return Got::Broken,
                None => return Got::End,
            }
        }
    }

    /// Returns the next frame of a protobuf watch without its length prefix, or `None` at the end.
    pub(crate) async fn next_protobuf(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>()
                && let Some(frame) = rest.get(..u32::from_be_bytes(*length) as usize)
            {
                let frame = frame.to_vec();
                self.buffer.drain(..4 + frame.len());
                return Some(frame);
            }
            let data: Bytes = self.body.next().await?.unwrap().into_data().unwrap();
            self.buffer.extend_from_slice(&data);
        }
    }

    /// Returns the next frame as `TYPE name version`, where a bookmark has the name `-`, or how the stream ended.
    pub(crate) async fn next_summary(&mut self) -> String {
        match self.next().await {
            Got::Frame(frame) => summary(&frame),
            Got::Line(line) => format!("line {line}"),
            Got::End => "end".to_owned(),
            Got::Broken => "broken".to_owned(),
        }
    }

    pub(crate) async fn next_summaries(&mut self, frames: usize) -> Vec<String> {
        let mut summaries = Vec::new();
        for _ in 0..frames {
            summaries.push(self.next_summary().await);
        }
        summaries
    }

    /// Whether no frame arrives for this many seconds.
    pub(crate) async fn is_silent(&mut self, for_seconds: u64) -> bool {
        tokio::time::timeout(Duration::from_secs(for_seconds), self.next()).await.is_err()
    }
}

pub(crate) fn summary(frame: &Value) -> String {
    let object = &frame["object"];
    let kind = frame["type"].as_str().unwrap_or_default();
    if kind == "ERROR" {
        return format!("ERROR {} {}", object["code"], object["message"].as_str().unwrap_or_default());
    }
    let metadata = &object["metadata"];
    let text = |field: &str| metadata[field].as_str().unwrap_or("-").to_owned();
    let end = if metadata.pointer("/annotations/k8s.io~1initial-events-end").is_some() { " end" } else { "" };
    format!("{kind} {} {}{end}", text("name"), text("resourceVersion"))
}
