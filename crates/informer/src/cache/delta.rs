//! [`Delta`]: a message of a server about its objects, as a reflector passes it on.

use crate::status::UnreadableObject;
use informer_core::{self as core, Deleted, Key, Object, ResourceVersion, Scope, StoreSnapshot};
use std::fmt;

/// A message of a server about its objects, before it is compared with what is cached.
///
/// A [`Reflector`](super::Reflector) produces deltas, a [`DeltaFifo`](super::DeltaFifo) queues them, and
/// [`Store::apply`](super::Store::apply) turns them into events. The first delta of a reflector is a list.
#[non_exhaustive]
pub enum Delta<K> {
    /// An object that the server reports as new.
    Added(Object<K>),
    /// A new state of an object.
    Updated(Object<K>),
    /// A deletion that the server reported.
    Deleted {
        /// The key of the deleted object.
        key: Key,
        /// The version of the deletion, if it could be read.
        version: Option<ResourceVersion>,
        /// The last state as the server sent it, if it could be read.
        last: Option<Object<K>>,
    },
    /// A complete list: other objects in its scope no longer exist.
    Replaced {
        /// The listed namespace, or all of them; objects outside it are not affected.
        scope: Scope,
        /// The version of the list.
        version: ResourceVersion,
        /// The objects, in any order; of several with the same key, the last one counts.
        objects: Vec<Object<K>>,
        /// The objects that exist but could not be read, so that their last states should be kept.
        unreadable: Vec<UnreadableObject>,
    },
    /// There are no further changes up to this version.
    Bookmark(ResourceVersion),
    /// An object whose new state could not be read.
    Unreadable(UnreadableObject),
}

impl<K> Delta<K> {
    /// Creates the delta of a deleted object, from its last state.
    pub fn deleted(last: Object<K>) -> Self {
        let (key, version) = (last.key().clone(), Some(last.resource_version().clone()));
        Self::Deleted { key, version, last: Some(last) }
    }

    /// Creates the delta of a complete list of all namespaces.
    pub fn replaced(objects: Vec<Object<K>>, version: ResourceVersion) -> Self {
        Self::Replaced { scope: Scope::All, version, objects, unreadable: Vec::new() }
    }

    /// Returns the key of the object; `None` if the delta is not about one object, or its key is unreadable.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Added(object) | Self::Updated(object) => Some(object.key()),
            Self::Deleted { key, .. } => Some(key),
            Self::Unreadable(unreadable) => unreadable.key.as_ref(),
            Self::Replaced { .. } | Self::Bookmark(_) => None,
        }
    }

    /// Returns the objects that the delta brings.
    pub fn objects(&self) -> &[Object<K>] {
        match self {
            Self::Added(object) | Self::Updated(object) => std::slice::from_ref(object),
            Self::Deleted { last, .. } => last.as_slice(),
            Self::Replaced { objects, .. } => objects,
            Self::Bookmark(_) | Self::Unreadable(_) => &[],
        }
    }

    /// Returns the scope of a store to which the delta belongs. `None` for a bookmark if there are several.
    pub(super) fn scope_in(&self, snapshot: &StoreSnapshot) -> Option<Scope> {
        let mut scopes = snapshot.scopes();
        match (self, self.key()) {
            (Self::Replaced { scope, .. }, _) => Some(scope.clone()),
            (_, Some(key)) => Some(scopes.find(|scope| scope.contains(key)).cloned().unwrap_or(Scope::All)),
            _ => {
                let first = scopes.next().cloned().unwrap_or(Scope::All);
                scopes.next().is_none().then_some(first)
            }
        }
    }

    /// Converts a delta of a scope without sharding; `None` for others.
    pub(super) fn from_core(delta: core::Delta) -> Option<Self> {
        Some(match delta {
            core::Delta::Added(entry) => Self::Added(Object::new(entry)),
            core::Delta::Updated(entry) => Self::Updated(Object::new(entry)),
            core::Delta::Deleted(Deleted { key, version, last }) => {
                Self::Deleted { key, version, last: last.map(Object::new) }
            }
            core::Delta::Replaced(core::Replaced { scope, version, entries, unreadable, .. }) => {
                let objects = entries.into_iter().map(Object::new).collect();
                Self::Replaced { scope, version, objects, unreadable }
            }
            core::Delta::Bookmark(version) => Self::Bookmark(version),
            core::Delta::Unreadable(unreadable) => Self::Unreadable(unreadable),
            core::Delta::Gained(_) | core::Delta::Released(_) => return None,
        })
    }

    pub(super) fn into_core(self) -> core::Delta {
        let entry = |object: &Object<K>| object.entry().clone();
        match self {
            Self::Added(object) => core::Delta::Added(entry(&object)),
            Self::Updated(object) => core::Delta::Updated(entry(&object)),
            Self::Deleted { key, version, last } => {
                core::Delta::Deleted(Deleted { key, version, last: last.as_ref().map(entry) })
            }
            Self::Replaced { scope, version, objects, unreadable } => {
                let entries = objects.iter().map(entry).collect();
                core::Delta::Replaced(core::Replaced { scope, version, entries, unreadable, audit: false })
            }
            Self::Bookmark(version) => core::Delta::Bookmark(version),
            Self::Unreadable(unreadable) => core::Delta::Unreadable(unreadable),
        }
    }
}

/// Prints the keys and versions of objects but not their contents, which may be confidential.
impl<K> fmt::Debug for Delta<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Added(object) => write!(f, "Added({object:?})"),
            Self::Updated(object) => write!(f, "Updated({object:?})"),
            Self::Deleted { key, version: Some(version), .. } => write!(f, "Deleted({key}, {version:?})"),
            Self::Deleted { key, version: None, .. } => write!(f, "Deleted({key})"),
            Self::Replaced { scope, version, objects, .. } => {
                write!(f, "Replaced({} objects in {scope}, {version:?})", objects.len())
            }
            Self::Bookmark(version) => write!(f, "Bookmark({version:?})"),
            Self::Unreadable(unreadable) => write!(f, "Unreadable({unreadable})"),
        }
    }
}
