//! The annotation in which kubectl kept what it applied, before servers knew owners.
//!
//! Only for the manager `kubectl`: what the annotation says and what is still so, it may take without a conflict; and the
//! annotation follows what it applies.

use serde_json::Value;

use super::compare::Diff;
use super::fields::named_by;
use super::ownership::ApplyContext;
use super::set::Set;
use super::validate::validate;
use super::{MAX_DEPTH, shallow};

const ANNOTATION: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The most that all annotations of an object may have, keys and values.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

/// What was last applied on the client's side and is still as it was.
pub(super) fn set(door: ApplyContext<'_>, live: &Value) -> Option<Set> {
    let text = annotations(live)?.get(ANNOTATION)?.as_str()?;
    let last: Value = serde_json::from_str(text).ok()?;
    let version = last.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version != door.manager.api_version || !shallow(&last, MAX_DEPTH) {
        return None;
    }
    let fits = |value: &Value| validate(door.position, value, false).is_ok();
    if !fits(live) || !fits(&last) {
        return None;
    }
    let diff = Diff::between(door.position, &last, live);
    let set = named_by(door.position, &last);
    Some(set.difference(&diff.modified).difference(&diff.added).difference(&diff.removed))
}

/// Writes what is applied into the annotation, if the object has one.
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
