//! Frames of a watch, in the form that was asked for.
//!
//! A frame is written into a buffer that already holds others. Objects are encoded once for all watchers and copied here; tables are made
//! for each watcher, since they tell ages. Which frames there are, and when, is decided by the feed.

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
    /// Objects as they are, or their metadata; bookmarks are this one with a version.
    Plain { view: View, bookmark: Map<String, Value> },
    /// Tables; the first one defines the columns.
    Table { table: Box<Table>, first: bool },
}

impl Frames {
    pub(crate) fn plain(resource: &Resource, version: usize, view: View, encoding: Encoding) -> Self {
        let bookmark = match view.shape {
            ObjectShape::Metadata => named("PartialObjectMetadata", "meta.k8s.io/v1", Map::new()),
            _ => named(&resource.kind, &resource.api_version(version), empty(resource, version)),
        };
        Frames { kind: Kind::Plain { view, bookmark }, encoding }
    }

    pub(crate) fn table(table: Table) -> Self {
        Frames { kind: Kind::Table { table: Box::new(table), first: true }, encoding: Encoding::Json }
    }

    /// An object that came, changed or went, shown with a version.
    pub(crate) fn object(
        &mut self,
        out: &mut Vec<u8>,
        kind: &str,
        state: &State,
        version: u64,
        now: Timestamp,
    ) {
        match &mut self.kind {
            Kind::Plain { view, .. } if self.encoding == Encoding::Protobuf => {
                write_protobuf(out, kind, state.protobuf(view, version, protobuf::encode).as_deref());
            }
            Kind::Plain { view, .. } => write_json(out, kind, |out| state.write(view, version, out)),
            Kind::Table { table, first } => {
                let shown = table.frame(state, version, std::mem::take(first), now).to_string();
                write_frame(out, self.encoding, kind, shown.as_bytes());
            }
        }
    }

    pub(crate) fn bookmark(&mut self, out: &mut Vec<u8>, metadata: &Value, now: Timestamp) {
        let shown = match &mut self.kind {
            Kind::Plain { bookmark, .. } => {
                let part = |name: &str| bookmark.get(name).unwrap_or(&Value::Null).to_string();
                let (kind, api_version) = (part("kind"), part("apiVersion"));
                let mut text = format!(r#"{{"kind":{kind},"apiVersion":{api_version},"metadata":{metadata}"#);
                for (name, value) in bookmark.iter().filter(|(name, _)| !is_head(name)) {
                    let _ = write!(text, ",{}:{value}", Value::from(name.as_str()));
                }
                text.push('}');
                text
            }
            Kind::Table { table, first } => table.bookmark(metadata, std::mem::take(first), now).to_string(),
        };
        write_frame(out, self.encoding, "BOOKMARK", shown.as_bytes());
    }

    /// A frame that is well made, and what it should hold is a number.
    pub(crate) fn no_object(&self, out: &mut Vec<u8>) {
        match self.encoding {
            Encoding::Protobuf => protobuf::frame(out, "MODIFIED", b"7"),
            _ => write_json(out, "MODIFIED", |out| out.push(b'7')),
        }
    }

    /// An error stays a status in every form.
    pub(crate) fn error(&self, out: &mut Vec<u8>, status: &Status) {
        Frames::write_error(out, self.encoding, status);
    }

    pub(crate) fn write_error(out: &mut Vec<u8>, encoding: Encoding, status: &Status) {
        write_frame(out, encoding, "ERROR", &status.to_json());
    }
}

/// What Go writes of an object of a built-in kind that has nothing set.
fn empty(resource: &Resource, version: usize) -> Map<String, Value> {
    let of = resource.versions.get(version).and_then(|version| version.type_id);
    let read = of.and_then(|of| builtin::read(of, json!({})).ok());
    match read.map(|read| read.object) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    }
}

fn named(kind: &str, api_version: &str, mut fields: Map<String, Value>) -> Map<String, Value> {
    fields.insert("kind".to_owned(), json!(kind));
    fields.insert("apiVersion".to_owned(), json!(api_version));
    fields
}

fn is_head(name: &str) -> bool {
    matches!(name, "kind" | "apiVersion" | "metadata")
}

/// Writes a frame for one watcher alone.
fn write_frame(out: &mut Vec<u8>, encoding: Encoding, kind: &str, json: &[u8]) {
    if encoding == Encoding::Protobuf {
        let object = serde_json::from_slice(json).ok().and_then(|object| protobuf::encode(&object));
        write_protobuf(out, kind, object.as_deref());
    } else {
        write_json(out, kind, |out| out.extend_from_slice(json));
    }
}

fn write_json(out: &mut Vec<u8>, kind: &str, object: impl FnOnce(&mut Vec<u8>)) {
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    object(out);
    out.extend_from_slice(b"}\n");
}

/// An object that has no protobuf is an error: an empty one would look like something that happened.
fn write_protobuf(out: &mut Vec<u8>, kind: &str, object: Option<&[u8]>) {
    if let Some(object) = object {
        return protobuf::frame(out, kind, object);
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

    /// What could not be encoded went out as an object without a single byte, under the name of a change.
    #[test]
    fn what_has_no_protobuf_is_an_error() {
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
