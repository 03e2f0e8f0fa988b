//! What inputs are made from: bodies that real servers sent, in both forms. Objects by themselves are put into a list and into a watch.

use crate::protobuf;
use informer_core::wire::TypeMeta;
use serde_json::Value;
use std::fs;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Json,
    Protobuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    List,
    Watch,
    Status,
}

/// A good body.
pub(crate) struct Seed {
    pub(crate) form: Form,
    pub(crate) what: What,
    /// The type of its objects.
    pub(crate) types: TypeMeta,
    pub(crate) body: Vec<u8>,
}

/// Recordings of whole conversations, which have JSON in them as JSON.
const SCENARIOS: [&str; 5] = ["list", "watch", "crd", "compaction", "leases_events"];

/// All bodies of the recordings, always in the same order.
pub(crate) fn all(recordings: &Path) -> Result<Vec<Seed>, String> {
    let mut seeds = Vec::new();
    let kinds = recordings.join("kinds");
    let mut files: Vec<_> = fs::read_dir(&kinds)
        .map_err(|error| format!("{}: {error}", kinds.display()))?
        .filter_map(|file| Some(file.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "pb"))
        .collect();
    files.sort();
    for path in files {
        let json = read(&path.with_extension("json"))?;
        seeds.extend(twins(&json, &read(&path)?));
    }
    for scenario in SCENARIOS {
        let text = read(&recordings.join(scenario).with_extension("json"))?;
        let steps: Value =
            serde_json::from_slice(&text).map_err(|error| format!("recording {scenario}: {error}"))?;
        seeds.extend(steps.as_array().into_iter().flatten().filter_map(|step| answer(&step["response"])));
    }
    Ok(seeds)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The type of an object, or of the items of a list.
fn type_of(value: &Value) -> Option<TypeMeta> {
    let kind = value["kind"].as_str()?;
    Some(TypeMeta::new(value["apiVersion"].as_str()?, kind.strip_suffix("List").unwrap_or(kind)))
}

/// One recorded answer in both forms.
fn twins(json: &[u8], message: &[u8]) -> Vec<Seed> {
    let first = serde_json::Deserializer::from_slice(json).into_iter::<Value>().next();
    let Some(Ok(value)) = first else { return Vec::new() };
    let both = |what, types: &TypeMeta, [json, protobuf]: [Vec<u8>; 2]| {
        [(Form::Json, json), (Form::Protobuf, protobuf)].map(|(form, body)| Seed {
            form,
            what,
            types: types.clone(),
            body,
        })
    };
    let as_sent = || [json.to_vec(), message.to_vec()];
    if value.get("type").is_some() {
        let types = type_of(&value["object"]).filter(|types| types.kind != "Status");
        return both(What::Watch, &types.unwrap_or_else(|| TypeMeta::new("v1", "Pod")), as_sent()).into();
    }
    let Some(types) = type_of(&value) else { return Vec::new() };
    if types.kind == "Status" {
        return both(What::Status, &types, as_sent()).into();
    }
    if value.get("items").is_some() {
        return both(What::List, &types, as_sent()).into();
    }
    let list = [list_of(&types, json), protobuf::list(&types, &[protobuf::opened(message)])];
    let watch = [frame_of("MODIFIED", json), protobuf::frame("MODIFIED", message)];
    both(What::List, &types, list).into_iter().chain(both(What::Watch, &types, watch)).collect()
}

/// A list of one object.
pub(crate) fn list_of(types: &TypeMeta, object: &[u8]) -> Vec<u8> {
    let TypeMeta { api_version, kind, .. } = types;
    let head = format!(
        r#"{{"kind":"{kind}List","apiVersion":"{api_version}","metadata":{{"resourceVersion":"9"}},"items":["#
    );
    [head.as_bytes(), object, b"]}"].concat()
}

fn frame_of(kind: &str, object: &[u8]) -> Vec<u8> {
    [format!(r#"{{"type":"{kind}","object":"#).as_bytes(), object, b"}\n"].concat()
}

/// An answer in JSON of a conversation.
fn answer(response: &Value) -> Option<Seed> {
    let seed = |what, types, body| Some(Seed { form: Form::Json, what, types, body });
    if let Some(frames) = response["frames"].as_array() {
        let events: Vec<&Value> =
            frames.iter().map(|frame| &frame["event"]).filter(|event| event.is_object()).collect();
        let types = events.iter().find_map(|event| type_of(&event["object"]))?;
        let body = events.iter().flat_map(|event| event.to_string().into_bytes()).collect();
        return seed(What::Watch, types, body);
    }
    let body = &response["body"];
    let types = type_of(body)?;
    match &*types.kind {
        "Status" => seed(What::Status, types, body.to_string().into_bytes()),
        _ if body.get("items").is_some() => seed(What::List, types, body.to_string().into_bytes()),
        _ => None,
    }
}
