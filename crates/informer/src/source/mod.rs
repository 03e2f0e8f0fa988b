//! Where lists and watches come from: the [`Source`] trait, its answers and its errors.
//!
//! A source turns a request (data) into response headers and a stream of plain body bytes. Invariant: every call ends,
//! with headers, an error or its deadline; what follows the headers is the caller's to time.
//!
//! A source deliberately does not know what a body means. It never parses, logs or prints one; statuses such as 410
//! or 429 are answers, not errors, and whoever reads the body judges them.

mod gzip;
mod kube;
mod throughput;

pub use self::kube::{KubeSource, QueryParameters, classify};
pub(crate) use throughput::{Throughput, TransferSample};

pub use bytes::Bytes;
pub use futures::stream::Stream;
pub use informer_core::reflector::{Consistency, ListRequest, WatchListPolicy, WatchRequest, WatchStart};

use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt as _};
use informer_core::reflector::FailureKind;
use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

/// The bytes of a body, as they arrive. After an error nothing more comes.
pub type ByteStream = BoxStream<'static, Result<Bytes, SourceError>>;

/// What a source returns: a future that is done when the headers are in. Dropping it abandons the request.
pub type ResponseFuture = BoxFuture<'static, Result<Response, SourceError>>;

/// Where lists and watches come from, as byte streams.
///
/// Each call is one attempt: a source does not retry, so that the reflector's back-off is the only one at work. A call that brings no
/// response headers should fail within a minute or so; after two the reflector gives it up.
///
/// ```
/// use informer::source::{ResponseFuture, Response, Source, SourceError};
/// use informer::source::{ListRequest, WatchRequest};
///
/// /// A server with nothing in it.
/// struct Empty;
///
/// impl Source for Empty {
///     fn list(&self, _: ListRequest) -> ResponseFuture {
///         let list = r#"{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[]}"#;
///         Box::pin(async move { Ok(Response::ok(list)) })
///     }
///
///     fn watch(&self, _: WatchRequest) -> ResponseFuture {
///         Box::pin(async { Err(SourceError::Connect { refused: false, source: "no watches here".into() }) })
///     }
/// }
/// ```
pub trait Source: Send + Sync + 'static {
    /// Asks for one page of a list.
    fn list(&self, request: ListRequest) -> ResponseFuture;

    /// Opens a watch, or a watch-list.
    fn watch(&self, request: WatchRequest) -> ResponseFuture;
}

/// A response whose headers are in; the body is still to come.
#[non_exhaustive]
pub struct Response {
    /// The HTTP status, whatever it is.
    pub status: u16,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// How long the server asks to wait (`Retry-After` in seconds; a date counts as none).
    pub retry_after: Option<Duration>,
    /// Whether the body was compressed on its way.
    pub compressed: bool,
    /// The body, already decompressed. Dropping it closes the connection.
    pub body: ByteStream,
}

impl Response {
    /// A response with this status and body.
    pub fn new(status: u16, body: impl Stream<Item = Result<Bytes, SourceError>> + Send + 'static) -> Self {
        Self { status, content_type: None, retry_after: None, compressed: false, body: body.boxed() }
    }

    /// A response whose body is at hand, for scripted sources: the stream yields `chunks` one by one, then ends.
    pub fn from_chunks<I>(status: u16, chunks: I) -> Self
    where
        I: IntoIterator,
        I::IntoIter: Send + 'static,
        I::Item: Into<Bytes>,
    {
        Self::new(status, stream::iter(chunks.into_iter().map(|chunk| Ok(chunk.into()))))
    }

    /// A `200 OK` of one JSON chunk, for scripted sources.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self::from_chunks(200, [body.into()]).with_content_type("application/json")
    }

    /// The same with another media type.
    #[must_use]
    pub fn with_content_type(self, content_type: impl Into<String>) -> Self {
        Self { content_type: Some(content_type.into()), ..self }
    }

    /// The same with a wish of the server to wait.
    #[must_use]
    pub fn with_retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }
}

// The body stays out: it may hold secrets, and reading it would consume it.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

/// An error of a lower layer, available as `source()` of ours.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// An error of a [`Source`]: the phase in which a request or its body failed.
///
/// Messages do not repeat their cause; print the chain of `source()` to see it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Path or selectors do not make a valid request; nothing was sent.
    #[error("no valid request for {path:?} (check namespace and selectors)")]
    InvalidRequest {
        /// The path of the request, without the query.
        path: String,
        /// What is wrong with it.
        source: BoxError,
    },
    /// The client could not get its credentials; nothing was sent.
    #[error("no credentials for the request (check token file, exec plugin or auth provider)")]
    Credentials {
        /// The error of the client.
        source: BoxError,
    },
    /// No connection could be established; nothing was sent.
    #[error("no connection to the API server{}", if *refused { " (refused: is it running?)" } else { "" })]
    Connect {
        /// Whether the host refused the connection, as it does while a server restarts.
        refused: bool,
        /// The error of the client, for example of a name look-up.
        source: BoxError,
    },
    /// The TLS handshake failed; nothing was sent.
    #[error(
        "TLS handshake with the API server failed (does the kubeconfig contain the server's certificate authority?)"
    )]
    Certificate {
        /// The error of the client.
        source: BoxError,
    },
    /// The connection broke before the response headers.
    #[error("the connection broke before the response headers")]
    ConnectionLost {
        /// The error of the client.
        source: BoxError,
    },
    /// The response headers did not arrive in time.
    #[error(
        "no response headers within {after:?} (the server may be slow or unreachable, or the client may retry \
         429/503/504 by itself; build it with informer::client)"
    )]
    ResponseHeaderTimeout {
        /// The timeout.
        after: Duration,
    },
    /// The body has a content encoding that was not requested and is not supported.
    #[error("the body has the unknown content-encoding {encoding:?} (is a proxy compressing?)")]
    UnsupportedEncoding {
        /// The `Content-Encoding` header.
        encoding: String,
    },
    /// The connection broke inside the body.
    #[error("the connection broke inside the response body")]
    BodyInterrupted {
        /// The error of the client.
        source: BoxError,
    },
    /// The body ended cleanly, but inside a gzip member.
    #[error("the gzip body is truncated: it ended inside a member")]
    GzipTruncated,
    /// The body is not what gzip allows.
    #[error("the gzip body is corrupt: {what}")]
    GzipCorrupt {
        /// Which part of the format was violated.
        what: &'static str,
    },
}

impl SourceError {
    /// The kind of failure that an informer reports for this error.
    pub fn failure_kind(&self) -> FailureKind {
        match self {
            Self::InvalidRequest { .. } => FailureKind::InvalidRequest,
            Self::Credentials { .. } => FailureKind::Credentials,
            Self::Connect { .. } => FailureKind::Connect,
            Self::Certificate { .. } => FailureKind::Certificate,
            Self::ResponseHeaderTimeout { .. } => FailureKind::Timeout,
            Self::ConnectionLost { .. } | Self::BodyInterrupted { .. } | Self::GzipTruncated => {
                FailureKind::Interrupted
            }
            Self::UnsupportedEncoding { .. } | Self::GzipCorrupt { .. } => FailureKind::MalformedBody,
        }
    }
}

/// Formats an error with its causes, without repetitions.
pub(crate) fn error_chain(error: &dyn StdError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text = format!("{text}: {message}");
        }
        cause = inner.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_no_body() {
        let response = Response::ok("a secret").with_retry_after(Duration::from_secs(1));
        assert_eq!(
            format!("{response:?}"),
            r#"Response { status: 200, content_type: Some("application/json"), retry_after: Some(1s), .. }"#
        );
    }

    #[test]
    fn messages_name_the_phase_and_give_a_hint() {
        let says = |error: SourceError| error.to_string();
        assert_eq!(
            says(SourceError::Connect { refused: true, source: "x".into() }),
            "no connection to the API server (refused: is it running?)"
        );
        assert_eq!(
            says(SourceError::Connect { refused: false, source: "x".into() }),
            "no connection to the API server"
        );
        assert_eq!(
            says(SourceError::ResponseHeaderTimeout { after: Duration::from_secs(30) }),
            "no response headers within 30s (the server may be slow or out of reach, or the client may be \
             retrying 429/503/504 inside; build it with informer::client)"
        );
    }
}
