//! Plain objects, and how they get into the cache: as JSON through the wire readers.

use informer_core::wire::{Frame, Limits, ListItem, ListReader, UnreadableObject, WatchReader};
use informer_core::{Entry, Key, ResourceVersion, Retention, TypeMeta};
use serde_json::{Value, json};
use std::sync::Arc;

/// Namespace and name, ordered as the cache orders keys.
pub(crate) type Name = (&'static str, String);

/// An object as the model knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plain {
    pub(crate) name: Name,
    /// Empty for an object without uid.
    pub(crate) uid: String,
    pub(crate) version: String,
    pub(crate) node: Option<&'static str>,
    pub(crate) app: Option<&'static str>,
    pub(crate) tags: Vec<&'static str>,
}

/// An unreadable object.
#[derive(Debug, Clone)]
pub(crate) struct Broken {
    /// `None` if even the key is unreadable.
    pub(crate) name: Option<Name>,
    pub(crate) version: Option<String>,
}

impl Plain {
    pub(crate) fn to_json(&self) -> Value {
        let mut metadata = json!({ "name": self.name.1, "resourceVersion": self.version });
        if !self.name.0.is_empty() {
            metadata["namespace"] = self.name.0.into();
        }
        if !self.uid.is_empty() {
            metadata["uid"] = self.uid.as_str().into();
        }
        if let Some(app) = self.app {
            metadata["labels"] = json!({ "app": app, "zone": "z" });
        }
        json!({ "metadata": metadata, "spec": { "node": self.node, "tags": self.tags } })
    }
}

impl Broken {
    pub(crate) fn to_json(&self) -> Value {
        let Some(name) = &self.name else { return json!(7) };
        let namespace = Some(name.0).filter(|namespace| !namespace.is_empty());
        let metadata = json!({
            "name": name.1, "namespace": namespace, "resourceVersion": self.version, "labels": { "app": 7 },
        });
        json!({ "metadata": metadata })
    }
}

pub(crate) fn key(name: &Name) -> Key {
    Key::new(name.0, &name.1)
}

pub(crate) fn version(text: &str) -> ResourceVersion {
    ResourceVersion::new(text)
}

fn types() -> TypeMeta {
    TypeMeta::new("example.com/v1", "Widget")
}

fn frame(kind: &str, object: &Value) -> Frame {
    let mut frames = Vec::new();
    let mut reader = WatchReader::new(types(), Limits::default());
    let body = format!("{{\"type\":\"{kind}\",\"object\":{object}}}");
    reader.read(body.as_bytes(), |frame| frames.push(frame)).unwrap();
    frames.pop().unwrap()
}

/// The object as a watch delivers it.
pub(crate) fn watched(plain: &Plain) -> Arc<Entry> {
    match frame("MODIFIED", &plain.to_json()) {
        Frame::Modified(scanned) => Arc::new(Entry::new(scanned, Retention::Bytes)),
        other => panic!("{plain:?} reads as {other:?}"),
    }
}

/// The unreadable object as a watch delivers it.
pub(crate) fn watched_broken(broken: &Broken) -> UnreadableObject {
    match frame("MODIFIED", &broken.to_json()) {
        Frame::Unreadable(_, unreadable) => unreadable,
        other => panic!("{broken:?} reads as {other:?}"),
    }
}

/// The objects as a list delivers them, with `managedFields`, which the cache drops.
pub(crate) fn listed(plains: &[Plain], broken: &[Broken]) -> (Vec<Arc<Entry>>, Vec<UnreadableObject>) {
    let with_managed_fields = |plain: &Plain| {
        let mut object = plain.to_json();
        object["metadata"]["managedFields"] = json!([{ "manager": plain.version }]);
        object
    };
    let items: Vec<Value> =
        broken.iter().map(Broken::to_json).chain(plains.iter().map(with_managed_fields)).collect();
    let body = json!({ "kind": "WidgetList", "metadata": { "resourceVersion": "1" }, "items": items });
    let (mut entries, mut unreadable) = (Vec::new(), Vec::new());
    let mut reader = ListReader::new(types(), Limits::default());
    let read = reader.read(body.to_string().as_bytes(), |item| match item {
        ListItem::Meta(_) => {}
        ListItem::Object(scanned) => {
            entries.push(Arc::new(Entry::new(scanned, Retention::Bytes)));
        }
        ListItem::Unreadable(item) => unreadable.push(item),
    });
    read.and_then(|()| reader.finish()).unwrap();
    (entries, unreadable)
}
