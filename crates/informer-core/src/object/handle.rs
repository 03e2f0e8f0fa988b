//! The typed handle through which callers read an entry.

use super::{DecodeError, Entry, Typed};
use crate::key::Key;
use crate::version::ResourceVersion;
use crate::wire::{BodyEncoding, EntryEncoding, FieldPath, Labels, Owners};
use jiff::Timestamp;
use ref_cast::{RefCastCustom, ref_cast_custom};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A cached object, to be decoded as a `K`. Immutable and cheap to clone.
///
/// Key, version, labels and the other fields of the [`Head`](crate::wire::Head) are read without decoding the
/// object. [`Object::typed`] decodes the object when it is called, so the fields of `K` are not fields of an
/// `Object<K>`:
///
/// ```
/// # mod informer { pub use informer_core::Object; pub mod error { pub use informer_core::DecodeError; } }
/// use informer::{Object, error::DecodeError};
/// use k8s_openapi::api::core::v1::Pod;
///
/// fn node(pod: &Object<Pod>) -> Result<Option<String>, DecodeError> {
///     let pod = pod.typed()?; // not `pod.spec`: "no field `spec` on type `&Object<Pod>`"
///     Ok(pod.spec.as_ref().and_then(|spec| spec.node_name.clone()))
/// }
/// ```
#[derive(RefCastCustom)]
#[repr(transparent)]
pub struct Object<K> {
    entry: Arc<Entry>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Object<K> {
    /// Wraps an entry.
    pub fn new(entry: Arc<Entry>) -> Self {
        Self { entry, kind: PhantomData }
    }

    /// Wraps a borrowed entry without changing its reference count.
    #[ref_cast_custom]
    pub fn from_ref(entry: &Arc<Entry>) -> &Self;

    /// Returns the underlying entry.
    pub fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Returns a handle to this object as another type, whose [`typed`](Object::typed) decodes the object as a
    /// `T`.
    ///
    /// `T` may be any type that implements `Deserialize`, whether the bytes are JSON or protobuf. A small struct
    /// with the needed fields decodes faster than the whole type, since other fields are skipped:
    ///
    /// ```
    /// # mod informer { pub use informer_core::Object; pub mod error { pub use informer_core::DecodeError; } }
    /// use informer::{Object, error::DecodeError};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// #[derive(serde::Deserialize)]
    /// struct PodPhase { status: Status }
    ///
    /// #[derive(serde::Deserialize)]
    /// struct Status { phase: Option<String> }
    ///
    /// fn phase(pod: &Object<Pod>) -> Result<Option<String>, DecodeError> {
    ///     Ok(pod.cast::<PodPhase>().typed()?.status.phase.clone())
    /// }
    /// # use informer_core::{Entry, Retention, TypeMeta, wire::{Limits, ListItem, ListReader}};
    /// # let body = br#"{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a","resourceVersion":"8"},
    /// #     "spec":{"containers":[]},"status":{"phase":"Running"}}]}"#;
    /// # let mut pods: Vec<Object<Pod>> = Vec::new();
    /// # ListReader::new(TypeMeta::new("v1", "Pod"), Limits::default()).read(body, |item| {
    /// #     if let ListItem::Object(scanned) = item {
    /// #         pods.push(Object::new(Entry::new(scanned, Retention::Bytes).into()));
    /// #     }
    /// # }).unwrap();
    /// # assert_eq!(phase(&pods[0]).unwrap().as_deref(), Some("Running"));
    /// ```
    pub fn cast<T>(&self) -> Object<T> {
        Object::new(Arc::clone(&self.entry))
    }

    /// Converts this handle into one of another type; see [`cast`](Self::cast).
    pub fn into_cast<T>(self) -> Object<T> {
        Object::new(self.entry)
    }

    /// Returns the key: namespace and name.
    pub fn key(&self) -> &Key {
        &self.entry.head.key
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.key().name()
    }

    /// Returns the namespace, `None` for cluster-scoped objects.
    pub fn namespace(&self) -> Option<&str> {
        self.key().namespace()
    }

    /// Returns the uid; empty if the server sent none.
    pub fn uid(&self) -> &str {
        &self.entry.head.uid
    }

    /// Returns the resource version of this state.
    pub fn resource_version(&self) -> &ResourceVersion {
        &self.entry.head.version
    }

    /// Returns the generation, where the kind has one.
    pub fn generation(&self) -> Option<i64> {
        self.entry.head.generation()
    }

    /// Returns the labels.
    pub fn labels(&self) -> &Labels {
        &self.entry.head.labels
    }

    /// Returns the owners.
    pub fn owners(&self) -> &Owners {
        &self.entry.head.owners
    }

    /// Returns the time of creation, as a timestamp of the crate [`jiff`].
    pub fn creation_timestamp(&self) -> Option<Timestamp> {
        self.entry.head.creation_timestamp()
    }

    /// Returns the time at which the grace period of the requested deletion ends, as a timestamp of the crate
    /// [`jiff`]; `None` if none was requested.
    pub fn deletion_timestamp(&self) -> Option<Timestamp> {
        self.entry.head.deletion_timestamp()
    }

    /// Returns whether the server has a newer state of this object that could not be read.
    pub fn is_stale(&self) -> bool {
        self.entry.is_stale()
    }

    /// Returns the encoding of [`raw_bytes`](Self::raw_bytes).
    pub fn encoding(&self) -> BodyEncoding {
        self.entry.encoding()
    }

    /// Returns the object's bytes, in the encoding that the server sent.
    ///
    /// They are what the cache stores: by default without `metadata.managedFields`, and after the field filter and
    /// the transform, if there are any. They are equal whether the object was received in a list or by a watch.
    ///
    /// Borrowed unless the cache stores the object compressed. Empty if the compressed bytes were corrupted
    /// in memory.
    pub fn raw_bytes(&self) -> Cow<'_, [u8]> {
        self.entry.bytes()
    }

    /// Returns the object as JSON, by default without `metadata.managedFields`.
    ///
    /// If the server sent JSON, these are the [`raw_bytes`](Self::raw_bytes). Protobuf is decoded and
    /// written as JSON, with the members of each object sorted by name.
    pub fn to_json(&self) -> Result<Cow<'_, [u8]>, DecodeError> {
        match self.entry.encoding {
            EntryEncoding::Json => self.entry.counted(self.entry.checked_bytes::<serde_json::Value>()),
            EntryEncoding::Protobuf(_) => {
                let value: serde_json::Value = self.entry.counted(self.entry.decode())?;
                Ok(Cow::Owned(value.to_string().into_bytes()))
            }
        }
    }

    /// Returns the first scalar value at a field path such as `spec.nodeName` or
    /// `metadata.annotations['example.com/x']`, without decoding the object.
    ///
    /// A string is returned without quotes, a number or boolean as in JSON. `None` if there is no such value,
    /// or if the path is invalid. To read many objects or all values of a list, parse a [`FieldPath`] once and
    /// use [`Entry::values_at`]. Each call scans the bytes up to the field; for several fields, [`cast`](Self::cast)
    /// the object to a small struct or add a projection.
    pub fn field(&self, path: &str) -> Option<String> {
        let path: FieldPath = path.parse().ok()?;
        self.entry.values_at(&path).into_iter().next()
    }

    /// Returns the annotations; decodes nothing else.
    pub fn annotations(&self) -> Result<BTreeMap<String, String>, DecodeError> {
        #[derive(serde::Deserialize)]
        struct Metadata {
            annotations: Option<BTreeMap<String, String>>,
        }
        Ok(self.metadata::<Metadata>()?.annotations.unwrap_or_default())
    }

    /// Decodes `metadata` alone, as an `ObjectMeta` or any type with a part of its fields.
    pub fn metadata<M: DeserializeOwned>(&self) -> Result<M, DecodeError> {
        self.entry.counted(self.entry.decode_metadata())
    }
}

impl<K: DeserializeOwned + Send + Sync + 'static> Object<K> {
    /// Decodes the object.
    ///
    /// While a caller holds the result, further calls on this handle or its clones return the same value.
    /// With [`Retention::Decoded`](crate::Retention::Decoded), objects are decoded when they arrive, and this
    /// only copies a pointer; see also [`typed_ref`](Self::typed_ref).
    ///
    /// Decoding a pod takes about 30 µs, so reading each of 50,000 pods takes more than a second: run such a task in
    /// `spawn_blocking`, or yield in between. To read a few fields of many objects often, add a projection:
    /// [`Object::projected`] returns a reference to a value that was decoded before.
    pub fn typed(&self) -> Result<Typed<K>, DecodeError> {
        self.entry.typed()
    }

    /// Returns the decoded object by reference if the cache keeps it, without counting references.
    ///
    /// With [`Retention::Decoded`](crate::Retention::Decoded), this is `None` only for an object that does not
    /// decode: [`typed`](Self::typed) returns the error. With
    /// [`Retention::RecentlyDecoded`](crate::Retention::RecentlyDecoded), it is also `None` if the limit is
    /// reached; with other retentions always.
    pub fn typed_ref(&self) -> Option<&K> {
        self.entry.typed_ref()
    }
}

impl<K> Clone for Object<K> {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.entry))
    }
}

/// Prints key and version only: contents may be secret.
impl<K> fmt::Debug for Object<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.entry.fmt(f)
    }
}
