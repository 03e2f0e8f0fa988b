//! The objects on the server, as checks read them.
//!
//! The state follows the server's changes. Objects are decoded when a check first reads them, and once for each
//! version, so that a check after every write costs little.

use std::any::{Any, TypeId};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use informer_apiserver::{ApiServer, Change, ChangeReader, ChangedObject, ServedResource};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::external::External;

/// All objects of the server at one moment.
#[derive(Debug)]
pub struct State {
    server: ApiServer,
    external: External,
    reader: ChangeReader,
    /// Objects by API group and plural name, then by namespace and name.
    resources: BTreeMap<(String, String), Objects>,
}

/// The objects of one resource.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(crate) resource: Arc<ServedResource>,
    pub(crate) objects: BTreeMap<(String, String), StoredObject>,
}

/// One object, with its decoded forms.
#[derive(Debug)]
pub(crate) struct StoredObject {
    object: ChangedObject,
    value: OnceLock<Value>,
    typed: Mutex<Vec<(TypeId, Arc<dyn Any + Send + Sync>)>>,
}

impl StoredObject {
    fn new(object: ChangedObject) -> Self {
        StoredObject { object, value: OnceLock::new(), typed: Mutex::default() }
    }

    pub(crate) fn value(&self) -> &Value {
        self.value.get_or_init(|| self.object.to_value())
    }

    /// Returns the uids of the owners.
    pub(crate) fn owners(&self) -> Vec<String> {
        let owners = self.value().pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let uids = owners.into_iter().flatten().filter_map(|owner| owner["uid"].as_str());
        uids.map(str::to_owned).collect()
    }

    pub(crate) fn uid(&self) -> &str {
        self.object.uid()
    }

    fn typed<K: DeserializeOwned + Send + Sync + 'static>(&self) -> Option<Arc<K>> {
        let mut typed = self.typed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = typed.iter().find(|(id, _)| *id == TypeId::of::<K>()).map(|(_, object)| object.clone());
        if let Some(object) = known {
            return object.downcast().ok();
        }
        let object = Arc::new(K::deserialize(self.value()).ok()?);
        typed.push((TypeId::of::<K>(), object.clone()));
        Some(object)
    }
}

impl State {
    pub(crate) fn new(server: ApiServer, external: External) -> Self {
        State { reader: server.change_reader(), server, external, resources: BTreeMap::new() }
    }

    /// Reads what has changed on the server. Returns the changes.
    pub(crate) fn refresh(&mut self) -> Vec<Change> {
        let changes = self.reader.read();
        for change in &changes {
            match change {
                Change::Reset(resource) => {
                    let objects = Objects { resource: resource.clone(), objects: BTreeMap::new() };
                    self.resources.insert((resource.group.clone(), resource.plural.clone()), objects);
                }
                Change::Removed(resource) => {
                    self.resources.remove(&(resource.group.clone(), resource.plural.clone()));
                }
                Change::Written(object) => {
                    let key = (object.namespace().to_owned(), object.name().to_owned());
                    if let Some(objects) = self.objects_of(object) {
                        objects.insert(key, StoredObject::new(object.clone()));
                    }
                }
                Change::Deleted(object) => {
                    let key = (object.namespace().to_owned(), object.name().to_owned());
                    if let Some(objects) = self.objects_of(object) {
                        objects.remove(&key);
                    }
                }
                _ => {}
            }
        }
        changes
    }

    fn objects_of(
        &mut self,
        object: &ChangedObject,
    ) -> Option<&mut BTreeMap<(String, String), StoredObject>> {
        let resource = object.resource();
        let key = (resource.group.clone(), resource.plural.clone());
        self.resources.get_mut(&key).map(|objects| &mut objects.objects)
    }

    /// Returns the time of day on the server.
    pub fn now(&self) -> Timestamp {
        self.server.now()
    }

    /// Returns the value of this type that the program keeps outside of the cluster, see
    /// [`ProgramContext::external`](crate::ProgramContext::external).
    pub fn external<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        self.external.get()
    }

    /// Returns all objects of a type, in all namespaces, ordered by namespace and name.
    ///
    /// Objects that do not have the form of the type are left out.
    pub fn list<K>(&self) -> Vec<Arc<K>>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let key = (K::group(&()).into_owned(), K::plural(&()).into_owned());
        let objects = self.resources.get(&key).into_iter().flat_map(|objects| objects.objects.values());
        objects.filter_map(StoredObject::typed).collect()
    }

    /// Returns an object. The namespace of a cluster-scoped object is empty.
    pub fn get<K>(&self, namespace: &str, name: &str) -> Option<Arc<K>>
    where
        K: kube::Resource<DynamicType = ()> + DeserializeOwned + Send + Sync + 'static,
    {
        let object = self.stored(&K::group(&()), &K::plural(&()), namespace, name)?;
        object.typed()
    }

    /// Returns the objects of a resource as JSON, for kinds without a Rust type. The group of the core API is empty.
    pub fn values(&self, group: &str, plural: &str) -> Vec<&Value> {
        let objects = self.resources.get(&(group.to_owned(), plural.to_owned()));
        objects.into_iter().flat_map(|objects| objects.objects.values()).map(StoredObject::value).collect()
    }

    pub(crate) fn stored(
        &self,
        group: &str,
        plural: &str,
        namespace: &str,
        name: &str,
    ) -> Option<&StoredObject> {
        let objects = self.resources.get(&(group.to_owned(), plural.to_owned()))?;
        objects.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// Returns all objects of all resources.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&ServedResource, &StoredObject)> {
        self.resources
            .values()
            .flat_map(|objects| objects.objects.values().map(|object| (&*objects.resource, object)))
    }
}

/// The result of a check: `bool`, or a `Result` whose error is the reason.
pub trait Verdict {
    /// Returns what is wrong, if anything is.
    fn problem(self) -> Option<String>;
}

impl Verdict for bool {
    fn problem(self) -> Option<String> {
        (!self).then(String::new)
    }
}

impl<E: std::fmt::Display> Verdict for Result<(), E> {
    fn problem(self) -> Option<String> {
        self.err().map(|error| error.to_string())
    }
}
