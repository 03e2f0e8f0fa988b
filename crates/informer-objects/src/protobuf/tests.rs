//! Every recorded object is equal as JSON and as protobuf, and no input makes the decoder panic.

use std::fs;
use std::path::PathBuf;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use informer_schema::{MESSAGES, Message, RESOURCES};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::write::Writer;
use super::{DecodedObject, decode, encode, frame, is_known};
use crate::builtin;
use crate::text::versions::split_api_version;

/// A recorded response in both encodings.
struct Recording {
    name: String,
    json: String,
    bytes: Vec<u8>,
}

impl Recording {
    fn object(&self) -> Value {
        serde_json::from_str(&self.json).unwrap()
    }
}

/// Kinds with raw extensions: the server stores the bytes of the request, including blanks and the order of
/// fields, but here they are values.
const RAW_AS_SENT: &[&str] = &[
    "apps_v1_ControllerRevision",
    "resource.k8s.io_v1_DeviceClass",
    "resource.k8s.io_v1_ResourceClaim",
    "resource.k8s.io_v1_ResourceClaimTemplate",
];

fn recordings() -> Vec<Recording> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings/kinds");
    let mut recordings = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "pb") {
            recordings.push(Recording {
                name: path.file_stem().unwrap().to_string_lossy().into_owned(),
                json: fs::read_to_string(path.with_extension("json")).unwrap(),
                bytes: fs::read(path).unwrap(),
            });
        }
    }
    recordings.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(recordings.len() > 90, "{}", recordings.len());
    recordings
}

fn is_stream(recording: &Recording) -> bool {
    recording.name.contains(".watch")
}

#[test]
fn encoded_objects_equal_the_recorded_bytes() {
    let mut different = Vec::new();
    for recording in recordings().iter().filter(|recording| !is_stream(recording)) {
        if encode(&recording.object()).as_ref() != Some(&recording.bytes) {
            different.push(recording.name.clone());
        }
    }
    assert_eq!(different, RAW_AS_SENT);
}

#[test]
fn encoded_watch_frames_equal_the_recorded_bytes() {
    for recording in recordings().iter().filter(|recording| is_stream(recording)) {
        let mut frames = Vec::new();
        for line in recording.json.lines() {
            let event: Value = serde_json::from_str(line).unwrap();
            frame(&mut frames, event["type"].as_str().unwrap(), &encode(&event["object"]).unwrap());
        }
        assert_eq!(frames, recording.bytes, "{}", recording.name);
    }
}

#[test]
fn decoded_objects_equal_the_recorded_json() {
    for recording in recordings().iter().filter(|recording| !is_stream(recording)) {
        let DecodedObject { api_version, kind, object } = decode(&recording.bytes, ("", "")).unwrap();
        let shown = recording.object();
        assert_eq!(shown["kind"], kind.as_str());
        let (group, version) = split_api_version(&api_version);
        let shown = without_nested_types(shown);
        if let Some(type_id) = builtin::type_of(group, version, &kind) {
            let read = builtin::read(type_id, object).unwrap();
            assert_eq!(read.unknown, Vec::<String>::new(), "{}", recording.name);
            assert_eq!(read.object, shown, "{}", recording.name);
        } else {
            assert_eq!(without_empties(object), without_empties(shown), "{}", recording.name);
        }
    }
}

/// Decoded objects are encoded to the same bytes, except raw extensions.
#[test]
fn recorded_objects_round_trip() {
    for recording in recordings().iter().filter(|recording| !is_stream(recording)) {
        let first = decode(&recording.bytes, ("", "")).unwrap();
        let written = encode(&first.object).unwrap();
        if !RAW_AS_SENT.contains(&recording.name.as_str()) {
            assert_eq!(written, recording.bytes, "{}", recording.name);
        }
        assert_eq!(decode(&written, ("", "")).unwrap(), first, "{}", recording.name);
    }
}

/// Pages, metadata and statuses from the recorded scenarios are decoded and encoded to the same bytes.
#[test]
fn recorded_responses_round_trip() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings");
    let mut count = 0;
    for scenario in
        ["auth", "compaction", "crd", "crud", "delete", "discovery", "leases_events", "list", "patch"]
    {
        let text = fs::read_to_string(folder.join(format!("{scenario}.json"))).unwrap();
        let steps: Vec<Value> = serde_json::from_str(&text).unwrap();
        for step in &steps {
            let Some(body) = step.pointer("/response/body_base64").and_then(Value::as_str) else { continue };
            let bytes = STANDARD.decode(body).unwrap();
            let read = decode(&bytes, ("", "")).unwrap();
            assert_eq!(encode(&read.object), Some(bytes), "{scenario}/{}", step["name"]);
            count += 1;
        }
    }
    assert!(count > 25, "{count}");
}

/// Removes nested types: only envelopes name kinds, so templates of claims and items of lists lose theirs.
fn without_nested_types(mut object: Value) -> Value {
    for pointer in ["/spec/volumeClaimTemplates", "/items"] {
        let nested = object.pointer_mut(pointer).and_then(Value::as_array_mut);
        for object in nested.into_iter().flatten().filter_map(Value::as_object_mut) {
            object.remove("kind");
            object.remove("apiVersion");
        }
    }
    object
}

/// Returns a value without empty values.
fn without_empties(value: Value) -> Value {
    let is_kept = |value: &Value| match value {
        Value::Null => false,
        Value::Bool(value) => *value,
        Value::Number(number) => number.as_i64() != Some(0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    };
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(without_empties).collect()),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name, without_empties(value)));
            Value::Object(fields.filter(|(_, value)| is_kept(value)).collect())
        }
        plain => plain,
    }
}

#[test]
fn every_resource_has_messages() {
    for row in RESOURCES {
        let api_version = match row.group {
            "" => row.version.to_owned(),
            group => format!("{group}/{}", row.version),
        };
        assert!(is_known(&api_version, row.kind), "{api_version} {}", row.kind);
        let listed = row.verbs.contains(&"list");
        assert!(
            !listed || is_known(&api_version, &format!("{}List", row.kind)),
            "{api_version} {}",
            row.kind
        );
        for part in row.subresources.iter().filter(|part| part.type_id.is_some()) {
            let api_version = format!("{}/{}", part.group, part.version);
            assert!(is_known(api_version.trim_start_matches('/'), part.kind), "{api_version} {}", part.kind);
        }
    }
    for kind in ["DeleteOptions", "Status"] {
        assert!(is_known("v1", kind) && is_known("apps/v1", kind) && is_known("example.com/v1", kind));
    }
    assert!(is_known("apidiscovery.k8s.io/v2", "APIGroupDiscoveryList"));
    assert!(is_known("meta.k8s.io/v1beta1", "PartialObjectMetadataList"));
    assert!(is_known("meta.k8s.io/v1beta1", "PartialObjectMetadata"));
    assert!(
        !is_known("v1", "PodSpec")
            && !is_known("example.com/v1", "Thing")
            && !is_known("meta.k8s.io/v1", "Table")
    );
}

#[test]
fn times_before_the_epoch_round_trip() {
    let lease = |time: &str| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {}, "spec": {"renewTime": time}});
    for time in ["1969-12-31T23:59:59.250000Z", "0999-01-01T00:00:00.000001Z", "2026-01-01T00:00:00.000000Z"]
    {
        let read = decode(&encode(&lease(time)).unwrap(), ("", "")).unwrap();
        assert_eq!(read.object["spec"]["renewTime"], time);
    }
}

#[test]
fn decode_errors_equal_those_of_kube_apiserver() {
    let decoded = |bytes: &[u8]| {
        decode(bytes, ("v1", "ConfigMap")).map_err(|error| (error.type_meta.is_some(), error.message))
    };
    assert_eq!(decoded(b"").unwrap_err(), (false, "empty data".to_owned()));
    assert_eq!(decoded(b"k8s\0").unwrap_err(), (false, "empty body".to_owned()));
    let prefix = "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]";
    assert_eq!(decoded(b"{}").unwrap_err(), (false, prefix.to_owned()));
    assert_eq!(
        decoded(b"k8s\0\x08\x01").unwrap_err(),
        (false, "proto: wrong wireType = 0 for field TypeMeta".to_owned())
    );
    assert_eq!(decoded(b"k8s\0\x12\x02\x0a\x09").unwrap_err(), (true, "unexpected EOF".to_owned()));
    let unknown =
        r#"no kind "Thing" is registered for version "v1" in scheme "pkg/api/legacyscheme/scheme.go:30""#;
    assert_eq!(decoded(b"k8s\0\x0a\x07\x12\x05Thing").unwrap_err(), (true, unknown.to_owned()));
    // The expected type applies if the envelope has none.
    let read = decoded(b"k8s\0\x12\x02\x0a\x00").unwrap();
    assert_eq!(read.object, json!({"apiVersion": "v1", "kind": "ConfigMap"}));
}

/// Packed lists, unknown field numbers, and a message in two parts.
#[test]
fn encodings_of_other_writers_are_decoded() {
    let mut writer = Writer::default();
    writer.nested(2, |writer| {
        writer.integer(1999, 1);
        writer.nested(2, |writer| writer.nested(14, |writer| writer.data(4, &[1, 2])));
        writer.nested(1, |writer| writer.text(3, "b"));
        writer.nested(1, |writer| writer.text(1, "a"));
    });
    writer.bytes(b"k8s\0");
    let expected = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "b"},
        "spec": {"securityContext": {"supplementalGroups": [1, 2]}},
    });
    assert_eq!(decode(&writer.finish(), ("v1", "Pod")).unwrap().object, expected);
}

/// Schemas contain schemas, so their type does not limit the depth.
#[test]
fn nesting_depth_is_limited() {
    fn nest(writer: &mut Writer, number: u16, depth: usize) {
        if depth > 0 {
            writer.nested(number, |writer| nest(writer, number, depth - 1));
        }
    }
    let package = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";
    let schema = Message::named(&format!("{package}.JSONSchemaProps")).unwrap().get();
    let not = schema.parts.iter().find(|part| part.name == "not").unwrap();
    let read = |depth| {
        let mut writer = Writer::default();
        nest(&mut writer, not.number, depth);
        super::decode::message(schema, &writer.finish(), 0, &mut serde_json::Map::new())
    };
    assert_eq!(read(100), Ok(()));
    assert_eq!(read(2000), Err("exceeded max depth".to_owned()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Random bytes in an envelope are decoded or rejected.
    #[test]
    fn random_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0..MESSAGES.len()) {
        let _ = super::decode::message(&MESSAGES[at], &bytes, 0, &mut serde_json::Map::new());
        let _ = decode(&bytes, ("v1", "Pod"));
        let _ = decode(&[b"k8s\0", bytes.as_slice()].concat(), ("v1", "Pod"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Recorded objects with changed or truncated bytes are decoded or rejected, and decoded ones can be
    /// encoded.
    #[test]
    fn damaged_objects_do_not_panic(
        which in any::<prop::sample::Index>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let recordings = recordings();
        let mut bytes = recordings[which.index(recordings.len())].bytes.clone();
        for (index, byte) in changes {
            let index = index.index(bytes.len());
            bytes[index] = byte;
        }
        for bytes in [&bytes[..], &bytes[..cut.index(bytes.len())]] {
            if let Ok(read) = decode(bytes, ("v1", "Pod")) {
                let written = encode(&read.object).unwrap();
                prop_assert!(decode(&written, ("v1", "Pod")).is_ok());
            }
        }
    }
}
