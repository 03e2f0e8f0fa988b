//! One state of one object: its JSON, encoded once, and what selectors ask about.
//!
//! The bytes are the whole object as a watch frame shows it. Where the version, the apiVersion and the metadata are
//! is remembered, so a list item, a metadata-only answer, another API version or the frame of a deletion are copies
//! of these bytes with a piece cut out or put in. A state never changes. It does not know its neighbours or its past.

use std::io;
use std::ops::Range;

use bytes::Bytes;
use serde::Serialize;
use serde_json::ser::Formatter;
use serde_json::{Map, Value};

use super::forms::Form;
use super::kinds::Resource;

/// A state of an object.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) labels: Vec<(String, String)>,
    /// Values of the resource's selectable fields, in their order.
    pub(crate) fields: Vec<String>,
    pub(crate) terminating: bool,
    json: Bytes,
    /// The digits of `metadata.resourceVersion`, without the quotes.
    version_at: Range<usize>,
    /// The value of `metadata`, with its braces.
    metadata_at: Range<usize>,
    /// The value of `apiVersion`, without the quotes.
    api_version_at: Range<usize>,
    /// What a list item of a built-in kind leaves out: kind and apiVersion, with their commas.
    type_at: Range<usize>,
}

/// How an object is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) shape: Shape,
    /// `None` where the stored bytes already say it.
    pub(crate) api_version: Option<String>,
    /// How the form that is shown differs from the stored one.
    pub(crate) form: Form,
}

/// How much of an object is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Everything.
    Whole,
    /// Everything but kind and apiVersion, as items of built-in lists are.
    Item,
    /// `PartialObjectMetadata`.
    Metadata,
}

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

impl State {
    /// Encodes an object. It must have its metadata; kind and apiVersion are set here, for the resource's first
    /// version.
    pub(crate) fn encode(resource: &Resource, version: u64, object: &Value) -> State {
        let metadata = object.get("metadata").and_then(Value::as_object);
        let text = |field: &str| {
            let value = metadata.and_then(|metadata| metadata.get(field)).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let labels = metadata.and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
        let mut writer = Writer::default();
        writer.object(resource, version, object);
        State {
            version,
            uid: text("uid"),
            name: text("name"),
            namespace: text("namespace"),
            labels: labels
                .map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()))
                .collect(),
            fields: resource.fields.iter().map(|field| field.read(object)).collect(),
            terminating: metadata.is_some_and(|metadata| metadata.contains_key("deletionTimestamp")),
            json: Bytes::from(writer.out),
            version_at: writer.version_at,
            metadata_at: writer.metadata_at,
            api_version_at: writer.api_version_at,
            type_at: writer.type_at,
        }
    }

    /// The object again. The bytes are our own, so `Null` never comes back.
    pub(crate) fn decode(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or_default()
    }

    /// The key under which the object is stored.
    pub(crate) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }

    /// Roughly how long the object is when written.
    pub(crate) fn len(&self) -> usize {
        self.json.len()
    }

    /// The whole object without a copy, where a view asks for just that.
    pub(crate) fn bytes(&self, view: &View) -> Bytes {
        if view.shape == Shape::Whole && view.api_version.is_none() && view.form == Form::Same {
            return self.json.clone();
        }
        let mut out = Vec::with_capacity(self.json.len() + 64);
        self.write(view, self.version, &mut out);
        Bytes::from(out)
    }

    /// Writes the object as if it had this version.
    pub(crate) fn write(&self, view: &View, version: u64, out: &mut Vec<u8>) {
        let mut digits = String::new();
        if version != self.version {
            digits = version.to_string();
        }
        if view.form != Form::Same && view.shape != Shape::Metadata {
            return self.write_converted(view, version, out);
        }
        let new_version = (version != self.version).then_some((&self.version_at, digits.as_str()));
        match view.shape {
            Shape::Metadata => {
                out.extend_from_slice(
                    br#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":"#,
                );
                self.splice(self.metadata_at.clone(), new_version, out);
                out.push(b'}');
            }
            Shape::Item => {
                out.extend_from_slice(&self.json[..self.type_at.start]);
                self.splice(self.type_at.end..self.json.len(), new_version, out);
            }
            Shape::Whole => {
                let mut from = 0;
                if let Some(api_version) = &view.api_version {
                    out.extend_from_slice(&self.json[..self.api_version_at.start]);
                    out.extend_from_slice(api_version.as_bytes());
                    from = self.api_version_at.end;
                }
                self.splice(from..self.json.len(), new_version, out);
            }
        }
    }

    /// Writes the object in another form than the stored one.
    fn write_converted(&self, view: &View, version: u64, out: &mut Vec<u8>) {
        let mut object = self.decode();
        view.form.show(&mut object);
        object["metadata"]["resourceVersion"] = Value::from(version.to_string());
        let Some(fields) = object.as_object_mut() else { return };
        let mut writer = Writer { out: std::mem::take(out), ..Writer::default() };
        writer.out.push(b'{');
        if view.shape == Shape::Whole {
            for name in ["kind", "apiVersion"] {
                writer.field(name, fields.get(name).unwrap_or(&Value::Null));
                writer.out.push(b',');
            }
        }
        writer.metadata(false, version, fields);
        for (name, value) in fields.iter() {
            if !matches!(name.as_str(), "kind" | "apiVersion" | "metadata") {
                writer.out.push(b',');
                writer.field(name, value);
            }
        }
        writer.out.push(b'}');
        *out = writer.out;
    }

    /// Copies a part of the bytes, with a piece of it replaced.
    fn splice(&self, part: Range<usize>, new: Option<(&Range<usize>, &str)>, out: &mut Vec<u8>) {
        match new {
            Some((at, text)) => {
                out.extend_from_slice(&self.json[part.start..at.start]);
                out.extend_from_slice(text.as_bytes());
                out.extend_from_slice(&self.json[at.end..part.end]);
            }
            None => out.extend_from_slice(&self.json[part]),
        }
    }
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

/// The order of objects in lists: by `namespace/name` as text, as in etcd.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
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
    fn object(&mut self, resource: &Resource, version: u64, object: &Value) {
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

    fn metadata(&mut self, sorted: bool, version: u64, fields: &Map<String, Value>) {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds::{Registry, Resource};
    use super::*;

    fn resource(group: &str, plural: &str) -> Resource {
        let registry = Registry::builtin();
        (**registry.get(registry.find(group, plural).unwrap()).unwrap()).clone()
    }

    fn shown(state: &State, shape: Shape, api_version: Option<&str>, version: u64) -> String {
        let mut out = Vec::new();
        state.write(
            &View { shape, api_version: api_version.map(str::to_owned), form: Form::Same },
            version,
            &mut out,
        );
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn built_in_objects_are_written_in_struct_order() {
        let object = json!({"data": {"k": "v"}, "metadata": {"labels": {"a": "b"}, "uid": "u", "name": "n"}});
        let state = State::encode(&resource("", "configmaps"), 7, &object);
        let tail =
            r#""metadata":{"name":"n","uid":"u","resourceVersion":"7","labels":{"a":"b"}},"data":{"k":"v"}}"#;
        let whole = format!(r#"{{"kind":"ConfigMap","apiVersion":"v1",{tail}"#);
        assert_eq!(shown(&state, Shape::Whole, None, 7), whole);
        assert_eq!(shown(&state, Shape::Item, None, 7), format!("{{{tail}"));
        assert_eq!(
            shown(&state, Shape::Metadata, None, 123),
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"n","uid":"u","resourceVersion":"123","labels":{"a":"b"}}}"#
        );
        assert_eq!(shown(&state, Shape::Whole, None, 99), whole.replace(r#""7""#, r#""99""#));
    }

    #[test]
    fn nothing_looks_like_html() {
        let object = json!({"metadata": {"name": "n"}, "data": {"k": "<b>&\u{2028}\"\n"}});
        let state = State::encode(&resource("", "configmaps"), 7, &object);
        let whole = shown(&state, Shape::Whole, None, 7);
        assert!(whole.ends_with(r#""data":{"k":"\u003cb\u003e\u0026\u2028\"\n"}}"#), "{whole}");
        assert_eq!(state.decode()["data"], object["data"]);
    }

    #[test]
    fn custom_objects_are_sorted_and_served_under_each_version() {
        let mut widgets = resource("", "configmaps");
        widgets.custom = true;
        widgets.kind = "Widget".to_owned();
        widgets.group = "rec.example.com".to_owned();
        let object = json!({"anything": 1, "metadata": {"uid": "u", "name": "n"}, "spec": {}});
        let state = State::encode(&widgets, 7, &object);
        assert_eq!(
            shown(&state, Shape::Whole, Some("rec.example.com/v1alpha1"), 8),
            r#"{"anything":1,"apiVersion":"rec.example.com/v1alpha1","kind":"Widget","metadata":{"name":"n","resourceVersion":"8","uid":"u"},"spec":{}}"#
        );
    }
}
