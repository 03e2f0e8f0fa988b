//! The wire readers on what a real API server sent: heads, bytes, bookmarks and errors equal what a plain JSON
//! parser finds in the same bodies. The recordings and their format are in `testdata/recordings`.
//!
//! Each test ends with the number of things it compared, so that a recording that moves away is noticed.

#![allow(clippy::unwrap_used, reason = "a test says what is wrong by panicking")]

use informer_core::wire::{
    Frame, Head, Limits, ListItem, ListMeta, ListReader, Scanned, Status, TypeMeta, WatchReader,
};
use informer_core::{Key, Projection, ResourceVersion};
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
    fn is_good_json(&self) -> bool {
        (200..300).contains(&self.status) && self.headers["content-type"] == "application/json"
    }
}

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings")
}

/// All good JSON answers, each with the name of its step.
fn answers() -> impl Iterator<Item = (String, Response)> {
    SCENARIOS.iter().flat_map(|scenario| {
        let path = recordings().join(scenario).with_extension("json");
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let steps: Vec<Step> = serde_json::from_str(&text).unwrap();
        let good = move |step: Step| Some((format!("{scenario}/{}", step.name), step.response?));
        steps.into_iter().filter_map(good).filter(|(_, response)| response.is_good_json())
    })
}

/// The recorded JSON bodies of `kinds/`, by file name, in order; documents of discovery and the index are no objects.
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

/// `json` as the server sent it: without white space between its tokens.
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

/// Reads a list whole and in pieces; nothing in it may be unreadable.
#[track_caller]
fn read_list(types: &TypeMeta, body: &str) -> (ListMeta, Vec<Scanned>) {
    read_projected(types, None, body)
}

/// The same with a projection.
#[track_caller]
fn read_projected(types: &TypeMeta, by: Option<&Projection>, body: &str) -> (ListMeta, Vec<Scanned>) {
    let read = |size: usize| {
        let reader = ListReader::new(types.clone(), Limits::default());
        let (mut reader, mut items) = (reader.projecting(by.cloned()), Vec::new());
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
    assert_eq!((head.created(), head.deleted()), (time("creationTimestamp"), time("deletionTimestamp")));
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

/// The object as read equals the object as parsed, without `managedFields` and with the type of its cache.
#[track_caller]
fn check_object(object: &Scanned, types: &TypeMeta, mut expected: Value) {
    check_head(&object.head, &expected["metadata"]);
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    expected["apiVersion"] = types.api_version.clone().into();
    expected["kind"] = types.kind.clone().into();
    assert_eq!(serde_json::from_slice::<Value>(&object.bytes).unwrap(), expected);
}

/// Checks one list, given as JSON; returns how many items it has.
#[track_caller]
fn check_list(json: &str) -> usize {
    let parsed: Value = serde_json::from_str(json).unwrap();
    let types = type_of(&parsed);
    let (meta, objects) = read_list(&types, &compact(json));
    assert_eq!(read_list(&types, json).0, meta, "as indented");
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

/// Checks one watch, given as its events; returns their types.
#[track_caller]
fn check_watch(events: &[&str]) -> Vec<String> {
    let parsed: Vec<Value> = events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
    let first = parsed.iter().find(|event| event["type"] != "ERROR").map(|event| type_of(&event["object"]));
    let types = first.unwrap_or_else(|| TypeMeta::new("v1", "ConfigMap"));
    let stream: String = events.iter().map(|event| compact(event) + "\n").collect();
    let frames = read_watch(&types, &stream);
    assert_eq!(frames.len(), parsed.len());
    frames.iter().zip(&parsed).for_each(|(frame, event)| check_frame(frame, &types, event));
    assert_eq!(read_watch(&types, &events.concat()).len(), parsed.len(), "as indented");
    parsed.iter().map(|event| text_of(event, "type")).collect()
}

#[test]
fn every_recorded_list_reads_as_its_json_says() {
    let (mut lists, mut items, mut pages) = (0, 0, 0);
    for (name, response) in answers() {
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
fn every_recorded_list_reads_when_projected() {
    let env = "spec.template.spec.containers[*].env";
    let lean = Projection::drop(["status", "metadata.annotations", env]).unwrap();
    let placed = Projection::keep(["spec.nodeName", "data"]).unwrap();
    let (mut lists, mut items) = (0, 0);
    let recorded = answers().filter_map(|(_, response)| Some(response.body?.get().to_owned()));
    for json in recorded.chain(kinds().into_iter().map(|(_, body)| body)) {
        let Ok(parsed) = serde_json::from_str::<Value>(&json) else { continue }; // a watch
        if parsed["items"].is_array() {
            lists += 1;
            items += check_projected(&json, &type_of(&parsed), &lean, &placed);
        }
    }
    assert_eq!((lists, items), (110, 335));
}

/// Checks that projected items are the items, less what goes; returns how many there are.
#[track_caller]
fn check_projected(json: &str, types: &TypeMeta, lean: &Projection, placed: &Projection) -> usize {
    let read = |by| read_projected(types, by, &compact(json)).1;
    let (all, lean, placed) = (read(None), read(Some(lean)), read(Some(placed)));
    assert_eq!((lean.len(), placed.len()), (all.len(), all.len()));
    for ((object, lean), placed) in all.iter().zip(lean).zip(placed) {
        let parse = |object: &Scanned| serde_json::from_slice::<Value>(&object.bytes).unwrap();
        let mut expected = parse(object);
        check_head(&placed.head, &expected["metadata"]);
        expected.as_object_mut().unwrap().remove("status");
        expected["metadata"].as_object_mut().unwrap().remove("annotations");
        assert_eq!(parse(&lean), expected);
        let members = parse(&placed);
        let known = ["apiVersion", "kind", "metadata", "spec", "data"];
        assert!(members.as_object().unwrap().keys().all(|name| known.contains(&&**name)), "{members}");
        assert_eq!(members.get("data"), expected.get("data"));
        assert_eq!(members["spec"]["nodeName"], expected["spec"]["nodeName"]);
    }
    all.len()
}

#[test]
fn every_recorded_watch_reads_as_its_json_says() {
    let (mut watches, mut tables, mut types) = (0, 0, Vec::new());
    for (name, response) in answers() {
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

/// Nobody asks for tables; a proxy that sends them anyway must not be taken at its word.
#[track_caller]
fn check_table_watch(events: &[&str]) {
    for frame in read_watch(&TypeMeta::new("v1", "ConfigMap"), &events.concat()) {
        match frame {
            Frame::Unreadable(_, unreadable) => {
                assert_eq!(unreadable.problem.to_string(), "it is of another kind: meta.k8s.io/v1 Table");
            }
            Frame::Bookmark { .. } | Frame::Error(_) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_recorded_table_is_no_list() {
    let mut tables = 0;
    for (name, response) in answers() {
        let Some(body) = response.body.filter(|body| compact(body.get()).starts_with(r#"{"kind":"Table""#))
        else {
            continue;
        };
        let mut reader = ListReader::new(TypeMeta::new("v1", "ConfigMap"), Limits::default());
        let error =
            reader.read(compact(body.get()).as_bytes(), |item| panic!("{name}: {item:?}")).unwrap_err();
        assert_eq!(error.to_string(), "item #0 at byte 15: not a list but a Table", "{name}");
        tables += 1;
    }
    assert_eq!(tables, 26);
}

#[test]
fn every_recorded_kind_reads_as_its_json_says() {
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

/// One object, as an item and as a frame.
#[track_caller]
fn check_single(body: &str, parsed: Value) {
    let types = type_of(&parsed);
    let (_, objects) =
        read_list(&types, &format!(r#"{{"metadata":{{"resourceVersion":"1"}},"items":[{body}]}}"#));
    let frames = read_watch(&types, &format!(r#"{{"type":"MODIFIED","object":{body}}}"#));
    assert_eq!(frames, [Frame::Modified(objects[0].clone())]);
    check_object(&objects[0], &types, parsed);
}
