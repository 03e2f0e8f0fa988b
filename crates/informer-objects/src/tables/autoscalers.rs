//! Table cells of autoscalers: the scaled object, and each metric with its target.
//!
//! Both versions are supported. `autoscaling/v1` has fields for one metric and stores other metrics in
//! annotations, with other field names than `autoscaling/v2`.

use serde_json::{Value, json};

use super::age::UNKNOWN;
use super::fields::{annotation, at, given, list, number, shortened, text};

/// The maximum number of metrics shown.
const MAX_METRICS: usize = 2;

/// The default target of version 1, in percent of the requested CPU.
const DEFAULT_CPU_PERCENT: i64 = 80;

/// The scaled object, `Deployment/web`.
pub(super) fn reference(scaler: &Value) -> String {
    format!("{}/{}", text(scaler, "/spec/scaleTargetRef/kind"), text(scaler, "/spec/scaleTargetRef/name"))
}

pub(super) fn min_replicas(scaler: &Value) -> String {
    match at(scaler, "/spec/minReplicas") {
        Some(_) => number(scaler, "/spec/minReplicas").to_string(),
        None => "<unset>".to_owned(),
    }
}

/// The metrics with their targets, `cpu: 50%/80%`.
pub(super) fn targets(scaler: &Value) -> String {
    let (specs, statuses) = metrics(scaler);
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown = specs.iter().enumerate().map(|(index, spec)| metric(spec, statuses.get(index)));
    shortened(&shown.collect::<Vec<_>>(), MAX_METRICS, ", ")
}

/// Returns metrics and their status, with the field names of either version.
fn metrics(scaler: &Value) -> (Vec<Value>, Vec<Value>) {
    // Version 2 always has metrics. An object without a spec belongs to neither version.
    if at(scaler, "/spec/metrics").is_some() || at(scaler, "/spec").is_none() {
        return (list(scaler, "/spec/metrics").to_vec(), list(scaler, "/status/currentMetrics").to_vec());
    }
    let annotated = |key: &str| -> Option<Vec<Value>> { serde_json::from_str(annotation(scaler, key)?).ok() };
    let cpu = |field: &str, percent: &Value| json!({"type": "Resource", "resource": {"name": "cpu", field: percent}});
    let mut specs = annotated("autoscaling.alpha.kubernetes.io/metrics").unwrap_or_default();
    if let Some(percent) = at(scaler, "/spec/targetCPUUtilizationPercentage") {
        specs.push(cpu("targetAverageUtilization", percent));
    }
    if specs.is_empty() {
        specs.push(cpu("targetAverageUtilization", &json!(DEFAULT_CPU_PERCENT)));
    }
    let statuses = annotated("autoscaling.alpha.kubernetes.io/current-metrics").unwrap_or_else(|| {
        let percent = at(scaler, "/status/currentCPUUtilizationPercentage");
        percent.map(|percent| cpu("currentAverageUtilization", percent)).into_iter().collect()
    });
    (specs, statuses)
}

/// Returns one metric with its current value and target.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    let kind = text(spec, "/type");
    let Some(field) = source_field(kind) else { return "<unknown type>".to_owned() };
    let source = |metric: &Value| metric.get(field).cloned().unwrap_or_default();
    let (target, current) = (source(spec), status.map(source).filter(|current| !current.is_null()));
    let current = current.as_ref();
    match kind {
        "Resource" | "ContainerResource" => {
            format!("{}: {}", text(&target, "/name"), resource(&target, current))
        }
        "Pods" => {
            let current =
                current.map_or(UNKNOWN, |current| amount(current, "/averageValue", CURRENT_AVERAGE));
            format!("{current}/{}", amount(&target, "/averageValue", TARGET_AVERAGE))
        }
        _ => object_or_external(&target, current),
    }
}

/// Returns the field in which version 2 stores a metric of a type.
fn source_field(kind: &str) -> Option<&'static str> {
    match kind {
        "External" => Some("external"),
        "Pods" => Some("pods"),
        "Object" => Some("object"),
        "Resource" => Some("resource"),
        "ContainerResource" => Some("containerResource"),
        _ => None,
    }
}

/// Fields of version 1 for the values that version 2 has in `target` and `current`.
const TARGET_AVERAGE: &[&str] = &["/targetAverageValue", "/averageValue"];
const CURRENT_AVERAGE: &[&str] = &["/currentAverageValue", "/averageValue"];
const TARGET_PERCENT: &[&str] = &["/targetAverageUtilization"];
const CURRENT_PERCENT: &[&str] = &["/currentAverageUtilization"];

/// Returns a metric of a requested resource: a quantity or a percentage.
fn resource(target: &Value, current: Option<&Value>) -> String {
    if find_value(target, "/averageValue", TARGET_AVERAGE).is_some() {
        let current = current.map_or(UNKNOWN, |current| amount(current, "/averageValue", CURRENT_AVERAGE));
        return format!("{current}/{}", amount(target, "/averageValue", TARGET_AVERAGE));
    }
    let percent = |metric: &Value, old_pointers: &[&str]| {
        find_value(metric, "/averageUtilization", old_pointers)
            .and_then(Value::as_i64)
            .map(|percent| format!("{percent}%"))
    };
    let current = current.and_then(|current| percent(current, CURRENT_PERCENT));
    let target = percent(target, TARGET_PERCENT);
    format!("{}/{}", current.as_deref().unwrap_or(UNKNOWN), target.as_deref().unwrap_or("<auto>"))
}

/// Returns a metric of an object, or an external one: a value, or an average per pod.
fn object_or_external(target: &Value, current: Option<&Value>) -> String {
    if find_value(target, "/averageValue", TARGET_AVERAGE).is_some() {
        let current = current.and_then(|current| find_value(current, "/averageValue", CURRENT_AVERAGE));
        let current = current.and_then(Value::as_str).unwrap_or(UNKNOWN);
        return format!("{current}/{} (avg)", amount(target, "/averageValue", TARGET_AVERAGE));
    }
    let current = current.map_or(UNKNOWN, |current| amount(current, "/value", &["/currentValue"]));
    format!("{current}/{}", amount(target, "/value", &["/targetValue"]))
}

/// Returns a quantity, or `<nil>`.
fn amount<'a>(metric: &'a Value, pointer: &str, old_pointers: &[&str]) -> &'a str {
    find_value(metric, pointer, old_pointers).and_then(|value| given(value, "")).unwrap_or("<nil>")
}

/// Returns a value of a metric: of version 2, in `target` or `current`, or of version 1.
fn find_value<'a>(metric: &'a Value, pointer: &str, old_pointers: &[&str]) -> Option<&'a Value> {
    let value = ["/target", "/current"].iter().find_map(|parent| at(metric, parent)?.pointer(pointer));
    value.or_else(|| old_pointers.iter().find_map(|pointer| at(metric, pointer)))
}
