//! A watch, read frame by frame, each by a deadline.

use std::time::Duration;

use futures::StreamExt;
use http_body_util::BodyStream;
use kube::client::Body;
use serde_json::Value;

use crate::arm::{PATIENCE, name, value};

/// How a bookmark is told that ends nothing.
const ON_THE_WAY: &str = "BOOKMARK";

pub(crate) struct Watch {
    path: String,
    body: BodyStream<Body>,
    buffer: Vec<u8>,
    /// What was told so far, for the message of a failure.
    told: Vec<String>,
}

impl Watch {
    pub(crate) fn new(path: String, answer: http::Response<Body>) -> Self {
        let body = BodyStream::new(answer.into_body());
        Watch { path, body, buffer: Vec::new(), told: Vec::new() }
    }

    /// The next frame; none at a clean end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(PATIENCE, self.line()).await;
        let line = line.unwrap_or_else(|_| panic!("{} is silent after {:?}", self.path, self.told))?;
        let frame: Value = serde_json::from_slice(&line).unwrap();
        self.told.push(told(&frame));
        Some(frame)
    }

    /// The next frame, of that type: its object.
    pub(crate) async fn object(&mut self, kind: &str) -> Value {
        let frame = self.next().await;
        let mut frame = frame.unwrap_or_else(|| panic!("{} ended after {:?}", self.path, self.told));
        assert_eq!(frame["type"], kind, "{} tells {frame}", self.path);
        frame["object"].take()
    }

    /// Fails unless the next frames are these, each as `TYPE name value`. A bookmark that only says how far the
    /// server is may come between any two of them, so it is passed over: a real server sends one soon after the
    /// initial events, and under load that is in the middle of what a statement waits for.
    pub(crate) async fn tells(&mut self, expected: &[&str]) {
        let mut told = Vec::new();
        while told.len() < expected.len() {
            let frame = self.next().await;
            assert!(frame.is_some(), "{} ended after {:?}", self.path, self.told);
            told.extend(self.told.last().filter(|told| *told != ON_THE_WAY).cloned());
        }
        assert_eq!(told, expected, "{}", self.path);
    }

    /// Fails unless the stream ends here, cleanly.
    pub(crate) async fn ends(&mut self) {
        let next = self.next().await;
        assert!(next.is_none(), "{} goes on after {:?}", self.path, self.told);
    }

    /// The frames that are left until the stream ends.
    pub(crate) async fn all(mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Whatever comes, as text.
    pub(crate) async fn rest(mut self) -> String {
        let mut text = String::new();
        while let Ok(Some(line)) = tokio::time::timeout(Duration::from_secs(1), self.line()).await {
            text.push_str(&String::from_utf8_lossy(&line));
        }
        text + &String::from_utf8_lossy(&self.buffer)
    }

    /// The next frame of a watch in protobuf, without its length; none at the end.
    pub(crate) async fn protobuf(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>()
                && let Some(frame) = rest.get(..u32::from_be_bytes(*length) as usize)
            {
                let frame = frame.to_vec();
                self.buffer.drain(..4 + frame.len());
                return Some(frame);
            }
            let more = tokio::time::timeout(PATIENCE, self.more()).await;
            if !more.unwrap_or_else(|_| panic!("{} is silent", self.path)) {
                return None;
            }
        }
    }

    async fn line(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                return Some(self.buffer.drain(..=end).collect());
            }
            if !self.more().await {
                return None;
            }
        }
    }

    async fn more(&mut self) -> bool {
        let Some(frame) = self.body.next().await else { return false };
        let frame = frame.unwrap_or_else(|why| panic!("{} broke after {:?}: {why}", self.path, self.told));
        if let Ok(data) = frame.into_data() {
            self.buffer.extend_from_slice(&data);
        }
        true
    }
}

/// A frame as `TYPE name value`; of a bookmark or an error, the type and what makes it one.
fn told(frame: &Value) -> String {
    let (kind, object) = (frame["type"].as_str().unwrap_or_default(), &frame["object"]);
    match kind {
        "BOOKMARK" if is_end(object) => "BOOKMARK end".to_owned(),
        "BOOKMARK" => ON_THE_WAY.to_owned(),
        "ERROR" => format!("ERROR {}", object["code"]),
        _ => format!("{kind} {} {}", name(object), value(object)),
    }
}

/// Whether a bookmark is the one behind the initial events.
pub(crate) fn is_end(bookmark: &Value) -> bool {
    bookmark.pointer("/metadata/annotations/k8s.io~1initial-events-end").is_some_and(|end| end == "true")
}
