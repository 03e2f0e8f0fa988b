//! Conversions of the built-in kinds whose fields differ between API versions: events and autoscalers.
//!
//! Events of both groups are stored in the representation of the core group. A `HorizontalPodAutoscaler` is
//! stored as `autoscaling/v2`; `autoscaling/v1` has only the CPU target. All other built-in kinds have the
//! same fields in all their versions; `state` handles custom kinds. Conversions are pure functions. They do
//! not change `managedFields`: its entries keep the field names of the version in which they were written.

use serde_json::{Map, Value, json};

use super::Model;
use super::kinds::{ResourceId, VersionedResource};
use super::resource::Resource;

/// The difference between the representation of a version and the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    Same,
    /// `events.k8s.io/v1`.
    EventsV1,
    /// `autoscaling/v1`.
    AutoscalingV1,
}

/// Fields of an event: name in the core group, and in `events.k8s.io`.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

impl Model {
    /// Returns the resource under which objects are stored: core events for events of both groups.
    pub(super) fn storage_id(&self, gvr: VersionedResource) -> ResourceId {
        match self.representation(gvr) {
            Representation::EventsV1 => self.registry.find("", "events").unwrap_or(gvr.id),
            Representation::Same | Representation::AutoscalingV1 => gvr.id,
        }
    }

    /// Returns the representation in which a version shows objects.
    pub(crate) fn representation(&self, gvr: VersionedResource) -> Representation {
        self.registry
            .get(gvr.id)
            .map_or(Representation::Same, |resource| Representation::of(resource, gvr.version))
    }
}

impl Representation {
    fn of(resource: &Resource, version: usize) -> Self {
        let name = resource.versions.get(version).map_or("", |version| version.name.as_str());
        if resource.is("events.k8s.io", "events") {
            Representation::EventsV1
        } else if resource.is("autoscaling", "horizontalpodautoscalers") && name == "v1" {
            Representation::AutoscalingV1
        } else {
            Representation::Same
        }
    }

    /// Converts a stored object to this representation.
    pub(crate) fn convert_from_stored(self, object: &mut Value) {
        match self {
            Representation::Same => {}
            Representation::EventsV1 => {
                rename(object, EVENT_FIELDS.iter().map(|(core, new)| (*core, *new)));
                set(object, "apiVersion", json!("events.k8s.io/v1"));
                if let Some(fields) = object.as_object_mut() {
                    fields.retain(|name, value| {
                        !(matches!(name.as_str(), "reportingController" | "reportingInstance")
                            && *value == json!(""))
                    });
                }
            }
            Representation::AutoscalingV1 => show_autoscaling_v1(object),
        }
    }

    /// Converts an object from this representation to the stored one.
    pub(crate) fn convert_to_stored(self, object: &mut Value) {
        match self {
            Representation::Same => {}
            Representation::EventsV1 => {
                rename(object, EVENT_FIELDS.iter().map(|(core, new)| (*new, *core)));
                set(object, "apiVersion", json!("v1"));
                for (field, empty) in [
                    ("reportingComponent", json!("")),
                    ("reportingInstance", json!("")),
                    ("source", json!({})),
                ] {
                    if let Some(fields) = object.as_object_mut() {
                        fields.entry(field).or_insert(empty);
                    }
                }
            }
            Representation::AutoscalingV1 => store_autoscaling_v1(object),
        }
    }
}

fn rename<'a>(object: &mut Value, names: impl Iterator<Item = (&'a str, &'a str)>) {
    let Some(fields) = object.as_object_mut() else { return };
    let moved: Vec<(String, Value)> =
        names.filter_map(|(from, to)| Some((to.to_owned(), fields.remove(from)?))).collect();
    fields.extend(moved);
}

fn set(object: &mut Value, field: &str, value: Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(field.to_owned(), value);
    }
}

fn show_autoscaling_v1(object: &mut Value) {
    set(object, "apiVersion", json!("autoscaling/v1"));
    let show_cpu = |object: &mut Value, section: &str, list: &str, field: &str, pointer: &str| {
        let Some(fields) = object.get_mut(section).and_then(Value::as_object_mut) else { return };
        let metrics = fields.remove(list);
        let of_cpu = metrics.as_ref().and_then(Value::as_array).into_iter().flatten();
        let mut of_cpu = of_cpu.filter(|metric| metric.pointer("/resource/name") == Some(&json!("cpu")));
        if let Some(percentage) = of_cpu.find_map(|metric| metric.pointer(pointer)) {
            fields.insert(field.to_owned(), percentage.clone());
        }
    };
    let target = "targetCPUUtilizationPercentage";
    show_cpu(object, "spec", "metrics", target, "/resource/target/averageUtilization");
    let current = "currentCPUUtilizationPercentage";
    show_cpu(object, "status", "currentMetrics", current, "/resource/current/averageUtilization");
    for (section, field) in [("spec", "behavior"), ("status", "conditions")] {
        if let Some(fields) = object.get_mut(section).and_then(Value::as_object_mut) {
            fields.remove(field);
        }
    }
}

fn store_autoscaling_v1(object: &mut Value) {
    set(object, "apiVersion", json!("autoscaling/v2"));
    let empty = Map::new();
    let spec = object.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let target = spec.get("targetCPUUtilizationPercentage").cloned();
    if let Some(fields) = object.get_mut("spec").and_then(Value::as_object_mut) {
        fields.remove("targetCPUUtilizationPercentage");
        if let Some(percentage) = target.filter(|percentage| !percentage.is_null()) {
            let target = json!({"type": "Utilization", "averageUtilization": percentage});
            fields.insert(
                "metrics".to_owned(),
                json!([{"type": "Resource", "resource": {"name": "cpu", "target": target}}]),
            );
        }
    }
    let status = object.get_mut("status").and_then(Value::as_object_mut);
    if let Some(percentage) = status.and_then(|status| status.remove("currentCPUUtilizationPercentage")) {
        let current = json!({"averageUtilization": percentage, "averageValue": "0"});
        object["status"]["currentMetrics"] =
            json!([{"type": "Resource", "resource": {"name": "cpu", "current": current}}]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn event_conversion_is_reversible() {
        let core = json!({"apiVersion": "v1", "involvedObject": {"name": "p"}, "message": "m", "count": 3,
            "reportingComponent": "", "reportingInstance": "", "source": {"component": "kubelet"}});
        let mut event = core.clone();
        Representation::EventsV1.convert_from_stored(&mut event);
        assert_eq!(event["regarding"]["name"], "p");
        assert_eq!((&event["note"], &event["deprecatedCount"]), (&json!("m"), &json!(3)));
        assert!(event.get("message").is_none());
        Representation::EventsV1.convert_to_stored(&mut event);
        assert_eq!(event, core);
    }

    #[test]
    fn autoscaler_v1_converts_cpu_target() {
        let v1 = json!({"apiVersion": "autoscaling/v1", "spec": {"targetCPUUtilizationPercentage": 80}, "status": {}});
        let mut stored = v1.clone();
        Representation::AutoscalingV1.convert_to_stored(&mut stored);
        assert_eq!(stored["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"], 80);
        Representation::AutoscalingV1.convert_from_stored(&mut stored);
        assert_eq!(stored, v1);
    }
}
