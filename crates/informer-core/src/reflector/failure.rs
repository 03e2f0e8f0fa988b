//! Failures of requests and streams, and their classification.

use crate::time::Moment;
use crate::wire::{BodyEncoding, BodyErrorKind, Status, WireError};
use std::fmt;
use std::time::Duration;

/// The kind of a failure of a request or stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// The server no longer has the requested version, or the continue token has expired (410).
    Expired,
    /// The server has not reached the requested version: it lags behind, or was restored from a backup.
    VersionTooLarge,
    /// The user lacks the permission (403).
    Forbidden,
    /// The server does not serve the resource, or cannot watch it (404, 405).
    NotServed,
    /// The server did not accept the credentials (401).
    Unauthorized,
    /// The server asked the client to slow down (429).
    Throttled,
    /// The server rejected the request (any other 4xx).
    Rejected,
    /// The server failed (5xx).
    ServerError,
    /// No connection could be established: the address does not resolve, or no server accepts connections
    /// there.
    Connect,
    /// The TLS handshake failed, usually because a certificate is not trusted.
    Certificate,
    /// The client could not get its credentials: token file, exec plugin or auth provider.
    Credentials,
    /// No response headers, or no data, arrived in time.
    Timeout,
    /// The connection broke, or the body ended too early.
    Interrupted,
    /// The body is not what was requested: neither JSON nor protobuf, or not a valid list or watch. Also an
    /// HTTP status other than 2xx, 4xx and 5xx, and an ERROR frame with neither a code nor a known reason.
    MalformedBody,
    /// The request was never sent, because it is not a valid request.
    InvalidRequest,
}

/// How the reflector reacts to a failure. Several kinds share a reaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureClass {
    Expired,
    VersionTooLarge,
    Throttled,
    Forbidden,
    NotServed,
    Rejected,
    /// No connection to the server could be established.
    Unreachable,
    /// Any other failure that a retry may resolve.
    Transient,
}

impl FailureKind {
    pub(crate) fn class(self) -> FailureClass {
        match self {
            Self::Expired => FailureClass::Expired,
            Self::VersionTooLarge => FailureClass::VersionTooLarge,
            Self::Throttled => FailureClass::Throttled,
            Self::Forbidden => FailureClass::Forbidden,
            Self::NotServed => FailureClass::NotServed,
            Self::Rejected => FailureClass::Rejected,
            Self::Connect | Self::Certificate => FailureClass::Unreachable,
            Self::Unauthorized
            | Self::ServerError
            | Self::Credentials
            | Self::Timeout
            | Self::Interrupted
            | Self::MalformedBody
            | Self::InvalidRequest => FailureClass::Transient,
        }
    }
}

/// A request that failed or a stream that broke, classified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    kind: FailureKind,
    status_code: Option<u16>,
    retry_after: Option<Duration>,
    message: Box<str>,
}

impl Failure {
    /// Creates a failure without an HTTP status.
    pub fn new(kind: FailureKind, message: impl Into<Box<str>>) -> Self {
        Self { kind, status_code: None, retry_after: None, message: message.into() }
    }

    /// Returns the kind of the failure.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Returns the HTTP status of an error response or the code of an ERROR frame; `None` for every other
    /// failure.
    pub fn status_code(&self) -> Option<u16> {
        self.status_code
    }

    /// Returns the time for which the server asks the client to wait (`Retry-After`).
    pub fn retry_after(&self) -> Option<Duration> {
        self.retry_after
    }

    /// Returns a description for logs and users, without contents of objects.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns whether the same request will never succeed (400 and 422).
    pub fn is_permanent(&self) -> bool {
        matches!(self.status_code, Some(400 | 422))
    }

    pub(crate) fn class(&self) -> FailureClass {
        self.kind.class()
    }

    pub(crate) fn interrupted(message: impl Into<Box<str>>) -> Self {
        Self::new(FailureKind::Interrupted, message)
    }

    pub(crate) fn malformed(message: impl Into<Box<str>>) -> Self {
        Self::new(FailureKind::MalformedBody, message)
    }

    pub(crate) fn timeout(message: impl Into<Box<str>>) -> Self {
        Self::new(FailureKind::Timeout, message)
    }

    /// Creates the failure for a DELETED frame whose key is unreadable.
    ///
    /// Only a relist can reveal which object was deleted.
    pub(crate) fn unreadable_deletion() -> Self {
        Self::malformed("a deletion could not be read")
    }

    /// Classifies a `Status`.
    pub fn of_status(status: &Status) -> Self {
        let kind = match (status.code, &*status.reason) {
            // C7: any 404 is NotServed, whatever its body.
            (404 | 405, _) => FailureKind::NotServed,
            _ if status.version_too_large => FailureKind::VersionTooLarge,
            (410, _) | (_, "Expired" | "Gone") => FailureKind::Expired,
            (429, _) | (_, "TooManyRequests") => FailureKind::Throttled,
            (403, _) | (_, "Forbidden") => FailureKind::Forbidden,
            (_, "NotFound" | "MethodNotAllowed") => FailureKind::NotServed,
            // Not `Rejected`: the client renews an expired token, so a retry may succeed.
            (401, _) => FailureKind::Unauthorized,
            (400..=499, _) => FailureKind::Rejected,
            (500.., _) => FailureKind::ServerError,
            _ => FailureKind::MalformedBody,
        };
        let status_code = Some(status.code).filter(|code| *code != 0);
        Self { kind, status_code, retry_after: status.retry_after, message: status.to_string().into() }
    }
}

impl From<&WireError> for Failure {
    fn from(error: &WireError) -> Self {
        let kind = match error.kind {
            BodyErrorKind::Truncated => FailureKind::Interrupted,
            _ => FailureKind::MalformedBody,
        };
        Self::new(kind, error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The status of a response and the headers that the reflector uses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ResponseHead {
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type` header.
    pub content_type: Option<Box<str>>,
    /// The delay in the `Retry-After` header.
    pub retry_after: Option<Duration>,
}

impl ResponseHead {
    /// Creates a response head with this status and no headers.
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Returns whether the status is 2xx.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the declared encoding of the body; `None` if it is neither JSON nor protobuf. A body without a
    /// `Content-Type` counts as JSON.
    pub(crate) fn body_encoding(&self) -> Option<BodyEncoding> {
        match self.content_type.as_deref() {
            None => Some(BodyEncoding::Json),
            Some(content_type) if content_type.contains("json") => Some(BodyEncoding::Json),
            Some(content_type) if content_type.contains("vnd.kubernetes.protobuf") => {
                Some(BodyEncoding::Protobuf)
            }
            Some(_) => None,
        }
    }
}

/// A response with an error status or an unreadable encoding, while its body is being received.
#[derive(Debug)]
pub(crate) struct ErrorResponse {
    head: ResponseHead,
    received_at: Moment,
    body: Vec<u8>,
}

/// Maximum number of bytes of an error body that are read; the rest is not needed.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// The time to wait for an error body. Then the failure is classified by the status and the bytes received.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

impl ErrorResponse {
    pub(crate) fn new(now: Moment, head: ResponseHead) -> Self {
        Self { head, received_at: now, body: Vec::new() }
    }

    /// Returns the moment at which the wait for the body ends.
    pub(crate) fn deadline(&self) -> Moment {
        self.received_at + ERROR_BODY_TIMEOUT
    }

    /// Appends a part of the body; returns whether the maximum size is reached.
    pub(crate) fn read(&mut self, chunk: &[u8]) -> bool {
        let remaining = MAX_ERROR_BODY_BYTES - self.body.len();
        self.body.extend_from_slice(&chunk[..chunk.len().min(remaining)]);
        self.body.len() == MAX_ERROR_BODY_BYTES
    }

    /// Classifies the response.
    ///
    /// The HTTP status takes precedence over the code in the body. A body that is not a `Status` is not
    /// quoted.
    pub(crate) fn failure(&self) -> Failure {
        if self.head.is_success() {
            // A successful protobuf response is an error response only if there is a transform.
            if self.head.body_encoding() == Some(BodyEncoding::Protobuf) {
                return Failure::malformed("expected JSON, got protobuf, which was not requested");
            }
            let content_type = self.head.content_type.as_deref().unwrap_or("nothing");
            return Failure::malformed(format!(
                "expected JSON or protobuf, got {content_type} (a proxy's page?)"
            ));
        }
        let body = match self.head.body_encoding() {
            Some(BodyEncoding::Protobuf) => Status::from_protobuf(&self.body),
            _ => Status::from_json(&self.body),
        };
        let body = body.unwrap_or_default();
        let mut failure = Failure::of_status(&Status { code: self.head.status, ..body });
        failure.retry_after = self.head.retry_after.or(failure.retry_after);
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expected: FailureKind) {
        let mut response = ErrorResponse::new(Moment::default(), ResponseHead::new(status));
        response.read(body.as_bytes());
        assert_eq!(response.failure().kind(), expected, "{status} {body}");
    }

    #[test]
    fn error_responses_are_classified() {
        check(410, r#"{"kind":"Status","reason":"Expired","code":410}"#, FailureKind::Expired);
        check(410, "", FailureKind::Expired);
        check(429, "", FailureKind::Throttled);
        check(403, r#"{"reason":"Forbidden","code":403}"#, FailureKind::Forbidden);
        check(404, "404 page not found\n", FailureKind::NotServed);
        check(404, r#"{"reason":"Expired"}"#, FailureKind::NotServed);
        check(405, "", FailureKind::NotServed);
        check(401, "", FailureKind::Unauthorized);
        check(400, "", FailureKind::Rejected);
        check(422, r#"{"reason":"Invalid","code":422}"#, FailureKind::Rejected);
        check(500, "", FailureKind::ServerError);
        check(504, r#"{"reason":"Timeout","code":504}"#, FailureKind::ServerError);
        let cause =
            r#"{"reason":"Timeout","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        check(504, cause, FailureKind::VersionTooLarge);
        check(
            504,
            r#"{"message":"Too large resource version: 9, current: 3","code":504}"#,
            FailureKind::VersionTooLarge,
        );
    }

    #[test]
    fn html_page_of_a_proxy_is_reported_without_its_content() {
        let head = ResponseHead { content_type: Some("text/html".into()), ..ResponseHead::new(200) };
        let mut response = ErrorResponse::new(Moment::default(), head);
        response.read(b"<html>password: hunter2</html>");
        assert_eq!(
            response.failure().message(),
            "expected JSON or protobuf, got text/html (a proxy's page?)"
        );
    }

    #[test]
    fn retry_after_is_read_from_the_header_or_the_body() {
        let body = br#"{"code":429,"details":{"retryAfterSeconds":7}}"#;
        let mut response = ErrorResponse::new(Moment::default(), ResponseHead::new(429));
        response.read(body);
        assert_eq!(response.failure().retry_after, Some(Duration::from_secs(7)));
        let head = ResponseHead { retry_after: Some(Duration::from_secs(3)), ..ResponseHead::new(429) };
        let mut response = ErrorResponse::new(Moment::default(), head);
        response.read(body);
        assert_eq!(response.failure().retry_after, Some(Duration::from_secs(3)));
    }
}
