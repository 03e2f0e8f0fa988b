//! Objects as JSON, byte for byte as kube-apiserver writes them, and copies of these bytes with a part
//! removed or replaced.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Value};

use super::resource::Resource;
use super::view::{ObjectShape, View};

/// An object as JSON, with the positions of some of its parts.
#[derive(Debug)]
pub(super) struct Json {
    pub(super) bytes: Bytes,
    /// The digits of `metadata.resourceVersion`, without the quotes.
    version_at: Range<usize>,
    /// The value of `metadata`, with its braces.
    metadata_at: Range<usize>,
    /// The value of `apiVersion`, without the quotes.
    api_version_at: Range<usize>,
    /// Kind and apiVersion with their commas, which list items of built-in kinds omit. Empty for custom
    /// objects.
    type_at: Range<usize>,
}

/// Metadata fields in the order of built-in objects.
const METADATA_ORDER: &[&str] = &[
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
];

/// Fields of an entry of `managedFields`, in order.
const MANAGED_ORDER: &[&str] =
    &["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];

fn order_metadata(names: &mut [&str]) {
    let rank = |name: &&str| METADATA_ORDER.iter().position(|known| known == name);
    names.sort_by_key(|name| rank(name).unwrap_or(METADATA_ORDER.len()));
}

impl Json {
    /// Encodes an object with kind and apiVersion of the resource's first version.
    pub(super) fn object(resource: &Resource, version: u64, object: &Value) -> Json {
        let mut writer = Writer::default();
        writer.object(resource, version, object);
        writer.finish()
    }

    /// Encodes an object like a built-in one, with its own kind and apiVersion.
    pub(super) fn built_in(version: u64, object: &Value) -> Json {
        let empty = Map::new();
        let fields = object.as_object().unwrap_or(&empty);
        let declared = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        let mut writer = Writer::default();
        writer.in_order(declared("kind"), declared("apiVersion"), version, fields);
        writer.finish()
    }

    /// Returns the number of allocated bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Writes the parts that a view shows; `digits` replaces the resource version.
    pub(super) fn show(&self, view: &View, digits: Option<&str>, out: &mut Vec<u8>) {
        let new_version = digits.map(|digits| (&self.version_at, digits));
        match view.shape {
            ObjectShape::Metadata => {
                out.extend_from_slice(
                    br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
                );
                self.splice(self.metadata_at.clone(), new_version, out);
                out.push(b'}');
            }
            ObjectShape::Item => {
                out.extend_from_slice(&self.bytes[..self.type_at.start]);
                self.splice(self.type_at.end..self.bytes.len(), new_version, out);
            }
            ObjectShape::Whole => {
                let mut from = 0;
                if let Some(api_version) = &view.api_version {
                    out.extend_from_slice(&self.bytes[..self.api_version_at.start]);
                    out.extend_from_slice(api_version.as_bytes());
                    from = self.api_version_at.end;
                }
                self.splice(from..self.bytes.len(), new_version, out);
            }
        }
    }

    /// Copies a range of the bytes, with a part of it replaced.
    fn splice(&self, range: Range<usize>, replacement: Option<(&Range<usize>, &str)>, out: &mut Vec<u8>) {
        match replacement {
            Some((at, text)) => {
                out.extend_from_slice(&self.bytes[range.start..at.start]);
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(&self.bytes[at.end..range.end]);
            }
            None => out.extend_from_slice(&self.bytes[range]),
        }
    }
}

/// Returns the JSON that Go writes for an object of which only the metadata has a type: keys are sorted,
/// except in the metadata, which has struct order.
pub(crate) fn go_text(object: &Value) -> String {
    let empty = Map::new();
    let mut writer = Writer::default();
    writer.out.push(b'{');
    for (index, (name, value)) in object.as_object().unwrap_or(&empty).iter().enumerate() {
        if index > 0 {
            writer.out.push(b',');
        }
        match (name.as_str(), value.as_object()) {
            ("metadata", Some(metadata)) => {
                writer.out.extend_from_slice(b"\"metadata\":{");
                let mut names: Vec<&str> = metadata.keys().map(String::as_str).collect();
                order_metadata(&mut names);
                for (index, name) in names.into_iter().enumerate() {
                    if index > 0 {
                        writer.out.push(b',');
                    }
                    writer.metadata_field(name, &metadata[name]);
                }
                writer.out.push(b'}');
            }
            _ => writer.field(name, value),
        }
    }
    writer.out.push(b'}');
    String::from_utf8_lossy(&writer.out).into_owned()
}

/// The order of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeyOrder {
    /// The order of the fields of the Go struct, as in built-in objects.
    Struct,
    /// By name, as in custom objects.
    Sorted,
}

#[derive(Default)]
struct Writer {
    out: Vec<u8>,
    version_at: Range<usize>,
    metadata_at: Range<usize>,
    api_version_at: Range<usize>,
    type_at: Range<usize>,
}

impl Writer {
    fn finish(mut self) -> Json {
        // The bytes live as long as the history: release the spare capacity, up to half of the buffer.
        self.out.shrink_to_fit();
        Json {
            bytes: Bytes::from(self.out),
            version_at: self.version_at,
            metadata_at: self.metadata_at,
            api_version_at: self.api_version_at,
            type_at: self.type_at,
        }
    }

    fn object(&mut self, resource: &Resource, version: u64, object: &Value) {
        let empty = Map::new();
        let fields = object.as_object().unwrap_or(&empty);
        if resource.custom {
            self.sorted(resource, version, fields);
        } else {
            self.in_order(&resource.kind, &resource.api_version(0), version, fields);
        }
    }

    /// Writes an object like a built-in one: kind, apiVersion and metadata first.
    fn in_order(&mut self, kind: &str, api_version: &str, version: u64, fields: &Map<String, Value>) {
        self.out.push(b'{');
        self.type_at.start = self.out.len();
        self.text("kind", kind);
        self.out.push(b',');
        self.api_version_at = self.text("apiVersion", api_version);
        self.out.push(b',');
        self.type_at.end = self.out.len();
        self.metadata(KeyOrder::Struct, version, fields);
        for (name, value) in fields {
            if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
                self.out.push(b',');
                self.field(name, value);
            }
        }
        self.out.push(b'}');
    }

    /// Writes a custom object: keys sorted, also in the metadata.
    fn sorted(&mut self, resource: &Resource, version: u64, fields: &Map<String, Value>) {
        self.out.push(b'{');
        let own = ["apiVersion", "kind", "metadata"].into_iter();
        let names: std::collections::BTreeSet<&str> = fields.keys().map(String::as_str).chain(own).collect();
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            match name {
                "apiVersion" => self.api_version_at = self.text(name, &resource.api_version(0)),
                "kind" => {
                    self.text(name, &resource.kind);
                }
                "metadata" => self.metadata(KeyOrder::Sorted, version, fields),
                _ => self.field(name, &fields[name]),
            }
        }
        self.out.push(b'}');
    }

    fn metadata(&mut self, order: KeyOrder, version: u64, fields: &Map<String, Value>) {
        let empty = Map::new();
        let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        let mut names: Vec<&str> = metadata.keys().map(String::as_str).collect();
        if version == 0 {
            // A dry run of a create stores nothing, so the object has no resource version.
            names.retain(|name| *name != "resourceVersion");
        } else if !metadata.contains_key("resourceVersion") {
            names.push("resourceVersion");
        }
        match order {
            KeyOrder::Sorted => names.sort_unstable(),
            KeyOrder::Struct => order_metadata(&mut names),
        }
        self.out.extend_from_slice(b"\"metadata\":");
        self.metadata_at.start = self.out.len();
        self.out.push(b'{');
        for (index, name) in names.into_iter().enumerate() {
            if index > 0 {
                self.out.push(b',');
            }
            if name == "resourceVersion" {
                self.version_at = self.text(name, &version.to_string());
            } else if order == KeyOrder::Sorted {
                self.field(name, &metadata[name]);
            } else {
                self.metadata_field(name, &metadata[name]);
            }
        }
        self.out.push(b'}');
        self.metadata_at.end = self.out.len();
    }

    /// Writes a metadata field of a built-in object. Entries of `managedFields` have an order of their own.
    fn metadata_field(&mut self, name: &str, value: &Value) {
        let Some(entries) = value.as_array().filter(|_| name == "managedFields") else {
            return self.field(name, value);
        };
        self.out.extend_from_slice(b"\"managedFields\":[");
        for (index, entry) in entries.iter().enumerate() {
            self.out.extend_from_slice(if index > 0 { b",{" } else { b"{" });
            let known = MANAGED_ORDER.iter().filter_map(|name| entry.get(name).map(|value| (*name, value)));
            for (index, (name, value)) in known.enumerate() {
                if index > 0 {
                    self.out.push(b',');
                }
                self.field(name, value);
            }
            self.out.push(b'}');
        }
        self.out.push(b']');
    }

    /// Writes a string field; returns the position of its value without the quotes. `value` must need no
    /// escapes.
    fn text(&mut self, name: &str, value: &str) -> Range<usize> {
        self.field(name, &Value::from(value));
        let end = self.out.len() - 1;
        end - value.len()..end
    }

    fn field(&mut self, name: &str, value: &Value) {
        self.value(name);
        self.out.push(b':');
        self.value(value);
    }

    fn value(&mut self, value: &(impl Serialize + ?Sized)) {
        let mut serializer = serde_json::Serializer::with_formatter(&mut self.out, HtmlSafe);
        // Writing to a Vec cannot fail, and keys of a `Value` are strings.
        let _ = value.serialize(&mut serializer);
    }
}

/// Compact JSON in which the characters special to HTML are escaped, as Go writes it.
struct HtmlSafe;

impl Formatter for HtmlSafe {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Usually there is nothing to escape, and searching bytes is faster than searching characters. In
        // UTF-8, U+2028 and U+2029 start with 0xe2.
        if !fragment.bytes().any(|byte| matches!(byte, b'<' | b'>' | b'&' | 0xe2)) {
            return out.write_all(fragment.as_bytes());
        }
        let mut rest = fragment;
        while let Some(at) = rest.find(['<', '>', '&', '\u{2028}', '\u{2029}']) {
            let (plain, tail) = rest.split_at(at);
            out.write_all(plain.as_bytes())?;
            let symbol = tail.chars().next().unwrap_or_default();
            write!(out, "\\u{:04x}", u32::from(symbol))?;
            rest = &tail[symbol.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}
