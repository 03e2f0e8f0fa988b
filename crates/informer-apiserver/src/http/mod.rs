//! The server's face: a `tower` service that takes HTTP requests and gives HTTP answers, without a socket.
//!
//! Each request is understood (path, query, accepted form), passed by the fault rules, and answered from the model. Nothing
//! is decided here about objects and versions.

mod accept;
mod answer;
mod discovery;
mod feed;
mod path;
mod query;
mod reads;
mod writes;

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::BodyExt;

pub use answer::{AnswerBody, BodyError};

use crate::faults::{Action, Rule};
use crate::log::{Seen, Verb};
use crate::model::{Place, Status};
use crate::shared::Shared;
use accept::Form;
use answer::Answer;
use path::{Missing, Route, Target};
use query::Query;

/// The server as a service. Cheap to clone; all clones are the same server.
#[derive(Debug, Clone)]
pub struct ApiService {
    shared: Arc<Shared>,
}

impl ApiService {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        ApiService { shared }
    }
}

impl<B> tower::Service<Request<B>> for ApiService
where
    B: http_body::Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<AnswerBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let shared = self.shared.clone();
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let body = body.collect().await.ok().map(http_body_util::Collected::to_bytes);
            let answered = match body {
                Some(body) => answer(&shared, &parts, body).await,
                None => Err(Status::bad_request("the body could not be read")),
            };
            Ok(answered.unwrap_or_else(|status| answer::status(&status)))
        })
    }
}

/// A request for a resource, understood.
struct Call {
    shared: Arc<Shared>,
    target: Target,
    seen: Seen,
    query: Query,
    form: Form,
    place: Place,
}

async fn answer(shared: &Arc<Shared>, parts: &http::request::Parts, body: Bytes) -> Result<Answer, Status> {
    let target = match Route::parse(parts.uri.path()) {
        Route::Target(target) => target,
        route => return Ok(discover(shared, &route, &parts.method)),
    };
    let text = parts.uri.query().unwrap_or_default();
    let query = Query::parse(text);
    let verb = target.verb(&parts.method, query.is_watch()).ok_or_else(Status::method_not_allowed)?;
    let seen = Seen {
        verb,
        group: target.group.clone(),
        version: target.version.clone(),
        plural: target.plural.clone(),
        namespace: target.namespace.clone(),
        name: target.name.clone(),
        subresource: target.subresource.clone(),
        query: text.to_owned(),
    };
    shared.log.push(seen.clone());
    let endless = match meet_fault(shared, &seen).await {
        Met::Nothing => false,
        Met::Endless => true,
        Met::Answered(answer) => return Ok(answer),
    };
    let place = match shared.model(|model| target.resolve(model.registry())) {
        Ok(place) => place,
        Err(Missing::Json) => return Err(Status::no_such_resource()),
        Err(Missing::Plain) => return Ok(answer::page_not_found()),
    };
    let accepted = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let form = accept::negotiate(accepted.unwrap_or_default())?;
    if matches!(verb, Verb::Create | Verb::Update | Verb::Delete) {
        check_content_type(&parts.headers)?;
    }
    let call = Call { shared: shared.clone(), target, seen, query, form, place };
    match verb {
        Verb::Get => call.get().await,
        Verb::List => call.list().await,
        Verb::Watch => call.watch(endless).await,
        Verb::Create => call.create(&body),
        Verb::Update => call.update(&body),
        Verb::Delete => call.delete(&body),
        Verb::Patch | Verb::DeleteCollection => Err(Status::method_not_allowed()),
    }
}

/// Bodies are JSON, also those that do not say what they are.
fn check_content_type(headers: &http::HeaderMap) -> Result<(), Status> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = given.split(';').next().unwrap_or_default().trim();
    if matches!(media, "" | "application/json") {
        return Ok(());
    }
    let message =
        "the body of the request was in an unknown format - accepted media types include: application/json";
    Err(Status::new(415, "UnsupportedMediaType", message))
}

/// What the fault rules made of a request.
enum Met {
    Nothing,
    Endless,
    Answered(Answer),
}

async fn meet_fault(shared: &Arc<Shared>, seen: &Seen) -> Met {
    while let Some(active) = shared.faults.for_request(seen) {
        let rule = &active.rule;
        match &rule.action {
            // Afterwards, whatever rule comes next may have it.
            Action::Hold => shared.faults.gone(&active).await,
            Action::EndlessWatchList => return Met::Endless,
            Action::Answer(code, Some(body)) => {
                return Met::Answered(with_retry(answer::raw(*code, body.clone()), rule));
            }
            Action::Answer(code, None) => {
                let status = Status::new(*code, reason(*code), "injected fault");
                return Met::Answered(with_retry(answer::status(&status), rule));
            }
            Action::Forbid => return Met::Answered(answer::status(&forbidden(seen))),
            Action::RefuseWatchList => return Met::Answered(answer::status(&watch_list_refused())),
            Action::ErrorFrame(code) => {
                let status = Status::new(*code, reason(*code), "injected fault");
                return Met::Answered(answer::chunks(feed::error_only(&status)));
            }
            // Streams meet these on their own.
            Action::CutWatch | Action::StallWatch | Action::RawFrame(_) => {}
        }
    }
    Met::Nothing
}

fn with_retry(mut answer: Answer, rule: &Rule) -> Answer {
    if let Some(seconds) = rule.retry_after {
        answer.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    answer
}

fn forbidden(seen: &Seen) -> Status {
    let scope = match &seen.namespace {
        Some(namespace) => format!("in the namespace \"{namespace}\""),
        None => "at the cluster scope".to_owned(),
    };
    let why = format!(
        "User \"informer\" cannot {} resource \"{}\" in API group \"{}\" {scope}",
        seen.verb.name(),
        seen.plural,
        seen.group
    );
    Status::forbidden(&seen.group, &seen.plural, seen.name.as_deref().unwrap_or_default(), &why)
}

/// What a server says that does not know `sendInitialEvents`.
fn watch_list_refused() -> Status {
    let field = "resourceVersionMatch";
    let message = "Forbidden: resourceVersionMatch is forbidden for watch";
    let cause = crate::model::Cause::new("FieldValueForbidden", field, message);
    Status::invalid("meta.k8s.io", "ListOptions", "", vec![cause])
}

fn reason(code: u16) -> &'static str {
    match code {
        400 => "BadRequest",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        405 => "MethodNotAllowed",
        406 => "NotAcceptable",
        409 => "Conflict",
        410 => "Expired",
        422 => "Invalid",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    }
}

fn discover(shared: &Arc<Shared>, route: &Route, method: &Method) -> Answer {
    if *method != Method::GET && *route != Route::Unknown {
        return answer::status(&Status::method_not_allowed());
    }
    let found = shared.model(|model| {
        let registry = model.registry();
        match route {
            Route::Version => Some(discovery::version()),
            Route::CoreVersions => Some(discovery::core_versions()),
            Route::Groups => Some(discovery::groups(registry)),
            Route::Group(group) => discovery::one_group(registry, group),
            Route::Resources(group, version) => discovery::resources(registry, group, version),
            Route::Probe | Route::Unknown | Route::Target(_) => None,
        }
    });
    match (route, found) {
        (_, Some(found)) => answer::json(200, found.to_string().into_bytes()),
        (Route::Probe, None) => answer::text(200, "ok"),
        (Route::Resources(group, _), None) if shared.model(|model| model.registry().is_built_in(group)) => {
            answer::status(&Status::no_such_resource())
        }
        _ => answer::page_not_found(),
    }
}
