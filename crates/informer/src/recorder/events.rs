//! Writes recorded events through a `kube::Client` and classifies the responses.

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

/// Maximum length of an object's name.
const MAX_NAME_BYTES: usize = 253;
/// Length of the end of an event object's name: a dot and 16 hexadecimal digits.
const NAME_SUFFIX_BYTES: usize = 17;

/// A recorded event without its time. Equal events become one object on the server, with a series if
/// repeated.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Event {
    pub(super) regarding: ObjectReference,
    pub(super) related: Option<ObjectReference>,
    /// The `type` of the event object.
    pub(super) severity: EventType,
    pub(super) reason: String,
    pub(super) action: String,
    pub(super) note: String,
}

impl Event {
    /// Returns the namespace of the event object: that of the object, or `default` if the object is
    /// cluster-scoped.
    pub(super) fn namespace(&self) -> &str {
        self.regarding.namespace.as_deref().unwrap_or("default")
    }
}

/// The client that writes the events of one recorder.
pub(super) struct EventClient {
    client: kube::Client,
    controller: Arc<str>,
    instance: Arc<str>,
    /// Part of the names of event objects, so that the names that two processes choose differ.
    seed: u64,
    /// Whether a warning has been logged that writing events is forbidden.
    forbidden_reported: bool,
}

impl EventClient {
    pub(super) fn new(client: kube::Client, controller: Arc<str>, instance: Arc<str>, seed: u64) -> Self {
        EventClient { client, controller, instance, seed, forbidden_reported: false }
    }

    pub(super) async fn write(&mut self, write: &Write<Arc<Event>>) -> WriteResponse {
        let (Write::Create(occurrence) | Write::Update(occurrence)) = write;
        let namespace = occurrence.event.namespace();
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let name = self.name(occurrence);
        let is_create = matches!(write, Write::Create(_));
        let (request, body) = if is_create {
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
                let response = classify_response(&error, is_create);
                self.log(response, &error, &occurrence.event.regarding);
                response
            }
        }
    }

    /// Sends a request.
    ///
    /// # Errors
    ///
    /// Returns the status of an unsuccessful response, or a status with code 0 if there was no response.
    async fn send(&self, request: http::Request<Body>) -> Result<(), Status> {
        let no_response = |error: kube::Error| {
            let mut status = Status::default();
            status.message = error.to_string().into();
            status
        };
        let (head, body) = self.client.send(request).await.map_err(no_response)?.into_parts();
        // Always read to the end, so that the connection can be reused.
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        if head.status.is_success() {
            return Ok(());
        }
        let mut status = Status::from_json(&body).unwrap_or_default();
        status.code = head.status.as_u16();
        let delay = head.headers.get(RETRY_AFTER).and_then(|delay| delay.to_str().ok()?.parse().ok());
        status.retry_after = delay.map(Duration::from_secs).or(status.retry_after);
        Err(status)
    }

    fn log(&mut self, response: WriteResponse, error: &Status, regarding: &ObjectReference) {
        let controller = &*self.controller;
        match response {
            WriteResponse::Refused if error.code == 403 && self.forbidden_reported => {
                tracing::debug!(controller, %regarding, %error, "writing an event is forbidden");
            }
            WriteResponse::Refused if error.code == 403 => {
                self.forbidden_reported = true;
                tracing::warn!(controller, %regarding, %error, "writing events is forbidden; further ones are logged at debug level");
            }
            WriteResponse::Refused => tracing::warn!(controller, %regarding, %error, "an event was rejected"),
            WriteResponse::Failed | WriteResponse::Unavailable(_) => {
                tracing::info!(controller, %regarding, %error, "writing an event failed");
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
            "type": match event.severity {
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

    /// Returns the name of the event object: the name of the regarded object and a number.
    ///
    /// If that would be too long or no valid name of an event (some kinds allow other names), the name is
    /// `event` and a number.
    fn name(&self, occurrence: &Occurrence<Arc<Event>>) -> String {
        let number = self.seed.wrapping_add(occurrence.number);
        let name = &occurrence.event.regarding.name;
        let is_label = |label: &str| {
            let is_alphanumeric = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            label.bytes().all(|byte| is_alphanumeric(byte) || byte == b'-')
                && label.bytes().next().is_some_and(is_alphanumeric)
                && label.bytes().last().is_some_and(is_alphanumeric)
        };
        if name.len() + NAME_SUFFIX_BYTES <= MAX_NAME_BYTES && name.split('.').all(is_label) {
            format!("{name}.{number:016x}")
        } else {
            format!("event.{number:016x}")
        }
    }
}

/// Maps an unsuccessful response to its consequence for the write.
fn classify_response(error: &Status, is_create: bool) -> WriteResponse {
    match error.code {
        409 if is_create && &*error.reason == "AlreadyExists" => WriteResponse::Exists,
        404 => WriteResponse::Missing,
        // 409: concurrent writes of the same object. 500: often a webhook that affects only this namespace.
        409 | 500 if error.retry_after.is_none() => WriteResponse::Failed,
        // 401: the token may be renewed.
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
