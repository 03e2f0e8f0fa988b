//! One state of one object: its JSON, encoded once, and the values that selectors compare.
//!
//! The bytes are the whole object as in a watch frame. The positions of resourceVersion, apiVersion and
//! metadata are recorded, so that list items, metadata-only responses, API versions with equal fields and
//! DELETED frames are copies of these bytes with a part removed or replaced. Representations with other
//! fields, and protobuf, are encoded on first use and cached for a while. A state is immutable and knows
//! neither other objects nor earlier states.
//!
//! A state keeps a custom object as it was written, and shows it as the current definition requires: unknown
//! fields are pruned and defaults applied when the state is created. API versions with other fields are
//! encoded at the same time. When the definition changes, a new state replaces this one.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use informer_objects::definition::Storage;
use serde_json::Value;

use super::encodings::{Counters, Encoded, EncodingCache};
use super::json::Json;
pub(crate) use super::json::go_text;
use super::representation::Representation;
use super::resource::Resource;
use super::view::{ObjectShape, View};

/// Approximate memory that the allocator adds to one allocation.
const ALLOCATION_BYTES: usize = 16;

/// An immutable state of an object.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) uid: String,
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) labels: Vec<(String, String)>,
    /// Values of the resource's selectable fields, in the order of [`Resource::fields`].
    pub(crate) fields: Vec<String>,
    pub(crate) terminating: bool,
    pub(crate) generation: i64,
    json: Json,
    /// The object in those versions of a custom resource that differ from `json`, by apiVersion.
    other_versions: Vec<(String, Json)>,
    /// The stored form of a custom object, if it differs from `json` or was written under another version
    /// than the current storage version.
    stored: Option<Box<Stored>>,
    /// Cached encodings, after the first use of one.
    encodings: OnceLock<Arc<EncodingCache>>,
    /// The counters of the server; `None` for a state that is not stored, for example of a dry run.
    counters: Option<Arc<Counters>>,
}

/// A custom object as it was written, before the pruning and defaulting of a read.
#[derive(Debug)]
struct Stored {
    /// The storage version at the time of the write.
    version: String,
    json: Bytes,
}

impl State {
    /// Encodes an object, which must have metadata. Sets kind and apiVersion to those of the resource's first
    /// version.
    pub(crate) fn encode(resource: &Resource, version: u64, object: &Value) -> State {
        match resource.storage.as_deref() {
            Some(storage) => {
                State::read(resource, storage, version, &storage.version, &storage.written(object))
            }
            None => State::from_shown(resource, version, object),
        }
    }

    /// Returns the same object for a changed definition: the stored form stays, the shown one may differ.
    pub(crate) fn reencode(&self, before: &Resource, resource: &Resource) -> State {
        let state = match (self.stored.as_deref(), before.storage.as_deref(), resource.storage.as_deref()) {
            (Some(stored), _, Some(storage)) => {
                let object = serde_json::from_slice(&stored.json).unwrap_or_default();
                State::read(resource, storage, self.version, &stored.version, &object)
            }
            (None, Some(before), Some(storage)) => {
                State::read(resource, storage, self.version, &before.version, &self.decode())
            }
            _ => State::from_shown(resource, self.version, &self.decode()),
        };
        State { counters: self.counters.clone(), ..state }
    }

    /// Returns the version under which a custom object was written, and its stored form. `None` if every
    /// version shows exactly what is stored.
    ///
    /// The version is `None` if it is the current storage version.
    pub(crate) fn stored_if_different(&self) -> Option<(Option<&str>, Value)> {
        match self.stored.as_deref() {
            Some(stored) => {
                Some((Some(&stored.version), serde_json::from_slice(&stored.json).unwrap_or_default()))
            }
            None if self.other_versions.is_empty() => None,
            None => Some((None, self.decode())),
        }
    }

    /// Creates the state of a custom object that was written when `written_version` was the storage version.
    fn read(
        resource: &Resource,
        storage: &Storage,
        version: u64,
        written_version: &str,
        stored: &Value,
    ) -> State {
        let mut object = stored.clone();
        storage.read(written_version, &mut object);
        let mut state = State::from_shown(resource, version, &object);
        let other_versions = resource.versions.iter().enumerate();
        state.other_versions = other_versions
            .filter_map(|(at, other)| {
                let shown = storage.converted(written_version, &other.name, &object)?;
                Some((resource.api_version(at), Json::object(resource, version, &shown)))
            })
            .collect();
        if written_version != storage.version || object != *stored {
            let json = Bytes::from(stored.to_string());
            state.stored = Some(Box::new(Stored { version: written_version.to_owned(), json }));
        }
        state
    }

    /// Creates a state from an object as clients see it.
    fn from_shown(resource: &Resource, version: u64, object: &Value) -> State {
        let metadata = object.get("metadata").and_then(Value::as_object);
        let text = |field: &str| {
            let value = metadata.and_then(|metadata| metadata.get(field)).and_then(Value::as_str);
            value.unwrap_or_default().to_owned()
        };
        let labels = metadata.and_then(|metadata| metadata.get("labels")).and_then(Value::as_object);
        let labels = labels.into_iter().flatten();
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
            generation: metadata
                .and_then(|metadata| metadata.get("generation"))
                .and_then(Value::as_i64)
                .unwrap_or_default(),
            json: Json::object(resource, version, object),
            other_versions: Vec::new(),
            stored: None,
            encodings: OnceLock::new(),
            counters: None,
        }
    }

    /// Attaches the counters of a server, and counts the first encoding.
    pub(super) fn counted(self, counters: &Arc<Counters>) -> State {
        counters.count(Encoded::Json);
        State { counters: Some(counters.clone()), ..self }
    }

    /// Returns the decoded object. Never `Null`, since the bytes were encoded here.
    pub(crate) fn decode(&self) -> Value {
        serde_json::from_slice(&self.json.bytes).unwrap_or_default()
    }

    /// Returns the decoded object as an API version shows it; `None` stands for the stored apiVersion.
    pub(crate) fn decode_as(&self, api_version: Option<&str>) -> Value {
        let shown = &self.json_of(api_version).bytes;
        let mut object: Value = serde_json::from_slice(shown).unwrap_or_default();
        if let Some(api_version) = api_version {
            object["apiVersion"] = Value::from(api_version);
        }
        object
    }

    /// Returns the key under which the object is stored.
    pub(crate) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }

    /// Returns the approximate length of the encoded object.
    pub(crate) fn len(&self) -> usize {
        self.json.bytes.len()
    }

    /// Returns the approximate memory that the state takes, without cached encodings, which have a limit of
    /// their own.
    pub(crate) fn size(&self) -> usize {
        let text = |text: &String| text.capacity() + ALLOCATION_BYTES;
        let labels = self.labels.iter().map(|(key, value)| text(key) + text(value));
        let versions = self.other_versions.iter().map(|(name, json)| text(name) + json.size());
        let stored = self.stored.as_ref().map_or(0, |stored| {
            size_of::<Stored>() + text(&stored.version) + stored.json.len() + 2 * ALLOCATION_BYTES
        });
        size_of::<State>()
            + size_of_val(self.labels.as_slice())
            + size_of_val(self.fields.as_slice())
            + size_of_val(self.other_versions.as_slice())
            + [&self.uid, &self.name, &self.namespace].into_iter().map(text).sum::<usize>()
            + labels.sum::<usize>()
            + self.fields.iter().map(text).sum::<usize>()
            + self.json.size()
            + versions.sum::<usize>()
            + stored
            + 4 * ALLOCATION_BYTES
    }

    /// Returns the encoded object; without a copy if the view is the stored form.
    pub(crate) fn bytes(&self, view: &View) -> Bytes {
        if view.shape == ObjectShape::Whole
            && view.api_version.is_none()
            && view.representation == Representation::Same
        {
            return self.json.bytes.clone();
        }
        let mut out = Vec::with_capacity(self.len() + 64);
        self.write(view, self.version, &mut out);
        Bytes::from(out)
    }

    /// Writes the object with the given resource version.
    pub(crate) fn write(&self, view: &View, version: u64, out: &mut Vec<u8>) {
        self.write_converted(self.converted(view).as_deref(), view, version, out);
    }

    /// Writes the object from its converted JSON, or from the stored one if there is none.
    fn write_converted(&self, converted: Option<&Json>, view: &View, version: u64, out: &mut Vec<u8>) {
        let digits = (version != self.version).then(|| version.to_string());
        let json = converted.unwrap_or_else(|| self.json_of(view.api_version.as_deref()));
        json.show(view, digits.as_deref(), out);
    }

    /// Returns the JSON in the representation of a view; `None` if the stored JSON shows it.
    fn converted(&self, view: &View) -> Option<Arc<Json>> {
        if view.representation == Representation::Same || view.shape == ObjectShape::Metadata {
            return None;
        }
        let convert = || self.convert(view.representation);
        Some(self.encodings().get_or_convert(self.counters.as_deref(), convert))
    }

    /// Returns the JSON with the fields that an API version shows. Its apiVersion is that of the first
    /// version.
    fn json_of(&self, api_version: Option<&str>) -> &Json {
        let other = self.other_versions.iter().find(|(name, _)| Some(name.as_str()) == api_version);
        other.map_or(&self.json, |(_, json)| json)
    }

    /// Returns the object as protobuf with the given resource version, or `None` if its kind has no protobuf
    /// encoding.
    ///
    /// The object is encoded with `encode` once per view and version. The encoding is cached until the server
    /// has cached too many others.
    pub(crate) fn protobuf(
        &self,
        view: &View,
        version: u64,
        encode: impl FnOnce(&Value) -> Option<Vec<u8>>,
    ) -> Option<Bytes> {
        // Converted before, because the cache is locked while it calls the closure.
        let converted = self.converted(view);
        self.encodings().get_or_make(self.counters.as_deref(), view, version, || {
            self.count(Encoded::Protobuf);
            let mut json = Vec::new();
            self.write_converted(converted.as_deref(), view, version, &mut json);
            let object = serde_json::from_slice(&json).ok()?;
            encode(&object).map(Bytes::from)
        })
    }

    fn encodings(&self) -> &Arc<EncodingCache> {
        self.encodings.get_or_init(Arc::default)
    }

    /// Counts an encoded table row.
    pub(crate) fn count_row(&self) {
        self.count(Encoded::Row);
    }

    fn count(&self, encoded: Encoded) {
        if let Some(counters) = &self.counters {
            counters.count(encoded);
        }
    }

    /// Encodes the object in another representation.
    fn convert(&self, representation: Representation) -> Json {
        self.count(Encoded::Json);
        let mut object = self.decode();
        representation.convert_from_stored(&mut object);
        Json::built_in(self.version, &object)
    }
}

/// Returns the key of an object: `namespace/name`, or `name` if it is cluster-scoped. Lists are sorted by key
/// as text, as in etcd.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::kinds::Registry;
    use super::super::resource::Resource;
    use super::*;

    fn resource(group: &str, plural: &str) -> Resource {
        let registry = Registry::builtin();
        (**registry.get(registry.find(group, plural).unwrap()).unwrap()).clone()
    }

    fn shown(state: &State, shape: ObjectShape, api_version: Option<&str>, version: u64) -> String {
        let mut out = Vec::new();
        state.write(
            &View {
                shape,
                api_version: api_version.map(str::to_owned),
                representation: Representation::Same,
            },
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
        assert_eq!(shown(&state, ObjectShape::Whole, None, 7), whole);
        assert_eq!(shown(&state, ObjectShape::Item, None, 7), format!("{{{tail}"));
        assert_eq!(
            shown(&state, ObjectShape::Metadata, None, 123),
            r#"{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"n","uid":"u","resourceVersion":"123","labels":{"a":"b"}}}"#
        );
        assert_eq!(shown(&state, ObjectShape::Whole, None, 99), whole.replace(r#""7""#, r#""99""#));
    }

    #[test]
    fn html_characters_are_escaped() {
        let object = json!({"metadata": {"name": "n"}, "data": {"k": "<b>&\u{2028}\"\n"}});
        let state = State::encode(&resource("", "configmaps"), 7, &object);
        let whole = shown(&state, ObjectShape::Whole, None, 7);
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
            shown(&state, ObjectShape::Whole, Some("rec.example.com/v1alpha1"), 8),
            r#"{"anything":1,"apiVersion":"rec.example.com/v1alpha1","kind":"Widget","metadata":{"name":"n","resourceVersion":"8","uid":"u"},"spec":{}}"#
        );
    }
}
