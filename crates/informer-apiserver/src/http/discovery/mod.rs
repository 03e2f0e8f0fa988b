//! Everything outside of resources: which groups, versions and resources are served, how the server is, and its documents.
//!
//! A request comes here when its path leads to no resource. What is served is read from the registry when asked; no
//! object is looked at but definitions, for their schemas.

mod aggregated;
mod legacy;
mod probes;

use bytes::Bytes;
use http::request::Parts;
use http::{Method, StatusCode, header};
use informer_objects::protobuf;
use informer_objects::status::Status;
use serde::Serialize;

use super::header::{accepted, hash, set};
use super::openapi::{self, Documents};
use super::response::{self, ServerResponse};
use super::{accept, encode};
use crate::request::Route;
use crate::shared::Shared;
use aggregated::GroupList;

/// What a client gets that asks for groups and resources in one document.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Nothing in `Accept` can be served. Such an error is indented.
const NOT_ACCEPTABLE: &str = r#"{
  "kind": "Status",
  "apiVersion": "v1",
  "metadata": {},
  "status": "Failure",
  "message": "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
  "reason": "NotAcceptable",
  "code": 406
}"#;

/// The form of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain,
    Aggregated,
    AggregatedProtobuf,
}

/// Answers a request whose path leads to no resource.
pub(crate) fn answer(shared: &Shared, documents: &Documents, route: &Route, parts: &Parts) -> ServerResponse {
    if parts.method != Method::GET && !takes_any_method(route) {
        return response::status(&Status::method_not_allowed());
    }
    match route {
        Route::Root => indented(&shared.model(|model| probes::Paths::of(model.registry()))),
        Route::Version => indented(&legacy::VERSION),
        Route::Metrics => metrics(shared),
        Route::Probe(probe, check) => {
            probes::respond(*probe, check.as_deref(), parts.uri.query().unwrap_or_default())
        }
        Route::OpenApi(document) => openapi::answer(shared, documents, document, parts),
        Route::CoreVersions => match form(parts, true) {
            Some(form @ (Form::Aggregated | Form::AggregatedProtobuf)) => {
                with_tag(parts, form, &shared.model(|model| aggregated::core(model.registry())))
            }
            Some(Form::Plain) | None => plain(parts, &legacy::core_versions()),
        },
        Route::Groups => match form(parts, true) {
            Some(form @ (Form::Aggregated | Form::AggregatedProtobuf)) => {
                with_tag(parts, form, &shared.model(|model| aggregated::groups(model.registry())))
            }
            Some(Form::Plain) | None => plain(parts, &shared.model(|model| legacy::groups(model.registry()))),
        },
        Route::Group(name) => match shared.model(|model| legacy::group(model.registry(), name)) {
            Some(found) => plain(parts, &found),
            None => response::page_not_found(),
        },
        Route::Resources(group, version) => resources(shared, parts, group, version),
        Route::Target(_) | Route::Unknown => response::page_not_found(),
    }
}

/// What is not made by routes of their own answers whatever the method.
fn takes_any_method(route: &Route) -> bool {
    matches!(
        route,
        Route::Root
            | Route::Probe(..)
            | Route::CoreVersions
            | Route::Groups
            | Route::Metrics
            | Route::OpenApi(_)
            | Route::Unknown
    )
}

fn resources(shared: &Shared, parts: &Parts, group: &str, version: &str) -> ServerResponse {
    let (found, built_in) = shared.model(|model| {
        let registry = model.registry();
        (legacy::resources(registry, group, version), registry.is_built_in(group))
    });
    match found {
        Some(found) => plain(parts, &found),
        None if built_in => response::status(&Status::no_such_resource()),
        None => response::page_not_found(),
    }
}

/// The first form in `Accept` that can be served.
fn form(parts: &Parts, has_aggregated: bool) -> Option<Form> {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Some(Form::Plain);
    }
    accept.split(',').find_map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let media = parts.next();
        let protobuf = media == Some(encode::PROTOBUF);
        if !protobuf && !matches!(media, Some("application/json" | "application/*" | "*/*")) {
            return None;
        }
        let given: Vec<(&str, &str)> = parts.filter_map(|part| part.split_once('=')).collect();
        let value = |name: &str| given.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        match (value("as"), value("g"), value("v")) {
            (None, ..) => Some(Form::Plain),
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) if has_aggregated => {
                Some(if protobuf { Form::AggregatedProtobuf } else { Form::Aggregated })
            }
            _ => None,
        }
    })
}

/// A document that has but one form.
fn plain(parts: &Parts, document: &impl Serialize) -> ServerResponse {
    match accept::negotiate(accepted(&parts.headers), accept::Endpoint::default()) {
        Ok(form) => encode::encode(form, false, 200, encode(document)),
        Err(_) => not_acceptable(),
    }
}

fn indented(document: &impl Serialize) -> ServerResponse {
    response::raw(200, serde_json::to_vec_pretty(document).unwrap_or_default().into())
}

/// What we serialise are structs of text and lists: that cannot fail.
fn encode(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).unwrap_or_default()
}

fn not_acceptable() -> ServerResponse {
    response::raw(406, Bytes::from_static(NOT_ACCEPTABLE.as_bytes()))
}

/// A document that a client may keep as long as its tag is the same.
fn with_tag(parts: &Parts, form: Form, list: &GroupList) -> ServerResponse {
    let tag = format!("\"{}\"", hash(&encode(&list.tagged())));
    let known =
        parts.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let encoded = encode(list);
    let packed = protobuf::encode(&serde_json::from_slice(&encoded).unwrap_or_default());
    let mut answer = match (known, form, packed) {
        (true, ..) => response::raw(304, Bytes::new()),
        (false, Form::AggregatedProtobuf, Some(packed)) => response::raw(200, packed.into()),
        _ => response::json(200, encoded),
    };
    let content_type = match form {
        Form::AggregatedProtobuf => AGGREGATED.replace("application/json", encode::PROTOBUF),
        Form::Plain | Form::Aggregated => AGGREGATED.to_owned(),
    };
    set(&mut answer, header::CONTENT_TYPE, &content_type);
    if known {
        answer.headers_mut().remove(header::CONTENT_TYPE);
        *answer.status_mut() = StatusCode::NOT_MODIFIED;
    }
    set(&mut answer, header::CACHE_CONTROL, "public");
    set(&mut answer, header::ETAG, &tag);
    set(&mut answer, header::VARY, "Accept");
    answer
}

/// The one number we count that a real server counts too.
fn metrics(shared: &Shared) -> ServerResponse {
    let name = "apiserver_longrunning_requests";
    let open = shared.open_watches.load(std::sync::atomic::Ordering::SeqCst);
    let body = format!(
        "# HELP {name} [STABLE] Gauge of all active long-running apiserver requests.\n# TYPE {name} gauge\n\
         {name}{{verb=\"WATCH\"}} {open}\n"
    );
    let mut answer = response::raw(200, body.into());
    set(&mut answer, header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
    answer
}
