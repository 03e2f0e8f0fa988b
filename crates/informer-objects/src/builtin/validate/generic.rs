//! Rules by type instead of kind: required fields, fields with few values, label selectors.
//!
//! The rules apply to every kind, so a missing or misspelled value is rejected even if the kind has no rules
//! of its own. Of the required fields, only strings and pointers to objects are checked: numbers, lists and
//! maps may be empty in most places. Not checked are `metadata` everywhere, the `status` of the object, and
//! fields that the rules of the kind have reported.

use std::collections::BTreeSet;

use informer_schema::{Field, Shape, Type, TypeId};
use serde_json::Value;

use super::meta;
use super::report::{Position, Report};

/// Fields that may be empty although the `OpenAPI` documents mark them as required.
const OPTIONAL: &[(&str, &str)] = &[
    ("core.v1.HTTPHeader", "value"),
    ("core.v1.Sysctl", "value"),
    ("storage.v1.TokenRequest", "audience"),
    ("apps.v1.StatefulSetSpec", "serviceName"),
    ("apps.v1.ControllerRevision", "data"),
    ("core.v1.ScopedResourceSelectorRequirement", "scopeName"),
    ("core.v1.EventSource", "component"),
];

const FAILURE_POLICIES: &[&str] = &["Fail", "Ignore"];
const MATCH_POLICIES: &[&str] = &["Equivalent", "Exact"];

/// Fields with few allowed values.
const ENUMS: &[(&str, &str, &[&str])] = &[
    ("core.v1.LimitRangeItem", "type", &["Container", "PersistentVolumeClaim", "Pod"]),
    ("core.v1.TopologySpreadConstraint", "whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
    ("core.v1.NodeSelectorRequirement", "operator", &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    ("core.v1.SeccompProfile", "type", &["Localhost", "RuntimeDefault", "Unconfined"]),
    ("core.v1.PodOS", "name", &["linux", "windows"]),
    ("batch.v1.JobSpec", "podReplacementPolicy", &["Failed", "TerminatingOrFailed"]),
    ("admissionregistration.v1.ValidatingWebhook", "failurePolicy", FAILURE_POLICIES),
    ("admissionregistration.v1.ValidatingWebhook", "matchPolicy", MATCH_POLICIES),
    ("admissionregistration.v1.MutatingWebhook", "failurePolicy", FAILURE_POLICIES),
    ("admissionregistration.v1.MutatingWebhook", "matchPolicy", MATCH_POLICIES),
    ("admissionregistration.v1.MutatingWebhook", "reinvocationPolicy", &["IfNeeded", "Never"]),
    ("admissionregistration.v1.ValidatingAdmissionPolicySpec", "failurePolicy", FAILURE_POLICIES),
    ("admissionregistration.v1.MutatingAdmissionPolicySpec", "failurePolicy", FAILURE_POLICIES),
    ("admissionregistration.v1.MatchResources", "matchPolicy", MATCH_POLICIES),
    ("admissionregistration.v1.RuleWithOperations", "scope", &["*", "Cluster", "Namespaced"]),
    ("admissionregistration.v1.NamedRuleWithOperations", "scope", &["*", "Cluster", "Namespaced"]),
    ("flowcontrol.v1.FlowDistinguisherMethod", "type", &["ByNamespace", "ByUser"]),
    ("flowcontrol.v1.PriorityLevelConfigurationSpec", "type", &["Exempt", "Limited"]),
    ("flowcontrol.v1.LimitResponse", "type", &["Queue", "Reject"]),
    ("storage.v1.CSIDriverSpec", "fsGroupPolicy", &["File", "None", "ReadWriteOnceWithFSType"]),
    ("networking.v1.IngressClassParametersReference", "scope", &["Cluster", "Namespace"]),
    ("autoscaling.v2.HPAScalingPolicy", "type", &["Percent", "Pods"]),
    ("autoscaling.v2.HPAScalingRules", "selectPolicy", &["Disabled", "Max", "Min"]),
    ("autoscaling.v2.MetricTarget", "type", &["AverageValue", "Utilization", "Value"]),
    ("resource.v1.ExactDeviceRequest", "allocationMode", &["All", "ExactCount"]),
];

pub(super) fn check(type_id: TypeId, object: &Position<'_>, report: &mut Report) {
    let reported: BTreeSet<String> = report.causes.iter().map(|cause| cause.field.clone()).collect();
    let mut walk = Walk { reported, report };
    for field in &type_id.get().fields {
        if !matches!(field.name, "metadata" | "status") {
            walk.check_field(type_id.get(), field, object);
        }
    }
}

struct Walk<'a> {
    /// The paths that the rules of the kind have reported.
    reported: BTreeSet<String>,
    report: &'a mut Report,
}

impl Walk<'_> {
    fn check_field(&mut self, object_type: &'static Type, field: &'static Field, object: &Position<'_>) {
        let position = object.at(field.name);
        let values =
            ENUMS.iter().find(|row| (row.0, row.1) == (short_name(object_type), field.name)).map(|row| row.2);
        if position.value.is_null() || position.value == "" {
            if is_missing(object_type, field, position.value) && !self.is_reported(&position.path) {
                match values {
                    Some(values) => self.report.unsupported(&position, values),
                    None => self.report.required(&position, ""),
                }
            }
            return;
        }
        if let Some(values) = values
            && !values.contains(&position.text())
            && !self.is_reported(&position.path)
        {
            self.report.unsupported(&position, values);
        }
        self.check_inside(field.shape, &position);
    }

    fn check_inside(&mut self, shape: Shape, position: &Position<'_>) {
        match (shape, position.value) {
            (Shape::Object(id), Value::Object(_)) if short_name(id.get()) == "meta.v1.LabelSelector" => {
                self.check_selector(position);
            }
            (Shape::Object(id), Value::Object(_)) => {
                for field in &id.get().fields {
                    if field.name != "metadata" {
                        self.check_field(id.get(), field, position);
                    }
                }
            }
            (Shape::List(items, _), Value::Array(entries)) => {
                for (index, value) in entries.iter().enumerate() {
                    self.check_inside(
                        *items,
                        &Position { value, path: format!("{}[{index}]", position.path) },
                    );
                }
            }
            (Shape::Map(values, _), Value::Object(entries)) => {
                for (key, value) in entries {
                    self.check_inside(
                        *values,
                        &Position { value, path: format!("{}[{key}]", position.path) },
                    );
                }
            }
            _ => {}
        }
    }

    fn check_selector(&mut self, position: &Position<'_>) {
        if !self.has_reported_inside(&position.path) {
            meta::selector(position, self.report);
        }
    }

    /// Whether the rules of the kind have reported the field or one that contains it.
    fn is_reported(&self, path: &str) -> bool {
        let ends = path.char_indices().filter(|(_, c)| matches!(c, '.' | '[')).map(|(end, _)| end);
        ends.chain([path.len()]).any(|end| path.get(..end).is_some_and(|start| self.reported.contains(start)))
    }

    /// Whether the rules of the kind have reported the field, something in it, or a field that contains it.
    fn has_reported_inside(&self, path: &str) -> bool {
        let first = self.reported.range(path.to_owned()..).next();
        first.is_some_and(|reported| reported.starts_with(path)) || self.is_reported(path)
    }
}

/// Returns the short name of a type, `core.v1.Pod`.
fn short_name(object_type: &Type) -> &'static str {
    let name = object_type.name;
    ["io.k8s.api.", "io.k8s.apimachinery.pkg.apis."]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name)
}

fn is_missing(object_type: &Type, field: &Field, value: &Value) -> bool {
    let is_checked = match field.shape {
        Shape::String => true,
        Shape::Object(_) => value.is_null() && field.pointer,
        _ => false,
    };
    field.required && is_checked && !OPTIONAL.contains(&(short_name(object_type), field.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A misspelled row would be a rule that never applies.
    #[test]
    fn fields_of_all_rows_exist() {
        let rows = OPTIONAL.iter().copied().chain(ENUMS.iter().map(|row| (row.0, row.1)));
        for (name, field) in rows {
            let id = Type::named(&format!("io.k8s.api.{name}")).unwrap_or_else(|| panic!("no type {name}"));
            assert!(id.get().field(field).is_some(), "no {field} in {name}");
        }
    }
}
