//! How an object becomes JSON: the bytes that a real server would send, and where in them the pieces are that views replace.

use std::io;
use std::ops::Range;

use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Value};

use super::super::kinds::Resource;

/// Metadata fields in the order in which built-in objects have them.
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

/// Fields of an entry of `managedFields`, in their order.
const MANAGED_ORDER: &[&str] =
    &["manager", "operation", "apiVersion", "time", "fieldsType", "fieldsV1", "subresource"];

fn order_metadata(names: &mut [&str]) {
    let rank = |name: &&str| METADATA_ORDER.iter().position(|known| known == name);
    names.sort_by_key(|name| rank(name).unwrap_or(METADATA_ORDER.len()));
}

/// An object as Go writes one whose metadata it knows and whose other fields it does not: keys sorted, metadata in struct order.
pub(crate) fn go_text(object: &Value) -> String {
    let empty = Map::new();
    let mut writer = Writer::default();
    writer.out.push(b'{');
    for (place, (name, value)) in object.as_object().unwrap_or(&empty).iter().enumerate() {
        if place > 0 {
            writer.out.push(b',');
        }
        match (name.as_str(), value.as_object()) {
            ("metadata", Some(metadata)) => {
                writer.out.extend_from_slice(b"\"metadata\":{");
                let mut names: Vec<&str> = metadata.keys().map(String::as_str).collect();
                order_metadata(&mut names);
                for (place, name) in names.into_iter().enumerate() {
                    if place > 0 {
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

/// An object on its way to bytes.
#[derive(Default)]
pub(super) struct Writer {
    pub(super) out: Vec<u8>,
    /// The digits of `metadata.resourceVersion`, without the quotes.
    pub(super) version_at: Range<usize>,
    /// The value of `metadata`, with its braces.
    pub(super) metadata_at: Range<usize>,
    /// The value of `apiVersion`, without the quotes.
    pub(super) api_version_at: Range<usize>,
    /// What a list item of a built-in kind leaves out: kind and apiVersion, with their commas.
    pub(super) type_at: Range<usize>,
}

impl Writer {
    pub(super) fn object(&mut self, resource: &Resource, version: u64, object: &Value) {
        let empty = Map::new();
        let fields = object.as_object().unwrap_or(&empty);
        self.out.push(b'{');
        if resource.custom {
            self.sorted(resource, version, fields);
        } else {
            self.type_at.start = self.out.len();
            self.text("kind", &resource.kind);
            self.out.push(b',');
            self.api_version_at = self.text("apiVersion", &resource.api_version(0));
            self.out.push(b',');
            self.type_at.end = self.out.len();
            self.metadata(false, version, fields);
            for (name, value) in fields {
                if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
                    self.out.push(b',');
                    self.field(name, value);
                }
            }
        }
        self.out.push(b'}');
    }

    fn sorted(&mut self, resource: &Resource, version: u64, fields: &Map<String, Value>) {
        let own = ["apiVersion", "kind", "metadata"].into_iter();
        let names: std::collections::BTreeSet<&str> = fields.keys().map(String::as_str).chain(own).collect();
        for (place, name) in names.into_iter().enumerate() {
            if place > 0 {
                self.out.push(b',');
            }
            match name {
                "apiVersion" => self.api_version_at = self.text(name, &resource.api_version(0)),
                "kind" => {
                    self.text(name, &resource.kind);
                }
                "metadata" => self.metadata(true, version, fields),
                _ => self.field(name, &fields[name]),
            }
        }
    }

    pub(super) fn metadata(&mut self, sorted: bool, version: u64, fields: &Map<String, Value>) {
        let empty = Map::new();
        let metadata = fields.get("metadata").and_then(Value::as_object).unwrap_or(&empty);
        let mut names: Vec<&str> = metadata.keys().map(String::as_str).collect();
        if version == 0 {
            // Nothing was stored.
            names.retain(|name| *name != "resourceVersion");
        } else if !metadata.contains_key("resourceVersion") {
            names.push("resourceVersion");
        }
        if sorted {
            names.sort_unstable();
        } else {
            order_metadata(&mut names);
        }
        self.out.extend_from_slice(b"\"metadata\":");
        self.metadata_at.start = self.out.len();
        self.out.push(b'{');
        for (place, name) in names.into_iter().enumerate() {
            if place > 0 {
                self.out.push(b',');
            }
            if name == "resourceVersion" {
                self.version_at = self.text(name, &version.to_string());
            } else if sorted {
                self.field(name, &metadata[name]);
            } else {
                self.metadata_field(name, &metadata[name]);
            }
        }
        self.out.push(b'}');
        self.metadata_at.end = self.out.len();
    }

    /// Writes a field of the metadata of a built-in object: who owns what has an order of its own.
    fn metadata_field(&mut self, name: &str, value: &Value) {
        let Some(entries) = value.as_array().filter(|_| name == "managedFields") else {
            return self.field(name, value);
        };
        self.out.extend_from_slice(b"\"managedFields\":[");
        for (place, entry) in entries.iter().enumerate() {
            self.out.extend_from_slice(if place > 0 { b",{" } else { b"{" });
            let known = MANAGED_ORDER.iter().filter_map(|name| entry.get(name).map(|value| (*name, value)));
            for (place, (name, value)) in known.enumerate() {
                if place > 0 {
                    self.out.push(b',');
                }
                self.field(name, value);
            }
            self.out.push(b'}');
        }
        self.out.push(b']');
    }

    /// Writes a string field and says where its value is, without the quotes. `value` needs no escapes.
    fn text(&mut self, name: &str, value: &str) -> Range<usize> {
        self.field(name, &Value::from(value));
        let end = self.out.len() - 1;
        end - value.len()..end
    }

    pub(super) fn field(&mut self, name: &str, value: &Value) {
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

/// Compact JSON in which nothing can be taken for HTML, as Go writes it.
struct HtmlSafe;

impl Formatter for HtmlSafe {
    fn write_string_fragment<W: ?Sized + io::Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        // Nearly always there is nothing to do, and bytes are faster to look at than characters.
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
