//! Events on the wire: writing one through a `kube::Client`, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http_body_util::BodyExt as _;
use informer_core::recorder::{Occurrence, Write, WriteResponse};
use informer_core::wire::Status;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};

use super::EventType;
use crate::reference::ObjectReference;

/// The longest name that a server takes.
const MAX_NAME_BYTES: usize = 253;

/// What happened, to what. Events that are equal are one event, or a series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) regarding: ObjectReference,
    pub(super) related: Option<ObjectReference>,
    pub(super) level: EventType,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
}

impl Event {
    /// Where it is written. What is outside namespaces has its events in `default`.
    pub(super) fn namespace(&self) -> &str {
        self.regarding.namespace.as_deref().unwrap_or("default")
    }
}

/// The events of one recorder on the server.
pub(super) struct Events {
    client: kube::Client,
    controller: Arc<str>,
    instance: Arc<str>,
    /// In the names of events, so that those of two processes differ.
    seed: u64,
    /// Whether it was said that events may not be written.
    forbidden_reported: bool,
}

impl Events {
    pub(super) fn new(client: kube::Client, controller: Arc<str>, instance: Arc<str>, seed: u64) -> Self {
        Events { client, controller, instance, seed, forbidden_reported: false }
    }

    pub(super) async fn write(&mut self, write: &Write<Arc<Event>>) -> WriteResponse {
        let (Write::Create(occurrence) | Write::Update(occurrence)) = write;
        let namespace = occurrence.event.namespace();
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let name = self.name(occurrence);
        let creates = matches!(write, Write::Create(_));
        let (request, body) = if creates {
            let request = http::Request::post(path).header(CONTENT_TYPE, "application/json");
            (request, self.object(&name, namespace, occurrence))
        } else {
            let request = http::Request::patch(format!("{path}/{name}"));
            let request = request.header(CONTENT_TYPE, "application/merge-patch+json");
            (request, json!({"series": series(occurrence)}))
        };
        let Ok(request) = request.body(body.to_string().into_bytes().into()) else {
            return WriteResponse::Refused;
        };
        match self.send(request).await {
            Ok(()) => WriteResponse::Written,
            Err(error) => {
                let answer = classify_response(&error, creates);
                self.report(answer, &error, &occurrence.event.regarding);
                answer
            }
        }
    }

    /// What the server says if it does not do it; a status without a code if it says nothing.
    async fn send(&self, request: http::Request<Body>) -> Result<(), Status> {
        let silence = |error: kube::Error| {
            let mut status = Status::default();
            status.message = error.to_string().into();
            status
        };
        let (head, body) = self.client.send(request).await.map_err(silence)?.into_parts();
        // Read to its end in any case, so that the connection can be used again.
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if head.status.is_success() {
            return Ok(());
        }
        let mut status = Status::from_json(&body).unwrap_or_default();
        status.code = head.status.as_u16();
        let wait = head.headers.get(RETRY_AFTER).and_then(|wait| wait.to_str().ok()?.parse().ok());
        status.retry_after = wait.map(Duration::from_secs).or(status.retry_after);
        Err(status)
    }

    fn report(&mut self, answer: WriteResponse, error: &Status, regarding: &ObjectReference) {
        let controller = &*self.controller;
        match answer {
            WriteResponse::Refused if error.code == 403 && self.forbidden_reported => {
                tracing::debug!(controller, %regarding, %error, "an event may not be written");
            }
            WriteResponse::Refused if error.code == 403 => {
                self.forbidden_reported = true;
                tracing::warn!(controller, %regarding, %error, "events may not be written; this is said once");
            }
            WriteResponse::Refused => tracing::warn!(controller, %regarding, %error, "an event was refused"),
            WriteResponse::Failed | WriteResponse::Unavailable(_) => {
                tracing::info!(controller, %regarding, %error, "an event was not written");
            }
            _ => {}
        }
    }

    fn object(&self, name: &str, namespace: &str, occurrence: &Occurrence<Arc<Event>>) -> Value {
        let event = &occurrence.event;
        let mut object = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": time(occurrence.first),
            "reportingController": *self.controller,
            "reportingInstance": *self.instance,
            "type": match event.level {
                EventType::Normal => "Normal",
                EventType::Warning => "Warning",
            },
            "reason": event.reason,
            "action": event.action,
            "note": event.note,
            "regarding": reference(&event.regarding),
        });
        if let Some(related) = &event.related {
            object["related"] = reference(related);
        }
        if occurrence.count > 1 {
            object["series"] = series(occurrence);
        }
        object
    }

    /// The name of the object it is about, with a number of its own. Some kinds have names that no event can have.
    fn name(&self, occurrence: &Occurrence<Arc<Event>>) -> String {
        let number = self.seed.wrapping_add(occurrence.number);
        let name = &occurrence.event.regarding.name;
        let label = |label: &str| {
            let plain = |letter: u8| letter.is_ascii_lowercase() || letter.is_ascii_digit();
            label.bytes().all(|letter| plain(letter) || letter == b'-')
                && label.bytes().next().is_some_and(plain)
                && label.bytes().last().is_some_and(plain)
        };
        if name.len() + 17 <= MAX_NAME_BYTES && name.split('.').all(label) {
            format!("{name}.{number:016x}")
        } else {
            format!("event.{number:016x}")
        }
    }
}

/// What an error means for the write.
fn classify_response(error: &Status, creates: bool) -> WriteResponse {
    match error.code {
        409 if creates && &*error.reason == "AlreadyExists" => WriteResponse::Exists,
        404 => WriteResponse::Missing,
        // 409: others write the same. 500: often a webhook, of this namespace alone.
        409 | 500 if error.retry_after.is_none() => WriteResponse::Failed,
        // 401: a token may be renewed.
        0 | 401 | 408 | 409 | 429 | 500.. => WriteResponse::Unavailable(error.retry_after),
        _ => WriteResponse::Refused,
    }
}

fn reference(reference: &ObjectReference) -> Value {
    let ObjectReference { api_version, kind, namespace, name, uid } = reference;
    let mut value = json!({"apiVersion": api_version, "kind": kind, "name": name});
    for (field, text) in [("namespace", namespace.as_deref().unwrap_or_default()), ("uid", uid)] {
        if !text.is_empty() {
            value[field] = json!(text);
        }
    }
    value
}

fn series(occurrence: &Occurrence<Arc<Event>>) -> Value {
    json!({"count": occurrence.count, "lastObservedTime": time(occurrence.last)})
}

fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}
