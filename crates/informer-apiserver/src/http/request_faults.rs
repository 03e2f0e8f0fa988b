//! Carries out the fault rules that concern requests: before they are answered, and on the way of the answer.
//!
//! A request meets the rules in force one after the other. It is answered by the first that has an answer; what the others want
//! changed is remembered and done. What disturbs a watch while it runs is elsewhere.

use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use http::{HeaderMap, HeaderValue, header};
use http_body_util::{BodyExt, BodyStream};
use informer_objects::protobuf;
use informer_objects::status::{Status, StatusCause};
use informer_objects::text::{read_yaml, to_yaml};
use serde_json::Value;

use super::accept::{self, Encoding, Endpoint};
use super::response::{self, BodyError, ResponseBody, ServerResponse};
use super::stream_faults::corrupt;
use super::{encode, watch_stream};
use crate::faults::{Action, Active, End, FaultRule};
use crate::log::RecordedRequest;
use crate::shared::Shared;

/// What the rules made of a request.
pub(super) enum FaultDecision {
    /// It is answered, with these changes.
    Continue(ResponseFaults),
    Respond(ServerResponse),
}

/// What the rules want changed in an answer.
#[derive(Debug, Default)]
pub(super) struct ResponseFaults {
    /// Never says that initial events are over.
    pub(super) endless: bool,
    /// So many writes a read lags behind, if it may.
    pub(super) lag_writes: Option<u64>,
    /// Rules that want a list spoilt. Whether there is something to spoil is known when it is there.
    corruptions: Vec<Arc<Active>>,
    cut: Option<(usize, End)>,
}

/// Has a request meet the rules.
pub(super) async fn apply_request_faults(shared: &Shared, seen: &RecordedRequest) -> FaultDecision {
    let mut meddling = ResponseFaults::default();
    let mut met = 0;
    while let Some(active) = shared.faults.for_request(seen, met) {
        met = active.number;
        let rule = &active.rule;
        match &rule.action {
            Action::Exempt => break,
            Action::StallRequest => shared.faults.wait_for_removal(&active).await,
            Action::Delay(time) => {
                let _over = tokio::time::timeout(*time, shared.faults.wait_for_removal(&active)).await;
            }
            Action::EndlessWatchList => meddling.endless = true,
            Action::StaleRead => meddling.lag_writes = Some(rule.lag_writes),
            Action::MalformedObject => meddling.corruptions.push(active.clone()),
            Action::Truncate(bytes) => meddling.cut = Some((*bytes, rule.end)),
            Action::ErrorFrame(code) => {
                return FaultDecision::Respond(error_frame(&injected(*code), encoding(shared, seen)));
            }
            action => {
                if let Some(answer) = answered(action, rule, seen) {
                    return FaultDecision::Respond(answer);
                }
            }
        }
    }
    FaultDecision::Continue(meddling)
}

/// The answer of a rule that has one.
fn answered(action: &Action, rule: &FaultRule, seen: &RecordedRequest) -> Option<ServerResponse> {
    Some(match action {
        Action::Respond(code, Some(body)) => with_retry(response::raw(*code, body.clone()), rule),
        Action::Respond(code, None) => with_retry(response::status(&injected(*code)), rule),
        Action::Gone => response::status(&Status::list_expired()),
        Action::Forbid => response::status(&forbidden(seen)),
        Action::RefuseWatchList => response::status(&watch_list_refused()),
        Action::Drop => response::cut(),
        _ => return None,
    })
}

fn injected(code: u16) -> Status {
    Status::new(code, reason(code), "injected fault")
}

/// A watch that brings one error.
fn error_frame(status: &Status, encoding: Encoding) -> ServerResponse {
    let mut answer = response::chunks(watch_stream::error_only(status, encoding));
    if encoding == Encoding::Protobuf {
        let stream = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
        answer.headers_mut().insert(header::CONTENT_TYPE, stream);
    }
    answer
}

/// What the frames of a watch would be written in.
fn encoding(shared: &Shared, seen: &RecordedRequest) -> Encoding {
    let custom = shared.model(|model| {
        let registry = model.registry();
        let id = registry.find(&seen.group, &seen.plural);
        id.and_then(|id| registry.get(id)).is_some_and(|resource| resource.custom)
    });
    let form = accept::negotiate(&seen.accept, Endpoint { list: false, watch: true, custom });
    form.map_or(Encoding::Json, |form| form.encoding)
}

impl ResponseFaults {
    /// The answer as the rules want it.
    pub(super) async fn change(&self, mut answer: ServerResponse) -> ServerResponse {
        if !self.corruptions.is_empty() && answer.status() == 200 {
            let (mut head, body) = answer.into_parts();
            // The length may change; a body that cannot be read has none.
            head.headers.remove(header::CONTENT_LENGTH);
            let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let spoilt = corrupted_list(&head.headers, &bytes);
            // Only what is done counts.
            let spoilt = spoilt.filter(|_| self.corruptions.iter().any(|rule| rule.take()));
            let bytes = spoilt.unwrap_or(bytes);
            answer = ServerResponse::from_parts(head, ResponseBody::whole(bytes));
        }
        match self.cut {
            Some((bytes, end)) => answer.map(|body| ResponseBody::chunks(cut(body, bytes, end))),
            None => answer,
        }
    }
}

/// A list whose first object is not what its type says, in the form in which it travels; `None` if there is no object in it.
fn corrupted_list(headers: &HeaderMap, bytes: &[u8]) -> Option<Bytes> {
    let said = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if said(header::CONTENT_ENCODING) == Some("gzip") {
        let spoilt = corrupted_body(said(header::CONTENT_TYPE), &encode::unpacked(bytes)?)?;
        return Some(Bytes::from(encode::packed(&spoilt)));
    }
    corrupted_body(said(header::CONTENT_TYPE), bytes).map(Bytes::from)
}

fn corrupted_body(content_type: Option<&str>, bytes: &[u8]) -> Option<Vec<u8>> {
    match content_type {
        Some(encode::PROTOBUF) => protobuf::corrupted_list(bytes),
        Some("application/yaml") => {
            let mut list = read_yaml(bytes).ok()?.value;
            corrupt_first(&mut list)?;
            Some(to_yaml(&list).into_bytes())
        }
        _ => {
            let mut list = serde_json::from_slice(bytes).ok()?;
            corrupt_first(&mut list)?;
            Some(format!("{list}\n").into_bytes())
        }
    }
}

fn corrupt_first(list: &mut Value) -> Option<()> {
    if list.pointer("/rows/0").is_some() { corrupt(list) } else { corrupt(list.pointer_mut("/items/0")?) }
}

/// A body without what comes after so many bytes.
fn cut(body: ResponseBody, bytes: usize, end: End) -> BoxStream<'static, Result<Bytes, BodyError>> {
    let left = Some((BodyStream::new(body), bytes));
    stream::unfold(left, move |left| async move {
        let (mut body, left) = left?;
        if left == 0 {
            return match end {
                End::Broken => Some((Err(BodyError), None)),
                End::Clean => None,
                End::Silent => {
                    // What was sent is held, as by a peer that does not know that nobody listens.
                    let _held = body;
                    std::future::pending().await
                }
            };
        }
        let mut chunk = match body.next().await? {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) => return Some((Err(error), None)),
        };
        chunk.truncate(left);
        let left = left - chunk.len();
        Some((Ok(chunk), Some((body, left))))
    })
    .boxed()
}

fn with_retry(mut answer: ServerResponse, rule: &FaultRule) -> ServerResponse {
    if let Some(seconds) = rule.retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

fn forbidden(seen: &RecordedRequest) -> Status {
    let scope = match &seen.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let resource = match &seen.subresource {
        Some(subresource) => format!("{}/{subresource}", seen.plural),
        None => seen.plural.clone(),
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {scope}",
        seen.user,
        seen.verb.name(),
        seen.group
    );
    Status::forbidden(&seen.group, &seen.plural, seen.name.as_deref().unwrap_or_default(), &why)
}

/// What a server says that does not know `sendInitialEvents`.
fn watch_list_refused() -> Status {
    let field = "resourceVersionMatch";
    let message = "Forbidden: resourceVersionMatch is forbidden for watch";
    let cause = StatusCause::new("FieldValueForbidden", field, message);
    Status::invalid("meta.k8s.io", "ListOptions", "", vec![cause])
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}
