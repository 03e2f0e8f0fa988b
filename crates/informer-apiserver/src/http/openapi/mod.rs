//! Descriptions of the API: which documents there are, and each of them, as clients look up fields and parameters in them.
//!
//! Documents are made when first asked for and kept until another definition is served. Built-in types have no
//! descriptions; those of definitions are passed on. The older format is also written as protobuf, the newer only as JSON.

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
use crate::model::{Filter, Model, ReadVersion, Registry};
use crate::request::Document;
use crate::shared::Shared;

/// The documents of a server, made once for each revision of what is served.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<Option<Arc<Made>>>);

#[derive(Debug)]
struct Made {
    revision: u64,
    /// Those of built-in groups, which stay as they are.
    built_in: Arc<BTreeMap<String, Ready>>,
    custom: BTreeMap<String, Ready>,
    index: Ready,
    /// The older format is asked for by few; it is made when the first does.
    whole: Mutex<Option<Whole>>,
    registry: Registry,
    definitions: Vec<Value>,
}

/// A document as it is sent.
#[derive(Debug, Clone)]
struct Ready {
    bytes: Bytes,
    tag: String,
    made: Timestamp,
}

/// The document in the older format, in both of its encodings.
#[derive(Debug, Clone)]
struct Whole {
    json: Ready,
    protobuf: Ready,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    Json,
    Protobuf,
}

const JSON: &str = "application/json";

/// The older format in protobuf: as it is asked for, in either spelling, and as it is sent.
const ACCEPTED_PROTOBUF: &[&str] = &["application/com.github.proto-openapi.spec.v2@v1.0+protobuf", PROTOBUF];
const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Answers a request for a document.
pub(crate) fn answer(
    shared: &Shared,
    documents: &Documents,
    document: &Document,
    parts: &Parts,
) -> ServerResponse {
    let made = documents.get(shared);
    let query = parts.uri.query().unwrap_or_default();
    match document {
        Document::Index => send(&made.index, "text/plain; charset=utf-8"),
        Document::Whole => {
            let mut answer = match accepted(parts, ACCEPTED_PROTOBUF) {
                None => return empty(406, true),
                Some(Encoding::Json) => tagged(&made.whole().json, parts, JSON),
                Some(Encoding::Protobuf) => tagged(&made.whole().protobuf, parts, PROTOBUF),
            };
            for value in ["Accept-Encoding", "Accept"] {
                answer.headers_mut().append(header::VARY, header::HeaderValue::from_static(value));
            }
            answer
        }
        Document::Part(name) => {
            let Some(found) = made.built_in.get(name).or_else(|| made.custom.get(name)) else {
                return empty(404, false);
            };
            if accepted(parts, &[]).is_none() {
                return empty(406, true);
            }
            part(found, name, query, parts)
        }
    }
}

impl Documents {
    fn get(&self, shared: &Shared) -> Arc<Made> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let revision = shared.model(|model| model.registry().revision());
        if let Some(made) = kept.as_ref().filter(|made| made.revision == revision) {
            return made.clone();
        }
        let (registry, definitions) = shared.model(|model| (model.registry().clone(), definitions(model)));
        let built_in = kept.as_ref().map(|made| made.built_in.clone());
        let made = Arc::new(Made::new(registry, definitions, built_in, Timestamp::now()));
        *kept = Some(made.clone());
        made
    }
}

impl Made {
    fn new(
        registry: Registry,
        definitions: Vec<Value>,
        built_in: Option<Arc<BTreeMap<String, Ready>>>,
        now: Timestamp,
    ) -> Self {
        let ready = |document: &Value| Ready::new(document.to_string(), now);
        let built_in = built_in.unwrap_or_else(|| {
            let documents = paths::built_in(&registry);
            Arc::new(documents.iter().map(|(name, document)| (name.clone(), ready(document))).collect())
        });
        let custom = custom::documents(&registry, &definitions);
        let custom: BTreeMap<String, Ready> =
            custom.iter().map(|(name, document)| (name.clone(), ready(document))).collect();
        let mut places = Map::new();
        for (name, document) in built_in.iter().chain(&custom) {
            places.insert(name.clone(), json!({"serverRelativeURL": location(name, &document.tag)}));
        }
        let index = ready(&json!({"paths": places}));
        let revision = registry.revision();
        Made { revision, built_in, custom, index, whole: Mutex::default(), registry, definitions }
    }

    fn whole(&self) -> Whole {
        let mut kept = self.whole.lock().unwrap_or_else(PoisonError::into_inner);
        let make = || {
            let document = custom::whole(&self.registry, &self.definitions);
            let json = Ready::new(document.to_string(), self.index.made);
            // Clients know the document by one tag, however it travels.
            let protobuf = Ready { bytes: Bytes::from(protobuf::document(&document)), ..json.clone() };
            Whole { json, protobuf }
        };
        kept.get_or_insert_with(make).clone()
    }
}

impl Ready {
    fn new(text: String, made: Timestamp) -> Self {
        let tag = hash(text.as_bytes());
        Ready { bytes: Bytes::from(text), tag, made }
    }
}

/// The definitions that are stored, as they are.
fn definitions(model: &mut Model) -> Vec<Value> {
    let place = model.registry().resource("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let listing = place.and_then(|place| model.list(place, "", &ReadVersion::Newest, false).ok());
    let everything = Filter::default();
    listing
        .map(|listing| listing.states(&everything).map(|state| state.decode()).collect())
        .unwrap_or_default()
}

/// A document of the newer format. Its name with its hash never changes its meaning; with another hash one is sent on.
fn part(document: &Ready, name: &str, query: &str, parts: &Parts) -> ServerResponse {
    let asked = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "hash");
    let asked = asked.map(|(_, value)| value.into_owned()).filter(|value| !value.is_empty());
    if asked.as_ref().is_some_and(|asked| *asked != document.tag) {
        let mut answer = empty(301, true);
        set(&mut answer, header::LOCATION, &location(name, &document.tag));
        return answer;
    }
    let mut answer = tagged(document, parts, JSON);
    set(&mut answer, header::VARY, "Accept");
    if asked.is_some() {
        set(&mut answer, header::CACHE_CONTROL, "public, immutable");
        let year = jiff::Span::new().hours(24 * 365);
        if let Ok(expires) = Timestamp::now().checked_add(year) {
            set(&mut answer, header::EXPIRES, &date(expires, "UTC"));
        }
    }
    answer
}

/// The document, or that it is the one the client has.
fn tagged(document: &Ready, parts: &Parts, content_type: &str) -> ServerResponse {
    let tag = format!("\"{}\"", document.tag);
    let known =
        parts.headers.get(header::IF_NONE_MATCH).is_some_and(|known| known.as_bytes() == tag.as_bytes());
    let mut answer = if known { empty(304, false) } else { send(document, content_type) };
    set(&mut answer, header::ETAG, &tag);
    answer
}

fn send(document: &Ready, content_type: &str) -> ServerResponse {
    let mut answer = response::raw(200, document.bytes.clone());
    set(&mut answer, header::CONTENT_TYPE, content_type);
    set(&mut answer, header::ACCEPT_RANGES, "bytes");
    set(&mut answer, header::LAST_MODIFIED, &date(document.made, "GMT"));
    answer
}

fn empty(code: u16, vary: bool) -> ServerResponse {
    let mut answer = response::raw(code, Bytes::new());
    answer.headers_mut().remove(header::CONTENT_TYPE);
    if vary {
        set(&mut answer, header::VARY, "Accept");
    }
    answer
}

/// How a client wants a document: the first that it names of those that there are.
fn accepted(parts: &Parts, protobuf: &[&str]) -> Option<Encoding> {
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
