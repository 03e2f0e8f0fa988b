//! A copy of all objects of the server without `managedFields`, shared by all actors, with indexes and a log of
//! changes.
//!
//! Invariants: after `refresh`, the mirror contains the objects of the server; `by_uid` and `by_owner` contain
//! exactly the uids and the owner references of these objects; the log contains every change since
//! `log_start`, so that an actor that applies all of them has the same objects.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use informer_apiserver::{ApiServer, Change, ChangeReader, ChangedObject, ServedResource};
use serde_json::Value;

use crate::object::{owner_references, text, uid};

/// A change of one object, from [`Cluster::changes`](crate::Cluster::changes).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ObjectChange {
    /// The resource of the object.
    pub resource: Arc<ServedResource>,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The state before the change; `None` if the object was created.
    pub before: Option<Arc<Value>>,
    /// The state after the change; `None` if the object was deleted.
    pub after: Option<Arc<Value>>,
}

/// The identity of an object in the mirror. Keys are compared by plural, group, namespace and name, since a
/// changed definition changes other fields of the resource.
#[derive(Debug, Clone)]
pub(crate) struct ObjectKey {
    pub(crate) resource: Arc<ServedResource>,
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl ObjectKey {
    fn parts(&self) -> (&str, &str, &str, &str) {
        (&self.resource.plural, &self.resource.group, &self.namespace, &self.name)
    }
}

impl PartialEq for ObjectKey {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for ObjectKey {}

impl PartialOrd for ObjectKey {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ObjectKey {
    fn cmp(&self, other: &Self) -> Ordering {
        self.parts().cmp(&other.parts())
    }
}

/// Objects by namespace and name.
type Objects = BTreeMap<String, BTreeMap<String, Arc<Value>>>;

#[derive(Debug)]
struct ResourceObjects {
    resource: Arc<ServedResource>,
    objects: Objects,
    /// Objects from before a reset that were not written since.
    stale: Objects,
}

/// A copy of all objects of a server.
#[derive(Debug)]
pub(crate) struct Mirror {
    reader: ChangeReader,
    /// Resources by plural and group.
    resources: BTreeMap<String, BTreeMap<String, ResourceObjects>>,
    /// The key of each object and the number that it got when the mirror first contained it, by uid.
    by_uid: BTreeMap<String, (ObjectKey, u64)>,
    /// The number of the next new object.
    next_number: u64,
    /// Dependents by the uid of an owner.
    by_owner: BTreeMap<String, BTreeSet<ObjectKey>>,
    log: Vec<Arc<ObjectChange>>,
    /// The sequence number of the first change in `log`.
    log_start: u64,
}

impl Mirror {
    pub(crate) fn new(server: &ApiServer) -> Self {
        Mirror {
            reader: server.change_reader(),
            resources: BTreeMap::new(),
            by_uid: BTreeMap::new(),
            next_number: 0,
            by_owner: BTreeMap::new(),
            log: Vec::new(),
            log_start: 0,
        }
    }

    /// Applies the changes of the server since the last call.
    pub(crate) fn refresh(&mut self) {
        let changes = self.reader.read();
        let has_resets = changes.iter().any(|change| matches!(change, Change::Reset(_)));
        for change in changes {
            match change {
                Change::Reset(resource) => self.reset(&resource),
                Change::Removed(resource) => {
                    self.reset(&resource);
                    self.drop_stale();
                    self.remove_resource(&resource);
                }
                Change::Written(object) => {
                    let mut value = object.to_value();
                    remove_managed_fields(&mut value);
                    self.put(&object, Some(Arc::new(value)));
                }
                Change::Deleted(object) => self.put(&object, None),
                _ => {}
            }
        }
        if has_resets {
            self.drop_stale();
        }
    }

    /// Returns the sequence number of the next change.
    pub(crate) fn log_end(&self) -> u64 {
        self.log_start + self.log.len() as u64
    }

    /// Returns the changes from `from` to `to`.
    pub(crate) fn changes(&self, from: u64, to: u64) -> &[Arc<ObjectChange>] {
        let index = |sequence: u64| usize::try_from(sequence.saturating_sub(self.log_start)).unwrap_or(0);
        self.log.get(index(from)..index(to).min(self.log.len())).unwrap_or_default()
    }

    /// Returns all objects as if they had just been created.
    pub(crate) fn creations(&self) -> Vec<Arc<ObjectChange>> {
        let keys: BTreeSet<&ObjectKey> = self.by_uid.values().map(|(key, _)| key).collect();
        let creation = |key: &&ObjectKey| {
            let after = self.get_key(key)?.clone();
            let ObjectKey { resource, namespace, name } = (*key).clone();
            Some(Arc::new(ObjectChange { resource, namespace, name, before: None, after: Some(after) }))
        };
        keys.iter().filter_map(creation).collect()
    }

    /// Drops the changes before `sequence`, which all actors have handled.
    pub(crate) fn drop_changes_before(&mut self, sequence: u64) {
        let count = usize::try_from(sequence.saturating_sub(self.log_start)).unwrap_or(0).min(self.log.len());
        self.log.drain(..count);
        self.log_start += count as u64;
    }

    pub(crate) fn resources(&self) -> impl Iterator<Item = &Arc<ServedResource>> {
        self.resources.values().flat_map(BTreeMap::values).map(|objects| &objects.resource)
    }

    /// Returns the resource of an object, by its apiVersion and kind. The version does not matter.
    pub(crate) fn resource_of_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<ServedResource>> {
        let group = group_of(api_version);
        self.resources().find(|resource| resource.group == group && resource.kind == kind)
    }

    pub(crate) fn get(&self, group: &str, plural: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.of(group, plural)?.objects.get(namespace)?.get(name)
    }

    pub(crate) fn get_key(&self, key: &ObjectKey) -> Option<&Arc<Value>> {
        self.get(&key.resource.group, &key.resource.plural, &key.namespace, &key.name)
    }

    /// Returns the objects of a resource in one namespace, or in all, in the order of their keys.
    pub(crate) fn list<'a>(
        &'a self,
        group: &str,
        plural: &str,
        namespace: Option<&'a str>,
    ) -> impl Iterator<Item = &'a Arc<Value>> {
        let namespaces = self.of(group, plural).into_iter().flat_map(|objects| &objects.objects);
        namespaces
            .filter(move |(found, _)| namespace.is_none_or(|namespace| namespace == *found))
            .flat_map(|(_, objects)| objects.values())
    }

    /// Returns the objects of all resources in a namespace.
    pub(crate) fn in_namespace<'a>(
        &'a self,
        namespace: &'a str,
    ) -> impl Iterator<Item = (&'a Arc<ServedResource>, &'a Arc<Value>)> {
        self.resources.values().flat_map(BTreeMap::values).flat_map(move |objects| {
            let found = objects.objects.get(namespace).into_iter().flat_map(BTreeMap::values);
            found.map(|object| (&objects.resource, object))
        })
    }

    pub(crate) fn key_of_uid(&self, uid: &str) -> Option<&ObjectKey> {
        self.by_uid.get(uid).map(|(key, _)| key)
    }

    /// Returns a number that is greater for objects that were created later.
    pub(crate) fn creation_order(&self, uid: &str) -> u64 {
        self.by_uid.get(uid).map_or(u64::MAX, |(_, number)| *number)
    }

    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &ObjectKey> {
        self.by_owner.get(uid).into_iter().flatten()
    }

    fn of(&self, group: &str, plural: &str) -> Option<&ResourceObjects> {
        self.resources.get(plural)?.get(group)
    }

    /// Marks all objects of a resource as stale.
    fn reset(&mut self, resource: &Arc<ServedResource>) {
        let of_plural = self.resources.entry(resource.plural.clone()).or_default();
        let entry = of_plural.entry(resource.group.clone()).or_insert_with(|| ResourceObjects {
            resource: resource.clone(),
            objects: BTreeMap::new(),
            stale: BTreeMap::new(),
        });
        entry.resource = resource.clone();
        entry.stale = std::mem::take(&mut entry.objects);
    }

    fn remove_resource(&mut self, resource: &ServedResource) {
        if let Some(of_plural) = self.resources.get_mut(&resource.plural) {
            of_plural.remove(&resource.group);
        }
    }

    /// Removes the objects that were not written since a reset.
    fn drop_stale(&mut self) {
        let mut dropped = Vec::new();
        for entry in self.resources.values_mut().flat_map(BTreeMap::values_mut) {
            for (namespace, objects) in std::mem::take(&mut entry.stale) {
                for (name, object) in objects {
                    let key =
                        ObjectKey { resource: entry.resource.clone(), namespace: namespace.clone(), name };
                    dropped.push((key, object));
                }
            }
        }
        for (key, object) in dropped {
            self.record(key, Some(object), None);
        }
    }

    /// Sets or removes one object.
    fn put(&mut self, changed: &ChangedObject, after: Option<Arc<Value>>) {
        let resource = changed.resource();
        let (namespace, name) = (changed.namespace(), changed.name());
        let of_plural = self.resources.get_mut(&resource.plural);
        let Some(entry) = of_plural.and_then(|groups| groups.get_mut(&resource.group)) else { return };
        let stale = entry.stale.get_mut(namespace).and_then(|objects| objects.remove(name));
        let objects = entry.objects.entry(namespace.to_owned()).or_default();
        let before = match &after {
            Some(after) => objects.insert(name.to_owned(), after.clone()),
            None => objects.remove(name),
        };
        if objects.is_empty() {
            entry.objects.remove(namespace);
        }
        let key =
            ObjectKey { resource: resource.clone(), namespace: namespace.to_owned(), name: name.to_owned() };
        self.record(key, before.or(stale), after);
    }

    /// Updates the indexes and logs a change, unless nothing changed.
    fn record(&mut self, key: ObjectKey, before: Option<Arc<Value>>, after: Option<Arc<Value>>) {
        if before == after {
            return;
        }
        let mut number = None;
        if let Some(before) = &before {
            number = self.by_uid.remove(uid(before)).map(|(_, number)| number);
            let is_same = after.as_ref().is_some_and(|after| uid(after) == uid(before));
            number = number.filter(|_| is_same);
            for owner in owner_references(before) {
                let owner = text(owner, "/uid");
                if let Some(dependents) = self.by_owner.get_mut(owner) {
                    dependents.remove(&key);
                    if dependents.is_empty() {
                        self.by_owner.remove(owner);
                    }
                }
            }
        }
        if let Some(after) = &after {
            let number = number.unwrap_or(self.next_number);
            self.next_number = self.next_number.max(number + 1);
            self.by_uid.insert(uid(after).to_owned(), (key.clone(), number));
            for owner in owner_references(after) {
                self.by_owner.entry(text(owner, "/uid").to_owned()).or_default().insert(key.clone());
            }
        }
        let ObjectKey { resource, namespace, name } = key;
        self.log.push(Arc::new(ObjectChange { resource, namespace, name, before, after }));
    }
}

/// Removes `managedFields`, which take more memory than the rest of most objects. The server keeps its own if an
/// update has none.
fn remove_managed_fields(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Returns the group of an apiVersion; empty for the core group.
pub(crate) fn group_of(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn map(name: &str, owner: Option<&Value>) -> Value {
        let mut map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
        if let Some(owner) = owner {
            let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": uid(owner)});
            map["metadata"]["ownerReferences"] = json!([reference]);
        }
        map
    }

    fn names(mirror: &Mirror, owner: &Value) -> Vec<String> {
        mirror.dependents(uid(owner)).map(|key| key.name.clone()).collect()
    }

    #[test]
    fn server_keeps_managed_fields_that_the_mirror_lacks() {
        let server = ApiServer::new();
        let mut object = map("a", None);
        object["data"] = json!({"k": "v"});
        let created = server.create(&object).unwrap();
        let managed = |object: &Value| object["metadata"]["managedFields"].clone();
        assert!(managed(&created).to_string().contains("f:k"), "{created}");
        let mut mirror = Mirror::new(&server);
        mirror.refresh();
        let mut object = (**mirror.get("", "configmaps", "default", "a").unwrap()).clone();
        assert!(managed(&object).is_null());
        object["metadata"]["labels"] = json!({"a": "b"});
        let updated = managed(&server.update(&object).unwrap()).to_string();
        assert!(updated.contains("f:k") && updated.contains("f:labels"), "{updated}");
    }

    #[test]
    fn mirror_follows_writes_and_restores() {
        let server = ApiServer::new();
        let owner = server.create(&map("o", None)).unwrap();
        server.create(&map("d", Some(&owner))).unwrap();
        let mut mirror = Mirror::new(&server);
        mirror.refresh();
        assert_eq!(names(&mirror, &owner), ["d"]);
        let backup = server.backup();
        let end = mirror.log_end();

        server.delete("v1", "configmaps", Some("default"), "d").unwrap();
        server.create(&map("e", Some(&owner))).unwrap();
        mirror.refresh();
        assert_eq!(names(&mirror, &owner), ["e"]);
        let changes = mirror.changes(end, mirror.log_end());
        let text = |change: &Arc<ObjectChange>| (change.name.clone(), change.after.is_some());
        assert_eq!(changes.iter().map(text).collect::<Vec<_>>(), [("d".into(), false), ("e".into(), true)]);

        let end = mirror.log_end();
        server.restore(&backup);
        mirror.refresh();
        assert_eq!(names(&mirror, &owner), ["d"]);
        assert_eq!(mirror.changes(end, mirror.log_end()).len(), 2, "unchanged objects are not logged");
        assert!(mirror.get("", "configmaps", "default", "e").is_none());
        assert!(mirror.key_of_uid(uid(&owner)).is_some_and(|key| key.name == "o"));
        mirror.drop_changes_before(mirror.log_end());
        assert!(mirror.changes(0, mirror.log_end()).is_empty());
    }
}
