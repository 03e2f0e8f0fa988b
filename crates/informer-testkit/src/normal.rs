//! The final state of a run in a form that can be compared with that of another run.
//!
//! Left out or replaced, because they differ between any two runs:
//!
//! - uids, resource versions, generations, managed fields, and times, wherever they occur;
//! - names that the server has generated (`generateName`): such objects are only counted;
//! - addresses, ports and nodes that are assigned: `clusterIP`, `nodePort`, `podIP`, `hostIP`, `nodeName`;
//! - leases, events, nodes and endpoints;
//! - the history of deployments: revisions, and replica sets without replicas;
//! - annotations of the simulation.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::state::State;

/// The prefix of annotations that the simulation sets.
pub(crate) const ANNOTATION_PREFIX: &str = "simulation.informer/";

/// Fields that differ between runs.
const IGNORED_FIELDS: &[&str] = &[
    "uid",
    "resourceVersion",
    "generation",
    "observedGeneration",
    "managedFields",
    "creationTimestamp",
    "clusterIP",
    "clusterIPs",
    "nodePort",
    "healthCheckNodePort",
    "podIP",
    "podIPs",
    "hostIP",
    "hostIPs",
    "nodeName",
    "containerID",
    "deployment.kubernetes.io/revision",
    "deployment.kubernetes.io/revision-history",
];

const IGNORED_RESOURCES: &[&str] = &["leases", "events", "nodes", "endpoints", "endpointslices"];

/// Objects without what may differ.
#[derive(Debug, Clone, Default)]
pub(crate) struct NormalState {
    /// Objects by kind, namespace and name. Objects with generated names have one entry for each distinct content.
    objects: BTreeMap<String, BTreeMap<String, usize>>,
}

impl NormalState {
    /// Reads a state. `ignored` are further fields that are left out.
    pub(crate) fn of(state: &State, ignored: &BTreeSet<String>) -> Self {
        let uids: BTreeSet<&str> = state.all().map(|(_, object)| object.uid()).collect();
        let mut objects: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
        for (resource, object) in state.all() {
            if IGNORED_RESOURCES.contains(&resource.plural.as_str()) {
                continue;
            }
            if resource.plural == "replicasets" && object.value()["spec"]["replicas"] == 0 {
                continue;
            }
            let mut value = object.value().clone();
            let metadata = &mut value["metadata"];
            let generated = metadata["generateName"].as_str().map(|prefix| format!("{prefix}*"));
            let name = generated.unwrap_or_else(|| metadata["name"].as_str().unwrap_or_default().to_owned());
            metadata["name"] = Value::String(name.clone());
            let namespace = metadata["namespace"].as_str().unwrap_or_default();
            let separator = if namespace.is_empty() { "" } else { "/" };
            let key = format!("{} {namespace}{separator}{name}", resource.kind);
            normalize(&mut value, &uids, ignored);
            *objects.entry(key).or_default().entry(value.to_string()).or_default() += 1;
        }
        NormalState { objects }
    }

    /// Returns the first difference to the state of a run without faults.
    pub(crate) fn difference(&self, expected: &NormalState) -> Option<String> {
        for (key, objects) in &expected.objects {
            let Some(found) = self.objects.get(key) else {
                return Some(format!("{key} is missing; without faults it exists"));
            };
            let (count, wanted): (usize, usize) = (found.values().sum(), objects.values().sum());
            if count != wanted {
                return Some(format!("there are {count} objects {key}; without faults there are {wanted}"));
            }
            if found != objects {
                let first = |objects: &BTreeMap<String, usize>, others: &BTreeMap<String, usize>| {
                    let text = objects.keys().find(|text| !others.contains_key(*text));
                    text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null)
                };
                let field = first_difference("", &first(found, objects), &first(objects, found));
                return Some(format!("{key}: {field}"));
            }
        }
        let extra = self.objects.keys().find(|key| !expected.objects.contains_key(*key))?;
        Some(format!("{extra} exists; without faults it does not"))
    }
}

/// Removes or replaces what may differ.
fn normalize(value: &mut Value, uids: &BTreeSet<&str>, ignored: &BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| {
                let is_ignored = IGNORED_FIELDS.contains(&name.as_str()) || ignored.contains(name);
                !is_ignored && !name.starts_with(ANNOTATION_PREFIX)
            });
            fields.values_mut().for_each(|value| normalize(value, uids, ignored));
            // An annotation of the simulation leaves an empty map.
            fields.retain(|name, value| {
                name != "annotations" || value.as_object().is_none_or(|map| !map.is_empty())
            });
        }
        Value::Array(items) => items.iter_mut().for_each(|item| normalize(item, uids, ignored)),
        Value::String(text) => {
            if uids.contains(text.as_str()) {
                "<uid>".clone_into(text);
            } else if is_time(text) {
                "<time>".clone_into(text);
            }
        }
        _ => {}
    }
}

fn is_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 20 && bytes[4] == b'-' && bytes[10] == b'T' && text.parse::<jiff::Timestamp>().is_ok()
}

/// Describes the first difference of two values.
fn first_difference(path: &str, found: &Value, expected: &Value) -> String {
    if let (Value::Object(found), Value::Object(expected)) = (found, expected) {
        let names: BTreeSet<&String> = found.keys().chain(expected.keys()).collect();
        for name in names {
            let (left, right) = (found.get(name), expected.get(name));
            if left != right {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                return first_difference(&path, left.unwrap_or(&Value::Null), right.unwrap_or(&Value::Null));
            }
        }
    }
    if let (Value::Array(found), Value::Array(expected)) = (found, expected)
        && found.len() == expected.len()
    {
        for (index, (left, right)) in found.iter().zip(expected).enumerate() {
            if left != right {
                return first_difference(&format!("{path}[{index}]"), left, right);
            }
        }
    }
    format!("{path} is {}; without faults it is {}", short(found), short(expected))
}

fn short(value: &Value) -> String {
    let text = value.to_string();
    if text.chars().count() <= 120 { text } else { text.chars().take(117).chain("...".chars()).collect() }
}
