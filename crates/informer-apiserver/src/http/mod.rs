//! The server as a `tower` service: HTTP requests in, HTTP responses out, without a socket.
//!
//! A request is parsed (path, query, accepted format), subjected to the fault rules and answered from the
//! model. Nothing about objects and versions is decided here.

mod accept;
mod discovery;
mod encode;
mod entry;
mod frames;
mod header;
mod lagging_cache;
mod openapi;
mod options;
mod reads;
mod request_faults;
mod response;
mod stream_faults;
mod table;
mod watch_stream;
mod writes;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response};
use informer_objects::status::Status;

pub(crate) use openapi::Documents;
pub use response::{BodyError, ResponseBody};

use crate::access::{AccessMode, Attributes, Caller, Review};
use crate::log::{RecordedRequest, Verb};
use crate::model::VersionedResource;
use crate::request::{Missing, Query, Route, Target};
use crate::shared::Shared;
use accept::ResponseFormat;
use header::accepted;
use request_faults::{FaultDecision, ResponseFaults};
use response::ServerResponse;

/// The server as a `tower` service, from [`ApiServer::service`](crate::ApiServer::service).
///
/// Cheap to clone; all clones serve the same server.
#[derive(Debug, Clone)]
pub struct ApiService {
    shared: Arc<Shared>,
    documents: Arc<Documents>,
    access: AccessMode,
}

impl ApiService {
    pub(crate) fn new(shared: Arc<Shared>, documents: Arc<Documents>, access: AccessMode) -> Self {
        ApiService { shared, documents, access }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<ResponseBody>;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BodyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let ApiService { shared, documents, access } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let response = match access.admit(&shared, &parts) {
                Ok(caller) => respond(&shared, &documents, &parts, &caller, body).await,
                Err(refused) => entry::refuse(&shared, &parts, &refused),
            };
            if response.body().is_cut() {
                // A service error makes hyper close the connection without a response.
                Err(BodyError)
            } else {
                Ok(entry::with_audit_id(&shared, &parts, response))
            }
        })
    }
}

/// Reads the body of an authorized request, and returns the response.
async fn respond<B>(
    shared: &Arc<Shared>,
    documents: &Documents,
    parts: &http::request::Parts,
    caller: &Caller,
    body: B,
) -> ServerResponse
where
    B: http_body::Body + Send,
    B::Data: Send,
{
    let result = match entry::read_body(&shared.clock, body).await {
        Ok(body) => handle(shared, documents, parts, caller, body).await,
        Err(status) => Err(status),
    };
    let response = result.unwrap_or_else(|status| {
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let pretty = encode::is_pretty(&parts.headers, query.find("pretty"));
        encode::error(&status, accepted(&parts.headers), pretty)
    });
    if parts.method == Method::HEAD { response.map(|_| ResponseBody::empty()) } else { response }
}

/// A parsed request for a resource.
struct Call {
    shared: Arc<Shared>,
    target: Target,
    recorded: RecordedRequest,
    query: Query,
    format: ResponseFormat,
    /// Whether large responses may be compressed with gzip.
    gzip: bool,
    gvr: VersionedResource,
    /// The `User-Agent` header.
    agent: String,
    /// The `Content-Type` header.
    content_type: String,
    /// The request as RBAC sees it.
    attributes: Attributes,
    caller: Caller,
    /// The effects of fault rules on this request.
    response_faults: ResponseFaults,
}

async fn handle(
    shared: &Arc<Shared>,
    documents: &Documents,
    parts: &http::request::Parts,
    caller: &Caller,
    body: Bytes,
) -> Result<ServerResponse, Status> {
    let target = match Route::parse(parts.uri.path()) {
        Route::Target(target) => target,
        _ if shared.faults.breaks_other_paths(&caller.user.name) => return Ok(response::cut()),
        route => return Ok(discovery::respond(shared, documents, &route, parts)),
    };
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let Some(verb) = target.verb(&parts.method, query.is_watch()) else {
        let is_broken = shared.faults.breaks_other_paths(&caller.user.name);
        return if is_broken { Ok(response::cut()) } else { Err(Status::method_not_allowed()) };
    };
    let recorded = entry::recorded_request(verb, &target, parts, &caller.user.name);
    shared.record(recorded.clone());
    let response_faults = match request_faults::apply_request_faults(shared, &recorded).await {
        FaultDecision::Continue(response_faults) => response_faults,
        FaultDecision::Respond(response) => return Ok(response),
    };
    if let Some(review) = Review::for_resource(&target.group, &target.version, &target.plural) {
        return entry::review(shared, review, &target, verb, parts, caller, &body);
    }
    let gvr = match shared.model(|model| target.resolve(model.registry(), verb)) {
        Ok(gvr) => gvr,
        Err(Missing::Json) => return Err(Status::no_such_resource()),
        Err(Missing::Verb) => return Err(Status::method_not_allowed()),
        Err(Missing::Plain) => return Ok(response::page_not_found()),
    };
    let custom = shared.model(|model| model.registry().get(gvr.id).is_some_and(|resource| resource.custom));
    let watch = verb == Verb::Watch;
    let endpoint = accept::Endpoint { list: verb == Verb::List, watch, custom };
    accept::check(accepted(&parts.headers), endpoint)?;
    let mut format = accept::negotiate(accepted(&parts.headers), endpoint)?;
    format.pretty |= encode::is_pretty(&parts.headers, query.find("pretty"));
    let agent = parts.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
    let agent = agent.unwrap_or_default().to_owned();
    let content_type = parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let gzip = encode::accepts_gzip(&parts.headers);
    let call = Call {
        shared: shared.clone(),
        target,
        recorded,
        query,
        format,
        gzip,
        gvr,
        agent,
        content_type,
        attributes: Attributes::of(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default()),
        caller: caller.clone(),
        response_faults,
    };
    let warning = call.deprecation_warning();
    let result = call.handle(verb, &body).await;
    // Errors are encoded here and not by the caller, so that fault rules can change them too.
    let mut response =
        result.unwrap_or_else(|status| encode::error(&status, accepted(&parts.headers), call.format.pretty));
    if let Some(text) = warning.and_then(|text| informer_objects::body::warning_headers(&[text]).pop())
        && let Ok(value) = http::HeaderValue::from_str(&text)
    {
        response.headers_mut().append(http::header::WARNING, value);
    }
    Ok(call.response_faults.change(response).await)
}

impl Call {
    async fn handle(&self, verb: Verb, body: &Bytes) -> Result<ServerResponse, Status> {
        match verb {
            Verb::Get => self.get().await,
            Verb::List => self.list().await,
            Verb::Watch => self.watch(self.response_faults.endless).await,
            Verb::Create => self.create(body),
            Verb::Update => self.update(body),
            Verb::Delete => self.delete(body),
            Verb::DeleteCollection => self.delete_collection(body),
            Verb::Patch => self.patch(body),
        }
    }

    /// Returns the warning for a deprecated built-in kind, or for a version that its
    /// `CustomResourceDefinition` marks as deprecated.
    fn deprecation_warning(&self) -> Option<String> {
        let resource = self.resource().ok()?;
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+".to_owned()),
            ("", "endpoints") => {
                let replacement = "use discovery.k8s.io/v1 EndpointSlice";
                Some(format!("v1 Endpoints is deprecated in v1.33+; {replacement}"))
            }
            _ => resource.custom_version(self.gvr.version)?.warning.clone(),
        }
    }
}
