//! What went wrong with a request, and what kind of trouble that is: the one place that classifies.

use crate::time::Moment;
use crate::wire::{BodyEncoding, Status, WireError};
use std::fmt;
use std::time::Duration;

/// What kind of trouble a failure is; it decides what the reflector does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trouble {
    /// The version or token is too old (410): a new list is needed.
    Expired,
    /// The server has not come as far as the asked version: it is behind, or was restored from a backup.
    VersionTooLarge,
    /// The server asks to slow down (429).
    Throttled,
    /// Not allowed (403). Retried slowly.
    Forbidden,
    /// The kind is not there, or cannot be watched (404, 405). Retried slowly.
    NotServed,
    /// The server does not accept the request as it is (any other 4xx).
    Rejected,
    /// The server could not be reached.
    Unreachable,
    /// Anything that may go away by itself.
    Transient,
}

/// A request that failed, or a stream that broke.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Failure {
    /// What kind of trouble it is.
    pub trouble: Trouble,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
    /// What happened, for people.
    pub text: Box<str>,
}

impl Failure {
    /// The server could not be reached; `text` says why.
    pub fn unreachable(text: impl Into<Box<str>>) -> Self {
        Self { trouble: Trouble::Unreachable, retry_after: None, text: text.into() }
    }

    /// Something that may go away by itself; `text` says what.
    pub fn transient(text: impl Into<Box<str>>) -> Self {
        Self { trouble: Trouble::Transient, retry_after: None, text: text.into() }
    }

    /// A deletion was told, but not of what.
    pub(crate) fn unreadable_deletion() -> Self {
        Self::transient("a deletion could not be read")
    }

    /// What a `Status` means.
    pub fn of_status(status: &Status) -> Self {
        let trouble = match (status.code, &*status.reason) {
            // C7: any 404 is NotServed, whatever its body.
            (404 | 405, _) => Trouble::NotServed,
            _ if status.version_too_large => Trouble::VersionTooLarge,
            (410, _) | (_, "Expired" | "Gone") => Trouble::Expired,
            (429, _) | (_, "TooManyRequests") => Trouble::Throttled,
            (403, _) | (_, "Forbidden") => Trouble::Forbidden,
            (_, "NotFound" | "MethodNotAllowed") => Trouble::NotServed,
            // A token that has expired is renewed by the client.
            (401, _) => Trouble::Transient,
            (400..=499, _) => Trouble::Rejected,
            _ => Trouble::Transient,
        };
        Self { trouble, retry_after: status.retry_after, text: status.to_string().into() }
    }
}

impl From<&WireError> for Failure {
    fn from(error: &WireError) -> Self {
        Self::transient(error.to_string())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The headers of a response.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ResponseHead {
    /// The HTTP status.
    pub status: u16,
    /// The `Content-Type`.
    pub content_type: Option<Box<str>>,
    /// The `Retry-After`, in seconds.
    pub retry_after: Option<Duration>,
}

impl ResponseHead {
    /// A response with this status.
    pub fn new(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    /// Whether the body is what was asked for.
    pub(crate) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// In which form the body claims to be: JSON if it does not say, none if it is neither.
    pub(crate) fn body_encoding(&self) -> Option<BodyEncoding> {
        match self.content_type.as_deref() {
            None => Some(BodyEncoding::Json),
            Some(said) if said.contains("json") => Some(BodyEncoding::Json),
            Some(said) if said.contains("vnd.kubernetes.protobuf") => Some(BodyEncoding::Protobuf),
            Some(_) => None,
        }
    }
}

/// A response that is no success, while its body is coming in.
#[derive(Debug)]
pub(crate) struct Refusal {
    head: ResponseHead,
    since: Moment,
    body: Vec<u8>,
}

/// The longest refusal that is read.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
/// How long its body may take; the headers have said what matters.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);

impl Refusal {
    pub(crate) fn new(now: Moment, head: ResponseHead) -> Self {
        Self { head, since: now, body: Vec::new() }
    }

    /// When what has come of the body is enough.
    pub(crate) fn deadline(&self) -> Moment {
        self.since + ERROR_BODY_TIMEOUT
    }

    /// Takes a part of the body; `true` if that is all we want.
    pub(crate) fn read(&mut self, chunk: &[u8]) -> bool {
        let room = MAX_ERROR_BODY_BYTES - self.body.len();
        self.body.extend_from_slice(&chunk[..chunk.len().min(room)]);
        self.body.len() == MAX_ERROR_BODY_BYTES
    }

    /// What it means. The HTTP status counts more than what the body says; a body that is no `Status` is not quoted.
    pub(crate) fn failure(&self) -> Failure {
        if self.head.is_success() {
            if self.head.body_encoding() == Some(BodyEncoding::Protobuf) {
                return Failure::transient("expected JSON, got protobuf, which was not asked for");
            }
            let found = self.head.content_type.as_deref().unwrap_or("nothing");
            return Failure::transient(format!("expected JSON or protobuf, got {found} (a proxy's page?)"));
        }
        let said = match self.head.body_encoding() {
            Some(BodyEncoding::Protobuf) => Status::from_protobuf(&self.body),
            _ => Status::from_json(&self.body),
        };
        let said = said.unwrap_or_default();
        let mut failure = Failure::of_status(&Status { code: self.head.status, ..said });
        failure.retry_after = self.head.retry_after.or(failure.retry_after);
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: u16, body: &str, expected: Trouble) {
        let mut refusal = Refusal::new(Moment::default(), ResponseHead::new(status));
        refusal.read(body.as_bytes());
        assert_eq!(refusal.failure().trouble, expected, "{status} {body}");
    }

    #[test]
    fn every_answer_has_its_trouble() {
        check(410, r#"{"kind":"Status","reason":"Expired","code":410}"#, Trouble::Expired);
        check(410, "", Trouble::Expired);
        check(429, "", Trouble::Throttled);
        check(403, r#"{"reason":"Forbidden","code":403}"#, Trouble::Forbidden);
        check(404, "404 page not found\n", Trouble::NotServed);
        check(404, r#"{"reason":"Expired"}"#, Trouble::NotServed);
        check(405, "", Trouble::NotServed);
        check(401, "", Trouble::Transient);
        check(400, "", Trouble::Rejected);
        check(422, r#"{"reason":"Invalid","code":422}"#, Trouble::Rejected);
        check(500, "", Trouble::Transient);
        check(504, r#"{"reason":"Timeout","code":504}"#, Trouble::Transient);
        let cause =
            r#"{"reason":"Timeout","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge"}]}}"#;
        check(504, cause, Trouble::VersionTooLarge);
        check(
            504,
            r#"{"message":"Too large resource version: 9, current: 3","code":504}"#,
            Trouble::VersionTooLarge,
        );
    }

    #[test]
    fn a_proxy_page_is_named_and_not_quoted() {
        let head = ResponseHead { content_type: Some("text/html".into()), ..ResponseHead::new(200) };
        let mut refusal = Refusal::new(Moment::default(), head);
        refusal.read(b"<html>password: hunter2</html>");
        assert_eq!(
            refusal.failure().text,
            "expected JSON or protobuf, got text/html (a proxy's page?)".into()
        );
    }

    #[test]
    fn retry_after_comes_from_the_header_or_the_body() {
        let body = br#"{"code":429,"details":{"retryAfterSeconds":7}}"#;
        let mut refusal = Refusal::new(Moment::default(), ResponseHead::new(429));
        refusal.read(body);
        assert_eq!(refusal.failure().retry_after, Some(Duration::from_secs(7)));
        let head = ResponseHead { retry_after: Some(Duration::from_secs(3)), ..ResponseHead::new(429) };
        let mut refusal = Refusal::new(Moment::default(), head);
        refusal.read(body);
        assert_eq!(refusal.failure().retry_after, Some(Duration::from_secs(3)));
    }
}
