//! The few fields of a pod's spec that an update may change.
//!
//! A kube-apiserver appends a difference of its Go structs to the refusal. That is left out: the refusal ends after its first line.

use serde_json::Value;

use super::report::{Place, Report};

const ONLY: &str = "pod updates may not change fields other than \
                    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                    `spec.tolerations` (only additions to existing tolerations),\
                    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

pub(super) fn only_some_fields(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    let before = old.at("spec").value;
    let mut after = new.at("spec").value.clone();
    allow(before, &mut after);
    if *before != after {
        report.forbidden(&new.at("spec"), ONLY);
    }
}

/// Puts back what may change.
fn allow(before: &Value, after: &mut Value) {
    for list in ["containers", "initContainers"] {
        let olds = before.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let news = after.get_mut(list).and_then(Value::as_array_mut);
        for (old, new) in olds.iter().zip(news.into_iter().flatten()) {
            put_back(old, new, "image");
        }
    }
    put_back(before, after, "activeDeadlineSeconds");
    put_back(before, after, "tolerations");
    let count = |spec: &Value| spec.get("schedulingGates").and_then(Value::as_array).map_or(0, Vec::len);
    if count(after) < count(before) {
        put_back(before, after, "schedulingGates");
    }
    if count(before) > 0 {
        put_back(before, after, "nodeSelector");
    }
    let grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if grace(before).is_some_and(|seconds| seconds < 0) && grace(after) == Some(1) {
        put_back(before, after, "terminationGracePeriodSeconds");
    }
}

fn put_back(before: &Value, after: &mut Value, field: &str) {
    let Some(after) = after.as_object_mut() else { return };
    match before.get(field) {
        Some(value) => after.insert(field.to_owned(), value.clone()),
        None => after.remove(field),
    };
}
