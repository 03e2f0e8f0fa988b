//! The server's face: a `tower` service that takes HTTP requests and gives HTTP answers, without a socket.
//!
//! Each request is understood (path, query, accepted form), passed by the fault rules, and answered from the model. Nothing
//! is decided here about objects and versions.

mod accept;
mod discovery;
mod encode;
mod entry;
mod frames;
mod header;
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
use accept::Form;
use header::accepted;
use request_faults::{FaultDecision, ResponseFaults};
use response::ServerResponse;

/// The server as a service. Cheap to clone; all clones are the same server.
#[derive(Debug, Clone)]
pub struct ApiService {
    shared: Arc<Shared>,
    documents: Arc<Documents>,
    access: AccessMode,
}

impl ApiService {
    pub(crate) fn new(shared: Arc<Shared>, documents: Arc<Documents>, door: AccessMode) -> Self {
        ApiService { shared, documents, access: door }
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
        let ApiService { shared, documents, access: door } = self.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let caller = match door.admit(&shared, &parts) {
                Ok(caller) => caller,
                Err(refused) => {
                    return Ok(entry::audited(&shared, &parts, entry::refuse(&shared, &parts, &refused)));
                }
            };
            let head = parts.method == Method::HEAD;
            let answered = match entry::read_body(body).await {
                Ok(body) => answer(&shared, &documents, &parts, &caller, body).await,
                Err(status) => Err(status),
            };
            let answer = answered.unwrap_or_else(|status| {
                let query = Query::parse(parts.uri.query().unwrap_or_default());
                let pretty = encode::is_pretty(&parts.headers, query.find("pretty"));
                encode::error(&status, accepted(&parts.headers), pretty)
            });
            let answer = if head { answer.map(|_| ResponseBody::empty()) } else { answer };
            if answer.body().is_cut() { Err(BodyError) } else { Ok(entry::audited(&shared, &parts, answer)) }
        })
    }
}

/// A request for a resource, understood.
struct Call {
    shared: Arc<Shared>,
    target: Target,
    seen: RecordedRequest,
    query: Query,
    form: Form,
    /// Whether long answers may be compressed.
    gzip: bool,
    place: VersionedResource,
    /// The name that the client gives itself.
    agent: String,
    /// What the body is said to be.
    content_type: String,
    /// What is asked for, in the words of access rules.
    wanted: Attributes,
    caller: Caller,
    /// What the fault rules want changed.
    response_faults: ResponseFaults,
}

async fn answer(
    shared: &Arc<Shared>,
    documents: &Documents,
    parts: &http::request::Parts,
    caller: &Caller,
    body: Bytes,
) -> Result<ServerResponse, Status> {
    let target = match Route::parse(parts.uri.path()) {
        Route::Target(target) => target,
        route => return Ok(discovery::answer(shared, documents, &route, parts)),
    };
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let verb = target.verb(&parts.method, query.is_watch()).ok_or_else(Status::method_not_allowed)?;
    let seen = entry::seen(verb, &target, parts, &caller.user.name);
    shared.log.push(seen.clone());
    let meddling = match request_faults::apply_request_faults(shared, &seen).await {
        FaultDecision::Continue(meddling) => meddling,
        FaultDecision::Respond(answer) => return Ok(answer),
    };
    if let Some(review) = Review::at(&target.group, &target.version, &target.plural) {
        return entry::review(shared, review, &target, verb, parts, caller, &body);
    }
    let place = match shared.model(|model| target.resolve(model.registry(), verb)) {
        Ok(place) => place,
        Err(Missing::Json) => return Err(Status::no_such_resource()),
        Err(Missing::Verb) => return Err(Status::method_not_allowed()),
        Err(Missing::Plain) => return Ok(response::page_not_found()),
    };
    let custom = shared.model(|model| model.registry().get(place.id).is_some_and(|resource| resource.custom));
    let watch = verb == Verb::Watch;
    let endpoint = accept::Endpoint { list: verb == Verb::List, watch, custom };
    accept::check(accepted(&parts.headers), endpoint)?;
    let mut form = accept::negotiate(accepted(&parts.headers), endpoint)?;
    form.pretty |= encode::is_pretty(&parts.headers, query.find("pretty"));
    let agent = parts.headers.get(http::header::USER_AGENT).and_then(|value| value.to_str().ok());
    let agent = agent.unwrap_or_default().to_owned();
    let content_type = parts.headers.get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let content_type = content_type.unwrap_or_default().to_owned();
    let gzip = encode::takes_gzip(&parts.headers);
    let call = Call {
        shared: shared.clone(),
        target,
        seen,
        query,
        form,
        gzip,
        place,
        agent,
        content_type,
        wanted: Attributes::of(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default()),
        caller: caller.clone(),
        response_faults: meddling,
    };
    let warning = call.warning();
    let answered = call.answer(verb, &body).await;
    let mut answer =
        answered.unwrap_or_else(|status| encode::error(&status, accepted(&parts.headers), call.form.pretty));
    if let Some(text) = warning.and_then(|text| informer_objects::body::warning_headers(&[text]).pop())
        && let Ok(value) = http::HeaderValue::from_str(&text)
    {
        answer.headers_mut().append(http::header::WARNING, value);
    }
    Ok(call.response_faults.change(answer).await)
}

impl Call {
    async fn answer(&self, verb: Verb, body: &Bytes) -> Result<ServerResponse, Status> {
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

    /// What everyone is told who uses an old kind, or a version that its definition calls deprecated.
    fn warning(&self) -> Option<String> {
        let resource = self.resource().ok()?;
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+".to_owned()),
            ("", "endpoints") => {
                let instead = "use discovery.k8s.io/v1 EndpointSlice";
                Some(format!("v1 Endpoints is deprecated in v1.33+; {instead}"))
            }
            _ => resource.custom(self.place.version)?.warning.clone(),
        }
    }
}
