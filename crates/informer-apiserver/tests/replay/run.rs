//! Replays one scenario: sends its requests with mapped values and compares the responses with the recorded ones.
//!
//! Time is virtual. A watch that the recorder read to its end is read to its end immediately; one that stayed open is
//! read after each step and at the end, so that the order of its frames is compared too.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt;
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, BodyStream};
use informer_apiserver::{ApiServer, ApiService, ResponseBody};
use serde_json::Value;
use tower::ServiceExt;

use super::alike::Names;
use super::{interludes, users, wire};

/// Headers that do not depend on the request.
const IGNORED: &[&str] = &[
    "etag",
    "last-modified",
    "expires",
    "process-start-time-unix",
    "transfer-encoding",
    "content-length",
    "date",
    "audit-id",
];

pub(crate) struct Outcome {
    /// Differences by step; empty if the step matches.
    pub(crate) steps: Vec<(String, Vec<String>)>,
}

pub(crate) struct Replay {
    pub(crate) server: ApiServer,
    service: ApiService,
    pub(crate) names: Names,
    problems: BTreeMap<String, Vec<String>>,
    watches: Vec<Open>,
}

/// A watch that stays open during other steps.
struct Open {
    step: String,
    body: BodyStream<ResponseBody>,
    buffer: Vec<u8>,
    expected: Vec<Value>,
    got: Vec<Value>,
    ended: bool,
    server_ends: bool,
    /// Whether its frames are protobuf, recorded as base64.
    packed: bool,
}

pub(crate) fn scenario(file: &str) -> Vec<Value> {
    let path = format!("{}/../../testdata/recordings/{file}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Returns the request bodies of a scenario as sent, with their fields in order.
fn bodies(file: &str) -> BTreeMap<String, String> {
    #[derive(serde::Deserialize)]
    struct Step {
        name: String,
        request: Option<Request>,
    }
    #[derive(serde::Deserialize)]
    struct Request {
        body: Option<Box<serde_json::value::RawValue>>,
    }
    let path = format!("{}/../../testdata/recordings/{file}.json", env!("CARGO_MANIFEST_DIR"));
    let steps: Vec<Step> = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let body = |step: Step| Some((step.name, step.request?.body?.get().to_owned()));
    steps.into_iter().filter_map(body).collect()
}

pub(crate) async fn replay(file: &str) -> Outcome {
    let server = interludes::server();
    let mut replay = Replay {
        service: server.service_with_access(users::access(file)),
        server,
        names: Names::default(),
        problems: BTreeMap::new(),
        watches: Vec::new(),
    };
    interludes::prepare(&mut replay, file).await;
    let steps = scenario(file);
    let bodies = bodies(file);
    for step in &steps {
        let name = step["name"].as_str().unwrap();
        replay.problems.insert(name.to_owned(), Vec::new());
        interludes::before(&mut replay, file, name).await;
        if step.get("request").is_none() {
            interludes::beside(&mut replay, file, name).await;
        } else {
            replay.step(file, name, step, bodies.get(name).map(String::as_str)).await;
        }
        replay.read_open(Duration::from_millis(1)).await;
    }
    replay.finish().await;
    let named = |step: &Value| step["name"].as_str().unwrap().to_owned();
    Outcome {
        steps: steps
            .iter()
            .map(|step| (named(step), replay.problems.remove(&named(step)).unwrap_or_default()))
            .collect(),
    }
}

impl Replay {
    /// A request that was not recorded.
    pub(crate) async fn quiet(&self, method: &str, path: &str, body: Option<Value>) {
        let mut headers = HeaderMap::new();
        headers.insert("accept", "application/json".parse().unwrap());
        headers.insert("content-type", "application/json".parse().unwrap());
        let body = body.map(|body| body.to_string().into_bytes()).unwrap_or_default();
        let (status, _, actual) = whole(self.send("", method, path, headers, body).await).await;
        assert!(status < 300, "{method} {path}: {status} {}", String::from_utf8_lossy(&actual));
    }

    async fn step(&mut self, file: &str, name: &str, step: &Value, raw: Option<&str>) {
        let (request, response) = (&step["request"], &step["response"]);
        let method = request["method"].as_str().unwrap();
        let path = self.path(request["path"].as_str().unwrap());
        let mut headers = HeaderMap::new();
        for (key, value) in request["headers"].as_object().into_iter().flatten() {
            headers
                .insert(http::HeaderName::try_from(key).unwrap(), value.as_str().unwrap().parse().unwrap());
        }
        let body = self.body(request, raw);
        let actual = self.send(name, method, &path, headers, body).await;
        if let (Some(frames), true) = (response["frames"].as_array(), actual.status() == 200) {
            self.headers(name, &response["headers"], actual.headers());
            return self.open(file, name, (actual, &path), frames, response).await;
        }
        let (status, headers, bytes) = whole(actual).await;
        let expected = response["status"].as_u64().unwrap();
        if u64::from(status) != expected {
            let text: String = String::from_utf8_lossy(&bytes).chars().take(300).collect();
            return self.wrong(name, format!("  status: theirs {expected}, ours {status}: {text}"));
        }
        self.headers(name, &response["headers"], &headers);
        self.compare_body(name, response, &bytes);
    }

    fn compare_body(&mut self, name: &str, response: &Value, bytes: &[u8]) {
        if let Some(theirs) = response.get("body") {
            let Ok(ours) = serde_json::from_slice::<Value>(bytes) else {
                return self.wrong(name, format!("  not JSON: {}", String::from_utf8_lossy(bytes)));
            };
            let indented = bytes.starts_with(b"{\n") || bytes.starts_with(b"[\n");
            let theirs_indented = is_indented(response, theirs);
            if indented != theirs_indented {
                self.wrong(name, format!("  indented: theirs {theirs_indented}, ours {indented}"));
            }
            let found = self.names.differences(theirs, &ours);
            self.problems.entry(name.to_owned()).or_default().extend(found);
        } else if let Some(theirs) = response["body_text"].as_str() {
            let ours = String::from_utf8_lossy(bytes).into_owned();
            // Some documents are JSON without the content type.
            let documents = (serde_json::from_str(theirs), serde_json::from_str(&ours));
            if let (Ok(theirs), Ok(ours)) = documents {
                let found = self.names.differences(&theirs, &ours);
                return self.problems.entry(name.to_owned()).or_default().extend(found);
            }
            self.names.learn_lines(theirs, &ours);
            let whole = response.get("body_truncated_to").is_none();
            if !self.names.is_same_prose(theirs, &ours, whole) {
                let cut: String = ours.chars().take(theirs.chars().count()).collect();
                self.wrong(name, format!("  text:\n    theirs {theirs:?}\n    ours   {cut:?}"));
            }
        } else if let Some(text) = response["body_base64"].as_str() {
            let found = wire::differences(&mut self.names, &STANDARD.decode(text).unwrap(), bytes);
            self.problems.entry(name.to_owned()).or_default().extend(found);
        } else if response["body_bytes"].as_u64() == Some(0) && !bytes.is_empty() {
            self.wrong(name, format!("  body: recorded none, actual {}", String::from_utf8_lossy(bytes)));
        }
    }

    fn headers(&mut self, name: &str, theirs: &Value, ours: &HeaderMap) {
        let theirs = theirs.as_object().unwrap();
        let text = |value: &Value| match value {
            Value::Array(all) => all.iter().map(|one| one.as_str().unwrap().to_owned()).collect(),
            other => vec![other.as_str().unwrap().to_owned()],
        };
        let counted = |key: &str| !IGNORED.contains(&key);
        let keys = theirs.keys().map(String::as_str).chain(ours.keys().map(http::HeaderName::as_str));
        let keys: std::collections::BTreeSet<&str> = keys.filter(|key| counted(key)).collect();
        for key in keys {
            let theirs: Vec<String> = theirs.get(key).map(text).unwrap_or_default();
            let ours: Vec<String> = ours
                .get_all(key)
                .iter()
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect();
            let same = theirs.len() == ours.len()
                && theirs
                    .iter()
                    .zip(&ours)
                    .all(|(theirs, ours)| self.names.is_same_prose(theirs, ours, true));
            if !same {
                self.wrong(name, format!("  header {key}: theirs {theirs:?}, ours {ours:?}"));
            }
        }
    }

    async fn open(
        &mut self,
        file: &str,
        name: &str,
        (actual, path): (http::Response<ResponseBody>, &str),
        frames: &[Value],
        response: &Value,
    ) {
        let packed = frames.iter().any(|frame| frame.get("frame_base64").is_some());
        let field = if packed { "frame_base64" } else { "event" };
        let expected: Vec<Value> = frames.iter().map(|frame| frame[field].clone()).collect();
        let server_ends = response["ended"] == "clean end of chunked body";
        let timeout = path.split("timeoutSeconds=").nth(1).and_then(|rest| rest.split('&').next());
        let timeout: i64 = timeout.and_then(|seconds| seconds.parse().ok()).unwrap_or(i64::MAX);
        let body = BodyStream::new(actual.into_body());
        let mut open = Open {
            step: name.to_owned(),
            body,
            buffer: Vec::new(),
            expected,
            got: Vec::new(),
            ended: false,
            server_ends,
            packed,
        };
        // Longer watches stayed open during other steps.
        if server_ends && timeout < 20 {
            open.read(Duration::from_millis(1)).await;
            for number in 0..interludes::moves(file, name) {
                // Virtual time: the recorder waited a second each time.
                open.read_until(tokio::time::Instant::now() + Duration::from_secs(1)).await;
                interludes::during(self, number).await;
            }
            open.read(Duration::from_secs(300)).await;
            return self.judge(&open);
        }
        self.watches.push(open);
    }

    pub(crate) async fn read_open(&mut self, timeout: Duration) {
        for open in &mut self.watches {
            open.read(timeout).await;
        }
    }

    async fn finish(&mut self) {
        for mut open in std::mem::take(&mut self.watches) {
            if open.server_ends {
                open.read(Duration::from_secs(7200)).await;
            } else {
                if open.got.len() < open.expected.len() {
                    // The recorder waited briefly before it closed the watch.
                    open.read(Duration::from_millis(1_300)).await;
                }
                open.got.truncate(open.expected.len());
            }
            self.judge(&open);
        }
    }

    fn judge(&mut self, open: &Open) {
        let long = open.server_ends && open.expected.len() > 10;
        // The recording does not show when a bookmark was due during other steps.
        let counted = |frame: &&Value| {
            !long || frame["type"] != "BOOKMARK" || frame.pointer("/object/metadata/annotations").is_some()
        };
        let theirs: Vec<&Value> = open.expected.iter().filter(counted).collect();
        let ours: Vec<&Value> = open.got.iter().filter(counted).collect();
        if theirs.len() != ours.len() {
            let summarize =
                |frames: &[&Value]| frames.iter().map(|frame| summary(frame)).collect::<Vec<_>>().join(", ");
            self.wrong(
                &open.step,
                format!("  frames:\n    recorded {}\n    actual   {}", summarize(&theirs), summarize(&ours)),
            );
        }
        for (place, (theirs, ours)) in theirs.iter().zip(&ours).enumerate() {
            let found = match (theirs.as_str(), ours.as_str()) {
                (Some(theirs), Some(ours)) if open.packed => {
                    let bytes = |text: &str| STANDARD.decode(text).unwrap();
                    wire::differences(&mut self.names, &bytes(theirs), &bytes(ours))
                }
                _ => self.names.differences(theirs, ours),
            };
            let found = found.into_iter().map(|line| format!("  frame {place}{line}"));
            self.problems.entry(open.step.clone()).or_default().extend(found);
        }
        if open.server_ends && !open.ended {
            self.wrong(&open.step, "  it does not end".to_owned());
        }
    }

    fn wrong(&mut self, step: &str, what: String) {
        self.problems.entry(step.to_owned()).or_default().push(what);
    }

    async fn send(
        &self,
        step: &str,
        method: &str,
        path: &str,
        mut headers: HeaderMap,
        body: Vec<u8>,
    ) -> http::Response<ResponseBody> {
        headers.insert("user-agent", "recorder/1.0".parse().unwrap());
        if let Some(authorization) = users::authorization(step) {
            headers.insert("authorization", authorization.parse().unwrap());
        }
        let mut request =
            Request::builder().method(method).uri(path).body(kube::client::Body::from(body)).unwrap();
        *request.headers_mut() = headers;
        self.service.clone().oneshot(request).await.unwrap()
    }

    fn path(&self, path: &str) -> String {
        if path.contains("hash=") {
            return self.names.word(path);
        }
        let (plain, query) = path.split_once('?').map_or((path, None), |(plain, query)| (plain, Some(query)));
        let plain = plain.split('/').map(|part| self.names.word(part)).collect::<Vec<_>>().join("/");
        let Some(query) = query else { return plain };
        let pairs = query.split('&').map(|pair| match pair.split_once('=') {
            Some(("resourceVersion", value)) => format!("resourceVersion={}", self.names.version(value)),
            Some(("continue", value)) => format!("continue={}", self.names.word(value)),
            _ => pair.to_owned(),
        });
        format!("{plain}?{}", pairs.collect::<Vec<_>>().join("&"))
    }

    fn body(&self, request: &Value, raw: Option<&str>) -> Vec<u8> {
        if let Some(body) = request.get("body") {
            let mut translated = body.clone();
            self.translate(&mut translated);
            // Unless a value in it is mapped, the body is sent as recorded, including the order of its fields.
            return match raw.filter(|_| translated == *body) {
                Some(raw) => as_sent(raw).into_bytes(),
                None => translated.to_string().into_bytes(),
            };
        }
        if let Some(text) = request["body_text"].as_str() {
            return text.as_bytes().to_vec();
        }
        if let Some(text) = request["body_base64"].as_str() {
            return STANDARD.decode(text).unwrap();
        }
        request["body_description"].as_str().map(large).unwrap_or_default()
    }

    /// Replaces recorded versions, uids and addresses by ours.
    fn translate(&self, body: &mut Value) {
        match body {
            Value::Object(fields) => {
                let path = fields.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
                for (key, value) in fields.iter_mut() {
                    let key = if key == "value" { path.rsplit('/').next().unwrap_or_default() } else { key };
                    match value {
                        Value::String(text) if key == "resourceVersion" => *text = self.names.version(text),
                        Value::String(text) if matches!(key, "uid" | "clusterIP" | "name") => {
                            *text = self.names.word(text);
                        }
                        Value::Array(items) if key == "clusterIPs" => {
                            for item in items {
                                if let Value::String(text) = item {
                                    *text = self.names.word(text);
                                }
                            }
                        }
                        other => self.translate(other),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.translate(item)),
            _ => {}
        }
    }
}

impl Open {
    /// Reads until no data has arrived for a while.
    async fn read(&mut self, timeout: Duration) {
        while !self.ended {
            if !self.next(timeout).await {
                return;
            }
        }
    }

    async fn read_until(&mut self, end: tokio::time::Instant) {
        while !self.ended && self.next(end.duration_since(tokio::time::Instant::now())).await {}
    }

    /// Reads one chunk; returns whether one arrived in time.
    async fn next(&mut self, timeout: Duration) -> bool {
        {
            let Ok(chunk) = tokio::time::timeout(timeout, self.body.next()).await else { return false };
            match chunk {
                Some(Ok(frame)) => {
                    let data: Bytes = frame.into_data().unwrap();
                    self.buffer.extend_from_slice(&data);
                }
                _ => self.ended = true,
            }
            if self.packed {
                let frames = wire::frames(&mut self.buffer);
                self.got.extend(frames.iter().map(|frame| Value::from(STANDARD.encode(frame))));
                return true;
            }
            while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                self.got.push(serde_json::from_slice(&line).unwrap_or(Value::Null));
            }
        }
        true
    }
}

async fn whole(actual: http::Response<ResponseBody>) -> (u16, HeaderMap, Bytes) {
    let (parts, body) = actual.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, bytes)
}

fn summary(frame: &Value) -> String {
    let text = |pointer: &str| frame.pointer(pointer).and_then(Value::as_str).unwrap_or("-").to_owned();
    format!(
        "{} {} {}",
        text("/type"),
        text("/object/metadata/name"),
        text("/object/metadata/resourceVersion")
    )
}

/// Whether the recorded body was indented, judging by its length.
fn is_indented(response: &Value, body: &Value) -> bool {
    let Some(sent) = response["body_bytes"].as_u64() else { return false };
    let length = |text: String| u64::try_from(text.len()).unwrap();
    let indented = length(serde_json::to_string_pretty(body).unwrap());
    sent.abs_diff(indented) < sent.abs_diff(length(body.to_string()))
}

/// Formats a body as the recorder did: on one line, with a space after each comma and colon.
fn as_sent(raw: &str) -> String {
    let mut out = String::new();
    let (mut text, mut escaped) = (false, false);
    for symbol in raw.chars() {
        match symbol {
            _ if text => {
                text = escaped || symbol != '"';
                escaped = !escaped && symbol == '\\';
                out.push(symbol);
            }
            ',' | ':' => out.extend([symbol, ' ']),
            _ if symbol.is_whitespace() => {}
            _ => {
                text = symbol == '"';
                out.push(symbol);
            }
        }
    }
    out
}

/// Generates a body that was too large to record.
fn large(description: &str) -> Vec<u8> {
    let map = |length: usize| {
        serde_json::json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "big"},
            "data": {"k": "x".repeat(length)}})
    };
    let body = match description {
        "a ConfigMap with 1 MiB + 1 byte of data" => map(1024 * 1024 + 1),
        "a ConfigMap with 3 MiB + 200 bytes of data" => map(3 * 1024 * 1024 + 200),
        "10001 test operations" => {
            vec![serde_json::json!({"op": "test", "path": "/kind", "value": "ConfigMap"}); 10_001].into()
        }
        other => panic!("{other} is unknown"),
    };
    body.to_string().into_bytes()
}
