//! Applies the fault rules that act on requests before they are handled, and on responses.
//!
//! The active rules apply to a request in the order in which they were injected. A rule with a response of
//! its own ends the request, and an exemption hides the rules after it. The effects of other rules are
//! collected and applied to the server's response. `stream_faults` handles rules that act on an open watch.

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
use super::lagging_cache::LaggingCache;
use super::response::{self, BodyError, ResponseBody, ServerResponse};
use super::stream_faults::corrupt;
use super::{encode, watch_stream};
use crate::faults::{Action, Active, End, FaultRule};
use crate::log::RecordedRequest;
use crate::shared::Shared;

/// The result of the fault rules for a request.
pub(super) enum FaultDecision {
    /// Handle the request, with these effects.
    Continue(ResponseFaults),
    /// Send this response instead.
    Respond(ServerResponse),
}

/// The effects of fault rules on a response.
#[derive(Debug, Default)]
pub(super) struct ResponseFaults {
    /// Whether a watch suppresses the bookmark that ends its initial events.
    pub(super) endless: bool,
    /// Number of writes by which a stale read lags.
    pub(super) lag_writes: Option<u64>,
    /// The cache that the request is served from, if it lags.
    pub(super) cache: Option<LaggingCache>,
    /// Rules that corrupt a list. Only the response shows whether there is an object to corrupt.
    corruptions: Vec<Arc<Active>>,
    /// Number of bytes after which the body is truncated, and how it ends.
    truncation: Option<(usize, End)>,
}

/// Applies the active rules to a request.
pub(super) async fn apply_request_faults(shared: &Shared, recorded: &RecordedRequest) -> FaultDecision {
    let mut response_faults = ResponseFaults::default();
    let mut last_number = 0;
    while let Some(active) = shared.faults.for_request(recorded, last_number) {
        last_number = active.number;
        let rule = &active.rule;
        match &rule.action {
            Action::Exempt => break,
            Action::StallRequest => shared.faults.wait_for_removal(&active).await,
            Action::Delay(delay) => {
                // Removing the rule ends the delay early.
                let _elapsed = shared.clock.timeout(*delay, shared.faults.wait_for_removal(&active)).await;
            }
            Action::EndlessWatchList => response_faults.endless = true,
            Action::LaggingCache => {
                // Of several, the one that lags most.
                let cache = LaggingCache::new(active.clone());
                if response_faults.cache.as_ref().is_none_or(|other| cache.lags_more_than(other)) {
                    response_faults.cache = Some(cache);
                }
            }
            Action::StaleRead => response_faults.lag_writes = Some(rule.lag_writes),
            Action::MalformedObject => response_faults.corruptions.push(active.clone()),
            Action::Truncate(bytes) => response_faults.truncation = Some((*bytes, rule.end)),
            Action::ErrorFrame(code) => {
                return FaultDecision::Respond(error_frame(&injected(*code), encoding(shared, recorded)));
            }
            action => {
                if let Some(response) = response_of(action, rule, recorded) {
                    return FaultDecision::Respond(response);
                }
            }
        }
    }
    FaultDecision::Continue(response_faults)
}

/// Returns the response of a rule that has one.
fn response_of(action: &Action, rule: &FaultRule, recorded: &RecordedRequest) -> Option<ServerResponse> {
    Some(match action {
        Action::Respond(code, Some(body)) => with_retry(response::raw(*code, body.clone()), rule),
        Action::Respond(code, None) => with_retry(response::status(&injected(*code)), rule),
        Action::Gone => response::status(&Status::list_expired()),
        Action::Forbid => response::status(&forbidden(recorded)),
        Action::RefuseWatchList => response::status(&watch_list_refused()),
        Action::Drop | Action::Outage => response::cut(),
        _ => return None,
    })
}

fn injected(code: u16) -> Status {
    Status::new(code, reason(code), "injected fault")
}

/// Returns a watch that consists of one ERROR frame.
fn error_frame(status: &Status, encoding: Encoding) -> ServerResponse {
    let mut response = response::chunks(watch_stream::error_only(status, encoding));
    if encoding == Encoding::Protobuf {
        let stream = HeaderValue::from_static("application/vnd.kubernetes.protobuf;stream=watch");
        response.headers_mut().insert(header::CONTENT_TYPE, stream);
    }
    response
}

/// Returns the encoding that the frames of a watch would have.
fn encoding(shared: &Shared, recorded: &RecordedRequest) -> Encoding {
    let custom = shared.model(|model| {
        let registry = model.registry();
        let id = registry.find(&recorded.group, &recorded.plural);
        id.and_then(|id| registry.get(id)).is_some_and(|resource| resource.custom)
    });
    let format = accept::negotiate(&recorded.accept, Endpoint { list: false, watch: true, custom });
    format.map_or(Encoding::Json, |format| format.encoding)
}

impl ResponseFaults {
    /// Corrupts and truncates a response. The other effects are applied where the response is created.
    pub(super) async fn change(&self, mut response: ServerResponse) -> ServerResponse {
        if !self.corruptions.is_empty() && response.status() == 200 {
            let (mut head, body) = response.into_parts();
            // The length may change. A body that cannot be read becomes empty.
            head.headers.remove(header::CONTENT_LENGTH);
            let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            let corrupted = corrupted_list(&head.headers, &bytes);
            // A rule counts a hit only if there is an object to corrupt.
            let corrupted = corrupted.filter(|_| self.corruptions.iter().any(|rule| rule.count_hit()));
            let bytes = corrupted.unwrap_or(bytes);
            response = ServerResponse::from_parts(head, ResponseBody::whole(bytes));
        }
        match self.truncation {
            Some((bytes, end)) => response.map(|body| ResponseBody::chunks(truncate(body, bytes, end))),
            None => response,
        }
    }
}

/// Returns the body of a list, in the same encoding, whose first object violates its type. `None` if the body
/// is not a list or has no objects.
fn corrupted_list(headers: &HeaderMap, bytes: &[u8]) -> Option<Bytes> {
    let value_of = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if value_of(header::CONTENT_ENCODING) == Some("gzip") {
        let corrupted = corrupted_body(value_of(header::CONTENT_TYPE), &encode::decompress(bytes)?)?;
        return Some(Bytes::from(encode::compress(&corrupted)));
    }
    corrupted_body(value_of(header::CONTENT_TYPE), bytes).map(Bytes::from)
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

/// Corrupts the first object of a list, or all rows of a table.
fn corrupt_first(list: &mut Value) -> Option<()> {
    if list.pointer("/rows/0").is_some() { corrupt(list) } else { corrupt(list.pointer_mut("/items/0")?) }
}

/// Truncates a body after the given number of bytes. A shorter body is not changed.
fn truncate(body: ResponseBody, bytes: usize, end: End) -> BoxStream<'static, Result<Bytes, BodyError>> {
    let remaining = Some((BodyStream::new(body), bytes));
    stream::unfold(remaining, move |remaining| async move {
        let (mut body, remaining) = remaining?;
        if remaining == 0 {
            return match end {
                End::Broken => Some((Err(BodyError), None)),
                End::Clean => None,
                End::Silent => {
                    // Keep the body open: the client gets neither more data nor an end, as after a lost
                    // connection.
                    let _kept_alive = body;
                    std::future::pending().await
                }
            };
        }
        let mut chunk = match body.next().await? {
            Ok(frame) => frame.into_data().unwrap_or_default(),
            Err(error) => return Some((Err(error), None)),
        };
        chunk.truncate(remaining);
        let remaining = remaining - chunk.len();
        Some((Ok(chunk), Some((body, remaining))))
    })
    .boxed()
}

fn with_retry(mut response: ServerResponse, rule: &FaultRule) -> ServerResponse {
    if let Some(seconds) = rule.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

fn forbidden(recorded: &RecordedRequest) -> Status {
    let scope = match &recorded.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let resource = match &recorded.subresource {
        Some(subresource) => format!("{}/{subresource}", recorded.plural),
        None => recorded.plural.clone(),
    };
    let why = format!(
        "User \"{}\" cannot {} resource \"{resource}\" in API group \"{}\" {scope}",
        recorded.user,
        recorded.verb.name(),
        recorded.group
    );
    Status::forbidden(&recorded.group, &recorded.plural, recorded.name.as_deref().unwrap_or_default(), &why)
}

/// Returns the error of a server that does not support `sendInitialEvents`.
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
