//! Predicates for [`Controller::with_predicate`](crate::controller::Controller::with_predicate) that compare
//! the old and the new state of an object.
//!
//! `Added` and `Deleted` events always pass. A resync does not pass, because it changes nothing. Predicates
//! are plain functions and can be combined:
//!
//! ```
//! # use informer::Event;
//! # use informer::controller::predicates;
//! # use k8s_openapi::api::core::v1::Pod;
//! fn interesting(event: &Event<Pod>) -> bool {
//!     predicates::generation_changed(event) || predicates::labels_changed(event)
//! }
//! ```

use crate::event::Event;
use informer_core::Object;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Returns whether the generation changed, that is the desired state and not only the status or metadata, or
/// the deletion of the object began.
///
/// So an object whose finalizers keep it is reconciled when its deletion begins, and once more when the server
/// removes it. For most kinds the server raises the generation when a deletion begins, but not for custom
/// resource definitions. For kinds without a generation, such as `ConfigMap` and `Secret`, every change passes.
pub fn generation_changed<K>(event: &Event<K>) -> bool {
    changed(event, |old, new| {
        let nonzero = |object: &Object<K>| object.generation().filter(|generation| *generation != 0);
        match (nonzero(old), nonzero(new)) {
            (None, None) => version_differs(old, new),
            (old_generation, new_generation) => {
                let is_deletion = old.deletion_timestamp().is_none() && new.deletion_timestamp().is_some();
                old_generation != new_generation || is_deletion
            }
        }
    })
}

/// Returns whether the labels changed.
pub fn labels_changed<K>(event: &Event<K>) -> bool {
    changed(event, |old, new| {
        let sorted = |object: &Object<K>| -> BTreeMap<String, String> {
            object.labels().iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        // The first comparison is cheap; it also finds labels that differ only in their order.
        old.labels() != new.labels() && sorted(old) != sorted(new)
    })
}

/// Returns whether the annotations changed. Unlike labels, they have to be decoded for each update; if
/// that fails, the update passes.
pub fn annotations_changed<K>(event: &Event<K>) -> bool {
    #[derive(Deserialize, Default, PartialEq)]
    #[serde(default)]
    struct Annotated {
        annotations: Option<BTreeMap<String, String>>,
    }
    changed(event, |old, new| {
        // An object that cannot be decoded may have changed.
        let read = |object: &Object<K>| object.metadata::<Annotated>().ok();
        match (read(old), read(new)) {
            (Some(old), Some(new)) => {
                old.annotations.unwrap_or_default() != new.annotations.unwrap_or_default()
            }
            _ => true,
        }
    })
}

/// Returns whether the resource version or the uid changed: true for any change, false for a resync.
pub fn resource_version_changed<K>(event: &Event<K>) -> bool {
    changed(event, version_differs)
}

fn version_differs<K>(old: &Object<K>, new: &Object<K>) -> bool {
    old.resource_version() != new.resource_version() || old.uid() != new.uid()
}

fn changed<K>(event: &Event<K>, differ: impl FnOnce(&Object<K>, &Object<K>) -> bool) -> bool {
    match event {
        Event::Updated { old, new, .. } => differ(old, new),
        Event::Added { .. } | Event::Deleted { .. } => true,
    }
}
