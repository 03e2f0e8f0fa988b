//! Responses of a real server recorded in both encodings, from `testdata/recordings/kinds`, and readers of
//! their JSON.
#![allow(dead_code, reason = "each test uses a part of it")]

use informer_core::wire::{Frame, Limits, ScannedObject, TypeMeta, WatchReader};
use informer_core::{Entry, Object, Retention};
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;

/// A response recorded in both encodings.
pub(crate) struct Recording {
    pub(crate) name: String,
    pub(crate) json: String,
    pub(crate) protobuf: Vec<u8>,
}

impl Recording {
    pub(crate) fn value(&self) -> Value {
        serde_json::from_str(&self.json).unwrap()
    }

    /// Whether it is a single object with metadata, not a list or stream.
    pub(crate) fn is_object(&self) -> bool {
        let value = || self.value();
        !self.name.contains(".watch")
            && value().get("items").is_none()
            && value()["metadata"]["name"].is_string()
    }
}

/// All recordings by name, without discovery documents.
pub(crate) fn recordings() -> Vec<Recording> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/recordings/kinds");
    let mut found: Vec<Recording> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "pb"))
        .map(|path| Recording {
            name: path.file_stem().unwrap().to_string_lossy().into_owned(),
            json: std::fs::read_to_string(path.with_extension("json")).unwrap(),
            protobuf: std::fs::read(&path).unwrap(),
        })
        .filter(|recording| !recording.name.starts_with("core_v1_API"))
        .collect();
    found.sort_by(|one, other| one.name.cmp(&other.name));
    found
}

/// The type of an object, or of the items of a list.
pub(crate) fn type_of(value: &Value) -> TypeMeta {
    let kind = value["kind"].as_str().unwrap();
    TypeMeta::new(value["apiVersion"].as_str().unwrap(), kind.strip_suffix("List").unwrap_or(kind))
}

/// The object as a cache stores it when received as JSON.
pub(crate) fn json_object<K>(scanned: ScannedObject) -> Object<K> {
    Object::new(Arc::new(Entry::new(scanned, Retention::Bytes)))
}

/// Reads a watch in JSON.
pub(crate) fn json_watch(types: &TypeMeta, body: &str) -> Vec<Frame> {
    let (mut reader, mut frames) = (WatchReader::new(types.clone(), Limits::default()), Vec::new());
    reader.read(body.as_bytes(), |frame| frames.push(frame)).unwrap();
    reader.finish().unwrap();
    frames
}
