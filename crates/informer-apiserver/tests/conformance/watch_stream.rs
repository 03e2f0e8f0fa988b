//! A watch read frame by frame, each with a timeout.

use std::time::Duration;

use futures::StreamExt;
use http_body_util::BodyStream;
use kube::client::Body;
use serde_json::Value;

use crate::targets::{WAIT_TIMEOUT, name, value};

/// Summary of a bookmark that does not end the initial events.
const PROGRESS_BOOKMARK: &str = "BOOKMARK";

pub(crate) struct Watch {
    path: String,
    body: BodyStream<Body>,
    buffer: Vec<u8>,
    /// Summaries of the frames so far, for failure messages.
    frames: Vec<String>,
}

impl Watch {
    pub(crate) fn new(path: String, response: http::Response<Body>) -> Self {
        let body = BodyStream::new(response.into_body());
        Watch { path, body, buffer: Vec::new(), frames: Vec::new() }
    }

    /// Returns the next frame, or `None` at a clean end.
    pub(crate) async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(WAIT_TIMEOUT, self.line()).await;
        let line = line.unwrap_or_else(|_| panic!("{} is silent after {:?}", self.path, self.frames))?;
        let frame: Value = serde_json::from_slice(&line).unwrap();
        self.frames.push(summary(&frame));
        Some(frame)
    }

    /// Returns the object of the next frame, which must have this type.
    pub(crate) async fn object(&mut self, kind: &str) -> Value {
        let frame = self.next().await;
        let mut frame = frame.unwrap_or_else(|| panic!("{} ended after {:?}", self.path, self.frames));
        assert_eq!(frame["type"], kind, "{}: {frame}", self.path);
        frame["object"].take()
    }

    /// Fails unless the next frames are these, each as `TYPE name value`. Progress bookmarks between them are
    /// ignored: kube-apiserver sends one soon after the initial events, under load even between the expected frames.
    pub(crate) async fn expect_frames(&mut self, expected: &[&str]) {
        let mut received = Vec::new();
        while received.len() < expected.len() {
            let frame = self.next().await;
            assert!(frame.is_some(), "{} ended after {:?}", self.path, self.frames);
            received.extend(self.frames.last().filter(|frame| *frame != PROGRESS_BOOKMARK).cloned());
        }
        assert_eq!(received, expected, "{}", self.path);
    }

    /// Fails unless the stream ends cleanly here.
    pub(crate) async fn ends(&mut self) {
        let next = self.next().await;
        assert!(next.is_none(), "{} continues after {:?}", self.path, self.frames);
    }

    /// Returns the remaining frames.
    pub(crate) async fn all(mut self) -> Vec<Value> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            frames.push(frame);
        }
        frames
    }

    /// Returns the remaining bytes as text.
    pub(crate) async fn rest(mut self) -> String {
        let mut text = String::new();
        while let Ok(Some(line)) = tokio::time::timeout(Duration::from_secs(1), self.line()).await {
            text.push_str(&String::from_utf8_lossy(&line));
        }
        text + &String::from_utf8_lossy(&self.buffer)
    }

    /// Returns the next frame of a protobuf watch without its length prefix, or `None` at the end.
    pub(crate) async fn protobuf(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some((length, rest)) = self.buffer.split_first_chunk::<4>()
                && let Some(frame) = rest.get(..u32::from_be_bytes(*length) as usize)
            {
                let frame = frame.to_vec();
                self.buffer.drain(..4 + frame.len());
                return Some(frame);
            }
            let more = tokio::time::timeout(WAIT_TIMEOUT, self.more()).await;
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
        let frame = frame.unwrap_or_else(|why| panic!("{} broke after {:?}: {why}", self.path, self.frames));
        if let Ok(data) = frame.into_data() {
            self.buffer.extend_from_slice(&data);
        }
        true
    }
}

/// Formats a frame as `TYPE name value`; a bookmark or error as its type and distinguishing field.
fn summary(frame: &Value) -> String {
    let (kind, object) = (frame["type"].as_str().unwrap_or_default(), &frame["object"]);
    match kind {
        "BOOKMARK" if is_end(object) => "BOOKMARK end".to_owned(),
        "BOOKMARK" => PROGRESS_BOOKMARK.to_owned(),
        "ERROR" => format!("ERROR {}", object["code"]),
        _ => format!("{kind} {} {}", name(object), value(object)),
    }
}

/// Whether a bookmark ends the initial events.
pub(crate) fn is_end(bookmark: &Value) -> bool {
    bookmark.pointer("/metadata/annotations/k8s.io~1initial-events-end").is_some_and(|end| end == "true")
}
