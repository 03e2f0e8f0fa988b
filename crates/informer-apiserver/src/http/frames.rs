//! Frames of a watch, in the form that was asked for.
//!
//! A frame is written into a buffer that already holds others. Which frames there are, and when, is decided by the feed.

use std::fmt::Write as _;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::accept::Encoding;
use super::table::Table;
use crate::builtin;
use crate::model::{Resource, Shape, State, Status, View};
use crate::protobuf;

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
            Shape::Metadata => named("PartialObjectMetadata", "meta.k8s.io/v1", Map::new()),
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
            Kind::Plain { view, .. } => {
                write_frame(out, self.encoding, kind, |out| state.write(view, version, out));
            }
            Kind::Table { table, first } => {
                let shown = table.frame(state, version, std::mem::take(first), now).to_string();
                write_frame(out, self.encoding, kind, |out| out.extend_from_slice(shown.as_bytes()));
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
        write_frame(out, self.encoding, "BOOKMARK", |out| out.extend_from_slice(shown.as_bytes()));
    }

    /// An error stays a status in every form.
    pub(crate) fn error(&self, out: &mut Vec<u8>, status: &Status) {
        Frames::write_error(out, self.encoding, status);
    }

    pub(crate) fn write_error(out: &mut Vec<u8>, encoding: Encoding, status: &Status) {
        write_frame(out, encoding, "ERROR", |out| out.extend_from_slice(&status.to_json()));
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

fn write_frame(out: &mut Vec<u8>, encoding: Encoding, kind: &str, object: impl FnOnce(&mut Vec<u8>)) {
    if encoding == Encoding::Protobuf {
        let mut json = Vec::new();
        object(&mut json);
        let value = serde_json::from_slice(&json).unwrap_or_default();
        out.extend(protobuf::frame(kind, &protobuf::encode(&value).unwrap_or_default()));
        return;
    }
    out.extend_from_slice(br#"{"type":""#);
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(br#"","object":"#);
    object(out);
    out.extend_from_slice(b"}\n");
}
