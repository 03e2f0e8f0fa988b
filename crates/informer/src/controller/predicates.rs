//! What changed: ready-made predicates for [`Controller::with_predicate`](crate::controller::Controller::with_predicate).
//!
//! Objects that come or go always pass; a resync, which changes nothing, never does. They are plain functions, so they combine like any other:
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

/// The generation: what somebody wants changed, and not only what is reported of it. Of kinds that have no generation every change passes.
pub fn generation_changed<K>(event: &Event<K>) -> bool {
    changed(event, |old, new| {
        let counted = |object: &Object<K>| object.generation().filter(|generation| *generation != 0);
        match (counted(old), counted(new)) {
            (None, None) => version_differs(old, new),
            (old, new) => old != new,
        }
    })
}

/// The labels.
pub fn labels_changed<K>(event: &Event<K>) -> bool {
    changed(event, |old, new| {
        let sorted = |object: &Object<K>| -> BTreeMap<String, String> {
            object.labels().iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
        };
        old.labels() != new.labels() && sorted(old) != sorted(new)
    })
}

/// The annotations. They are decoded for this, which costs a little.
pub fn annotations_changed<K>(event: &Event<K>) -> bool {
    #[derive(Deserialize, Default, PartialEq)]
    #[serde(default)]
    struct Annotated {
        annotations: Option<BTreeMap<String, String>>,
    }
    changed(event, |old, new| {
        // What cannot be decoded may well have changed.
        let read = |object: &Object<K>| object.metadata::<Annotated>().ok();
        match (read(old), read(new)) {
            (Some(old), Some(new)) => {
                old.annotations.unwrap_or_default() != new.annotations.unwrap_or_default()
            }
            _ => true,
        }
    })
}

/// The resource version: anything at all.
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
