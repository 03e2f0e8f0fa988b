//! Reading the cache: typed views of its newest state.
//!
//! Every call answers from one state (C5). A lister holds no state itself; two calls may see two states. Whoever needs
//! several answers from one state takes a [`Lister::snapshot`]. Reads before the first complete set are possible, see what has come so far,
//! and can be told by [`Lister::has_synced`] and [`Lister::version`].

use crate::shared::Engine;
use informer_core::{IndexHandle, Key, LabelSelector, Object, ResourceVersion, StoreSnapshot};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Reads the objects of one kind. Cheap to clone; never waits. Keeps its informer alive, except a [`Lister::snapshot`], which is
/// complete in itself.
///
/// ```no_run
/// # use informer::{LabelSelector, Lister};
/// # use k8s_openapi::api::core::v1::Pod;
/// # fn example(pods: &Lister<Pod>) -> Result<(), Box<dyn std::error::Error>> {
/// if let Some(pod) = pods.get("shop", "web-0") {
///     println!("{:?}", pod.typed()?.status);
/// }
/// let web: LabelSelector = "app=web".parse()?;
/// for pod in pods.namespace("shop").matching(&web) {
///     println!("{}", pod.name()); // nothing was decoded for this
/// }
/// # Ok(())
/// # }
/// ```
pub struct Lister<K> {
    reader: Reader,
    kind: PhantomData<fn() -> K>,
}

#[derive(Clone)]
enum Reader {
    /// Always the newest state.
    Newest(Arc<Engine>),
    /// One state for good.
    Fixed(StoreSnapshot),
}

impl<K> Lister<K> {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { reader: Reader::Newest(engine), kind: PhantomData }
    }

    /// A lister whose answers all come from the state that is the newest now.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self { reader: Reader::Fixed(self.state()), kind: PhantomData }
    }

    /// The object with this namespace and name; the namespace of cluster-scoped objects is empty.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Object<K>> {
        self.get_by_key(&Key::new(namespace, name))
    }

    /// The object with this key.
    pub fn get_by_key(&self, key: &Key) -> Option<Object<K>> {
        match &self.reader {
            Reader::Newest(engine) => engine.reader.get(key).map(Object::new),
            Reader::Fixed(snapshot) => snapshot.get(key).cloned().map(Object::new),
        }
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Object<K>> {
        views(self.state().list())
    }

    /// The objects whose labels match, ordered by namespace and name.
    pub fn matching(&self, selector: &LabelSelector) -> Vec<Object<K>> {
        views(self.state().list().filter(|entry| selector.matches(|name| entry.head().labels.get(name))))
    }

    /// The objects that have this value in an index, in key order.
    pub fn by(&self, index: &IndexHandle, value: &str) -> Vec<Object<K>> {
        views(self.state().by(index, value))
    }

    /// The keys of the objects that have this value in an index.
    pub fn keys_by(&self, index: &IndexHandle, value: &str) -> Vec<Key> {
        self.state().index_keys(index, value)
    }

    /// The values that occur in an index, in order.
    pub fn values_of(&self, index: &IndexHandle) -> Vec<Arc<str>> {
        self.state().index_values(index)
    }

    /// The objects of one namespace.
    pub fn namespace(&self, namespace: &str) -> NamespaceLister<K> {
        NamespaceLister { lister: self.clone(), namespace: namespace.into() }
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.state().is_empty()
    }

    /// The version that the state stands for; `None` until the first complete set is in.
    pub fn version(&self) -> Option<ResourceVersion> {
        self.state().version().cloned()
    }

    /// Whether the state is complete: the first set is in. Until then reads see nothing, or, with several namespaces, some of them.
    pub fn has_synced(&self) -> bool {
        self.state().is_synced()
    }

    fn state(&self) -> StoreSnapshot {
        match &self.reader {
            Reader::Newest(engine) => engine.reader.snapshot(),
            Reader::Fixed(snapshot) => snapshot.clone(),
        }
    }
}

fn views<'a, K>(entries: impl Iterator<Item = &'a Arc<informer_core::Entry>>) -> Vec<Object<K>> {
    entries.cloned().map(Object::new).collect()
}

impl<K> Clone for Lister<K> {
    fn clone(&self) -> Self {
        Self { reader: self.reader.clone(), kind: PhantomData }
    }
}

impl<K> fmt::Debug for Lister<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lister of a {:?}", self.state())
    }
}

/// Reads the objects of one kind in one namespace.
pub struct NamespaceLister<K> {
    lister: Lister<K>,
    namespace: Box<str>,
}

impl<K> NamespaceLister<K> {
    /// The object with this name.
    pub fn get(&self, name: &str) -> Option<Object<K>> {
        self.lister.get(&self.namespace, name)
    }

    /// All objects of the namespace, ordered by name.
    pub fn list(&self) -> Vec<Object<K>> {
        views(self.lister.state().namespace(&self.namespace))
    }

    /// How many objects the namespace has.
    pub fn len(&self) -> usize {
        self.lister.state().namespace(&self.namespace).count()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.lister.state().namespace(&self.namespace).next().is_none()
    }

    /// The objects of the namespace whose labels match, ordered by name.
    pub fn matching(&self, selector: &LabelSelector) -> Vec<Object<K>> {
        let state = self.lister.state();
        let objects = state.namespace(&self.namespace);
        views(objects.filter(|entry| selector.matches(|name| entry.head().labels.get(name))))
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
