//! The fields of the spec of a pod that an update may change.
//!
//! kube-apiserver appends a diff of its Go structs to the error; here the error ends after its first line.

use serde_json::Value;

use super::report::{Position, Report};

const ONLY_ALLOWED_FIELDS: &str = "pod updates may not change fields other than \
                    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                    `spec.tolerations` (only additions to existing tolerations),\
                    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn check_allowed_fields(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let before = old.at("spec").value;
    let mut after = new.at("spec").value.clone();
    restore_allowed_fields(before, &mut after);
    if *before != after {
        report.forbidden(&new.at("spec"), ONLY_ALLOWED_FIELDS);
    }
}

/// Restores the old values of fields that may change.
fn restore_allowed_fields(before: &Value, after: &mut Value) {
    for list in ["containers", "initContainers"] {
        let olds = before.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let news = after.get_mut(list).and_then(Value::as_array_mut);
        for (old, new) in olds.iter().zip(news.into_iter().flatten()) {
            restore(old, new, "image");
        }
    }
    restore(before, after, "activeDeadlineSeconds");
    restore(before, after, "tolerations");
    // Gates may be removed, and the node selector of a gated pod may change.
    let count = |spec: &Value| spec.get("schedulingGates").and_then(Value::as_array).map_or(0, Vec::len);
    if count(after) < count(before) {
        restore(before, after, "schedulingGates");
    }
    if count(before) > 0 {
        restore(before, after, "nodeSelector");
    }
    let grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if grace(before).is_some_and(|seconds| seconds < 0) && grace(after) == Some(1) {
        restore(before, after, "terminationGracePeriodSeconds");
    }
}

fn restore(before: &Value, after: &mut Value, field: &str) {
    let Some(after) = after.as_object_mut() else { return };
    match before.get(field) {
        Some(value) => after.insert(field.to_owned(), value.clone()),
        None => after.remove(field),
    };
}
