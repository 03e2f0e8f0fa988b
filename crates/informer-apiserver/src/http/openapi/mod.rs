//! `OpenAPI` documents, in which clients look up fields and parameters.
//!
//! Documents are generated on the first request and cached until the served resources change. Built-in types
//! have no descriptions. Types of a `CustomResourceDefinition`, called a definition here, have those of its
//! schema. `OpenAPI` v2 is available as JSON and protobuf, v3 only as JSON.

mod custom;
mod paths;
mod published;
mod schemas;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header;
use http::request::Parts;
use informer_objects::protobuf;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::header::{hash, set};
use super::response::{self, ServerResponse};
use crate::model::{Filter, Model, Paging, ReadVersion, Registry};
use crate::request::Document;
use crate::shared::Shared;

/// The documents of a server, generated once per revision of the registry.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<Option<Arc<DocumentSet>>>);

/// All documents for one revision of the registry.
#[derive(Debug)]
struct DocumentSet {
    revision: u64,
    /// Documents of built-in groups, which never change.
    built_in: Arc<BTreeMap<String, RenderedDocument>>,
    custom: BTreeMap<String, RenderedDocument>,
    index: RenderedDocument,
    /// The `OpenAPI` v2 document, generated on the first request, since few clients request it.
    v2: Mutex<Option<V2Document>>,
    registry: Registry,
    definitions: Vec<Value>,
}

/// A document as it is sent.
#[derive(Debug, Clone)]
struct RenderedDocument {
    bytes: Bytes,
    tag: String,
    created: Timestamp,
}

/// The `OpenAPI` v2 document in both encodings.
#[derive(Debug, Clone)]
struct V2Document {
    json: RenderedDocument,
    protobuf: RenderedDocument,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Json,
    Protobuf,
}

const JSON: &str = "application/json";

/// Media types of `OpenAPI` v2 in protobuf: both accepted spellings, and the one that is sent.
const ACCEPTED_PROTOBUF: &[&str] = &["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF];
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Handles a request for a document.
pub(crate) fn respond(
    shared: &Shared,
    documents: &Documents,
    document: &Document,
    parts: &Parts,
) -> ServerResponse {
    let documents = documents.get(shared);
    let query = parts.uri.query().unwrap_or_default();
    match document {
        Document::Index => send(&documents.index, "text/plain; charset=utf-8"),
        Document::Whole => {
            let mut response = match negotiate(parts, ACCEPTED_PROTOBUF) {
                None => return empty_with_vary(406),
                Some(Encoding::Json) => tagged(&documents.v2_document().json, parts, JSON),
                Some(Encoding::Protobuf) => tagged(&documents.v2_document().protobuf, parts, PROTOBUF),
            };
            for value in ["Accept-Encoding", "Accept"] {
                response.headers_mut().append(header::VARY, header::HeaderValue::from_static(value));
            }
            response
        }
        Document::Part(name) => {
            let Some(found) = documents.built_in.get(name).or_else(|| documents.custom.get(name)) else {
                return empty(404);
            };
            if negotiate(parts, &[]).is_none() {
                return empty_with_vary(406);
            }
            v3_document(found, name, query, parts)
        }
    }
}

impl Documents {
    fn get(&self, shared: &Shared) -> Arc<DocumentSet> {
        let mut cache = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = shared.model(|model| model.registry().revision());
        if let Some(documents) = cache.as_ref().filter(|documents| documents.revision == revision) {
            return documents.clone();
        }
        let (registry, definitions) = shared.model(|model| (model.registry().clone(), definitions(model)));
        let built_in = cache.as_ref().map(|documents| documents.built_in.clone());
        let documents = Arc::new(DocumentSet::new(registry, definitions, built_in, Timestamp::now()));
        *cache = Some(documents.clone());
        documents
    }
}

impl DocumentSet {
    fn new(
        registry: Registry,
        definitions: Vec<Value>,
        built_in: Option<Arc<BTreeMap<String, RenderedDocument>>>,
        now: Timestamp,
    ) -> Self {
        let render = |document: &Value| RenderedDocument::new(document.to_string(), now);
        let built_in = built_in.unwrap_or_else(|| {
            let documents = paths::built_in(&registry);
            Arc::new(documents.iter().map(|(name, document)| (name.clone(), render(document))).collect())
        });
        let custom = custom::documents(&registry, &definitions);
        let custom: BTreeMap<String, RenderedDocument> =
            custom.iter().map(|(name, document)| (name.clone(), render(document))).collect();
        let mut urls = Map::new();
        for (name, document) in built_in.iter().chain(&custom) {
            urls.insert(name.clone(), json!({"serverRelativeURL": location(name, &document.tag)}));
        }
        let index = render(&json!({"paths": urls}));
        let revision = registry.revision();
        DocumentSet { revision, built_in, custom, index, v2: Mutex::default(), registry, definitions }
    }

    fn v2_document(&self) -> V2Document {
        let mut cache = self.v2.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let document = custom::v2_document(&self.registry, &self.definitions);
            let json = RenderedDocument::new(document.to_string(), self.index.created);
            // Both encodings have the same entity tag.
            let protobuf =
                RenderedDocument { bytes: Bytes::from(protobuf::document(&document)), ..json.clone() };
            V2Document { json, protobuf }
        };
        cache.get_or_insert_with(make).clone()
    }
}

impl RenderedDocument {
    fn new(text: String, created: Timestamp) -> Self {
        let tag = hash(text.as_bytes());
        RenderedDocument { bytes: Bytes::from(text), tag, created }
    }
}

/// Returns the stored definitions.
fn definitions(model: &mut Model) -> Vec<Value> {
    let gvr = model.registry().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let listing = gvr.and_then(|gvr| model.list(gvr, "", &ReadVersion::Newest, Paging::Unpaged).ok());
    let all = Filter::default();
    listing.map(|listing| listing.states(&all).map(|state| state.decode()).collect()).unwrap_or_default()
}

/// Returns an `OpenAPI` v3 document. If the query contains the hash of the document, the response can be
/// cached for a year. A request with another hash is redirected to the URL with the current hash.
fn v3_document(document: &RenderedDocument, name: &str, query: &str, parts: &Parts) -> ServerResponse {
    let requested = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "hash");
    let requested = requested.map(|(_, value)| value.into_owned()).filter(|value| !value.is_empty());
    if requested.as_ref().is_some_and(|requested| *requested != document.tag) {
        let mut response = empty_with_vary(301);
        set(&mut response, header::LOCATION, &location(name, &document.tag));
        return response;
    }
    let mut response = tagged(document, parts, JSON);
    set(&mut response, header::VARY, "Accept");
    if requested.is_some() {
        set(&mut response, header::CACHE_CONTROL, "public, immutable");
        let year = jiff::Span::new().hours(24 * 365);
        if let Ok(expires) = Timestamp::now().checked_add(year) {
            // kube-apiserver writes this zone as UTC, unlike in `Last-Modified`.
            set(&mut response, header::EXPIRES, &date(expires, "UTC"));
        }
    }
    response
}

/// Returns a document with an entity tag, or 304 if the client already has the document.
fn tagged(document: &RenderedDocument, parts: &Parts, content_type: &str) -> ServerResponse {
    let tag = format!("\"{}\"", document.tag);
    let unchanged =
        parts.headers.get(header::IF_NONE_MATCH).is_some_and(|value| value.as_bytes() == tag.as_bytes());
    let mut response = if unchanged { empty(304) } else { send(document, content_type) };
    set(&mut response, header::ETAG, &tag);
    response
}

fn send(document: &RenderedDocument, content_type: &str) -> ServerResponse {
    let mut response = response::raw(200, document.bytes.clone());
    set(&mut response, header::CONTENT_TYPE, content_type);
    set(&mut response, header::ACCEPT_RANGES, "bytes");
    set(&mut response, header::LAST_MODIFIED, &date(document.created, "GMT"));
    response
}

fn empty(code: u16) -> ServerResponse {
    let mut response = response::raw(code, Bytes::new());
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

fn empty_with_vary(code: u16) -> ServerResponse {
    let mut response = empty(code);
    set(&mut response, header::VARY, "Accept");
    response
}

/// Returns the first available encoding in the `Accept` header. `protobuf` contains the media types of
/// protobuf, if it is available.
fn negotiate(parts: &Parts, protobuf: &[&str]) -> Option<Encoding> {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if accept.trim().is_empty() {
        return Some(Encoding::Json);
    }
    accept.split(',').find_map(|entry| match entry.split(';').next().unwrap_or_default().trim() {
        JSON | "application/*" | "*/*" => Some(Encoding::Json),
        media => protobuf.contains(&media).then_some(Encoding::Protobuf),
    })
}

fn location(name: &str, tag: &str) -> String {
    format!("/openapi/v3/{name}?hash={tag}")
}

fn date(time: Timestamp, zone: &str) -> String {
    format!("{} {zone}", time.strftime("%a, %d %b %Y %H:%M:%S"))
}
