//! `Status`: how the server says what went wrong, as an HTTP body or as an ERROR frame.
//!
//! Every field may be missing; a body that is no `Status` at all (a proxy's page) gives one that says so. What a status
//! means for the reflector is decided in `reflector::failure`. Each form reads the fields in its own way.

use serde::Deserialize;
use std::fmt;
use std::time::Duration;

/// The server's account of a failure.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Status {
    /// The HTTP code, or 0 if none was given.
    pub code: u16,
    /// The machine-readable reason, as in `Expired`; empty if none was given.
    pub reason: Box<str>,
    /// The text for people; empty if none was given.
    pub message: Box<str>,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
    /// Whether the cause `ResourceVersionTooLarge` is named.
    pub version_too_large: bool,
}

/// The longest message that is kept: enough to understand, not enough to fill a log.
const MAX_MESSAGE_BYTES: usize = 512;

/// The fields that matter, as they are sent.
#[derive(Deserialize, Default)]
#[serde(default)]
pub(super) struct Wire {
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
    /// A status with nothing but its code.
    pub fn of_code(code: u16) -> Self {
        Self { code, ..Self::default() }
    }

    /// The status that these fields make.
    pub(super) fn of_fields(wire: Wire) -> Self {
        let details = wire.details.unwrap_or_default();
        // Servers up to 1.18 said it only in words.
        let says_too_large = |text: &str| text.contains("Too large resource version");
        let message = wire.message.unwrap_or_default();
        let version_too_large = says_too_large(&message)
            || details.causes.unwrap_or_default().iter().any(|cause| {
                cause.reason.as_deref() == Some("ResourceVersionTooLarge")
                    || cause.message.as_deref().is_some_and(says_too_large)
            });
        Self {
            code: wire.code.and_then(|code| u16::try_from(code).ok()).unwrap_or_default(),
            reason: wire.reason.unwrap_or_default().into(),
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
