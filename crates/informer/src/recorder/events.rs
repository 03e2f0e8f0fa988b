//! Events on the wire: writing one through a `kube::Client`, and what its answer means.

use std::sync::Arc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http_body_util::BodyExt as _;
use informer_core::recorder::{Answer, Occurrence, Write};
use informer_core::wire::Status;
use jiff::Timestamp;
use kube::client::Body;
use serde_json::{Value, json};

use super::EventType;
use crate::reference::Reference;

/// The longest name that a server takes.
const LONGEST_NAME: usize = 253;

/// What happened, to what. Events that are equal are one event, or a series.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) regarding: Reference,
    pub(super) related: Option<Reference>,
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
    told: bool,
}

impl Events {
    pub(super) fn new(client: kube::Client, controller: Arc<str>, instance: Arc<str>, seed: u64) -> Self {
        Events { client, controller, instance, seed, told: false }
    }

    pub(super) async fn write(&mut self, write: &Write<Arc<Event>>) -> Answer {
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
        let Ok(request) = request.body(body.to_string().into_bytes().into()) else { return Answer::Refused };
        match self.send(request).await {
            Ok(()) => Answer::Written,
            Err(error) => {
                let answer = meaning(&error, creates);
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

    fn report(&mut self, answer: Answer, error: &Status, regarding: &Reference) {
        let controller = &*self.controller;
        match answer {
            Answer::Refused if error.code == 403 && self.told => {
                tracing::debug!(controller, %regarding, %error, "an event may not be written");
            }
            Answer::Refused if error.code == 403 => {
                self.told = true;
                tracing::warn!(controller, %regarding, %error, "events may not be written; this is said once");
            }
            Answer::Refused => tracing::warn!(controller, %regarding, %error, "an event was refused"),
            Answer::Failed | Answer::Away(_) => {
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
        if name.len() + 17 <= LONGEST_NAME && name.split('.').all(label) {
            format!("{name}.{number:016x}")
        } else {
            format!("event.{number:016x}")
        }
    }
}

/// What an error means for the write.
fn meaning(error: &Status, creates: bool) -> Answer {
    match error.code {
        409 if creates && &*error.reason == "AlreadyExists" => Answer::Exists,
        404 => Answer::Missing,
        // 409: others write the same. 500: often a webhook, of this namespace alone.
        409 | 500 if error.retry_after.is_none() => Answer::Failed,
        // 401: a token may be renewed.
        0 | 401 | 408 | 409 | 429 | 500.. => Answer::Away(error.retry_after),
        _ => Answer::Refused,
    }
}

fn reference(reference: &Reference) -> Value {
    let Reference { api_version, kind, namespace, name, uid } = reference;
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
