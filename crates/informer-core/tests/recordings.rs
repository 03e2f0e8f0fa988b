//! The wire readers on recordings of a real API server: heads, bytes, bookmarks and errors equal those found
//! by a plain JSON parser. The recordings and their format are in `testdata/recordings`.
//!
//! Each test checks the number of comparisons, so that a missing recording is noticed.

#![allow(clippy::unwrap_used, reason = "a failing test panics")]

use informer_core::wire::{
    Frame, Head, Limits, ListItem, ListMeta, ListReader, ScannedObject, Status, TypeMeta, WatchReader,
};
use informer_core::{FieldFilter, Key, ResourceVersion};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::{Path, PathBuf};

const SCENARIOS: [&str; 5] = ["list", "watch", "crd", "compaction", "leases_events"];

#[derive(Deserialize)]
struct Step {
    name: String,
    response: Option<Response>,
}

#[derive(Deserialize)]
struct Response {
    status: u16,
    headers: Value,
    body: Option<Box<RawValue>>,
    frames: Option<Vec<RecordedFrame>>,
}

#[derive(Deserialize)]
struct RecordedFrame {
    event: Option<Box<RawValue>>,
}

impl Response {
    fn is_successful_json(&self) -> bool {
        (200..300).contains(&self.status) && self.headers["content-type"] == "application/json"
    }
}

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings")
}

/// All successful JSON responses, each with the name of its step.
fn responses() -> impl Iterator<Item = (String, Response)> {
    SCENARIOS.iter().flat_map(|scenario| {
        let path = recordings().join(scenario).with_extension("json");
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let steps: Vec<Step> = serde_json::from_str(&text).unwrap();
        let good = move |step: Step| Some((format!("{scenario}/{}", step.name), step.response?));
        steps.into_iter().filter_map(good).filter(|(_, response)| response.is_successful_json())
    })
}

/// The recorded JSON bodies of `kinds/`, by file name, in order, without discovery documents and the index.
fn kinds() -> Vec<(String, String)> {
    let files = std::fs::read_dir(recordings().join("kinds")).unwrap();
    let mut bodies: Vec<_> = files
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .map(|path| (path.file_name().unwrap().to_string_lossy().into_owned(), path))
        .filter(|(name, _)| name != "index.json" && !name.starts_with("core_v1_API"))
        .map(|(name, path)| (name, std::fs::read_to_string(path).unwrap()))
        .collect();
    bodies.sort();
    bodies
}

/// `json` as the server sent it: without white space between tokens.
fn compact(json: &str) -> String {
    let (mut in_string, mut escaped) = (false, false);
    json.chars()
        .filter(|&character| {
            let kept = in_string || !character.is_ascii_whitespace();
            in_string ^= character == '"' && !escaped;
            escaped = character == '\\' && !escaped;
            kept
        })
        .collect()
}

/// The type of an object, or of the items of a list.
fn type_of(value: &Value) -> TypeMeta {
    let kind = value["kind"].as_str().unwrap();
    TypeMeta::new(value["apiVersion"].as_str().unwrap(), kind.strip_suffix("List").unwrap_or(kind))
}

/// Reads a list whole and in pieces; all items must be readable.
#[track_caller]
fn read_list(types: &TypeMeta, body: &str) -> (ListMeta, Vec<ScannedObject>) {
    read_filtered(types, None, body)
}

/// Reads a list with a field filter.
#[track_caller]
fn read_filtered(types: &TypeMeta, by: Option<&FieldFilter>, body: &str) -> (ListMeta, Vec<ScannedObject>) {
    let read = |size: usize| {
        let reader = ListReader::new(types.clone(), Limits::default());
        let (mut reader, mut items) = (reader.with_field_filter(by.cloned()), Vec::new());
        body.as_bytes().chunks(size).for_each(|piece| reader.read(piece, |item| items.push(item)).unwrap());
        reader.finish().unwrap();
        items
    };
    let items = read(body.len());
    assert_eq!(read(61), items);
    let (mut metas, mut objects) = (Vec::new(), Vec::new());
    for item in items {
        match item {
            ListItem::Meta(meta) => metas.push(meta),
            ListItem::Object(object) => objects.push(object),
            ListItem::Unreadable(unreadable) => panic!("{unreadable}"),
        }
    }
    assert_eq!(metas.len(), 1);
    (metas.remove(0), objects)
}

/// Reads a watch whole and in pieces.
#[track_caller]
fn read_watch(types: &TypeMeta, stream: &str) -> Vec<Frame> {
    let read = |size: usize| {
        let (mut reader, mut frames) = (WatchReader::new(types.clone(), Limits::default()), Vec::new());
        stream
            .as_bytes()
            .chunks(size)
            .for_each(|piece| reader.read(piece, |frame| frames.push(frame)).unwrap());
        reader.finish().unwrap();
        frames
    };
    let frames = read(stream.len().max(1));
    assert_eq!(read(61), frames);
    frames
}

#[track_caller]
fn check_head(head: &Head, metadata: &Value) {
    let text = |field: &str| metadata[field].as_str().unwrap_or_default();
    let time = |field: &str| metadata[field].as_str().map(|text| text.parse::<jiff::Timestamp>().unwrap());
    assert_eq!(head.key, Key::new(text("namespace"), text("name")));
    assert_eq!((&*head.uid, head.version.as_str()), (text("uid"), text("resourceVersion")));
    assert_eq!(head.generation(), metadata["generation"].as_i64());
    assert_eq!(
        (head.creation_timestamp(), head.deletion_timestamp()),
        (time("creationTimestamp"), time("deletionTimestamp"))
    );
    let labels = head.labels.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    assert_eq!(
        Value::Object(labels),
        metadata.get("labels").cloned().unwrap_or_else(|| serde_json::json!({}))
    );
    let none = Vec::new();
    let owners = metadata["ownerReferences"].as_array().unwrap_or(&none);
    assert_eq!(head.owners.len(), owners.len());
    for (owner, expected) in head.owners.iter().zip(owners) {
        assert_eq!(
            (owner.api_version, owner.kind),
            (&*text_of(expected, "apiVersion"), &*text_of(expected, "kind"))
        );
        assert_eq!((owner.name, owner.uid), (&*text_of(expected, "name"), &*text_of(expected, "uid")));
        assert_eq!(owner.controller, expected["controller"] == true);
    }
}

fn text_of(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap().to_owned()
}

/// Compares the scanned object with the parsed one, without `managedFields` and with the type of its cache.
#[track_caller]
fn check_object(object: &ScannedObject, types: &TypeMeta, mut expected: Value) {
    check_head(&object.head, &expected["metadata"]);
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    expected["apiVersion"] = types.api_version.clone().into();
    expected["kind"] = types.kind.clone().into();
    assert_eq!(serde_json::from_slice::<Value>(&object.bytes).unwrap(), expected);
}

/// Checks one list given as JSON. Returns the number of items.
#[track_caller]
fn check_list(json: &str) -> usize {
    let parsed: Value = serde_json::from_str(json).unwrap();
    let types = type_of(&parsed);
    let (meta, objects) = read_list(&types, &compact(json));
    assert_eq!(read_list(&types, json).0, meta, "indented");
    let metadata = &parsed["metadata"];
    assert_eq!(meta.version, ResourceVersion::new(metadata["resourceVersion"].as_str().unwrap()));
    assert_eq!(
        meta.continue_token.as_deref(),
        metadata["continue"].as_str().filter(|token| !token.is_empty())
    );
    assert_eq!(meta.remaining, metadata["remainingItemCount"].as_u64());
    let none = Vec::new();
    let items = parsed["items"].as_array().unwrap_or(&none);
    assert_eq!(objects.len(), items.len());
    objects.iter().zip(items).for_each(|(object, item)| check_object(object, &types, item.clone()));
    items.len()
}

#[track_caller]
fn check_frame(frame: &Frame, types: &TypeMeta, event: &Value) {
    let object = &event["object"];
    match (event["type"].as_str().unwrap(), frame) {
        ("ADDED", Frame::Added(read))
        | ("MODIFIED", Frame::Modified(read))
        | ("DELETED", Frame::Deleted(read)) => {
            check_object(read, types, object.clone());
        }
        ("BOOKMARK", Frame::Bookmark { version, initial_events_end }) => {
            let metadata = &object["metadata"];
            assert_eq!(version.as_ref().map(ResourceVersion::as_str), metadata["resourceVersion"].as_str());
            assert_eq!(*initial_events_end, metadata["annotations"]["k8s.io/initial-events-end"] == "true");
        }
        ("ERROR", Frame::Error(status)) => check_status(status, object),
        (expected, found) => panic!("{expected} was read as {found:?}"),
    }
}

#[track_caller]
fn check_status(status: &Status, expected: &Value) {
    assert_eq!(u64::from(status.code), expected["code"].as_u64().unwrap());
    assert_eq!(&*status.reason, expected["reason"].as_str().unwrap());
    assert_eq!(&*status.message, expected["message"].as_str().unwrap());
    let details = &expected["details"];
    assert_eq!(status.retry_after.map(|delay| delay.as_secs()), details["retryAfterSeconds"].as_u64());
    let too_large = details["causes"][0]["reason"] == "ResourceVersionTooLarge";
    assert_eq!(status.version_too_large, too_large);
}

/// Checks one watch given as its events. Returns their types.
#[track_caller]
fn check_watch(events: &[&str]) -> Vec<String> {
    let parsed: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let first = parsed.iter().find(|event| event["type"] != "ERROR").map(|event| type_of(&event["object"]));
    let types = first.unwrap_or_else(|| TypeMeta::new("v1", "ConfigMap"));
    let stream: String = events.iter().map(|event| compact(event) + "\n").collect();
    let frames = read_watch(&types, &stream);
    assert_eq!(frames.len(), parsed.len());
    frames.iter().zip(&parsed).for_each(|(frame, event)| check_frame(frame, &types, event));
    assert_eq!(read_watch(&types, &events.concat()).len(), parsed.len(), "indented");
    parsed.iter().map(|event| text_of(event, "type")).collect()
}

#[test]
fn every_recorded_list_reads_as_its_json() {
    let (mut lists, mut items, mut pages) = (0, 0, 0);
    for (name, response) in responses() {
        let Some(body) = response.body else { continue };
        let parsed: Value = serde_json::from_str(body.get()).unwrap();
        if parsed.get("items").is_some() {
            println!("{name}");
            lists += 1;
            items += check_list(body.get());
            pages += usize::from(parsed["metadata"]["remainingItemCount"].is_u64());
        }
    }
    assert_eq!((lists, items, pages), (111, 302, 14));
}

#[test]
fn every_recorded_list_reads_when_filtered() {
    let env = "spec.template.spec.containers[*].env";
    let dropped = FieldFilter::drop(["status", "metadata.annotations", env]).unwrap();
    let kept_fields = FieldFilter::keep(["spec.nodeName", "data"]).unwrap();
    let (mut lists, mut items) = (0, 0);
    let recorded = responses().filter_map(|(_, response)| Some(response.body?.get().to_owned()));
    for json in recorded.chain(kinds().into_iter().map(|(_, body)| body)) {
        let Ok(parsed) = serde_json::from_str::<Value>(&json) else { continue }; // a watch
        if parsed["items"].is_array() {
            lists += 1;
            items += check_filtered(&json, &type_of(&parsed), &dropped, &kept_fields);
        }
    }
    assert_eq!((lists, items), (110, 335));
}

/// Checks that filtered items are the items without the dropped fields. Returns their number.
#[track_caller]
fn check_filtered(json: &str, types: &TypeMeta, dropped: &FieldFilter, kept_fields: &FieldFilter) -> usize {
    let read = |by| read_filtered(types, by, &compact(json)).1;
    let (all, dropped, kept_fields) = (read(None), read(Some(dropped)), read(Some(kept_fields)));
    assert_eq!((dropped.len(), kept_fields.len()), (all.len(), all.len()));
    for ((object, dropped), kept_fields) in all.iter().zip(dropped).zip(kept_fields) {
        let parse = |object: &ScannedObject| serde_json::from_slice::<Value>(&object.bytes).unwrap();
        let mut expected = parse(object);
        check_head(&kept_fields.head, &expected["metadata"]);
        expected.as_object_mut().unwrap().remove("status");
        expected["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(parse(&dropped), expected);
        let members = parse(&kept_fields);
        let known = ["apiVersion", "kind", "metadata", "spec", "data"];
        assert!(members.as_object().unwrap().keys().all(|name| known.contains(&&**name)), "{members}");
        assert_eq!(members.get("data"), expected.get("data"));
        assert_eq!(members["spec"]["nodeName"], expected["spec"]["nodeName"]);
    }
    all.len()
}

#[test]
fn every_recorded_watch_reads_as_its_json() {
    let (mut watches, mut tables, mut types) = (0, 0, Vec::new());
    for (name, response) in responses() {
        let Some(frames) = response.frames else { continue };
        println!("{name}");
        let events: Vec<_> =
            frames.iter().filter_map(|frame| frame.event.as_deref().map(RawValue::get)).collect();
        if events.iter().any(|event| compact(event).contains(r#""kind":"Table""#)) {
            tables += 1;
            check_table_watch(&events);
        } else {
            watches += 1;
            types.extend(check_watch(&events));
        }
    }
    let of = |wanted: &str| types.iter().filter(|kind| *kind == wanted).count();
    assert_eq!((watches, tables), (79, 5));
    assert_eq!(["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"].map(of), [192, 107, 77, 19, 12]);
}

/// Tables are never requested; those of a misbehaving proxy must not be taken for objects.
#[track_caller]
fn check_table_watch(events: &[&str]) {
    for frame in read_watch(&TypeMeta::new("v1", "ConfigMap"), &events.concat()) {
        match frame {
            Frame::Unreadable(_, unreadable) => {
                assert_eq!(unreadable.error.to_string(), "unexpected kind: meta.k8s.io/v1 Table");
            }
            Frame::Bookmark { .. } | Frame::Error(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn recorded_table_is_not_a_list() {
    let mut tables = 0;
    for (name, response) in responses() {
        let Some(body) = response.body.filter(|body| compact(body.get()).starts_with(r#"{"kind":"Table""#))
        else {
            continue;
        };
        let mut reader = ListReader::new(TypeMeta::new("v1", "ConfigMap"), Limits::default());
        let error =
            reader.read(compact(body.get()).as_bytes(), |item| panic!("{name}: {item:?}")).unwrap_err();
        assert_eq!(error.to_string(), "list at byte 15: not a list but a Table", "{name}");
        tables += 1;
    }
    assert_eq!(tables, 26);
}

#[test]
fn every_recorded_kind_reads_as_its_json() {
    let (mut objects, mut lists, mut statuses, mut streams) = (0, 0, 0, 0);
    for (name, body) in kinds() {
        println!("{name}");
        if name.contains(".watch") {
            streams += check_watch(&body.lines().collect::<Vec<_>>()).len();
            continue;
        }
        let parsed: Value = serde_json::from_str(&body).unwrap();
        if parsed["kind"] == "Status" {
            check_status(&Status::from_json(body.as_bytes()).unwrap(), &parsed);
            statuses += 1;
        } else if parsed.get("items").is_some() {
            check_list(&body);
            lists += 1;
        } else {
            check_single(&body, parsed);
            objects += 1;
        }
    }
    assert_eq!((objects, lists, statuses, streams), (75, 6, 5, 17));
}

/// Checks one object, as an item and as a frame.
#[track_caller]
fn check_single(body: &str, parsed: Value) {
    let types = type_of(&parsed);
    let (_, objects) =
        read_list(&types, &format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{body}]}}"#));
    let frames = read_watch(&types, &format!(r#"{{"type":"MODIFIED","object":{body}}}"#));
    assert_eq!(frames, [Frame::Modified(objects[0].clone())]);
    check_object(&objects[0], &types, parsed);
}
