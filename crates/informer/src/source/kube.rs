//! The source that uses a `kube::Client`.
//!
//! Invariants: every request sets its own `Accept` and `Accept-Encoding`, so that layers inside the client do
//! not add theirs, and no watch is requested with gzip; every request has a timeout for its response headers,
//! because a client may retry internally for many minutes; every body reaches the caller as plain bytes.
//!
//! This file knows HTTP and the client crate's errors. It does not know the resource, the meaning of a
//! status, or when to retry.

use super::throughput::Throughput;
use super::{BoxError, Response, ResponseFuture, Source, SourceError, gzip};
use bytes::Bytes;
use futures::future::FutureExt as _;
use futures::stream::{StreamExt as _, TryStreamExt as _};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER,
};
use http_body_util::BodyExt as _;
use informer_core::reflector::{Failure, FailureKind, ListRequest, WatchRequest};
use informer_core::wire::Status;
use kube::client::{AuthError, Body};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// The default header timeout of a watch. kube-apiserver responds to a watch immediately.
const WATCH_HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// The default header timeout of a list.
///
/// kube-apiserver responds to a list within a minute, if necessary with 504. With a shorter timeout, a list
/// that takes almost a minute would fail every time.
const LIST_HEADER_TIMEOUT: Duration = Duration::from_secs(70);

/// The values of `Accept` for JSON.
const JSON: Accept = Accept {
    objects: "application/json",
    metadata_list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    metadata: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
};
/// The values of `Accept` for protobuf, with JSON as the alternative. Each response declares its encoding.
const PROTOBUF: Accept = Accept {
    objects: "application/vnd.kubernetes.protobuf,application/json",
    metadata_list: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                    application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    metadata: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
               application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
};

/// The values of `Accept` in one encoding, for complete objects and for their metadata.
struct Accept {
    objects: &'static str,
    metadata_list: &'static str,
    metadata: &'static str,
}

/// The query parameters that only the reflector sets, because they decide how the response is read.
const RESERVED: &[&str] = &[
    "allowWatchBookmarks",
    "continue",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeoutSeconds",
    "watch",
];

/// Query parameters of lists and watches that may be changed: the selectors, and others that the server
/// supports.
///
/// A parameter with an empty value is not sent. Parameters that the informer sets itself (`watch`,
/// `resourceVersion`, `limit`…) are ignored here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// Returns the value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(existing, _)| existing == name).map(|(_, value)| &**value)
    }

    /// Sets a parameter, replacing its previous value.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        self.remove(&name);
        self.0.push((name, value.into()));
    }

    /// Removes a parameter.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(existing, _)| existing != name);
    }
}

/// The `Accept` and `Accept-Encoding` headers of a request.
#[derive(Clone, Copy)]
struct AcceptHeaders {
    accept: &'static str,
    encoding: &'static str,
}

/// A [`Source`] that lists and watches one collection of a Kubernetes API server.
///
/// The source does not retry, but a client built with `kube::Client::try_from` does: on 429, 503 and 504, up
/// to 15 times, also for watches. The responses of such a client arrive late, or not before the timeout.
/// Prefer [`client`](crate::client()).
#[derive(Clone)]
pub struct KubeSource {
    client: kube::Client,
    url_path: String,
    query_parameters: QueryParameters,
    response_header_timeout: Option<Duration>,
    /// Whether lists are requested with gzip; `None` if the throughput decides.
    gzip_lists: Option<bool>,
    throughput: Throughput,
    metadata_only: bool,
    protobuf: bool,
}

impl KubeSource {
    /// Creates a source for the collection at `url_path`, for example `/api/v1/pods` (see
    /// `kube::Resource::url_path`).
    pub fn new(client: kube::Client, url_path: impl Into<String>) -> Self {
        Self {
            client,
            url_path: url_path.into(),
            query_parameters: QueryParameters::default(),
            response_header_timeout: None,
            gzip_lists: None,
            throughput: Throughput::default(),
            metadata_only: false,
            protobuf: false,
        }
    }

    /// Restricts the source to objects that match this label selector; an empty selector matches all.
    #[must_use]
    pub fn label_selector(self, selector: impl Into<String>) -> Self {
        self.query_parameters(|parameters| parameters.set("labelSelector", selector))
    }

    /// Restricts the source to objects that match this field selector; an empty selector matches all.
    #[must_use]
    pub fn field_selector(self, selector: impl Into<String>) -> Self {
        self.query_parameters(|parameters| parameters.set("fieldSelector", selector))
    }

    /// Sets the timeout of the response headers, including the time to connect.
    ///
    /// Defaults to 30 s for a watch, and to 70 s for a list: kube-apiserver responds within 60 s.
    #[must_use]
    pub fn response_header_timeout(self, timeout: Duration) -> Self {
        Self { response_header_timeout: Some(timeout), ..self }
    }

    /// Sets whether lists are requested with gzip: less traffic for more CPU time on both sides.
    ///
    /// By default, an informer that creates its own source uses gzip if its previous lists arrived slowly; a
    /// source passed to an informer does not use gzip. Watches never use gzip.
    #[must_use]
    pub fn gzip_lists(self, gzip: bool) -> Self {
        Self { gzip_lists: Some(gzip), ..self }
    }

    /// Sets the throughput that decides whether lists use gzip.
    pub(crate) fn throughput(self, throughput: Throughput) -> Self {
        Self { throughput, ..self }
    }

    /// Sets whether only the metadata of the objects is requested, as `PartialObjectMetadata`.
    #[must_use]
    pub fn metadata_only(self, metadata_only: bool) -> Self {
        Self { metadata_only, ..self }
    }

    /// Sets whether bodies are requested in protobuf. A server without protobuf for the kind responds in
    /// JSON.
    ///
    /// Defaults to `false`, because the reader of the bodies must know the kind.
    #[must_use]
    pub fn prefer_protobuf(self, protobuf: bool) -> Self {
        Self { protobuf, ..self }
    }

    /// Changes the query parameters of all requests.
    ///
    /// The parameters are the same for every list and watch, because a watch continues the list before it.
    #[must_use]
    pub fn query_parameters(mut self, change: impl FnOnce(&mut QueryParameters)) -> Self {
        change(&mut self.query_parameters);
        self
    }

    fn accept(&self, json_only: bool) -> &'static Accept {
        if self.protobuf && !json_only { &PROTOBUF } else { &JSON }
    }

    fn get(
        &self,
        query: &[(&'static str, String)],
        headers: AcceptHeaders,
        default_timeout: Duration,
    ) -> ResponseFuture {
        let client = self.client.clone();
        let request = self.request(query, headers);
        let timeout = self.response_header_timeout.unwrap_or(default_timeout);
        async move {
            let sent = client.send(request?);
            let result = tokio::time::timeout(timeout, sent).await;
            response(
                result
                    .map_err(|_| SourceError::ResponseHeaderTimeout { timeout })?
                    .map_err(classify_send_error)?,
            )
        }
        .boxed()
    }

    fn request(
        &self,
        query: &[(&'static str, String)],
        headers: AcceptHeaders,
    ) -> Result<http::Request<Body>, SourceError> {
        let invalid = |source| SourceError::InvalidRequest { path: self.url_path.clone(), source };
        // A namespace that contains one of these characters would silently address another resource.
        if self.url_path.contains(['?', '#']) {
            return Err(invalid("a path must not contain '?' or '#'".into()));
        }
        let parameters = self.query_parameters.0.iter();
        let parameters = parameters.filter(|(name, value)| !RESERVED.contains(&&**name) && !value.is_empty());
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(query).extend_pairs(parameters);
        http::Request::get(format!("{}?{}", self.url_path, pairs.finish()))
            .header(ACCEPT, headers.accept)
            .header(ACCEPT_ENCODING, headers.encoding)
            .body(Body::empty())
            .map_err(|error| invalid(error.into()))
    }
}

impl Source for KubeSource {
    fn list(&self, request: ListRequest) -> ResponseFuture {
        let gzip = self.gzip_lists.unwrap_or_else(|| self.throughput.is_slow(Instant::now()));
        let encoding = if gzip { "gzip" } else { "identity" };
        let values = self.accept(request.json_only);
        let accept = if self.metadata_only { values.metadata_list } else { values.objects };
        self.get(&request.query(), AcceptHeaders { accept, encoding }, LIST_HEADER_TIMEOUT)
    }

    fn watch(&self, request: WatchRequest) -> ResponseFuture {
        let values = self.accept(request.json_only);
        let accept = if self.metadata_only { values.metadata } else { values.objects };
        self.get(&request.query(), AcceptHeaders { accept, encoding: "identity" }, WATCH_HEADER_TIMEOUT)
    }
}

impl fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeSource")
            .field("url_path", &self.url_path)
            .field("query_parameters", &self.query_parameters)
            .field("response_header_timeout", &self.response_header_timeout)
            .field("gzip_lists", &self.gzip_lists)
            .field("metadata_only", &self.metadata_only)
            .field("protobuf", &self.protobuf)
            .finish_non_exhaustive()
    }
}

/// Converts a response of the client; the body is decompressed as it arrives.
fn response(http_response: http::Response<Body>) -> Result<Response, SourceError> {
    let (parts, body) = http_response.into_parts();
    let plain = body
        .into_data_stream()
        .map_err(|error| SourceError::BodyInterrupted { source: error.into() })
        .try_filter(|chunk: &Bytes| std::future::ready(!chunk.is_empty()))
        .boxed();
    let (compressed, body) = match header_text(&parts.headers, CONTENT_ENCODING).to_ascii_lowercase().as_str()
    {
        "" | "identity" => (false, plain),
        "gzip" | "x-gzip" => (true, gzip::decode(plain)),
        other => return Err(SourceError::UnsupportedEncoding { encoding: other.to_owned() }),
    };
    Ok(Response {
        status: parts.status.as_u16(),
        content_type: Some(header_text(&parts.headers, CONTENT_TYPE)).filter(|text| !text.is_empty()),
        retry_after: header_text(&parts.headers, RETRY_AFTER).parse().ok().map(Duration::from_secs),
        compressed,
        body,
    })
}

/// Returns a header as text, empty if it is missing.
fn header_text(headers: &HeaderMap, name: HeaderName) -> String {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
        .unwrap_or_default()
}

/// Classifies an error of the client in the same way as the failures of an informer's own requests.
///
/// Programs that also use the client directly can handle its errors and the failures of informers in the same
/// way:
///
/// ```
/// # use informer::source::classify;
/// # use informer::status::FailureKind;
/// # let status = kube::core::Status::failure("pods is forbidden", "Forbidden").with_code(403);
/// # let error = kube::Error::Api(Box::new(status));
/// if classify(&error).kind() == FailureKind::Forbidden {
///     eprintln!("check the role binding");
/// }
/// # assert_eq!(classify(&error).status_code(), Some(403));
/// ```
pub fn classify(error: &kube::Error) -> Failure {
    if let kube::Error::Api(status) = error {
        let status = serde_json::to_vec(status).ok().and_then(|json| Status::from_json(&json));
        return Failure::of_status(&status.unwrap_or_default());
    }
    let kind = match error {
        kube::Error::SerdeError(_)
        | kube::Error::FromUtf8(_)
        | kube::Error::LinesCodecMaxLineLengthExceeded => FailureKind::MalformedBody,
        kube::Error::Auth(_) => FailureKind::Credentials,
        kube::Error::Service(_) | kube::Error::HyperError(_) => send_failure(error),
        kube::Error::ReadEvents(_) => FailureKind::Interrupted,
        // Discovery, or creating the client: no request was sent.
        _ => FailureKind::InvalidRequest,
    };
    let redacted = find::<AuthError>(error).and_then(redact_plugin_output);
    Failure::new(kind, redacted.unwrap_or_else(|| super::error_chain(error)))
}

/// Returns the kind of a failure before the response headers.
fn send_failure(error: &(dyn StdError + 'static)) -> FailureKind {
    if find::<AuthError>(error).is_some() {
        return FailureKind::Credentials;
    }
    let client_error = find::<hyper_util::client::legacy::Error>(error);
    if !client_error.is_some_and(hyper_util::client::legacy::Error::is_connect) {
        return FailureKind::Interrupted;
    }
    if has_io_error(error, io::ErrorKind::InvalidData) {
        // The TLS handshake failed. Errors of TCP and DNS have other kinds.
        return FailureKind::Certificate;
    }
    FailureKind::Connect
}

fn classify_send_error(error: kube::Error) -> SourceError {
    match send_failure(&error) {
        FailureKind::Credentials => {
            let redacted = find::<AuthError>(&error).and_then(redact_plugin_output);
            SourceError::Credentials { source: redacted.map_or_else(|| error.into(), BoxError::from) }
        }
        FailureKind::Certificate => SourceError::Certificate { source: error.into() },
        FailureKind::Connect => {
            let refused = has_io_error(&error, io::ErrorKind::ConnectionRefused);
            SourceError::Connect { refused, source: error.into() }
        }
        _ => SourceError::ConnectionLost { source: error.into() },
    }
}

/// Describes an error of a credential plugin without the plugin's standard output, which may contain a token;
/// `None` for other errors.
fn redact_plugin_output(error: &AuthError) -> Option<String> {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let stderr: String = String::from_utf8_lossy(&out.stderr).trim().chars().take(200).collect();
            Some(format!("the credential plugin failed with {}: {stderr}", out.status))
        }
        AuthError::AuthExecParse(_) => Some("the credential plugin printed no ExecCredential".to_owned()),
        _ => None,
    }
}

/// Returns the first error of this type in the chain.
fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    chain(error).find_map(|cause| cause.downcast_ref())
}

/// Returns whether the chain contains an I/O error of this kind.
///
/// An I/O error does not return the error that it wraps as `source()`, so wrapped errors are visited here.
fn has_io_error(error: &(dyn StdError + 'static), kind: io::ErrorKind) -> bool {
    chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| {
        let mut next = Some(cause);
        while let Some(error) = next {
            if error.kind() == kind {
                return true;
            }
            next = error.get_ref().and_then(|wrapped| wrapped.downcast_ref());
        }
        false
    })
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(cause: AuthError) -> SourceError {
        classify_send_error(kube::Error::Service(cause.into()))
    }

    #[test]
    fn output_of_credential_plugin_is_redacted() {
        let status = std::process::ExitStatus::default();
        let out =
            std::process::Output { status, stdout: b"hush".to_vec(), stderr: b"login first\n".to_vec() };
        let error =
            failed(AuthError::AuthExecRun { cmd: "PASSWORD=hush get-token".to_owned(), out: Box::new(out) });
        assert!(matches!(error, SourceError::Credentials { .. }));
        let text = format!("{error:?}");
        assert!(text.contains("login first") && !text.contains("hush"), "{text}");
    }

    /// Regression: an unknown certificate authority counted as a refused connection, because the connector
    /// wraps the handshake error in an I/O error of another kind.
    #[cfg(feature = "rustls-tls")]
    #[tokio::test]
    async fn unknown_certificate_authority_is_classified() {
        let server = informer_apiserver::ApiServer::new();
        let running = server.listen(informer_apiserver::ListenOptions::https()).await.unwrap();
        let mut config = kube::Config::new(running.url().parse().unwrap());
        config.root_cert = Some(Vec::new());
        let error = crate::client(config).unwrap().apiserver_version().await.unwrap_err();
        assert_eq!(classify(&error).kind(), FailureKind::Certificate, "{error:?}");
        assert!(matches!(classify_send_error(error), SourceError::Certificate { .. }));
    }

    #[test]
    fn other_credential_errors_keep_their_cause() {
        let error = failed(AuthError::MissingCommand);
        assert!(matches!(&error, SourceError::Credentials { .. }));
        assert!(find::<AuthError>(&error).is_some());
    }
}
