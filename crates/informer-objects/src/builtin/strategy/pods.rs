//! Fields that the server sets in pods: the initial status, tolerations of unavailable nodes, priority and
//! the requirements of the runtime class.
//!
//! Priority and runtime classes are other objects: the caller looks them up and calls [`set_priority`] and
//! [`set_runtime_class`] before [`prepare_create`].

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::value::{
    at, at_mut, entries, list, list_mut, number, object_in, set_if_absent, set_if_empty, text,
};
use super::fields;
use crate::text::{Quantity, times};

const MAX_TOLERATIONS: usize = 1000;

/// The priority classes that exist in every cluster, with their values.
pub(in crate::builtin) const SYSTEM_PRIORITY_CLASSES: &[(&str, i64)] =
    &[("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

pub(super) fn prepare_create(pod: &mut Value, now: Timestamp) {
    add_default_tolerations(pod);
    // Changes nothing if the caller has set the priority.
    set_priority(pod, None);
    object_in(fields(pod), "metadata").insert("generation".to_owned(), 1.into());
    merge_label_keys(pod);
    let mut status = json!({"phase": "Pending", "qosClass": qos(pod)});
    if !list(pod, "spec.schedulingGates").is_empty() {
        status["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": times::written(now),
        }]);
    }
    fields(pod).insert("status".to_owned(), status);
}

/// Adds default tolerations, keeps the priority that the client omits, and counts changes of the spec.
pub(super) fn prepare_update(old: &Value, new: &mut Value) {
    add_default_tolerations(new);
    let spec = object_in(fields(new), "spec");
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = at(old, "spec").and_then(|spec| spec.get(field)) {
            set_if_absent(spec, field, value.clone());
        }
    }
    let before = at(old, "metadata.generation").and_then(Value::as_i64).unwrap_or_default();
    let generation = before + i64::from(old.get("spec") != new.get("spec"));
    // An old pod without a generation gets one when its spec changes.
    if generation > 0 {
        object_in(fields(new), "metadata").insert("generation".to_owned(), generation.into());
    }
}

/// Keeps the fields that a kubelet omits from a status: `qosClass` and observed generations.
pub(super) fn prepare_status(old: &Value, new: &mut Value) {
    // Several conditions of a type are matched in their order.
    let mut old_generations: BTreeMap<String, VecDeque<i64>> = BTreeMap::new();
    for condition in list(old, "status.conditions") {
        let observed = number(condition, "observedGeneration").unwrap_or_default();
        old_generations.entry(text(condition, "type").to_owned()).or_default().push_back(observed);
    }
    for condition in list_mut(new, "status.conditions") {
        let observed = old_generations
            .get_mut(text(condition, "type"))
            .and_then(VecDeque::pop_front)
            .unwrap_or_default();
        if observed != 0 {
            set_if_empty(fields(condition), "observedGeneration", observed);
        }
    }
    let status = object_in(fields(new), "status");
    for field in ["qosClass", "observedGeneration"] {
        if let Some(value) = at(old, "status").and_then(|status| status.get(field)) {
            set_if_empty(status, field, value.clone());
        }
    }
}

/// Returns the error if the priority or the preemption policy of a new pod differs from that of its class.
pub fn refuse_priority(pod: &Value, class: Option<&Value>) -> Option<String> {
    let name = text(pod, "spec.priorityClassName");
    let system_priority =
        SYSTEM_PRIORITY_CLASSES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let value = class.and_then(|class| number(class, "value")).or(system_priority).unwrap_or_default();
    if let Some(requested) = number(pod, "spec.priority").filter(|requested| *requested != value) {
        return Some(format!(
            "the integer value of priority ({requested}) must not be provided in pod spec; priority admission \
             controller computed {value} from the given PriorityClass name"
        ));
    }
    let policy = match class.map(|class| text(class, "preemptionPolicy")) {
        Some(policy) if !policy.is_empty() => policy,
        _ => "PreemptLowerPriority",
    };
    let requested = Some(text(pod, "spec.preemptionPolicy"))
        .filter(|requested| !requested.is_empty() && *requested != policy)?;
    Some(format!(
        "the string value of PreemptionPolicy ({requested}) must not be provided in pod spec; priority admission \
         controller computed {policy} from the given PriorityClass name"
    ))
}

/// Returns the error if a new pod contradicts its runtime class, or has an overhead that no class defines.
pub fn refuse_runtime_class(pod: &Value, class: Option<&Value>) -> Option<String> {
    let overhead = at(pod, "spec.overhead").filter(|requested| !super::super::value::is_empty(requested));
    match (class.and_then(|class| at(class, "overhead.podFixed")), overhead) {
        (None, Some(_)) => {
            let why = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead";
            return Some(why.to_owned());
        }
        (Some(fixed), Some(requested)) if fixed != requested => {
            let why = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";
            return Some(why.to_owned());
        }
        _ => {}
    }
    entries(class?, "scheduling.nodeSelector").find_map(|(key, required)| {
        let requested = at(pod, "spec.nodeSelector")?.get(key)?;
        let (required, requested) = (required.as_str()?, requested.as_str()?);
        (required != requested).then(|| {
            format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {required}; \
                 pod.spec.nodeSelector[{key}] = {requested}"
            )
        })
    })
}

/// Sets the priority, the preemption policy and the class name of a new pod, where they are absent.
///
/// `class` is the class that the pod names, or the default class of the cluster. Without `class`, the
/// priority is that of the system class of this name, or zero if the pod names no class. A pod with an
/// unknown class is not changed.
pub fn set_priority(pod: &mut Value, class: Option<&Value>) {
    let name = text(pod, "spec.priorityClassName").to_owned();
    let system_priority =
        SYSTEM_PRIORITY_CLASSES.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let value = class.and_then(|class| at(class, "value")).and_then(Value::as_i64).or(system_priority);
    let policy = class.map(|class| text(class, "preemptionPolicy")).filter(|policy| !policy.is_empty());
    if value.is_none() && !name.is_empty() {
        return;
    }
    let spec = object_in(fields(pod), "spec");
    set_if_absent(spec, "priority", value.unwrap_or_default());
    set_if_absent(spec, "preemptionPolicy", policy.unwrap_or("PreemptLowerPriority"));
    if let Some(class) = class.filter(|_| name.is_empty()) {
        set_if_absent(spec, "priorityClassName", text(class, "metadata.name"));
    }
}

/// Adds the requirements of the runtime class to a new pod.
pub fn set_runtime_class(pod: &mut Value, class: &Value) {
    let spec = object_in(fields(pod), "spec");
    if let Some(overhead) = at(class, "overhead.podFixed") {
        set_if_absent(spec, "overhead", overhead.clone());
    }
    for (key, value) in entries(class, "scheduling.nodeSelector") {
        set_if_absent(object_in(spec, "nodeSelector"), key, value.clone());
    }
    let added = list(class, "scheduling.tolerations");
    let existing = spec.get("tolerations").and_then(Value::as_array).cloned().unwrap_or_default();
    // Merging compares each toleration with all others. If the pod has unreasonably many, those of the class
    // are not added.
    if added.is_empty() || existing.len() > MAX_TOLERATIONS {
        return;
    }
    let all: Vec<Value> = existing.into_iter().chain(added.iter().cloned()).collect();
    let mut result: Vec<Value> = Vec::new();
    // Like kube-apiserver, drops tolerations that another one covers.
    for (index, toleration) in all.iter().enumerate() {
        let is_covered = result.iter().any(|other| covers(other, toleration));
        let is_covered_later =
            || all.iter().skip(index + 1).any(|later| later != toleration && covers(later, toleration));
        if !is_covered && !is_covered_later() {
            result.push(toleration.clone());
        }
    }
    spec.insert("tolerations".to_owned(), result.into());
}

/// Whether `wide` tolerates everything that `narrow` tolerates.
fn covers(wide: &Value, narrow: &Value) -> bool {
    let (key, effect) = (text(wide, "key"), text(wide, "effect"));
    let seconds = |toleration: &Value| at(toleration, "tolerationSeconds").and_then(Value::as_i64);
    if wide == narrow {
        return true;
    }
    if (!key.is_empty() && key != text(narrow, "key"))
        || (!effect.is_empty() && effect != text(narrow, "effect"))
    {
        return false;
    }
    if let Some(wide) = seconds(wide)
        && seconds(narrow).is_none_or(|narrow| narrow > wide)
    {
        return false;
    }
    match text(wide, "operator") {
        "Exists" => true,
        _ => text(narrow, "operator") != "Exists" && text(wide, "value") == text(narrow, "value"),
    }
}

/// Adds tolerations of five minutes for not-ready and unreachable nodes, where the pod has none.
fn add_default_tolerations(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list(pod, "spec.tolerations").iter().any(|toleration| {
            ["", key].contains(&text(toleration, "key"))
                && ["", "NoExecute"].contains(&text(toleration, "effect"))
        });
        if tolerated {
            continue;
        }
        let tolerations = object_in(fields(pod), "spec").entry("tolerations").or_insert_with(|| json!([]));
        if let Some(tolerations) = tolerations.as_array_mut() {
            let five_minutes =
                json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
            tolerations.push(five_minutes);
        }
    }
}

/// Adds a requirement for each of the `matchLabelKeys` and `mismatchLabelKeys` in affinities and topology
/// spread constraints, with the value of the label of the pod.
fn merge_label_keys(pod: &mut Value) {
    let labels: BTreeMap<String, Value> =
        entries(pod, "metadata.labels").map(|(key, value)| (key.to_owned(), value.clone())).collect();
    for affinity in ["podAffinity", "podAntiAffinity"] {
        let Some(terms) = at_mut(pod, &format!("spec.affinity.{affinity}")).and_then(Value::as_object_mut)
        else {
            continue;
        };
        let terms = terms.values_mut().filter_map(Value::as_array_mut).flatten();
        for term in terms {
            // A preferred term is nested in an object with its weight.
            let term = match term.get("podAffinityTerm") {
                Some(_) => term.get_mut("podAffinityTerm"),
                None => Some(term),
            };
            if let Some(term) = term {
                add_requirements(term, "matchLabelKeys", "In", &labels);
                add_requirements(term, "mismatchLabelKeys", "NotIn", &labels);
            }
        }
    }
    let spreads = at_mut(pod, "spec.topologySpreadConstraints").and_then(Value::as_array_mut);
    for spread in spreads.into_iter().flatten() {
        add_requirements(spread, "matchLabelKeys", "In", &labels);
    }
}

fn add_requirements(term: &mut Value, keys: &str, operator: &str, labels: &BTreeMap<String, Value>) {
    if at(term, "labelSelector").is_none() {
        return;
    }
    let keys: Vec<String> = list(term, keys).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let selector = object_in(fields(term), "labelSelector");
    for key in keys {
        let Some(value) = labels.get(&key) else { continue };
        let all = selector.entry("matchExpressions").or_insert_with(|| json!([]));
        if let Some(all) = all.as_array_mut() {
            all.push(json!({"key": key, "operator": operator, "values": [value]}));
        }
    }
}

/// Returns the `qosClass` of a pod.
pub(in crate::builtin) fn qos(pod: &Value) -> &'static str {
    if let Some(resources) = at(pod, "spec.resources") {
        let (requests, limits) = (quantities(resources, "requests"), quantities(resources, "limits"));
        return class_of_resources(&requests, &limits, limits.is_empty() || limits.len() == 2);
    }
    let containers = list(pod, "spec.containers").iter().chain(list(pod, "spec.initContainers"));
    let (mut guaranteed, mut has_resources) = (true, false);
    for container in containers {
        let resources = at(container, "resources").unwrap_or(&Value::Null);
        let (requests, limits) = (quantities(resources, "requests"), quantities(resources, "limits"));
        has_resources |= !requests.is_empty() || !limits.is_empty();
        guaranteed &= class_of_resources(&requests, &limits, limits.len() == 2) == "Guaranteed";
    }
    match (has_resources, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

type Quantities<'a> = BTreeMap<&'a str, Quantity>;

/// Returns the `qosClass` of a container, or of the resources at pod level.
///
/// `has_all_limits`: whether CPU and memory are both limited, as `Guaranteed` requires.
fn class_of_resources(
    requests: &Quantities<'_>,
    limits: &Quantities<'_>,
    has_all_limits: bool,
) -> &'static str {
    if requests.is_empty() && limits.is_empty() {
        return "BestEffort";
    }
    let same = |(name, request): (&&str, &Quantity)| {
        limits.get(name).is_some_and(|limit| limit.partial_cmp(request) == Some(std::cmp::Ordering::Equal))
    };
    if has_all_limits && requests.len() == limits.len() && requests.iter().all(same) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Returns the positive quantities of CPU and memory in `requests` or `limits`.
fn quantities<'a>(resources: &'a Value, field: &str) -> Quantities<'a> {
    let counted = entries(resources, field).filter(|(name, _)| matches!(*name, "cpu" | "memory"));
    let read = counted.filter_map(|(name, quantity)| Some((name, Quantity::parse(quantity.as_str()?).ok()?)));
    read.filter(|(_, quantity)| !quantity.is_zero() && !quantity.is_negative()).collect()
}
