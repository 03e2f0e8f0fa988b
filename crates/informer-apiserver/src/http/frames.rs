//! Frames of a watch in the requested format.
//!
//! Frames are appended to a buffer. Objects are encoded once for all watches and copied here; tables are
//! created for each watch, since they contain ages. Which frames are written, and when, is decided in
//! `watch_stream`.

use std::fmt::Write as _;

use informer_objects::builtin;
use informer_objects::protobuf;
use informer_objects::status::Status;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::accept::Encoding;
use super::table::Table;
use crate::model::{ObjectShape, Resource, State, View};

/// Writes the frames of one watch.
pub(crate) struct Frames {
    kind: Kind,
    encoding: Encoding,
}

enum Kind {
    /// Whole objects or their metadata. `bookmark` is the object of bookmarks, without its metadata.
    Plain { view: View, bookmark: Map<String, Value> },
    /// Tables; the first frame defines the columns.
    Table { table: Box<Table>, first: bool },
}

impl Frames {
    pub(crate) fn plain(resource: &Resource, version: usize, view: View, encoding: Encoding) -> Self {
        let bookmark = match view.shape {
            ObjectShape::Metadata => with_type("PartialObjectMetadata", "meta.k8s.io/v1", Map::new()),
            _ => with_type(&resource.kind, &resource.api_version(version), empty_object(resource, version)),
        };
        Frames { kind: Kind::Plain { view, bookmark }, encoding }
    }

    pub(crate) fn table(table: Table) -> Self {
        Frames { kind: Kind::Table { table: Box::new(table), first: true }, encoding: Encoding::Json }
    }

    /// Writes a frame with an object, shown with the given version.
    pub(crate) fn object(
        &mut self,
        out: &mut Vec<u8>,
        frame_type: &str,
        state: &State,
        version: u64,
        now: Timestamp,
    ) {
        match &mut self.kind {
            Kind::Plain { view, .. } if self.encoding == Encoding::Protobuf => {
                write_protobuf(out, frame_type, state.protobuf(view, version, protobuf::encode).as_deref());
            }
            Kind::Plain { view, .. } => write_json(out, frame_type, |out| state.write(view, version, out)),
            Kind::Table { table, first } => {
                let shown = table.frame(state, version, std::mem::take(first), now).to_string();
                write_frame(out, self.encoding, frame_type, shown.as_bytes());
            }
        }
    }

    pub(crate) fn bookmark(&mut self, out: &mut Vec<u8>, metadata: &Value, now: Timestamp) {
        let shown = match &mut self.kind {
            Kind::Plain { bookmark, .. } => {
                let field = |name: &str| bookmark.get(name).unwrap_or(&Value::Null).to_string();
                let (kind, api_version) = (field("kind"), field("apiVersion"));
                let mut text = format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":{metadata}"#);
                for (name, value) in bookmark.iter().filter(|(name, _)| !is_type_or_metadata(name)) {
                    let _ = write!(text, ",{}:{value}", Value::from(name.as_str()));
                }
                text.push('}');
                text
            }
            Kind::Table { table, first } => table.bookmark(metadata, std::mem::take(first), now).to_string(),
        };
        write_frame(out, self.encoding, "BOOKMARK", shown.as_bytes());
    }

    /// Writes a well-formed frame that contains a number instead of an object.
    pub(crate) fn no_object(&self, out: &mut Vec<u8>) {
        match self.encoding {
            Encoding::Protobuf => protobuf::frame(out, "MODIFIED", b"7"),
            _ => write_json(out, "MODIFIED", |out| out.push(b'7')),
        }
    }

    /// Writes an ERROR frame. Errors are a `Status` in every format.
    pub(crate) fn error(&self, out: &mut Vec<u8>, status: &Status) {
        Frames::write_error(out, self.encoding, status);
    }

    pub(crate) fn write_error(out: &mut Vec<u8>, encoding: Encoding, status: &Status) {
        write_frame(out, encoding, "ERROR", &status.to_json());
    }
}

/// Returns the fields that Go writes for an empty object of a built-in kind.
fn empty_object(resource: &Resource, version: usize) -> Map<String, Value> {
    let type_id = resource.versions.get(version).and_then(|version| version.type_id);
    let read = type_id.and_then(|type_id| builtin::read(type_id, json!({})).ok());
    match read.map(|read| read.object) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn with_type(kind: &str, api_version: &str, mut fields: Map<String, Value>) -> Map<String, Value> {
    fields.insert("kind".to_owned(), json!(kind));
    fields.insert("apiVersion".to_owned(), json!(api_version));
    fields
}

fn is_type_or_metadata(name: &str) -> bool {
    matches!(name, "kind" | "apiVersion" | "metadata")
}

/// Writes a frame that is encoded for this watch only.
fn write_frame(out: &mut Vec<u8>, encoding: Encoding, frame_type: &str, json: &[u8]) {
    if encoding == Encoding::Protobuf {
        let object = serde_json::from_slice(json).ok().and_then(|object| protobuf::encode(&object));
        write_protobuf(out, frame_type, object.as_deref());
    } else {
        write_json(out, frame_type, |out| out.extend_from_slice(json));
    }
}

fn write_json(out: &mut Vec<u8>, frame_type: &str, object: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(frame_type.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    object(out);
    out.extend_from_slice(b"}\n");
}

/// Writes a protobuf frame. If the object has no protobuf encoding (`None`), writes an ERROR frame instead: a
/// frame with an empty object would look like a change.
fn write_protobuf(out: &mut Vec<u8>, frame_type: &str, object: Option<&[u8]>) {
    if let Some(object) = object {
        return protobuf::frame(out, frame_type, object);
    }
    let message = "the object does not implement the protobuf marshalling interface and cannot be encoded to a \
                   protobuf message";
    let status = Status::new(406, "NotAcceptable", message);
    let status = serde_json::from_slice(&status.to_json()).ok().and_then(|status| protobuf::encode(&status));
    protobuf::frame(out, "ERROR", &status.unwrap_or_default());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: an object that could not be encoded was sent as a change without an object.
    #[test]
    fn object_without_protobuf_becomes_error_frame() {
        let mut out = Vec::new();
        write_frame(
            &mut out,
            Encoding::Protobuf,
            "ADDED",
            br#"{"kind":"Table","apiVersion":"meta.k8s.io/v1"}"#,
        );
        let mut expected = Vec::new();
        write_protobuf(&mut expected, "ADDED", None);
        assert_eq!(out, expected);
        assert!(
            out.starts_with(&[0, 0]) && out.get(4..).is_some_and(|out| out.starts_with(b"\x0a\x05ERROR"))
        );
        assert!(String::from_utf8_lossy(&out).contains("NotAcceptable"));
    }
}
