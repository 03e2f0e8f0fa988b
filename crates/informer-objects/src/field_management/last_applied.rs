//! The annotation in which kubectl stores its last applied configuration for client-side apply.
//!
//! Only server-side applies of the manager `kubectl` use the annotation: they take over its unchanged fields
//! without a conflict, and they update it.

use serde_json::Value;

use super::compare::Diff;
use super::fields::paths_of;
use super::ownership::ApplyContext;
use super::set::Set;
use super::validate::{DuplicateEntries, validate};
use super::{MAX_DEPTH, is_shallow};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The maximum size of all annotations of an object, keys and values.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// Returns the fields that were last applied by client-side apply and have not changed since. `None` if the
/// annotation is missing or cannot be used.
pub(super) fn unchanged_fields(context: ApplyContext<'_>, live: &Value) -> Option<Set> {
    let text = annotations(live)?.get(ANNOTATION)?.as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    let version = last.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != context.manager.api_version || !is_shallow(&last, MAX_DEPTH) {
        return None;
    }
    let is_valid = |value: &Value| validate(context.position, value, DuplicateEntries::Reject).is_ok();
    if !is_valid(live) || !is_valid(&last) {
        return None;
    }
    let diff = Diff::between(context.position, &last, live);
    let set = paths_of(context.position, &last);
    Some(set.difference(&diff.modified).difference(&diff.added).difference(&diff.removed))
}

/// Writes the applied configuration into the annotation, if the object has one. If the annotations become too
/// large, removes it instead.
pub(super) fn renew(object: &mut Value, config: &Value) {
    let mut config = config.clone();
    if let Some(annotations) = annotations_mut(&mut config) {
        annotations.remove(ANNOTATION);
    }
    let Some(annotations) = annotations_mut(object) else { return };
    if annotations.get(ANNOTATION).and_then(Value::as_str).is_none_or(str::is_empty) {
        return;
    }
    annotations.insert(ANNOTATION.to_owned(), format!("{config}\n").into());
    let bytes: usize =
        annotations.iter().map(|(name, value)| name.len() + value.as_str().map_or(0, str::len)).sum();
    if bytes > MAX_ANNOTATION_BYTES {
        annotations.remove(ANNOTATION);
    }
}

fn annotations(object: &Value) -> Option<&serde_json::Map<String, Value>> {
    object.get("metadata")?.get("annotations")?.as_object()
}

fn annotations_mut(object: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    object.get_mut("metadata")?.get_mut("annotations")?.as_object_mut()
}
