//! The origin of lists and watches: the [`Source`] trait, its responses and its errors.
//!
//! A source turns a request (data) into response headers and a stream of decompressed body bytes. Invariant:
//! every call ends, with headers, an error or a timeout; timeouts for the body are up to the caller.
//!
//! A source does not know what a body means, and never parses, logs or prints a body. Statuses such as 410 or
//! 429 are responses, not errors; the reflector handles them.

mod gzip;
mod kube;
mod list_watch;
mod throughput;

pub use self::kube::{KubeSource, QueryParameters, classify};
pub use list_watch::{ListWatch, ListWatchError, WatchEvent};
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

/// The bytes of a body, as they arrive. The stream ends after an error.
pub type ByteStream = BoxStream<'static, Result<Bytes, SourceError>>;

/// A future that completes when the response headers have arrived. Dropping it cancels the request.
pub type ResponseFuture = BoxFuture<'static, Result<Response, SourceError>>;

/// An origin of lists and watches, as byte streams.
///
/// Each call is one attempt: a source must not retry, so that only the reflector applies backoff. A call
/// without response headers should fail after about one minute; the reflector cancels it after two minutes.
///
/// The rest of the contract is that of kube-apiserver:
///
/// - A watch brings every change after the requested version, in the order of their versions. If the source
///   does not have them any more, it responds with status 410, and the reflector lists again.
/// - A list does not consume changes: it may be requested while a watch is open, and several times.
/// - A source without watch-lists says so in [`supports_watch_lists`](Self::supports_watch_lists), responds to
///   them with status 422, or its informer uses [`WatchListPolicy::Never`].
/// - A watch without changes should send a bookmark once a minute. Otherwise it is replaced from time to time.
///
/// For typed objects, use a [`ListWatch`], which is a source made of two async functions. The example
/// `custom_source` of the repository watches the files of a directory.
///
/// ```
/// use informer::source::{ResponseFuture, Response, Source, SourceError};
/// use informer::source::{ListRequest, WatchRequest};
///
/// /// A source without objects.
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
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot replace the API server",
    label = "does not implement `Source`",
    note = "implement `Source` for it, or use a `KubeSource`"
)]
pub trait Source: Send + Sync + 'static {
    /// Requests one page of a list.
    fn list(&self, request: ListRequest) -> ResponseFuture;

    /// Opens a watch or a watch-list.
    fn watch(&self, request: WatchRequest) -> ResponseFuture;

    /// Returns whether watch-lists may be requested, unless the options of the informer say otherwise.
    ///
    /// Defaults to `true`: a source without watch-lists may also respond to them with status 422.
    fn supports_watch_lists(&self) -> bool {
        true
    }
}

/// A response whose headers have arrived, with its body as a stream.
#[non_exhaustive]
pub struct Response {
    /// The HTTP status, successful or not.
    pub status: u16,
    /// The media type of the body.
    pub content_type: Option<String>,
    /// The delay of the `Retry-After` header in seconds; a date is ignored.
    pub retry_after: Option<Duration>,
    /// Whether the body was compressed with gzip in transit.
    pub compressed: bool,
    /// The decompressed body. Dropping it before its end cancels the transfer.
    pub body: ByteStream,
}

impl Response {
    /// Creates a response with this status and body.
    pub fn new(status: u16, body: impl Stream<Item = Result<Bytes, SourceError>> + Send + 'static) -> Self {
        Self { status, content_type: None, retry_after: None, compressed: false, body: body.boxed() }
    }

    /// Creates a response for scripted sources, whose body yields `chunks` one by one and then ends.
    pub fn from_chunks<I>(status: u16, chunks: I) -> Self
    where
        I: IntoIterator,
        I::IntoIter: Send + 'static,
        I::Item: Into<Bytes>,
    {
        Self::new(status, stream::iter(chunks.into_iter().map(|chunk| Ok(chunk.into()))))
    }

    /// Creates a `200 OK` response for scripted sources, whose body is one JSON chunk.
    pub fn ok(body: impl Into<Bytes>) -> Self {
        Self::from_chunks(200, [body.into()]).with_content_type("application/json")
    }

    /// Sets the media type of the body.
    #[must_use]
    pub fn with_content_type(self, content_type: impl Into<String>) -> Self {
        Self { content_type: Some(content_type.into()), ..self }
    }

    /// Sets the delay after which the server asks to retry.
    #[must_use]
    pub fn with_retry_after(self, delay: Duration) -> Self {
        Self { retry_after: Some(delay), ..self }
    }
}

// The body is omitted: it may contain secrets, and printing it would consume the stream.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("content_type", &self.content_type)
            .field("retry_after", &self.retry_after)
            .finish_non_exhaustive()
    }
}

/// Any error of a lower layer, available as `source()`.
pub type BoxError = Box<dyn StdError + Send + Sync>;

/// The reason why a request got no response, or a body ended early. The variant names the phase.
///
/// Messages do not repeat their cause; print the chain of `source()`s to see it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Nothing was sent: path and selectors do not form a valid request.
    #[error("no valid request for {path:?} (check namespace and selectors)")]
    InvalidRequest {
        /// The requested path, without the query.
        path: String,
        /// The cause.
        source: BoxError,
    },
    /// Nothing was sent: the client could not obtain its credentials.
    #[error("no credentials for the request (check token file, exec plugin or auth provider)")]
    Credentials {
        /// The error of the client.
        source: BoxError,
    },
    /// Nothing was sent: the client could not connect.
    #[error("no connection to the API server{}", if *refused { " (refused: is it running?)" } else { " (is it reachable?)" })]
    Connect {
        /// Whether the host refused the connection, as it does while a server restarts.
        refused: bool,
        /// The error of the client, for example of a name lookup.
        source: BoxError,
    },
    /// Nothing was sent: the TLS handshake failed.
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
        "no response headers within {timeout:?} (the server may be slow or unreachable, or the client may retry \
         429/503/504 by itself; build it with informer::client)"
    )]
    ResponseHeaderTimeout {
        /// The timeout.
        timeout: Duration,
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
    /// The body is not valid gzip.
    #[error("the gzip body is corrupt: {violation}")]
    GzipCorrupt {
        /// The violation of the format.
        violation: &'static str,
    },
}

impl SourceError {
    /// Returns the kind of failure that an informer reports for this error.
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

/// Formats an error with its causes; a cause whose text is already part of the message is left out.
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
    fn debug_output_omits_the_body() {
        let response = Response::ok("a secret").with_retry_after(Duration::from_secs(1));
        assert_eq!(
            format!("{response:?}"),
            r#"Response { status: 200, content_type: Some("application/json"), retry_after: Some(1s), .. }"#
        );
    }

    #[test]
    fn messages_name_the_phase_and_give_a_hint() {
        let message = |error: SourceError| error.to_string();
        assert_eq!(
            message(SourceError::Connect { refused: true, source: "x".into() }),
            "no connection to the API server (refused: is it running?)"
        );
        assert_eq!(
            message(SourceError::Connect { refused: false, source: "x".into() }),
            "no connection to the API server (is it reachable?)"
        );
        assert_eq!(
            message(SourceError::ResponseHeaderTimeout { timeout: Duration::from_secs(30) }),
            "no response headers within 30s (the server may be slow or unreachable, or the client may retry \
             429/503/504 by itself; build it with informer::client)"
        );
    }
}
