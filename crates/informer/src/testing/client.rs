//! A client that is answered by a closure and records its requests.

use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Collected};
use kube::client::Body;
use serde::Serialize;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Returns a client that sends no request, and the list of its requests: `respond` is called with each one
/// and returns the response, for example with [`ok`] or [`failure`].
///
/// ```
/// use informer::testing;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::Api;
/// use kube::api::PostParams;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), kube::Error> {
/// let (client, requests) = testing::client(|request| match request.method.as_str() {
///     "POST" => testing::ok(&request.body), // created as sent
///     _ => testing::failure(404, "NotFound"),
/// });
///
/// let maps: Api<ConfigMap> = Api::namespaced(client, "shop");
/// if maps.get_opt("settings").await?.is_none() {
///     let mut map = ConfigMap::default();
///     map.metadata.name = Some("settings".to_owned());
///     map.data = Some([("color".to_owned(), "blue".to_owned())].into());
///     maps.create(&PostParams::default(), &map).await?;
/// }
///
/// let writes = requests.writes();
/// assert_eq!(writes.len(), 1);
/// assert_eq!(writes[0].to_string(), "POST /api/v1/namespaces/shop/configmaps");
/// assert_eq!(writes[0].body["data"]["color"], "blue");
/// # Ok(())
/// # }
/// ```
///
/// A test that expects no other requests lets `respond` panic: `panic!("unexpected request: {request}")`.
///
/// # Panics
///
/// Panics outside a tokio runtime.
pub fn client(
    respond: impl FnMut(&RecordedRequest) -> Response<Vec<u8>> + Send + 'static,
) -> (kube::Client, Requests) {
    let (respond, requests) = (Arc::new(Mutex::new(respond)), Requests::default());
    let recorded = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (respond, recorded) = (Arc::clone(&respond), recorded.clone());
        async move {
            let (head, body) = request.into_parts();
            // A body that cannot be read is one that the test made; it is recorded as empty.
            let body = body.collect().await.map(Collected::to_bytes).unwrap_or_default();
            let request = RecordedRequest::new(&head, &body);
            recorded.lock().push(request.clone());
            let response = respond.lock().unwrap_or_else(PoisonError::into_inner)(&request);
            Ok::<_, Infallible>(response.map(Body::from))
        }
    });
    (kube::Client::new(service, "default"), requests)
}

/// Returns a successful response with an object or a list, for [`client`].
///
/// # Panics
///
/// Panics if the value does not serialize as JSON.
pub fn ok(value: &(impl Serialize + ?Sized)) -> Response<Vec<u8>> {
    Response::new(serde_json::to_vec(value).unwrap_or_else(|error| panic!("respond with a value: {error}")))
}

/// Returns the response of a server that rejects a request with this HTTP status code and reason, for
/// [`client`]: `failure(404, "NotFound")`, `failure(409, "Conflict")`.
///
/// # Panics
///
/// Panics if the code is not an HTTP status code.
pub fn failure(code: u16, reason: &str) -> Response<Vec<u8>> {
    let status = json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "message": format!("{reason} (from the test)"), "reason": reason, "code": code});
    let response = Response::builder().status(code).body(status.to_string().into_bytes());
    response.unwrap_or_else(|error| panic!("respond with code {code}: {error}"))
}

/// The requests of a [`client`], in the order in which they were sent. Clones share the same list.
#[derive(Debug, Clone, Default)]
pub struct Requests(Arc<Mutex<Vec<RecordedRequest>>>);

impl Requests {
    /// Returns all requests so far.
    pub fn all(&self) -> Vec<RecordedRequest> {
        self.lock().clone()
    }

    /// Returns the requests so far that write: all except `GET`.
    pub fn writes(&self) -> Vec<RecordedRequest> {
        self.lock().iter().filter(|request| request.method != Method::GET).cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<RecordedRequest>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request of a [`client`]. Its text is the method and the path: `GET /api/v1/nodes/a`.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The HTTP method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The parameters of the query, decoded, in their order.
    pub query: Vec<(String, String)>,
    /// The header `Content-Type`, which distinguishes the kinds of patches; empty if there is none.
    pub content_type: String,
    /// The body; `Null` if it is empty, and a string if it is not JSON.
    pub body: Value,
}

impl RecordedRequest {
    fn new(head: &http::request::Parts, body: &[u8]) -> Self {
        let query = form_urlencoded::parse(head.uri.query().unwrap_or_default().as_bytes());
        let content_type = head.headers.get(http::header::CONTENT_TYPE);
        let text = || Value::String(String::from_utf8_lossy(body).into_owned());
        Self {
            method: head.method.clone(),
            path: head.uri.path().to_owned(),
            query: query.into_owned().collect(),
            content_type: content_type.and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned(),
            body: if body.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(body).unwrap_or_else(|_| text())
            },
        }
    }

    /// Returns the value of a query parameter.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

impl fmt::Display for RecordedRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}
