//! Requests outside of resources: discovery, probes, version, metrics and `OpenAPI` documents.
//!
//! Discovery documents are generated from the registry for each request. The only objects that are read are
//! `CustomResourceDefinitions`, whose schemas the `OpenAPI` documents contain.

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

/// Content type of aggregated discovery.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// The response if no format in `Accept` is available. kube-apiserver indents this error.
const NOT_ACCEPTABLE: &str = r#"{
  "kind": "Status",
  "apiVersion": "v1",
  "metadata": {},
  "status": "Failure",
  "message": "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf",
  "reason": "NotAcceptable",
  "code": 406
}"#;

/// The format of a discovery document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DiscoveryFormat {
    Plain,
    Aggregated,
    AggregatedProtobuf,
}

/// Handles a request whose path does not refer to a resource.
pub(crate) fn respond(
    shared: &Shared,
    documents: &Documents,
    route: &Route,
    parts: &Parts,
) -> ServerResponse {
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
        Route::OpenApi(document) => openapi::respond(shared, documents, document, parts),
        Route::CoreVersions => match negotiate(parts) {
            Some(format @ (DiscoveryFormat::Aggregated | DiscoveryFormat::AggregatedProtobuf)) => {
                with_tag(parts, format, &shared.model(|model| aggregated::core(model.registry())))
            }
            Some(DiscoveryFormat::Plain) | None => plain(parts, &legacy::core_versions()),
        },
        Route::Groups => match negotiate(parts) {
            Some(format @ (DiscoveryFormat::Aggregated | DiscoveryFormat::AggregatedProtobuf)) => {
                with_tag(parts, format, &shared.model(|model| aggregated::groups(model.registry())))
            }
            Some(DiscoveryFormat::Plain) | None => {
                plain(parts, &shared.model(|model| legacy::groups(model.registry())))
            }
        },
        Route::Group(name) => match shared.model(|model| legacy::group(model.registry(), name)) {
            Some(found) => plain(parts, &found),
            None => response::page_not_found(),
        },
        Route::Resources(group, version) => resources(shared, parts, group, version),
        Route::Target(_) | Route::Unknown => response::page_not_found(),
    }
}

/// Returns whether a route responds to every method, because kube-apiserver does not route it by method.
fn takes_any_method(route: &Route) -> bool {
    matches!(
        route,
        Route::Root
            | Route::Probe(..)
            | Route::Groups
            | Route::Group(_)
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

/// Returns the first available format in `Accept`.
fn negotiate(parts: &Parts) -> Option<DiscoveryFormat> {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Some(DiscoveryFormat::Plain);
    }
    accept.split(',').find_map(|entry| {
        let mut sections = entry.split(';').map(str::trim);
        let media = sections.next();
        let protobuf = media == Some(encode::PROTOBUF);
        if !protobuf && !matches!(media, Some("application/json" | "application/*" | "*/*")) {
            return None;
        }
        let parameters: Vec<(&str, &str)> = sections.filter_map(|section| section.split_once('=')).collect();
        let value = |name: &str| parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        match (value("as"), value("g"), value("v")) {
            (None, ..) => Some(DiscoveryFormat::Plain),
            (Some("APIGroupDiscoveryList"), Some("apidiscovery.k8s.io"), Some("v2")) => {
                Some(if protobuf { DiscoveryFormat::AggregatedProtobuf } else { DiscoveryFormat::Aggregated })
            }
            _ => None,
        }
    })
}

/// Returns an unaggregated document in the encoding that the client accepts, or 406.
fn plain(parts: &Parts, document: &impl Serialize) -> ServerResponse {
    match accept::negotiate(accepted(&parts.headers), accept::Endpoint::default()) {
        Ok(format) => {
            let gzip = false;
            encode::encode(format, gzip, 200, to_json(document))
        }
        Err(_) => not_acceptable(),
    }
}

fn indented(document: &impl Serialize) -> ServerResponse {
    response::raw(200, serde_json::to_vec_pretty(document).unwrap_or_default().into())
}

/// Serializes a document. Cannot fail for structs of strings and lists.
fn to_json(document: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(document).unwrap_or_default()
}

fn not_acceptable() -> ServerResponse {
    response::raw(406, Bytes::from_static(NOT_ACCEPTABLE.as_bytes()))
}

/// Returns an aggregated document with an entity tag, or 304 if the client already has the document.
fn with_tag(parts: &Parts, format: DiscoveryFormat, list: &GroupList) -> ServerResponse {
    let tag = format!("\"{}\"", hash(&to_json(&list.tagged())));
    let unchanged =
        parts.headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let json = to_json(list);
    let protobuf = protobuf::encode(&serde_json::from_slice(&json).unwrap_or_default());
    let mut response = match (unchanged, format, protobuf) {
        (true, ..) => response::raw(304, Bytes::new()),
        (false, DiscoveryFormat::AggregatedProtobuf, Some(bytes)) => response::raw(200, bytes.into()),
        _ => response::json(200, json),
    };
    let content_type = match format {
        DiscoveryFormat::AggregatedProtobuf => AGGREGATED.replace("application/json", encode::PROTOBUF),
        DiscoveryFormat::Plain | DiscoveryFormat::Aggregated => AGGREGATED.to_owned(),
    };
    set(&mut response, header::CONTENT_TYPE, &content_type);
    if unchanged {
        response.headers_mut().remove(header::CONTENT_TYPE);
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    set(&mut response, header::CACHE_CONTROL, "public");
    set(&mut response, header::ETAG, &tag);
    set(&mut response, header::VARY, "Accept");
    response
}

/// Returns the one metric of kube-apiserver that this server provides.
fn metrics(shared: &Shared) -> ServerResponse {
    let name = "apiserver_longrunning_requests";
    let open = shared.open_watches();
    let body = format!(
        "# HELP {name} [STABLE] Gauge of all active long-running apiserver requests.\n# TYPE {name} gauge\n\
         {name}{{verb=\"WATCH\"}} {open}\n"
    );
    let mut response = response::raw(200, body.into());
    set(
        &mut response,
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8; escaping=underscores",
    );
    response
}
