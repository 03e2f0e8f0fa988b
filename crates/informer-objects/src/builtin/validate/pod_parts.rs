//! What a pod's subresources may change: its ephemeral containers, and the resources of its containers.

use serde_json::{Map, Value};

use super::super::strategy::qos;
use super::report::{Place, Report};
use super::{meta, pods};

/// A pod that a kubelet runs from a file, and only shows to the server.
const MIRROR: &str = "kubernetes.io/config.mirror";

const ONLY_CPU_AND_MEMORY: &str = "only cpu and memory resources are mutable";

/// Ephemeral containers can be added, and stay as they are.
pub(super) fn ephemeral_containers(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    if is_mirror(old) {
        report.forbidden(&Place::root(new.value), "static pods do not support ephemeral containers");
        return;
    }
    whole(old, new, report);
    let place = new.at("spec.ephemeralContainers");
    let after = new.each("spec.ephemeralContainers");
    for before in old.each("spec.ephemeralContainers") {
        let name = super::report::quoted(before.at("name").text());
        // The last of several with a name counts.
        let same = after.iter().rev().find(|after| after.at("name").value == before.at("name").value);
        match same {
            None => {
                report
                    .forbidden(&place, &format!("existing ephemeral containers {name} may not be removed\n"));
            }
            Some(after) if after.value != before.value => {
                report.forbidden(&place, &format!("existing ephemeral containers {name} may not be changed"));
            }
            Some(_) => {}
        }
    }
}

/// Containers can be given other amounts of what they compute with, as long as the pod stays in its class.
pub(super) fn resize(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    let windows = old.at("spec.os.name").text() == "windows";
    if is_mirror(old) || windows {
        let what = if windows { "windows" } else { "static" };
        report.forbidden(&Place::root(new.value), &format!("{what} pods cannot be resized"));
        return;
    }
    let known = report.causes.len();
    whole(old, new, report);
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
    let mut rest = after.value.clone();
    pod_level(&before, &after, &mut rest, report);
    if !same_containers(&before, &after, report) {
        return;
    }
    for list in ["initContainers", "containers"] {
        nothing_removed(&before.each(list), &after.each(list), report);
    }
    for list in ["containers", "initContainers"] {
        only_amounts(list, &before, &after, &mut rest, report);
    }
    if report.causes.len() == known && rest != *before.value {
        report.forbidden(&after, ONLY_CPU_AND_MEMORY);
    }
}

fn is_mirror(pod: &Place<'_>) -> bool {
    pod.at("metadata.annotations").key(MIRROR).is_set()
}

/// What holds for the pod that comes out.
fn whole(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    meta::check_update(old, new, report);
    meta::check_strictly(new, "", "Pod", report);
    pods::whole(new, report);
}

/// A node that can resize says what its containers have. Where nothing runs yet, nobody knows.
fn can_be_resized(pod: &Place<'_>) -> bool {
    let statuses = pod.each("status.containerStatuses");
    let running = statuses.iter().find(|status| status.at("state.running").is_set());
    running.is_none_or(|status| status.at("resources").is_set())
}

/// The resources of the pod as a whole.
fn pod_level(before: &Place<'_>, after: &Place<'_>, rest: &mut Value, report: &mut Report) {
    let (had, has) = (before.at("resources"), after.at("resources"));
    let counts = |place: &Place<'_>| !place.at("requests").is_empty() || !place.at("limits").is_empty();
    if !counts(&had) && !counts(&has) {
        return;
    }
    if had.is_set() && !has.is_set() {
        report.forbidden(&has, "pod-level resources cannot be removed");
        return;
    }
    for which in ["requests", "limits"] {
        if is_removed(&had.at(which), &has.at(which)) {
            report.forbidden(&has.at(which), &format!("pod-level resource {which} cannot be removed"));
        }
    }
    let mut kept = has.value.as_object().cloned().unwrap_or_default();
    put_amounts_back(had.value, &mut kept);
    if kept != plain(had.value) {
        report.forbidden(after, "only cpu and memory resources are mutable at pod-level");
    }
    if let Some(rest) = rest.as_object_mut() {
        if had.is_set() {
            rest.insert("resources".to_owned(), had.value.clone());
        } else {
            rest.remove("resources");
        }
    }
}

/// Whether the containers are the ones that were there, in their order.
fn same_containers(before: &Place<'_>, after: &Place<'_>, report: &mut Report) -> bool {
    let known = report.causes.len();
    for list in ["containers", "initContainers"] {
        let (had, has) = (before.each(list), after.each(list));
        if had.len() != has.len() {
            report.forbidden(&after.at(list), &format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (had, has) in had.iter().zip(&has) {
            if had.at("name").value != has.at("name").value {
                let why = format!("{list} may not be renamed or reordered on resize");
                report.forbidden(&has.at("name"), &why);
            }
        }
    }
    report.causes.len() == known
}

fn nothing_removed(before: &[Place<'_>], after: &[Place<'_>], report: &mut Report) {
    for (before, after) in before.iter().zip(after) {
        for which in ["requests", "limits"] {
            let place = after.at("resources").at(which);
            if is_removed(&before.at("resources").at(which), &place) {
                report.forbidden(&place, &format!("resource {which} cannot be removed"));
            }
        }
    }
}

fn is_removed(before: &Place<'_>, after: &Place<'_>) -> bool {
    before.value.as_object().into_iter().flatten().any(|(name, _)| after.value.get(name).is_none())
}

/// Puts the amounts in `rest` back to what they were, and says where more than amounts was changed.
fn only_amounts(list: &str, before: &Place<'_>, after: &Place<'_>, rest: &mut Value, report: &mut Report) {
    let (olds, news) = (before.each(list), after.each(list));
    let containers = rest.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
    for ((old, new), kept) in olds.iter().zip(&news).zip(containers) {
        let mut amounts = Map::new();
        for which in ["limits", "requests"] {
            if let Some(given) = new.at("resources").value.get(which) {
                amounts.insert(which.to_owned(), given.clone());
            }
        }
        put_amounts_back(old.at("resources").value, &mut amounts);
        let same = amounts == plain(old.at("resources").value);
        kept["resources"] = if same { old.at("resources").value.clone() } else { Value::Object(amounts) };
        if *kept != *old.value {
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

/// Puts the processors and the memory of some resources back to what they were.
fn put_amounts_back(old: &Value, resources: &mut Map<String, Value>) {
    for which in ["limits", "requests"] {
        let given = resources.get(which).and_then(Value::as_object);
        let mut amounts = given.cloned().unwrap_or_default();
        for name in ["cpu", "memory"] {
            match old.get(which).and_then(|amounts| amounts.get(name)) {
                Some(amount) => amounts.insert(name.to_owned(), amount.clone()),
                None => amounts.remove(name),
            };
        }
        if amounts.is_empty() {
            resources.remove(which);
        } else {
            resources.insert(which.to_owned(), Value::Object(amounts));
        }
    }
}

/// Resources without what is empty.
fn plain(resources: &Value) -> Map<String, Value> {
    let mut plain = resources.as_object().cloned().unwrap_or_default();
    plain.retain(|_, value| !super::super::value::is_empty(value));
    plain
}
