//! Changing objects before they are cached.
//!
//! A [`Transform`] is a function from an object to bytes. The bytes are parsed like a received object and
//! accepted only if identity, deletion, owners and finalizers are unchanged. If they are not accepted, the
//! cache stores what [`TransformFallback`] selects. This module does not know the kind: a function that
//! changes a typed object decodes and encodes the object itself.

use crate::object::Entry;
use crate::wire::{Head, Limits, ManagedFields, ReadObjectError, ScannedObject, TypeMeta, read_object};
use serde::Deserialize;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type TransformFn = dyn Fn(&Entry) -> Result<Vec<u8>, Box<str>> + Send + Sync;

/// A function that changes every object before it is cached. Cheap to clone.
///
/// The function is called exactly once for each readable object that is received: an item of a list, an
/// initial object of a watch-list, the object of an `ADDED`, `MODIFIED` or `DELETED` frame. Fields that a
/// [`FieldFilter`](crate::FieldFilter) leaves out are already removed.
///
/// The result is the object as JSON. `apiVersion` and `kind` may be missing, and `managedFields` are
/// dropped unless the field filter keeps them. Labels and the rest of the head are read from the result, but key, uid, version, deletion,
/// owners and finalizers must equal those of the received object, because controllers depend on them. Any
/// difference is an error, as are a panic and a result over the size limit. Errors are counted and reported
/// (C9), and [`TransformFallback`] selects what is cached instead.
///
/// **The function should be deterministic**: equal objects, equal bytes. A relist compares bytes, and an
/// object whose bytes differ is delivered as updated. The function runs in the task that parses objects;
/// until it returns, the cache receives nothing else.
#[derive(Clone)]
pub struct Transform(Arc<TransformFn>);

/// The form in which the cache stores an object whose transform failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TransformFallback {
    /// The object as it was received, after the field filter.
    #[default]
    KeepOriginal,
    /// `apiVersion`, `kind` and `metadata` without annotations and `managedFields`.
    ///
    /// `kubectl apply` stores a copy of the whole object in an annotation. For kinds whose contents must not
    /// be cached unchanged.
    MetadataOnly,
}

impl Transform {
    /// Creates a transform from a function.
    ///
    /// The text of its error is reported unchanged, so it should not quote the object.
    pub fn new(transform: impl Fn(&Entry) -> Result<Vec<u8>, Box<str>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(transform))
    }

    /// Returns whether both transforms share one function.
    pub fn ptr_eq(left: &Self, right: &Self) -> bool {
        Arc::ptr_eq(&left.0, &right.0)
    }

    /// Returns the transformed object, or the reason why there is none.
    pub(crate) fn apply(
        &self,
        received: &Entry,
        type_meta: &TypeMeta,
        limits: Limits,
        managed_fields: ManagedFields,
    ) -> Result<ScannedObject, Box<str>> {
        let changed = catch_unwind(AssertUnwindSafe(|| self.0(received)));
        // The panic message is not reported: it may quote the object.
        let changed = changed.unwrap_or_else(|_| Err("the transform panicked".into()))?;
        let unreadable =
            |error: ReadObjectError| format!("the transform returned an unreadable object: {error}");
        let scanned = read_object(type_meta, limits, managed_fields, &changed).map_err(unreadable)?;
        let (new, old) = (&scanned.head, received.head());
        let immutable = [(&*scanned.bytes, new), (&received.bytes(), old)].map(ImmutableMetadata::of);
        let same = [
            ("key", new.key == old.key),
            ("uid", new.uid == old.uid),
            ("version", new.version == old.version),
            ("deletion", new.deletion_timestamp() == old.deletion_timestamp()),
            ("owners", new.owners == old.owners),
            ("finalizers", immutable[0] == immutable[1]),
        ];
        match same.iter().find(|(_, same)| !same) {
            Some((field, _)) => Err(format!("the transform changed the object's {field}").into()),
            None => Ok(scanned),
        }
    }
}

/// Metadata that is not part of a head and must not be changed by a transform.
#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
struct ImmutableMetadata {
    finalizers: Option<Vec<String>>,
    deletion_grace_period_seconds: Option<i64>,
}

impl ImmutableMetadata {
    fn of((bytes, head): (&[u8], &Head)) -> Self {
        let metadata = bytes.get(head.metadata.start as usize..head.metadata.end as usize);
        let read = metadata.and_then(|metadata| serde_json::from_slice::<Self>(metadata).ok());
        let read = read.unwrap_or_default();
        // A missing list equals an empty one.
        Self { finalizers: read.finalizers.filter(|finalizers| !finalizers.is_empty()), ..read }
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}
