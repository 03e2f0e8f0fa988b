//! The parts of request handling that all resources share: rejection, reading the body, the request log and
//! audit ids. Also handles access reviews, which are never stored.

use std::time::Duration;

use bytes::{Buf, Bytes};
use http::header::{self, HeaderValue};
use http::request::Parts;
use http_body_util::BodyExt;
use informer_objects::body;
use informer_objects::status::Status;

use super::encode;
use super::header::accepted;
use super::response::{self, ServerResponse};
use crate::access::{Caller, Refused, Review, ReviewRequest};
use crate::clock::Clock;
use crate::log::{RecordedRequest, Verb};
use crate::request::{Query, Route, Target};
use crate::shared::Shared;

/// How long a client may take to send the body of a request, as in kube-apiserver.
const BODY_TIMEOUT: Duration = Duration::from_secs(60);

/// Reads a body up to the maximum size.
pub(super) async fn read_body<B>(clock: &Clock, body: B) -> Result<Bytes, Status>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let read = clock.timeout(BODY_TIMEOUT, read_limited(body)).await;
    read.unwrap_or_else(|| {
        let why = "Timeout: request did not complete within requested timeout - context deadline exceeded";
        Err(Status::new(504, "Timeout", why))
    })
}

async fn read_limited<B>(body: B) -> Result<Bytes, Status>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let mut read = Vec::new();
    let mut body = std::pin::pin!(body);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Status::bad_request("the body could not be read"))?;
        let Ok(mut data) = frame.into_data() else { continue };
        body::check_size(read.len() + data.remaining())?;
        while data.has_remaining() {
            let chunk = data.chunk();
            read.extend_from_slice(chunk);
            let length = chunk.len();
            data.advance(length);
        }
    }
    Ok(read.into())
}

/// Returns the response to a request that access control rejects, or none during an outage. Logs the request if
/// it is for a resource.
pub(super) fn refuse(shared: &Shared, parts: &Parts, refused: &Refused) -> ServerResponse {
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let recorded = match Route::parse(parts.uri.path()) {
        Route::Target(target) => {
            let verb = target.verb(&parts.method, query.is_watch());
            verb.map(|verb| recorded_request(verb, &target, parts, &refused.user))
        }
        _ => None,
    };
    let is_broken = match recorded {
        Some(recorded) => {
            shared.record(recorded.clone());
            shared.faults.breaks_refused(&recorded)
        }
        None => shared.faults.breaks_other_paths(&refused.user),
    };
    if is_broken {
        return response::cut();
    }
    let pretty = encode::is_pretty(&parts.headers, query.find("pretty"));
    let mut response = encode::error(&refused.status, accepted(&parts.headers), pretty);
    // kube-apiserver sends this header with every rejection but 401.
    if refused.status.code != 401 {
        let nosniff = HeaderValue::from_static("nosniff");
        response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}

/// Adds the `Audit-Id` header: the client's own id, or a new one.
pub(super) fn with_audit_id(shared: &Shared, parts: &Parts, mut response: ServerResponse) -> ServerResponse {
    const AUDIT_ID: &str = "audit-id";
    let client_id = parts.headers.get(AUDIT_ID).filter(|id| !id.is_empty()).cloned();
    if let Some(id) = client_id.or_else(|| HeaderValue::from_str(&shared.next_audit_id()).ok()) {
        response.headers_mut().insert(AUDIT_ID, id);
    }
    response
}

/// Returns a request as it is logged.
pub(super) fn recorded_request(verb: Verb, target: &Target, parts: &Parts, user: &str) -> RecordedRequest {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    RecordedRequest {
        verb,
        group: target.group.clone(),
        version: target.version.clone(),
        plural: target.plural.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        subresource: target.subresource.clone(),
        query: parts.uri.query().unwrap_or_default().to_owned(),
        user: user.to_owned(),
        accept: accept.unwrap_or_default().to_owned(),
    }
}

/// Handles a request for an access review. Every verb but create is rejected.
pub(super) fn review(
    shared: &Shared,
    review: Review,
    target: &Target,
    verb: Verb,
    parts: &Parts,
    caller: &Caller,
    body: &Bytes,
) -> Result<ServerResponse, Status> {
    if target.name.is_some() || (target.namespace.is_some() && !review.is_namespaced()) {
        return Err(Status::no_such_resource());
    }
    if verb != Verb::Create || target.namespace.is_some() != review.is_namespaced() {
        return Err(Status::method_not_allowed());
    }
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let api_version = format!("{}/{}", target.group, target.version);
    let is_custom = false;
    let object = body::read(content_type, body, (&api_version, review.kind()), is_custom)?.object;
    let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let request = ReviewRequest {
        shared,
        caller,
        namespace: target.namespace.as_deref().unwrap_or_default(),
        agent: agent.unwrap_or_default(),
        now: shared.clock.now(),
    };
    let accept = accepted(&parts.headers);
    let format = super::accept::negotiate(accept, super::accept::Endpoint::default())?;
    let gzip = false;
    Ok(encode::encode(format, gzip, 201, review.respond(&request, object)?))
}
