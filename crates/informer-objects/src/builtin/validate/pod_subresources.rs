//! Validation of the subresources `ephemeralcontainers` and `resize` of pods.

use serde_json::{Map, Value};

use super::super::strategy::qos;
use super::report::{Position, Report};
use super::{meta, pods};

/// The annotation of a mirror pod, which a kubelet runs from a file and only reports to the server.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";

/// Checks that ephemeral containers are only added and not changed.
pub(super) fn ephemeral_containers(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    if is_mirror(old) {
        report.forbidden(&Position::root(new.value), "static pods do not support ephemeral containers");
        return;
    }
    resulting_pod(old, new, report);
    let position = new.at("spec.ephemeralContainers");
    let after = new.each("spec.ephemeralContainers");
    for before in old.each("spec.ephemeralContainers") {
        let name = super::report::quoted(before.at("name").text());
        // Of several new containers with the same name, the last one is compared.
        let same = after.iter().rev().find(|after| after.at("name").value == before.at("name").value);
        match same {
            None => {
                report.forbidden(
                    &position,
                    &format!("existing ephemeral containers {name} may not be removed\n"),
                );
            }
            Some(after) if after.value != before.value => {
                report.forbidden(
                    &position,
                    &format!("existing ephemeral containers {name} may not be changed"),
                );
            }
            Some(_) => {}
        }
    }
}

/// Checks that only CPU and memory of the pod and its containers change, and the pod keeps its `qosClass`.
pub(super) fn resize(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let windows = old.at("spec.os.name").text() == "windows";
    if is_mirror(old) || windows {
        let pod_type = if windows { "windows" } else { "static" };
        report.forbidden(&Position::root(new.value), &format!("{pod_type} pods cannot be resized"));
        return;
    }
    let causes_before = report.causes.len();
    resulting_pod(old, new, report);
    let (before, after) = (old.at("spec"), new.at("spec"));
    let class = match old.at("status.qosClass").text() {
        "" => qos(old.value),
        class => class,
    };
    if class != qos(new.value) {
        let shown = new.at("status.qosClass").text();
        report.invalid_text(&after, shown, "Pod QOS Class may not change as a result of resizing");
    }
    if !can_be_resized(old) {
        report.forbidden(&after, "Pod running on node without support for resize");
    }
    // The new spec, in which CPU and memory are restored step by step; in the end it must equal the old spec.
    let mut restored_spec = after.value.clone();
    pod_level(&before, &after, &mut restored_spec, report);
    if !same_containers(&before, &after, report) {
        return;
    }
    for list in ["initContainers", "containers"] {
        no_resources_removed(&before.each(list), &after.each(list), report);
    }
    for list in ["containers", "initContainers"] {
        only_quantities(list, &before, &after, &mut restored_spec, report);
    }
    if report.causes.len() == causes_before && restored_spec != *before.value {
        report.forbidden(&after, ONLY_CPU_AND_MEMORY);
    }
}

fn is_mirror(pod: &Position<'_>) -> bool {
    pod.at("metadata.annotations").key(MIRROR_ANNOTATION).is_set()
}

/// Validates the resulting pod.
fn resulting_pod(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    meta::check_update(old, new, report);
    meta::check_strictly(new, "", "Pod", report);
    pods::pod_spec(new, report);
}

/// Whether the node of the pod supports resizing: such a node reports the resources of running containers.
///
/// Before a container runs, support is unknown and assumed.
fn can_be_resized(pod: &Position<'_>) -> bool {
    let statuses = pod.each("status.containerStatuses");
    let running = statuses.iter().find(|status| status.at("state.running").is_set());
    running.is_none_or(|status| status.at("resources").is_set())
}

/// Checks the resources at pod level, and restores them in `restored_spec`.
fn pod_level(before: &Position<'_>, after: &Position<'_>, restored_spec: &mut Value, report: &mut Report) {
    let (old_resources, new_resources) = (before.at("resources"), after.at("resources"));
    let has_quantities =
        |position: &Position<'_>| !position.at("requests").is_empty() || !position.at("limits").is_empty();
    if !has_quantities(&old_resources) && !has_quantities(&new_resources) {
        return;
    }
    if old_resources.is_set() && !new_resources.is_set() {
        report.forbidden(&new_resources, "pod-level resources cannot be removed");
        return;
    }
    for which in ["requests", "limits"] {
        if has_removed(&old_resources.at(which), &new_resources.at(which)) {
            report.forbidden(
                &new_resources.at(which),
                &format!("pod-level resource {which} cannot be removed"),
            );
        }
    }
    let mut restored_resources = new_resources.value.as_object().cloned().unwrap_or_default();
    restore_quantities(old_resources.value, &mut restored_resources);
    if restored_resources != without_empty_values(old_resources.value) {
        report.forbidden(after, "only cpu and memory resources are mutable at pod-level");
    }
    if let Some(restored_spec) = restored_spec.as_object_mut() {
        if old_resources.is_set() {
            restored_spec.insert("resources".to_owned(), old_resources.value.clone());
        } else {
            restored_spec.remove("resources");
        }
    }
}

/// Checks that the containers are the same as before, in the same order, and returns whether they are.
fn same_containers(before: &Position<'_>, after: &Position<'_>, report: &mut Report) -> bool {
    let causes_before = report.causes.len();
    for list in ["containers", "initContainers"] {
        let (olds, news) = (before.each(list), after.each(list));
        if olds.len() != news.len() {
            report.forbidden(&after.at(list), &format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (old, new) in olds.iter().zip(&news) {
            if old.at("name").value != new.at("name").value {
                let why = format!("{list} may not be renamed or reordered on resize");
                report.forbidden(&new.at("name"), &why);
            }
        }
    }
    report.causes.len() == causes_before
}

fn no_resources_removed(before: &[Position<'_>], after: &[Position<'_>], report: &mut Report) {
    for (before, after) in before.iter().zip(after) {
        for which in ["requests", "limits"] {
            let position = after.at("resources").at(which);
            if has_removed(&before.at("resources").at(which), &position) {
                report.forbidden(&position, &format!("resource {which} cannot be removed"));
            }
        }
    }
}

/// Whether a resource of `before` is missing in `after`.
fn has_removed(before: &Position<'_>, after: &Position<'_>) -> bool {
    before.value.as_object().into_iter().flatten().any(|(name, _)| after.value.get(name).is_none())
}

/// Restores CPU and memory of containers in `restored_spec`, and reports other changes of the containers.
fn only_quantities(
    list: &str,
    before: &Position<'_>,
    after: &Position<'_>,
    restored_spec: &mut Value,
    report: &mut Report,
) {
    let (olds, news) = (before.each(list), after.each(list));
    let containers = restored_spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    for ((old, new), container) in olds.iter().zip(&news).zip(containers) {
        let mut quantities = Map::new();
        for which in ["limits", "requests"] {
            if let Some(value) = new.at("resources").value.get(which) {
                quantities.insert(which.to_owned(), value.clone());
            }
        }
        restore_quantities(old.at("resources").value, &mut quantities);
        let same = quantities == without_empty_values(old.at("resources").value);
        // The old resources may contain empty values, which `quantities` does not.
        container["resources"] =
            if same { old.at("resources").value.clone() } else { Value::Object(quantities) };
        if *container != *old.value {
            match list {
                "containers" => report.forbidden(after, ONLY_CPU_AND_MEMORY),
                _ => report.forbidden(
                    new,
                    "only cpu and memory resources for init or sidecar containers are mutable",
                ),
            }
        }
        let restarts = new
            .each("resizePolicy")
            .iter()
            .any(|policy| policy.at("restartPolicy").text() == "RestartContainer");
        let sidecar = new.at("restartPolicy").text() == "Always";
        if list == "initContainers" && new.value != old.value && !sidecar && restarts {
            let why =
                "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            report.forbidden(new, why);
        }
    }
}

/// Restores CPU and memory of resources to their old values.
fn restore_quantities(old: &Value, resources: &mut Map<String, Value>) {
    for which in ["limits", "requests"] {
        let current = resources.get(which).and_then(Value::as_object);
        let mut quantities = current.cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            match old.get(which).and_then(|quantities| quantities.get(name)) {
                Some(quantity) => quantities.insert(name.to_owned(), quantity.clone()),
                None => quantities.remove(name),
            };
        }
        if quantities.is_empty() {
            resources.remove(which);
        } else {
            resources.insert(which.to_owned(), Value::Object(quantities));
        }
    }
}

/// Returns resources without empty values.
fn without_empty_values(resources: &Value) -> Map<String, Value> {
    let mut resources = resources.as_object().cloned().unwrap_or_default();
    resources.retain(|_, value| !super::super::value::is_empty(value));
    resources
}
