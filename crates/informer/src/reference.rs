//! References to objects, created in the same way from cached and from typed objects.
//!
//! No requests are sent: whether a referenced object exists is unknown here.

use informer_core::{Object, OwnerReference, ResourceVersion, Typed};
use kube::Resource;
use kube::api::{DynamicObject, ObjectMeta};
use serde::Deserialize;

/// A reference to an object, by type, namespace, name and uid.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ObjectReference {
    /// The API version, `v1` or `group/version`.
    pub api_version: String,
    /// The kind, as in `Pod`.
    pub kind: String,
    /// The namespace; `None` for cluster-scoped objects.
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
    /// The uid; empty if unknown.
    pub uid: String,
}

/// A conversion to [`ObjectReference`], implemented for cached objects (`Object<K>`), their typed values
/// (`Typed<K>`), plain values such as `Pod`, and references.
///
/// `Form` distinguishes these cases, so that the implementations do not overlap; the compiler infers it. For
/// kinds that are known only at run time, the type is taken from the object: from the `types` of a
/// [`DynamicObject`], or from the encoding or the bytes of a cached object.
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
    message = "`{Self}` does not identify an object",
    label = "cannot be converted to an `ObjectReference`",
    note = "use an `Object<K>` or its `typed()` value, a typed object such as `Pod`, a `DynamicObject`, or an \
            `ObjectReference`; for other types whose kind is known only at run time, build an `ObjectReference`"
)]
pub trait ToObjectReference<Form> {
    /// The type of the object: `Pod` for an `Object<Pod>`.
    type Kind;

    /// Returns the reference to the object.
    fn reference(&self) -> ObjectReference;

    /// Returns the owner references of the object.
    fn owners(&self) -> Vec<OwnerReference>;

    /// Returns the resource version of this state of the object, if it has one.
    fn version(&self) -> Option<ResourceVersion>;
}

/// The form of cached objects.
#[derive(Debug)]
pub enum Cached {}

/// The form of cached objects whose kind is known only at run time.
#[derive(Debug)]
pub enum CachedDynamic {}

/// The form of typed values of cached objects.
#[derive(Debug)]
pub enum TypedValue {}

/// The form of typed values of cached objects whose kind is known only at run time.
#[derive(Debug)]
pub enum TypedValueDynamic {}

/// The form of plain values, such as `Pod`.
#[derive(Debug)]
pub enum Plain {}

/// The form of plain values of type [`DynamicObject`].
#[derive(Debug)]
pub enum PlainDynamic {}

impl<K: Resource<DynamicType = ()>> ToObjectReference<Cached> for Object<K> {
    type Kind = K;

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
    type Kind = DynamicObject;

    fn reference(&self) -> ObjectReference {
        // A protobuf message does not contain its type; the encoding of the entry does.
        if let Some(message) = self.entry().message() {
            return cached(self, message.get().api_version.to_owned(), message.get().kind().to_owned());
        }
        // Always succeeds: the cache has parsed the object and stores both fields at the front.
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

impl<K: Resource<DynamicType = ()>> ToObjectReference<TypedValue> for Typed<K> {
    type Kind = K;

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

impl ToObjectReference<TypedValueDynamic> for Typed<DynamicObject> {
    type Kind = DynamicObject;

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
    type Kind = K;

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
    type Kind = DynamicObject;

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

/// Returns the reference itself, with neither owners nor a version.
impl ToObjectReference<ObjectReference> for ObjectReference {
    type Kind = DynamicObject;

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

/// Formats the reference as `Pod shop/web-0`.
impl std::fmt::Display for ObjectReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

impl ObjectReference {
    /// Returns whether an owner reference refers to this object. API groups are compared without their
    /// versions; an unknown uid never matches.
    pub(crate) fn is_target_of(&self, owner: &OwnerReference) -> bool {
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

/// Returns the group of an `apiVersion`; empty for the core group.
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
    let references = meta.owner_references.iter().flatten();
    let owners = references.map(|reference| {
        let mut owner = OwnerReference::default();
        (owner.api_version, owner.kind) =
            (reference.api_version.as_str().into(), reference.kind.as_str().into());
        (owner.name, owner.uid) = (reference.name.as_str().into(), reference.uid.as_str().into());
        owner.controller = reference.controller == Some(true);
        owner
    });
    owners.collect()
}
