//! `Status`: the server's description of a failure, as an HTTP body or as an `ERROR` frame.
//!
//! Every field may be missing. Callers treat a body that is not a `Status`, such as the error page of a
//! proxy, as a `Status` without fields. `reflector::failure` decides what a status means for the reflector.
//! Each encoding parses the fields itself.

use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// The server's description of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// The HTTP status code, or 0 if the server sent none.
    pub code: u16,
    /// The machine-readable reason, for example `Expired`; empty if the server sent none.
    pub reason: Box<str>,
    /// The human-readable message, of at most 512 bytes; empty if the server sent none.
    pub message: Box<str>,
    /// The delay before a retry that the server requests.
    pub retry_after: Option<Duration>,
    /// Whether the server has not reached the requested resource version yet (`ResourceVersionTooLarge`).
    pub version_too_large: bool,
}

/// Maximum size of a message: enough to understand it, too short to fill a log.
const MAX_MESSAGE_BYTES: usize = 512;

/// The fields of a `Status` that this crate reads, as they are sent.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct StatusFields {
    code: Option<i64>,
    reason: Option<String>,
    message: Option<String>,
    details: Option<Details>,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Details {
    retry_after_seconds: Option<u64>,
    causes: Option<Vec<Cause>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Cause {
    reason: Option<String>,
    message: Option<String>,
}

impl Status {
    /// Creates a status that has only a code.
    pub fn of_code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    /// Creates a status from its parsed fields.
    pub(super) fn from_fields(fields: StatusFields) -> Self {
        let details = fields.details.unwrap_or_default();
        // Servers up to 1.18 report this cause only in the message.
        let is_too_large = |text: &str| text.contains("Too large resource version");
        let message = fields.message.unwrap_or_default();
        let version_too_large = is_too_large(&message)
            || details.causes.unwrap_or_default().iter().any(|cause| {
                cause.reason.as_deref() == Some("ResourceVersionTooLarge")
                    || cause.message.as_deref().is_some_and(is_too_large)
            });
        Self {
            code: fields.code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
            reason: fields.reason.unwrap_or_default().into(),
            message: shorten(&message).into(),
            retry_after: details.retry_after_seconds.map(Duration::from_secs),
            version_too_large,
        }
    }
}

fn shorten(text: &str) -> &str {
    let mut end = text.len().min(MAX_MESSAGE_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.code, &*self.reason) {
            (0, "") => f.write_str("a failure without a code")?,
            (0, reason) => f.write_str(reason)?,
            (code, "") => write!(f, "{code}")?,
            (code, reason) => write!(f, "{code} {reason}")?,
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}
