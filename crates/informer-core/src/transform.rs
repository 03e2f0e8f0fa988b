//! Changing objects before they are cached.
//!
//! A [`Transform`] is a function from an object to bytes. Whatever it does, what is cached is an object of the same key, uid and
//! version: its result is read like anything else that comes in, and if that fails the cache takes what [`TransformFallback`] says.
//! Nothing here knows the kind: who wants to change a typed object decodes and encodes it inside the function.

use crate::object::Entry;
use crate::wire::{Head, Limits, ReadObjectError, ScannedObject, TypeMeta, read_object};
use serde::Deserialize;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Change = dyn Fn(&Entry) -> Result<Vec<u8>, Box<str>> + Send + Sync;

/// Changes every object of a cache before it is cached. Cheap to clone.
///
/// It is called exactly once for each object that arrives to be cached or told: an item of a list, an initial object of a watch-list,
/// the object of an `ADDED`, `MODIFIED` or `DELETED` frame. What a [`FieldFilter`](crate::FieldFilter) leaves out is gone by then.
///
/// The result is the object as JSON. `apiVersion` and `kind` may be missing, `managedFields` are dropped, and labels and all else that the
/// cache knows of an object are read from it; but key, uid, version, deletion, owners and finalizers must be those of the object that came in:
/// controllers go by them. Anything else is an error, as are a panic and a result over the size limit. Each is counted and reported (C9), and [`TransformFallback`] says what is cached instead.
///
/// **It should be deterministic**: the same object in, the same bytes out. A relist compares bytes, and an object whose bytes differ is told
/// as changed. It runs where objects are read, so while it works nothing else of this cache arrives.
#[derive(Clone)]
pub struct Transform(Arc<Change>);

/// What is cached of an object whose transform failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum TransformFallback {
    /// The object as it was received, less what a projection left out.
    #[default]
    KeepOriginal,
    /// `apiVersion`, `kind` and `metadata`. Annotations are left out as well: `kubectl apply` keeps a copy of the whole object in
    /// one. For kinds whose contents must not get into a cache unchanged.
    MetadataOnly,
}

impl Transform {
    /// A transform by this function. The text of its error is reported as it is, so it should not quote the object.
    pub fn new(change: impl Fn(&Entry) -> Result<Vec<u8>, Box<str>> + Send + Sync + 'static) -> Self {
        Self(Arc::new(change))
    }

    /// Whether both are one and the same.
    pub fn ptr_eq(left: &Self, right: &Self) -> bool {
        Arc::ptr_eq(&left.0, &right.0)
    }

    /// The changed object, or why there is none.
    pub(crate) fn apply(
        &self,
        received: &Entry,
        types: &TypeMeta,
        limits: Limits,
    ) -> Result<ScannedObject, Box<str>> {
        let changed = catch_unwind(AssertUnwindSafe(|| self.0(received)));
        // What a panic says may quote the object.
        let changed = changed.unwrap_or_else(|_| Err("the transform panicked".into()))?;
        let unfit = |error: ReadObjectError| format!("the transform's result does not read: {error}");
        let scanned = read_object(types, limits, &changed).map_err(unfit)?;
        let (new, old) = (&scanned.head, received.head());
        let lasting = [(&*scanned.bytes, new), (&received.bytes(), old)].map(Lasting::of);
        let same = [
            ("key", new.key == old.key),
            ("uid", new.uid == old.uid),
            ("version", new.version == old.version),
            ("deletion", new.deleted() == old.deleted()),
            ("owners", new.owners == old.owners),
            ("finalizers", lasting[0] == lasting[1]),
        ];
        match same.iter().find(|(_, same)| !same) {
            Some((what, _)) => Err(format!("the transform changed the object's {what}").into()),
            None => Ok(scanned),
        }
    }
}

/// What is not in a head and yet stays as it is.
#[derive(Deserialize, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
struct Lasting {
    finalizers: Option<Vec<String>>,
    deletion_grace_period_seconds: Option<i64>,
}

impl Lasting {
    fn of((bytes, head): (&[u8], &Head)) -> Self {
        let metadata = bytes.get(head.metadata.start as usize..head.metadata.end as usize);
        let read = metadata.and_then(|metadata| serde_json::from_slice::<Self>(metadata).ok());
        let read = read.unwrap_or_default();
        // No list and an empty one are the same.
        Self { finalizers: read.finalizers.filter(|finalizers| !finalizers.is_empty()), ..read }
    }
}

impl fmt::Debug for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transform")
    }
}
