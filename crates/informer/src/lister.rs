//! Reading the cache: the live [`Lister`] and the [`Snapshot`] of one published state.
//!
//! Every call reads one published state (C5). A lister always reads the newest one, so two calls may see
//! different states; use one snapshot for several reads that must agree. Nothing here writes to the cache or
//! waits for its writer.

use crate::shared::Engine;
use informer_core::{
    self as core, Entry, EntryIter, Key, LabelSelector, Object, ResourceVersion, StoreReader, StoreSnapshot,
};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A live view of the cached objects of one kind, returning owned objects.
///
/// A lister is cheap to clone, never blocks, and keeps its informer running. Before the initial list is
/// complete it returns the objects received so far; see [`has_synced`](Self::has_synced).
///
/// ```no_run
/// # use informer::Lister;
/// # use informer::selector::LabelSelector;
/// # use k8s_openapi::api::core::v1::Pod;
/// # fn example(pods: &Lister<Pod>) -> Result<(), Box<dyn std::error::Error>> {
/// if let Some(pod) = pods.get("shop", "web-0") {
///     println!("{:?}", pod.typed()?.status);
/// }
/// let web: LabelSelector = "app=web".parse()?;
/// for pod in pods.namespace("shop").list_matching(&web) {
///     println!("{}", pod.name()); // decodes nothing
/// }
/// # Ok(())
/// # }
/// ```
pub struct Lister<K> {
    reader: StoreReader,
    /// Keeps the informer running; `None` for objects that no informer updates.
    engine: Option<Arc<Engine>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Lister<K> {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { reader: engine.reader.clone(), engine: Some(engine), kind: PhantomData }
    }

    /// Creates a lister of a store that no informer updates.
    pub(crate) fn from_reader(reader: StoreReader) -> Self {
        Self { reader, engine: None, kind: PhantomData }
    }

    /// Returns a snapshot of the newest published state, which lends its objects without copying them.
    pub fn snapshot(&self) -> Snapshot<K> {
        Snapshot::new(self.reader.snapshot())
    }

    /// Returns the object with this namespace and name; cluster-scoped objects have an empty namespace.
    ///
    /// Allocates nothing, unless namespace and name together have more than 53 bytes. Create a [`Key`] once to
    /// look up the same object often ([`get_by_key`](Self::get_by_key)).
    pub fn get(&self, namespace: &str, name: &str) -> Option<Object<K>> {
        self.get_by_key(&Key::new(namespace, name))
    }

    /// Returns the object with this key.
    pub fn get_by_key(&self, key: &Key) -> Option<Object<K>> {
        self.reader.get(key).map(Object::new)
    }

    /// Returns all objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Object<K>> {
        self.snapshot().iter().cloned().collect()
    }

    /// Returns the objects whose labels match, ordered by namespace and name.
    pub fn list_matching(&self, selector: &LabelSelector) -> Vec<Object<K>> {
        self.snapshot().matching(selector).cloned().collect()
    }

    /// Returns the objects that have this value in an index, ordered by namespace and name.
    pub fn by_index(&self, index: &IndexHandle<K>, value: &str) -> Vec<Object<K>> {
        self.reader.by_index(&index.handle, value).into_iter().map(Object::new).collect()
    }

    /// Returns the keys of the objects that have this value in an index, in order.
    pub fn keys_by_index(&self, index: &IndexHandle<K>, value: &str) -> Vec<Key> {
        self.snapshot().state.index_keys(&index.handle, value)
    }

    /// Returns the values that occur in an index, in order.
    pub fn index_values(&self, index: &IndexHandle<K>) -> Vec<String> {
        self.snapshot().index_values(index).map(Cow::into_owned).collect()
    }

    /// Returns a lister of one namespace.
    pub fn namespace(&self, namespace: &str) -> NamespaceLister<K> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }

    /// Returns the number of cached objects.
    pub fn len(&self) -> usize {
        self.snapshot().len()
    }

    /// Returns whether no object is cached.
    pub fn is_empty(&self) -> bool {
        self.snapshot().is_empty()
    }

    /// Returns the resource version of the cache; with several namespaces, the lowest of their
    /// versions.
    ///
    /// `None` until the initial list is complete, and if the versions of several namespaces cannot be
    /// compared.
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.snapshot().resource_version().cloned()
    }

    /// Returns whether the initial list is complete, in every namespace that the informer watches.
    pub fn has_synced(&self) -> bool {
        self.snapshot().has_synced()
    }
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), engine: self.engine.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lister of a {:?}", self.snapshot())
    }
}

/// One published state of a cache, which never changes and lends its objects.
///
/// All reads of one snapshot agree with each other and with its [resource version](Self::resource_version)
/// (C5). Reads return references and iterators: they clone nothing, allocate nothing and count no references;
/// only [`index_values`](Self::index_values) sorts a list of the values. Clone an [`Object`] to keep it. A snapshot is cheap to clone and keeps its objects in memory, but not its
/// informer running.
///
/// Before the initial list is complete, a snapshot contains the objects received so far; see
/// [`has_synced`](Self::has_synced). A later relist never shows a part of its list.
///
/// Reads never wait, but decoding takes time (see [`Object::typed`]): to decode thousands of objects, move the
/// snapshot to [`spawn_blocking`](tokio::task::spawn_blocking), or yield now and then. With a
/// [projection](crate::SharedInformer::add_projection), nothing is decoded.
///
/// An object has not changed between two snapshots if [`uid`](Object::uid) and
/// [`resource_version`](Object::resource_version) are equal. The address of its [`entry`](Object::entry) proves
/// nothing: entries are also replaced to save memory.
///
/// ```no_run
/// # use informer::{IndexHandle, SharedInformer};
/// # use k8s_openapi::api::core::v1::Pod;
/// # fn example(pods: &SharedInformer<Pod>, by_node: &IndexHandle<Pod>) {
/// let snapshot = pods.snapshot();
/// let on_node = snapshot.by_index(by_node, "node-0042").count();
/// println!("{on_node} of {} pods at version {:?}", snapshot.len(), snapshot.resource_version());
/// # }
/// ```
pub struct Snapshot<K> {
    state: StoreSnapshot,
    kind: PhantomData<fn() -> K>,
}

impl<K> Snapshot<K> {
    pub(crate) fn new(state: StoreSnapshot) -> Self {
        Self { state, kind: PhantomData }
    }

    /// Returns the object with this key.
    pub fn get(&self, key: &Key) -> Option<&Object<K>> {
        self.state.get(key).map(Object::from_ref)
    }

    /// Returns an iterator over all objects, ordered by namespace and name.
    pub fn iter(&self) -> Iter<'_, K> {
        Iter { entries: self.state.list(), kind: PhantomData }
    }

    /// Returns an iterator over the objects of one namespace, ordered by name.
    pub fn namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Object<K>> {
        self.state.namespace(namespace).map(Object::from_ref)
    }

    /// Returns an iterator over the objects whose labels match, ordered by namespace and name.
    pub fn matching<'a>(&'a self, selector: &'a LabelSelector) -> impl Iterator<Item = &'a Object<K>> {
        self.state.list().filter(|entry| matches(selector, entry)).map(Object::from_ref)
    }

    /// Returns an iterator over the objects that have this value in an index, in no particular order.
    ///
    /// A snapshot that was taken before the informer installed the index examines all of its objects, and
    /// computes their values. [`Lister::by_index`] returns the objects in order.
    pub fn by_index<'a>(
        &'a self,
        index: &'a IndexHandle<K>,
        value: &'a str,
    ) -> impl Iterator<Item = &'a Object<K>> {
        self.state.by_index(&index.handle, value).map(Object::from_ref)
    }

    /// Returns an iterator over the keys of the objects that have this value in an index, in no particular
    /// order.
    pub fn index_keys<'a>(
        &'a self,
        index: &'a IndexHandle<K>,
        value: &'a str,
    ) -> impl Iterator<Item = &'a Key> {
        self.state.by_index(&index.handle, value).map(|entry| entry.key())
    }

    /// Returns an iterator over the values that occur in an index, in order.
    ///
    /// Values are borrowed from the index and sorted by each call; a snapshot that was taken before the informer
    /// installed the index computes them.
    pub fn index_values<'a>(
        &'a self,
        index: &IndexHandle<K>,
    ) -> impl Iterator<Item = Cow<'a, str>> + use<'a, K> {
        self.state.index_values(&index.handle)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.state.len()
    }

    /// Returns whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.state.is_empty()
    }

    /// Returns the resource version of this state; with several namespaces, the lowest of their
    /// versions.
    ///
    /// `None` until the initial list is complete, and if the versions of several namespaces cannot be
    /// compared.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        self.state.resource_version()
    }

    /// Returns whether the initial list is complete, in every namespace that the informer watches.
    pub fn has_synced(&self) -> bool {
        self.state.has_synced()
    }
}

/// The handle of an index of objects of type `K`, returned by
/// [`SharedInformer::add_index`](crate::SharedInformer::add_index), for look-ups in listers and snapshots.
///
/// A look-up cannot fail: in a cache that does not contain the index (yet), such as that of another informer of
/// the same kind, it examines every object. A handle is cheap to clone.
pub struct IndexHandle<K> {
    handle: core::IndexHandle,
    kind: PhantomData<fn() -> K>,
}

impl<K> IndexHandle<K> {
    pub(crate) fn new(handle: core::IndexHandle) -> Self {
        Self { handle, kind: PhantomData }
    }

    /// Returns the field path, the label name, or the name given to the closure.
    pub fn name(&self) -> &str {
        self.handle.name()
    }

    /// Returns how often the closure of the index panicked. The objects for which it panicked have no values in
    /// this index.
    pub fn panics(&self) -> u64 {
        self.handle.panics()
    }
}

impl<K> Clone for IndexHandle<K> {
    fn clone(&self) -> Self {
        Self::new(self.handle.clone())
    }
}

impl<K> fmt::Debug for IndexHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "index {}", self.name())
    }
}

fn matches(selector: &LabelSelector, entry: &Entry) -> bool {
    selector.matches(|name| entry.head().labels.get(name))
}

impl<'a, K> IntoIterator for &'a Snapshot<K> {
    type Item = &'a Object<K>;
    type IntoIter = Iter<'a, K>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<K> Clone for Snapshot<K> {
    fn clone(&self) -> Self {
        Self::new(self.state.clone())
    }
}

impl<K> fmt::Debug for Snapshot<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

/// The iterator over all objects of a [`Snapshot`], ordered by namespace and name.
pub struct Iter<'a, K> {
    entries: EntryIter<'a>,
    kind: PhantomData<fn() -> K>,
}

impl<'a, K: 'a> Iterator for Iter<'a, K> {
    type Item = &'a Object<K>;

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(Object::from_ref)
    }
}

impl<K> fmt::Debug for Iter<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Iter").finish_non_exhaustive()
    }
}

/// A live view of the cached objects of one kind in one namespace.
pub struct NamespaceLister<K> {
    lister: Lister<K>,
    namespace: Box<str>,
}

impl<K> NamespaceLister<K> {
    /// Returns the object with this name.
    pub fn get(&self, name: &str) -> Option<Object<K>> {
        self.lister.get(&self.namespace, name)
    }

    /// Returns all objects of the namespace, ordered by name.
    pub fn list(&self) -> Vec<Object<K>> {
        self.lister.snapshot().namespace(&self.namespace).cloned().collect()
    }

    /// Returns the number of objects in the namespace.
    pub fn len(&self) -> usize {
        self.lister.snapshot().namespace(&self.namespace).count()
    }

    /// Returns whether the namespace has no objects.
    pub fn is_empty(&self) -> bool {
        self.lister.snapshot().namespace(&self.namespace).next().is_none()
    }

    /// Returns the objects of the namespace whose labels match, ordered by name.
    pub fn list_matching(&self, selector: &LabelSelector) -> Vec<Object<K>> {
        let snapshot = self.lister.snapshot();
        let objects = snapshot.namespace(&self.namespace);
        objects.filter(|object| matches(selector, object.entry())).cloned().collect()
    }
}

impl<K> Clone for NamespaceLister<K> {
    fn clone(&self) -> Self {
        Self { lister: self.lister.clone(), namespace: self.namespace.clone() }
    }
}

impl<K> fmt::Debug for NamespaceLister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}, namespace {}", self.lister, self.namespace)
    }
}
