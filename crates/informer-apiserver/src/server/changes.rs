//! Reading all objects and their changes without HTTP and without waiting.
//!
//! A reader starts with all objects. Applying everything that it returns, in order, results in the objects of
//! the server at the time of the last read, whatever happens to the server: the reader lists a resource again
//! where the history is not complete.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::ApiServer;
use crate::model::{ChangePosition, ModelChange, Resource, ResourceId, State, View};

/// A resource that a server serves, from [`ApiServer::served_resources`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ServedResource {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural name.
    pub plural: String,
    /// The apiVersion of the preferred version, for example `apps/v1`.
    pub api_version: String,
    /// The kind of the objects.
    pub kind: String,
    /// Whether the objects have a namespace.
    pub namespaced: bool,
    /// Whether a `CustomResourceDefinition` defines the resource.
    pub custom: bool,
}

/// A change of the objects of a server, from [`ChangeReader::read`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Change {
    /// The resource was not known before, or its changes are incomplete: the objects that follow replace all
    /// its objects.
    Reset(Arc<ServedResource>),
    /// The resource and its objects are gone, because its definition was deleted.
    Removed(Arc<ServedResource>),
    /// The object was created or updated.
    Written(ChangedObject),
    /// The object was deleted. The state is the last one before the deletion.
    Deleted(ChangedObject),
}

/// A state of an object in a [`Change`].
#[derive(Debug, Clone)]
pub struct ChangedObject {
    resource: Arc<ServedResource>,
    view: Arc<View>,
    state: Arc<State>,
}

/// A reader of the objects of a server and their changes, from [`ApiServer::change_reader`].
///
/// The first read returns all objects. Later reads return what has changed since, including changes of which
/// resources are served. A read neither waits nor needs a runtime, and is cheap if nothing has changed.
///
/// ```
/// use informer_apiserver::{ApiServer, Change};
/// # use serde_json::json;
///
/// # fn main() -> Result<(), informer_apiserver::Status> {
/// let server = ApiServer::new();
/// let mut reader = server.change_reader();
/// reader.read();
///
/// server.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}))?;
/// let changes = reader.read();
/// let [Change::Written(map)] = changes.as_slice() else { panic!("one change") };
/// assert_eq!((map.resource().kind.as_str(), map.name()), ("ConfigMap", "a"));
/// assert!(reader.read().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ChangeReader {
    server: ApiServer,
    position: ChangePosition,
    resources: BTreeMap<ResourceId, (Arc<ServedResource>, Arc<View>)>,
}

impl ApiServer {
    /// Returns the resources whose objects the server stores, including custom ones. A resource that is served
    /// under several groups, as events are, is contained once.
    pub fn served_resources(&self) -> Vec<ServedResource> {
        self.shared.model(|model| {
            let resources = model.stored_resources();
            resources.map(|(_, resource)| ServedResource::of(resource)).collect()
        })
    }

    /// Returns a reader that starts with all objects.
    pub fn change_reader(&self) -> ChangeReader {
        ChangeReader { server: self.clone(), position: ChangePosition::default(), resources: BTreeMap::new() }
    }
}

impl ChangeReader {
    /// Returns the changes since the last call, in the order in which they happened within a resource. The first
    /// call returns a [`Change::Reset`] and all objects of each resource.
    pub fn read(&mut self) -> Vec<Change> {
        let changes = self.server.shared.model(|model| model.changes_since(&mut self.position));
        changes.into_iter().filter_map(|change| self.convert(change)).collect()
    }

    fn convert(&mut self, change: ModelChange) -> Option<Change> {
        Some(match change {
            ModelChange::Reset(id, resource, view) => {
                let resource = Arc::new(ServedResource::of(&resource));
                self.resources.insert(id, (resource.clone(), Arc::new(view)));
                Change::Reset(resource)
            }
            ModelChange::Removed(id) => Change::Removed(self.resources.remove(&id)?.0),
            ModelChange::Written(id, state) => Change::Written(self.object(id, state)?),
            ModelChange::Deleted(id, state) => Change::Deleted(self.object(id, state)?),
        })
    }

    fn object(&self, id: ResourceId, state: Arc<State>) -> Option<ChangedObject> {
        let (resource, view) = self.resources.get(&id)?.clone();
        Some(ChangedObject { resource, view, state })
    }
}

impl ServedResource {
    fn of(resource: &Resource) -> Self {
        ServedResource {
            group: resource.group.clone(),
            plural: resource.plural.clone(),
            api_version: resource.api_version(0),
            kind: resource.kind.clone(),
            namespaced: resource.namespaced,
            custom: resource.custom,
        }
    }
}

impl ChangedObject {
    /// Returns the resource of the object.
    pub fn resource(&self) -> &Arc<ServedResource> {
        &self.resource
    }

    /// Returns the namespace; empty for a cluster-scoped object.
    pub fn namespace(&self) -> &str {
        &self.state.namespace
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Returns the resource version of the state.
    pub fn resource_version(&self) -> u64 {
        self.state.version
    }

    /// Returns the uid.
    pub fn uid(&self) -> &str {
        &self.state.uid
    }

    /// Returns the generation, which grows with each change of the specification; 0 for a kind without one.
    pub fn generation(&self) -> i64 {
        self.state.generation
    }

    /// Returns whether the object has a deletion timestamp.
    pub fn is_terminating(&self) -> bool {
        self.state.terminating
    }

    /// Decodes the object as [`ApiServer::get`] returns it, in the preferred version of its resource.
    pub fn to_value(&self) -> Value {
        serde_json::from_slice(&self.state.bytes(&self.view)).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(name: &str, value: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": value}})
    }

    /// Returns the changes of configuration maps and custom resources in short form.
    fn read(reader: &mut ChangeReader) -> Vec<String> {
        let text = |change: &Change| match change {
            Change::Reset(resource) => (resource.plural.clone(), format!("reset {}", resource.plural)),
            Change::Removed(resource) => (resource.plural.clone(), format!("removed {}", resource.plural)),
            Change::Written(object) => (object.resource.plural.clone(), format!("written {}", object.name())),
            Change::Deleted(object) => (object.resource.plural.clone(), format!("deleted {}", object.name())),
        };
        let changes = reader.read();
        let of_interest = |plural: &str| matches!(plural, "configmaps" | "widgets");
        changes.iter().map(text).filter(|(plural, _)| of_interest(plural)).map(|(_, text)| text).collect()
    }

    #[test]
    fn reader_returns_each_change_once() {
        let server = ApiServer::new();
        server.create(&map("a", "1")).unwrap();
        let mut reader = server.change_reader();
        assert_eq!(read(&mut reader), ["reset configmaps", "written a"]);
        assert!(read(&mut reader).is_empty());
        server.update(&map("a", "2")).unwrap();
        server.create(&map("b", "1")).unwrap();
        server.delete("v1", "configmaps", Some("default"), "a").unwrap();
        assert_eq!(read(&mut reader), ["written a", "written b", "deleted a"]);
        assert!(read(&mut reader).is_empty());
    }

    #[test]
    fn reader_lists_again_without_history() {
        let server = ApiServer::builder().history_limit(1).build();
        let mut reader = server.change_reader();
        reader.read();
        server.create(&map("a", "1")).unwrap();
        assert_eq!(read(&mut reader), ["written a"]);
        server.create(&map("b", "1")).unwrap();
        server.create(&map("c", "1")).unwrap();
        assert_eq!(read(&mut reader), ["reset configmaps", "written a", "written b", "written c"]);
        let backup = server.backup();
        server.delete("v1", "configmaps", Some("default"), "a").unwrap();
        assert_eq!(read(&mut reader), ["deleted a"]);
        server.restore(&backup);
        assert_eq!(read(&mut reader), ["reset configmaps", "written a", "written b", "written c"]);
        server.compact();
        assert!(read(&mut reader).is_empty(), "no change was dropped that the reader had not read");
    }

    #[test]
    fn reader_follows_definitions() {
        let server = ApiServer::new();
        let mut reader = server.change_reader();
        reader.read();
        let version = |name: &str| {
            let schema =
                json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            json!({"name": name, "served": true, "storage": name == "v1", "schema": schema})
        };
        let mut definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced",
                "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
                "versions": [version("v1")],
            },
        });
        let created = server.create(&definition).unwrap();
        assert_eq!(read(&mut reader), ["reset widgets"]);
        let widget = json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
        server.create(&widget).unwrap();
        assert_eq!(read(&mut reader), ["written w"]);
        definition["metadata"] = created["metadata"].clone();
        definition["metadata"]["resourceVersion"] = json!(
            server
                .get("apiextensions.k8s.io/v1", "customresourcedefinitions", None, "widgets.example.com")
                .unwrap()["metadata"]["resourceVersion"]
        );
        definition["spec"]["versions"] = json!([version("v1"), version("v2")]);
        server.update(&definition).unwrap();
        assert_eq!(read(&mut reader), ["reset widgets", "written w"]);
        let resources = server.served_resources();
        let widgets = resources.iter().find(|resource| resource.plural == "widgets").unwrap();
        assert!(widgets.custom && widgets.namespaced && widgets.api_version == "example.com/v2");
        assert_eq!(resources.iter().filter(|resource| resource.plural == "events").count(), 1);
        server
            .delete("apiextensions.k8s.io/v1", "customresourcedefinitions", None, "widgets.example.com")
            .unwrap();
        assert_eq!(read(&mut reader), ["removed widgets"]);
    }
}
