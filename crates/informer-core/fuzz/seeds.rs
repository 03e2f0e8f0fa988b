//! The valid bodies from which inputs are made: recorded responses of kube-apiserver, in both encodings.
//! Single objects are wrapped in a list and in a watch frame.

use crate::protobuf;
use informer_core::wire::TypeMeta;
use serde_json::Value;
use std::fs;
use std::path::Path;

/// The encoding of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoding {
    Json,
    Protobuf,
}

/// The kind of response that a body belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    List,
    Watch,
    Status,
}

/// A valid body.
pub(crate) struct Seed {
    pub(crate) encoding: Encoding,
    pub(crate) kind: BodyKind,
    /// The type of its objects.
    pub(crate) type_meta: TypeMeta,
    pub(crate) body: Vec<u8>,
}

/// Names of the recordings of complete conversations, which contain JSON bodies as JSON.
const SCENARIOS: [&str; 5] = ["list", "watch", "crd", "compaction", "leases_events"];

/// Returns all bodies of the recordings, always in the same order.
pub(crate) fn all(recordings: &Path) -> Result<Vec<Seed>, String> {
    let mut seeds = Vec::new();
    let kinds = recordings.join("kinds");
    let mut files: Vec<_> = fs::read_dir(&kinds)
        .map_err(|error| format!("{}: {error}", kinds.display()))?
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "pb"))
        .collect();
    files.sort();
    for path in files {
        let json = read(&path.with_extension("json"))?;
        seeds.extend(recorded_pair(&json, &read(&path)?));
    }
    for scenario in SCENARIOS {
        let text = read(&recordings.join(scenario).with_extension("json"))?;
        let steps: Value =
            serde_json::from_slice(&text).map_err(|error| format!("recording {scenario}: {error}"))?;
        seeds.extend(
            steps.as_array().into_iter().flatten().filter_map(|step| recorded_response(&step["response"])),
        );
    }
    Ok(seeds)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Returns the type of an object, or of the items of a list.
fn type_of(value: &Value) -> Option<TypeMeta> {
    let kind = value["kind"].as_str()?;
    Some(TypeMeta::new(value["apiVersion"].as_str()?, kind.strip_suffix("List").unwrap_or(kind)))
}

/// Returns the seeds of a response recorded in both encodings.
fn recorded_pair(json: &[u8], message: &[u8]) -> Vec<Seed> {
    let first = serde_json::Deserializer::from_slice(json).into_iter::<Value>().next();
    let Some(Ok(value)) = first else { return Vec::new() };
    let seeds_of = |kind, type_meta: &TypeMeta, [json, protobuf]: [Vec<u8>; 2]| {
        [(Encoding::Json, json), (Encoding::Protobuf, protobuf)].map(|(encoding, body)| Seed {
            encoding,
            kind,
            type_meta: type_meta.clone(),
            body,
        })
    };
    let as_sent = || [json.to_vec(), message.to_vec()];
    if value.get("type").is_some() {
        let type_meta = type_of(&value["object"]).filter(|type_meta| type_meta.kind != "Status");
        return seeds_of(
            BodyKind::Watch,
            &type_meta.unwrap_or_else(|| TypeMeta::new("v1", "Pod")),
            as_sent(),
        )
        .into();
    }
    let Some(type_meta) = type_of(&value) else { return Vec::new() };
    if type_meta.kind == "Status" {
        return seeds_of(BodyKind::Status, &type_meta, as_sent()).into();
    }
    if value.get("items").is_some() {
        return seeds_of(BodyKind::List, &type_meta, as_sent()).into();
    }
    let list = [list_of(&type_meta, json), protobuf::list(&type_meta, &[protobuf::unwrap_envelope(message)])];
    let watch = [frame_of("MODIFIED", json), protobuf::frame("MODIFIED", message)];
    seeds_of(BodyKind::List, &type_meta, list)
        .into_iter()
        .chain(seeds_of(BodyKind::Watch, &type_meta, watch))
        .collect()
}

/// Returns a JSON list of one object.
pub(crate) fn list_of(type_meta: &TypeMeta, object: &[u8]) -> Vec<u8> {
    let TypeMeta { api_version, kind, .. } = type_meta;
    let head = format!(
        r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{"resourceVersion":"9"}},"items":["#
    );
    [head.as_bytes(), object, b"]}"].concat()
}

fn frame_of(kind: &str, object: &[u8]) -> Vec<u8> {
    [format!(r#"{{"type":"{kind}","object":"#).as_bytes(), object, b"}\n"].concat()
}

/// Returns the seed of a JSON response of a conversation.
fn recorded_response(response: &Value) -> Option<Seed> {
    let seed = |kind, type_meta, body| Some(Seed { encoding: Encoding::Json, kind, type_meta, body });
    if let Some(frames) = response["frames"].as_array() {
        let events: Vec<&Value> =
            frames.iter().map(|frame| &frame["event"]).filter(|event| event.is_object()).collect();
        let type_meta = events.iter().find_map(|event| type_of(&event["object"]))?;
        let body = events.iter().flat_map(|event| event.to_string().into_bytes()).collect();
        return seed(BodyKind::Watch, type_meta, body);
    }
    let body = &response["body"];
    let type_meta = type_of(body)?;
    match &*type_meta.kind {
        "Status" => seed(BodyKind::Status, type_meta, body.to_string().into_bytes()),
        _ if body.get("items").is_some() => seed(BodyKind::List, type_meta, body.to_string().into_bytes()),
        _ => None,
    }
}
