//! The source over a `kube::Client`.
//!
//! Invariants: every request states its own `Accept` and `Accept-Encoding`, so that layers inside the client neither
//! add theirs nor compress a watch; every request has a deadline for its headers, because a client may retry inside
//! for many minutes; every body reaches the caller as plain bytes.
//!
//! This file knows HTTP and the client crate's errors. It does not know what is listed, what a status means, or
//! when to try again.

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

/// Watches answer at once, so that half a minute of silence means trouble.
const WATCH_HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// A server gives itself a minute for a list before it answers 504: cutting it off earlier would, for a list that
/// takes longer than the deadline, fail every time.
const LIST_HEADER_TIMEOUT: Duration = Duration::from_secs(70);

/// What bodies are asked for in: JSON, or protobuf from servers that have it. The latter name JSON too, and each answer says what it is.
const JSON: Accept = Accept {
    objects: "application/json",
    metadata_list: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    metadata: "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
};
const PROTOBUF: Accept = Accept {
    objects: "application/vnd.kubernetes.protobuf,application/json",
    metadata_list: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,\
                    application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
    metadata: "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,\
               application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
};

/// The forms of whole objects, and of metadata alone.
struct Accept {
    objects: &'static str,
    metadata_list: &'static str,
    metadata: &'static str,
}

/// Parameters on which what is read depends; they are set by whoever reads, and by nobody else.
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

/// The parameters of lists and watches that may be changed: the selectors, and whatever else a server understands. An empty value
/// counts as none; what the informer itself sets (`watch`, `resourceVersion`, `limit`…) is not taken from here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryParameters(Vec<(String, String)>);

impl QueryParameters {
    /// The value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Sets a parameter, in place of whatever it was.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        let name = name.into();
        self.remove(&name);
        self.0.push((name, value.into()));
    }

    /// Takes a parameter away.
    pub fn remove(&mut self, name: &str) {
        self.0.retain(|(known, _)| known != name);
    }
}

/// The form in which a body is asked for.
#[derive(Clone, Copy)]
struct AcceptHeaders {
    accept: &'static str,
    encoding: &'static str,
}

/// Lists and watches one collection of a Kubernetes API server.
///
/// It does not retry. A client built with `kube::Client::try_from` does, inside, and for watches too (429, 503 and 504,
/// up to 15 times): its answers then come late or not before the deadline. Prefer [`client`](crate::client()).
#[derive(Clone)]
pub struct KubeSource {
    client: kube::Client,
    url_path: String,
    query_parameters: QueryParameters,
    response_header_timeout: Option<Duration>,
    /// If nobody says so, the connection decides.
    gzip_lists: Option<bool>,
    link: Throughput,
    metadata_only: bool,
    protobuf: bool,
}

impl KubeSource {
    /// The collection at `url_path`, for example `/api/v1/pods` (see `kube::Resource::url_path`).
    pub fn new(client: kube::Client, url_path: impl Into<String>) -> Self {
        Self {
            client,
            url_path: url_path.into(),
            query_parameters: QueryParameters::default(),
            response_header_timeout: None,
            gzip_lists: None,
            link: Throughput::default(),
            metadata_only: false,
            protobuf: false,
        }
    }

    /// Only objects that this label selector matches; an empty one matches all.
    #[must_use]
    pub fn label_selector(self, selector: impl Into<String>) -> Self {
        self.query_parameters(|parameters| parameters.set("labelSelector", selector))
    }

    /// Only objects that this field selector matches; an empty one matches all.
    #[must_use]
    pub fn field_selector(self, selector: impl Into<String>) -> Self {
        self.query_parameters(|parameters| parameters.set("fieldSelector", selector))
    }

    /// How long a request may take until its response headers are in, connecting included.
    ///
    /// Unless set: 30 s for a watch, 70 s for a list, which is more than a server allows itself.
    #[must_use]
    pub fn response_header_timeout(self, deadline: Duration) -> Self {
        Self { response_header_timeout: Some(deadline), ..self }
    }

    /// Whether lists come compressed: less traffic for more CPU on both sides. Unless set, an informer that makes its own source has them
    /// compressed if its sets came slowly so far, and one that is given a source has not; watches never are.
    #[must_use]
    pub fn gzip_lists(self, compress: bool) -> Self {
        Self { gzip_lists: Some(compress), ..self }
    }

    /// The connection that decides.
    pub(crate) fn link(self, link: Throughput) -> Self {
        Self { link, ..self }
    }

    /// Whether only the metadata of the objects is asked for, as `PartialObjectMetadata`.
    #[must_use]
    pub fn metadata_only(self, metadata_only: bool) -> Self {
        Self { metadata_only, ..self }
    }

    /// Whether bodies are asked for in protobuf. A server that has none for the kind answers in JSON. Off unless set, because whoever
    /// reads has to know the kind.
    #[must_use]
    pub fn protobuf(self, protobuf: bool) -> Self {
        Self { protobuf, ..self }
    }

    /// Changes the parameters of all its requests. They are the same for every list and watch: if they changed between two of them, what was
    /// read before would not be what is followed now.
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
        form: AcceptHeaders,
        deadline: Duration,
    ) -> ResponseFuture {
        let client = self.client.clone();
        let request = self.request(query, form);
        let after = self.response_header_timeout.unwrap_or(deadline);
        async move {
            let sent = client.send(request?);
            let answer = tokio::time::timeout(after, sent).await;
            response(
                answer
                    .map_err(|_| SourceError::ResponseHeaderTimeout { after })?
                    .map_err(classify_send_error)?,
            )
        }
        .boxed()
    }

    fn request(
        &self,
        query: &[(&'static str, String)],
        form: AcceptHeaders,
    ) -> Result<http::Request<Body>, SourceError> {
        let invalid = |source| SourceError::InvalidRequest { path: self.url_path.clone(), source };
        // A namespace that carries one of these would quietly address another resource.
        if self.url_path.contains(['?', '#']) {
            return Err(invalid("a path must hold neither '?' nor '#'".into()));
        }
        let free = self.query_parameters.0.iter();
        let free = free.filter(|(name, value)| !RESERVED.contains(&&**name) && !value.is_empty());
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(query).extend_pairs(free);
        http::Request::get(format!("{}?{}", self.url_path, pairs.finish()))
            .header(ACCEPT, form.accept)
            .header(ACCEPT_ENCODING, form.encoding)
            .body(Body::empty())
            .map_err(|error| invalid(error.into()))
    }
}

impl Source for KubeSource {
    fn list(&self, request: ListRequest) -> ResponseFuture {
        let compress = self.gzip_lists.unwrap_or_else(|| self.link.is_slow(Instant::now()));
        let encoding = if compress { "gzip" } else { "identity" };
        let forms = self.accept(request.json_only);
        let accept = if self.metadata_only { forms.metadata_list } else { forms.objects };
        self.get(&request.query(), AcceptHeaders { accept, encoding }, LIST_HEADER_TIMEOUT)
    }

    fn watch(&self, request: WatchRequest) -> ResponseFuture {
        let forms = self.accept(request.json_only);
        let accept = if self.metadata_only { forms.metadata } else { forms.objects };
        self.get(&request.query(), AcceptHeaders { accept, encoding: "identity" }, WATCH_HEADER_TIMEOUT)
    }
}

impl fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeSource")
            .field("url_path", &self.url_path)
            .field("parameters", &self.query_parameters)
            .field("headers_deadline", &self.response_header_timeout)
            .field("compress_lists", &self.gzip_lists)
            .field("metadata_only", &self.metadata_only)
            .field("protobuf", &self.protobuf)
            .finish_non_exhaustive()
    }
}

fn response(sent: http::Response<Body>) -> Result<Response, SourceError> {
    let (parts, body) = sent.into_parts();
    let plain = body
        .into_data_stream()
        .map_err(|error| SourceError::BodyInterrupted { source: error.into() })
        .try_filter(|chunk: &Bytes| std::future::ready(!chunk.is_empty()))
        .boxed();
    let (compressed, body) = match text(&parts.headers, CONTENT_ENCODING).to_ascii_lowercase().as_str() {
        "" | "identity" => (false, plain),
        "gzip" | "x-gzip" => (true, gzip::decode(plain)),
        other => return Err(SourceError::UnsupportedEncoding { encoding: other.to_owned() }),
    };
    Ok(Response {
        status: parts.status.as_u16(),
        content_type: Some(text(&parts.headers, CONTENT_TYPE)).filter(|text| !text.is_empty()),
        retry_after: text(&parts.headers, RETRY_AFTER).parse().ok().map(Duration::from_secs),
        compressed,
        body,
    })
}

/// A header as text, empty when it is absent.
fn text(headers: &HeaderMap, name: HeaderName) -> String {
    headers
        .get(name)
        .map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned())
        .unwrap_or_default()
}

/// Classifies an error of the client, like the failures of an informer's own requests.
///
/// Programs that use the client besides their informers can handle both alike:
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
        kube::Error::BuildRequest(_) | kube::Error::HttpError(_) => FailureKind::InvalidRequest,
        kube::Error::SerdeError(_)
        | kube::Error::FromUtf8(_)
        | kube::Error::LinesCodecMaxLineLengthExceeded => FailureKind::MalformedBody,
        kube::Error::Auth(_) => FailureKind::Credentials,
        error => send_failure(error),
    };
    let redacted = find::<AuthError>(error).and_then(redact_plugin_output);
    Failure::new(kind, redacted.unwrap_or_else(|| super::error_chain(error)))
}

/// Returns the phase before the response headers in which the client failed.
fn send_failure(error: &(dyn StdError + 'static)) -> FailureKind {
    if find::<AuthError>(error).is_some() {
        return FailureKind::Credentials;
    }
    let client_error = find::<hyper_util::client::legacy::Error>(error);
    if !client_error.is_some_and(hyper_util::client::legacy::Error::is_connect) {
        return FailureKind::Interrupted;
    }
    if has_io_error(error, io::ErrorKind::InvalidData) {
        // A failed handshake. Errors of TCP and DNS have other kinds.
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

/// Describes errors that contain the output of a credential plugin, perhaps a token, without that output.
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

fn has_io_error(error: &(dyn StdError + 'static), kind: io::ErrorKind) -> bool {
    chain(error).filter_map(|cause| cause.downcast_ref::<io::Error>()).any(|cause| cause.kind() == kind)
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

    #[test]
    fn other_credential_errors_keep_their_cause() {
        let error = failed(AuthError::MissingCommand);
        assert!(matches!(&error, SourceError::Credentials { .. }));
        assert!(find::<AuthError>(&error).is_some());
    }
}
