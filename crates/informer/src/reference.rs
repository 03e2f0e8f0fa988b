//! Pointing at objects: which one is meant, said the same way of cached and of typed ones.
//!
//! Nothing here asks a server. Whether what is pointed at is there is not known.

use informer_core::wire::EntryEncoding;
use informer_core::{Object, OwnerReference, ResourceVersion, Typed};
use kube::Resource;
use kube::api::{DynamicObject, ObjectMeta};
use serde::Deserialize;

/// Which object is meant, wherever it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectReference {
    /// `v1`, or `group/version`.
    pub api_version: String,
    /// The kind, as in `Pod`.
    pub kind: String,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The uid; empty if it is not known.
    pub uid: String,
}

/// What can be pointed at: cached objects, their typed views, typed objects and references.
///
/// `Form` says which of these it is, so that each can have it; it is found by the compiler and never written. A kind that is known only at run
/// time says itself what it is: a dynamic object by its `types`, a cached one by its bytes.
///
/// ```
/// use informer::owner::ToObjectReference;
/// use k8s_openapi::api::core::v1::Node;
///
/// let mut node = Node::default();
/// node.metadata.name = Some("node-1".to_owned());
/// assert_eq!(node.reference().to_string(), "Node node-1");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which object it is",
    label = "no object that can be pointed at",
    note = "it can be an `Object<K>` or its `typed()` view, a kind like `Pod`, a `DynamicObject`, or a `Reference`; \
            of a kind that is known at run time but is no `DynamicObject`, make a `Reference`"
)]
pub trait ToObjectReference<Form> {
    /// Which object it is.
    fn reference(&self) -> ObjectReference;

    /// Who owns it.
    fn owners(&self) -> Vec<OwnerReference>;

    /// The resource version of this state of it, if it has one.
    fn version(&self) -> Option<ResourceVersion>;
}

/// The form of cached objects.
#[derive(Debug)]
pub enum Cached {}

/// The form of cached objects whose kind is known at run time.
#[derive(Debug)]
pub enum CachedDynamic {}

/// The form of typed views of cached objects.
#[derive(Debug)]
pub enum View {}

/// The form of typed views of cached objects whose kind is known at run time.
#[derive(Debug)]
pub enum ViewDynamic {}

/// The form of typed objects.
#[derive(Debug)]
pub enum Plain {}

/// The form of dynamic objects.
#[derive(Debug)]
pub enum PlainDynamic {}

impl<K: Resource<DynamicType = ()>> ToObjectReference<Cached> for Object<K> {
    fn reference(&self) -> ObjectReference {
        cached(self, K::api_version(&()).into_owned(), K::kind(&()).into_owned())
    }

    fn owners(&self) -> Vec<OwnerReference> {
        Object::owners(self).iter().map(OwnerReference::from).collect()
    }

    fn version(&self) -> Option<ResourceVersion> {
        Some(Object::resource_version(self).clone())
    }
}

impl ToObjectReference<CachedDynamic> for Object<DynamicObject> {
    fn reference(&self) -> ObjectReference {
        // A message does not say what it is: its cache knows.
        if let EntryEncoding::Protobuf(of) = self.entry().encoding() {
            return cached(self, of.get().api_version.to_owned(), of.get().kind().to_owned());
        }
        // The cache has read it, and wrote both in front.
        let Types { api_version, kind } = serde_json::from_slice(&self.raw_bytes()).unwrap_or_default();
        cached(self, api_version, kind)
    }

    fn owners(&self) -> Vec<OwnerReference> {
        Object::owners(self).iter().map(OwnerReference::from).collect()
    }

    fn version(&self) -> Option<ResourceVersion> {
        Some(Object::resource_version(self).clone())
    }
}

impl<K: Resource<DynamicType = ()>> ToObjectReference<View> for Typed<K> {
    fn reference(&self) -> ObjectReference {
        ToObjectReference::<Plain>::reference(&**self)
    }

    fn owners(&self) -> Vec<OwnerReference> {
        ToObjectReference::<Plain>::owners(&**self)
    }

    fn version(&self) -> Option<ResourceVersion> {
        ToObjectReference::<Plain>::version(&**self)
    }
}

impl ToObjectReference<ViewDynamic> for Typed<DynamicObject> {
    fn reference(&self) -> ObjectReference {
        ToObjectReference::<PlainDynamic>::reference(&**self)
    }

    fn owners(&self) -> Vec<OwnerReference> {
        ToObjectReference::<PlainDynamic>::owners(&**self)
    }

    fn version(&self) -> Option<ResourceVersion> {
        ToObjectReference::<PlainDynamic>::version(&**self)
    }
}

impl<K: Resource<DynamicType = ()>> ToObjectReference<Plain> for K {
    fn reference(&self) -> ObjectReference {
        plain(self.meta(), K::api_version(&()).into_owned(), K::kind(&()).into_owned())
    }

    fn owners(&self) -> Vec<OwnerReference> {
        owners(self.meta())
    }

    fn version(&self) -> Option<ResourceVersion> {
        version(self.meta())
    }
}

impl ToObjectReference<PlainDynamic> for DynamicObject {
    fn reference(&self) -> ObjectReference {
        let (api_version, kind) =
            self.types.clone().map(|types| (types.api_version, types.kind)).unwrap_or_default();
        plain(&self.metadata, api_version, kind)
    }

    fn owners(&self) -> Vec<OwnerReference> {
        owners(&self.metadata)
    }

    fn version(&self) -> Option<ResourceVersion> {
        version(&self.metadata)
    }
}

/// Itself. It does not know its owners, or any version.
impl ToObjectReference<ObjectReference> for ObjectReference {
    fn reference(&self) -> ObjectReference {
        self.clone()
    }

    fn owners(&self) -> Vec<OwnerReference> {
        Vec::new()
    }

    fn version(&self) -> Option<ResourceVersion> {
        None
    }
}

/// As people say it: `Pod shop/web-0`.
impl std::fmt::Display for ObjectReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl ObjectReference {
    /// Whether an owner reference means this object. Versions of its group are all the same; a uid that is not known means nothing.
    pub(crate) fn refers_to(&self, owner: &OwnerReference) -> bool {
        group(&self.api_version) == group(&owner.api_version)
            && *self.kind == *owner.kind
            && *self.name == *owner.name
            && *self.uid == *owner.uid
            && !self.uid.is_empty()
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Types {
    api_version: String,
    kind: String,
}

/// The group of an `apiVersion`; empty for the core group.
pub(crate) fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

fn cached<K>(object: &Object<K>, api_version: String, kind: String) -> ObjectReference {
    ObjectReference {
        api_version,
        kind,
        namespace: object.namespace().map(str::to_owned),
        name: object.name().to_owned(),
        uid: object.uid().to_owned(),
    }
}

fn plain(meta: &ObjectMeta, api_version: String, kind: String) -> ObjectReference {
    ObjectReference {
        api_version,
        kind,
        namespace: meta.namespace.clone().filter(|namespace| !namespace.is_empty()),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
    }
}

fn version(meta: &ObjectMeta) -> Option<ResourceVersion> {
    meta.resource_version.as_deref().filter(|version| !version.is_empty()).map(ResourceVersion::new)
}

fn owners(meta: &ObjectMeta) -> Vec<OwnerReference> {
    let owners = meta.owner_references.iter().flatten();
    let read = owners.map(|owner| {
        let mut read = OwnerReference::default();
        (read.api_version, read.kind) = (owner.api_version.as_str().into(), owner.kind.as_str().into());
        (read.name, read.uid) = (owner.name.as_str().into(), owner.uid.as_str().into());
        read.controller = owner.controller == Some(true);
        read
    });
    read.collect()
}
