//! The source over a `kube::Client`.
//!
//! Invariants: every request states its own `Accept` and `Accept-Encoding`, so that layers inside the client neither
//! add theirs nor compress a watch; every request has a deadline for its headers, because a client may retry inside
//! for many minutes; every body reaches the caller as plain bytes.
//!
//! This file knows HTTP and the client crate's errors. It does not know what is listed, what a status means, or
//! when to try again.

use super::{Answer, BoxError, Response, Source, SourceError, gzip};
use bytes::Bytes;
use futures::future::FutureExt as _;
use futures::stream::{StreamExt as _, TryStreamExt as _};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, RETRY_AFTER,
};
use http_body_util::BodyExt as _;
use informer_core::reflector::{ListRequest, WatchRequest};
use kube::client::{AuthError, Body};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::time::Duration;

/// Watches answer at once, so that half a minute of silence means trouble.
const WATCH_HEADERS: Duration = Duration::from_secs(30);
/// A server gives itself a minute for a list before it answers 504: cutting it off earlier would, for a list that
/// takes longer than the deadline, fail every time.
const LIST_HEADERS: Duration = Duration::from_secs(70);

/// Lists and watches one collection of a Kubernetes API server.
///
/// It does not retry. A client built with `kube::Client::try_from` does, inside, and for watches too (429, 503 and 504,
/// up to 15 times): its answers then come late or not before the deadline. Prefer [`client`](crate::client()).
#[derive(Clone)]
pub struct KubeSource {
    client: kube::Client,
    url_path: String,
    labels: Option<String>,
    fields: Option<String>,
    headers_deadline: Option<Duration>,
    compress_lists: bool,
}

impl KubeSource {
    /// The collection at `url_path`, for example `/api/v1/pods` (see `kube::Resource::url_path`).
    pub fn new(client: kube::Client, url_path: impl Into<String>) -> Self {
        Self {
            client,
            url_path: url_path.into(),
            labels: None,
            fields: None,
            headers_deadline: None,
            compress_lists: false,
        }
    }

    /// Only objects that this label selector matches; an empty one matches all.
    #[must_use]
    pub fn labels(self, selector: impl Into<String>) -> Self {
        Self { labels: Some(selector.into()).filter(|text| !text.is_empty()), ..self }
    }

    /// Only objects that this field selector matches; an empty one matches all.
    #[must_use]
    pub fn fields(self, selector: impl Into<String>) -> Self {
        Self { fields: Some(selector.into()).filter(|text| !text.is_empty()), ..self }
    }

    /// How long a request may take until its response headers are in, connecting included.
    ///
    /// Unless set: 30 s for a watch, 70 s for a list, which is more than a server allows itself.
    #[must_use]
    pub fn headers_deadline(self, deadline: Duration) -> Self {
        Self { headers_deadline: Some(deadline), ..self }
    }

    /// Whether lists may come compressed: less traffic for more CPU on both sides. Off unless set; watches never are.
    #[must_use]
    pub fn compress_lists(self, compress: bool) -> Self {
        Self { compress_lists: compress, ..self }
    }

    fn get(&self, query: Vec<(&'static str, String)>, encoding: &'static str, deadline: Duration) -> Answer {
        let client = self.client.clone();
        let request = self.request(query, encoding);
        let after = self.headers_deadline.unwrap_or(deadline);
        async move {
            let sent = client.send(request?);
            let answer = tokio::time::timeout(after, sent).await;
            response(answer.map_err(|_| SourceError::HeadersDeadline { after })?.map_err(not_sent)?)
        }
        .boxed()
    }

    fn request(
        &self,
        query: Vec<(&'static str, String)>,
        encoding: &'static str,
    ) -> Result<http::Request<Body>, SourceError> {
        let invalid = |source| SourceError::Request { path: self.url_path.clone(), source };
        // A namespace that carries one of these would quietly address another resource.
        if self.url_path.contains(['?', '#']) {
            return Err(invalid("a path must hold neither '?' nor '#'".into()));
        }
        let mut pairs = form_urlencoded::Serializer::new(String::new());
        pairs.extend_pairs(query);
        pairs.extend_pairs(self.labels.iter().map(|text| ("labelSelector", text)));
        pairs.extend_pairs(self.fields.iter().map(|text| ("fieldSelector", text)));
        http::Request::get(format!("{}?{}", self.url_path, pairs.finish()))
            .header(ACCEPT, "application/json")
            .header(ACCEPT_ENCODING, encoding)
            .body(Body::empty())
            .map_err(|error| invalid(error.into()))
    }
}

impl Source for KubeSource {
    fn list(&self, request: ListRequest) -> Answer {
        let encoding = if self.compress_lists { "gzip" } else { "identity" };
        self.get(request.query(), encoding, LIST_HEADERS)
    }

    fn watch(&self, request: WatchRequest) -> Answer {
        self.get(request.query(), "identity", WATCH_HEADERS)
    }
}

impl fmt::Debug for KubeSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeSource")
            .field("url_path", &self.url_path)
            .field("labels", &self.labels)
            .field("fields", &self.fields)
            .field("headers_deadline", &self.headers_deadline)
            .field("compress_lists", &self.compress_lists)
            .finish_non_exhaustive()
    }
}

fn response(sent: http::Response<Body>) -> Result<Response, SourceError> {
    let (parts, body) = sent.into_parts();
    let plain = body
        .into_data_stream()
        .map_err(|error| SourceError::Body { source: error.into() })
        .try_filter(|chunk: &Bytes| std::future::ready(!chunk.is_empty()))
        .boxed();
    let body = match text(&parts.headers, CONTENT_ENCODING).to_ascii_lowercase().as_str() {
        "" | "identity" => plain,
        "gzip" | "x-gzip" => gzip::decode(plain),
        other => return Err(SourceError::Encoding { encoding: other.to_owned() }),
    };
    Ok(Response {
        status: parts.status.as_u16(),
        content_type: Some(text(&parts.headers, CONTENT_TYPE)).filter(|text| !text.is_empty()),
        retry_after: text(&parts.headers, RETRY_AFTER).parse().ok().map(Duration::from_secs),
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

/// Which phase before the headers the client failed in.
fn not_sent(error: kube::Error) -> SourceError {
    if let Some(cause) = find::<AuthError>(&error) {
        let told = told_without_output(cause);
        return SourceError::Auth { source: told.map_or_else(|| error.into(), BoxError::from) };
    }
    let client_error = find::<hyper_util::client::legacy::Error>(&error);
    if client_error.is_some_and(hyper_util::client::legacy::Error::is_connect) {
        return SourceError::Connect { refused: is_refused(&error), source: error.into() };
    }
    SourceError::Send { source: error.into() }
}

/// The errors that would print what a credential plugin wrote to stdout, perhaps a token, told without it.
fn told_without_output(error: &AuthError) -> Option<String> {
    match error {
        AuthError::AuthExecRun { out, .. } => {
            let stderr: String = String::from_utf8_lossy(&out.stderr).trim().chars().take(200).collect();
            Some(format!("the credential plugin failed with {}: {stderr}", out.status))
        }
        AuthError::AuthExecParse(_) => Some("the credential plugin printed no ExecCredential".to_owned()),
        _ => None,
    }
}

/// The first error of this type in the chain.
fn find<'a, T: StdError + 'static>(error: &'a (dyn StdError + 'static)) -> Option<&'a T> {
    chain(error).find_map(|cause| cause.downcast_ref())
}

fn is_refused(error: &(dyn StdError + 'static)) -> bool {
    chain(error)
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::ConnectionRefused)
}

fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&cause| cause.source())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(cause: AuthError) -> SourceError {
        not_sent(kube::Error::Service(cause.into()))
    }

    #[test]
    fn what_a_credential_plugin_printed_is_not_told() {
        let status = std::process::ExitStatus::default();
        let out =
            std::process::Output { status, stdout: b"hush".to_vec(), stderr: b"login first\n".to_vec() };
        let error =
            failed(AuthError::AuthExecRun { cmd: "PASSWORD=hush get-token".to_owned(), out: Box::new(out) });
        assert!(matches!(error, SourceError::Auth { .. }));
        let told = format!("{error:?}");
        assert!(told.contains("login first") && !told.contains("hush"), "{told}");
    }

    #[test]
    fn other_credential_errors_keep_their_cause() {
        let error = failed(AuthError::MissingCommand);
        assert!(matches!(&error, SourceError::Auth { .. }));
        assert!(find::<AuthError>(&error).is_some());
    }
}
