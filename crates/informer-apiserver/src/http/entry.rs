//! What comes before a request is answered: who is turned away, how much of a body is read, and the questions that are
//! about access itself.

use bytes::{Buf, Bytes};
use http::header::{self, HeaderValue};
use http::request::Parts;
use http_body_util::BodyExt;
use informer_objects::body;
use informer_objects::status::Status;

use super::encode;
use super::header::accepted;
use super::response::ServerResponse;
use crate::access::{Caller, Refused, Review, ReviewRequest};
use crate::log::{RecordedRequest, Verb};
use crate::request::{Query, Route, Target};
use crate::shared::Shared;

/// Reads a body, as far as it may be long.
pub(super) async fn read_body<B>(sent: B) -> Result<Bytes, Status>
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let mut read = Vec::new();
    let mut sent = std::pin::pin!(sent);
    while let Some(frame) = sent.frame().await {
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

/// The answer to somebody who was not let in. The log has such requests too.
pub(super) fn refuse(shared: &Shared, parts: &Parts, refused: &Refused) -> ServerResponse {
    if let Route::Target(target) = Route::parse(parts.uri.path()) {
        let watch = Query::parse(parts.uri.query().unwrap_or_default()).is_watch();
        if let Some(verb) = target.verb(&parts.method, watch) {
            shared.log.push(seen(verb, &target, parts, &refused.user));
        }
    }
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let pretty = encode::is_pretty(&parts.headers, query.find("pretty"));
    let mut answer = encode::error(&refused.status, accepted(&parts.headers), pretty);
    if refused.status.code != 401 {
        let nosniff = HeaderValue::from_static("nosniff");
        answer.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    answer
}

/// An answer with the id under which a real server would write about the request: the client's own, or a new one.
pub(super) fn audited(shared: &Shared, parts: &Parts, mut answer: ServerResponse) -> ServerResponse {
    const AUDIT_ID: &str = "audit-id";
    let given = parts.headers.get(AUDIT_ID).filter(|id| !id.is_empty()).cloned();
    if let Some(id) = given.or_else(|| HeaderValue::from_str(&shared.audit_id()).ok()) {
        answer.headers_mut().insert(AUDIT_ID, id);
    }
    answer
}

/// A request for the log.
pub(super) fn seen(verb: Verb, target: &Target, parts: &Parts, user: &str) -> RecordedRequest {
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

/// Answers a question about access. Such objects can be created and nothing else.
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
    let object = body::read(content_type, body, (&api_version, review.kind()), false)?.object;
    let agent = parts.headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let asked = ReviewRequest {
        caller,
        namespace: target.namespace.as_deref().unwrap_or_default(),
        agent: agent.unwrap_or_default(),
        now: shared.now(),
    };
    let accept = accepted(&parts.headers);
    let form = super::accept::negotiate(accept, super::accept::Endpoint::default())?;
    Ok(encode::encode(form, false, 201, review.answer(&asked, object)?))
}
