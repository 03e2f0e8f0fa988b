//! What is shown of autoscalers: what they scale, and each metric with its target.
//!
//! Version 1 knows one metric, and keeps others in annotations in words of its own; both are understood.

use serde_json::{Value, json};

use super::age::UNKNOWN;
use super::fields::{annotation, at, given, list, number, shortened, text};

/// How many metrics are shown.
const MAX_METRICS: usize = 2;

/// What version 1 aims at where nothing is said, in percent of the requested CPU.
const CPU: i64 = 80;

/// `Deployment/web`.
pub(super) fn reference(scaler: &Value) -> String {
    format!("{}/{}", text(scaler, "/spec/scaleTargetRef/kind"), text(scaler, "/spec/scaleTargetRef/name"))
}

pub(super) fn min_replicas(scaler: &Value) -> String {
    match at(scaler, "/spec/minReplicas") {
        Some(_) => number(scaler, "/spec/minReplicas").to_string(),
        None => "<unset>".to_owned(),
    }
}

/// `cpu: 50%/80%`.
pub(super) fn targets(scaler: &Value) -> String {
    let (specs, statuses) = metrics(scaler);
    if specs.is_empty() {
        return "<none>".to_owned();
    }
    let shown = specs.iter().enumerate().map(|(place, spec)| metric(spec, statuses.get(place)));
    shortened(&shown.collect::<Vec<_>>(), MAX_METRICS, ", ")
}

/// Metrics and their status, in the words of whichever version.
fn metrics(scaler: &Value) -> (Vec<Value>, Vec<Value>) {
    // Version 2 always has metrics, and what is not there at all is of no version.
    if at(scaler, "/spec/metrics").is_some() || at(scaler, "/spec").is_none() {
        return (list(scaler, "/spec/metrics").to_vec(), list(scaler, "/status/currentMetrics").to_vec());
    }
    let annotated = |key: &str| -> Option<Vec<Value>> { serde_json::from_str(annotation(scaler, key)?).ok() };
    let cpu =
        |name: &str, percent: &Value| json!({"type": "Resource", "resource": {"name": "cpu", name: percent}});
    let mut specs = annotated("autoscaling.alpha.kubernetes.io/metrics").unwrap_or_default();
    if let Some(percent) = at(scaler, "/spec/targetCPUUtilizationPercentage") {
        specs.push(cpu("targetAverageUtilization", percent));
    }
    if specs.is_empty() {
        specs.push(cpu("targetAverageUtilization", &json!(CPU)));
    }
    let statuses = annotated("autoscaling.alpha.kubernetes.io/current-metrics").unwrap_or_else(|| {
        let percent = at(scaler, "/status/currentCPUUtilizationPercentage");
        percent.map(|percent| cpu("currentAverageUtilization", percent)).into_iter().collect()
    });
    (specs, statuses)
}

/// One metric, with how it stands.
fn metric(spec: &Value, status: Option<&Value>) -> String {
    let kind = text(spec, "/type");
    let Some(source) = source(kind) else { return "<unknown type>".to_owned() };
    let part = |of: &Value| of.get(source).cloned().unwrap_or_default();
    let (target, current) = (part(spec), status.map(part).filter(|current| !current.is_null()));
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
        _ => other(&target, current),
    }
}

/// Where version 2 has a metric of a type.
fn source(kind: &str) -> Option<&'static str> {
    match kind {
        "External" => Some("external"),
        "Pods" => Some("pods"),
        "Object" => Some("object"),
        "Resource" => Some("resource"),
        "ContainerResource" => Some("containerResource"),
        _ => None,
    }
}

/// Where version 1 has what version 2 has in `target` and `current`.
const TARGET_AVERAGE: &[&str] = &["/targetAverageValue", "/averageValue"];
const CURRENT_AVERAGE: &[&str] = &["/currentAverageValue", "/averageValue"];
const TARGET_PERCENT: &[&str] = &["/targetAverageUtilization"];
const CURRENT_PERCENT: &[&str] = &["/currentAverageUtilization"];

/// A metric of what pods request: an amount, or a share in percent.
fn resource(target: &Value, current: Option<&Value>) -> String {
    if find(target, "/averageValue", TARGET_AVERAGE).is_some() {
        let current = current.map_or(UNKNOWN, |current| amount(current, "/averageValue", CURRENT_AVERAGE));
        return format!("{current}/{}", amount(target, "/averageValue", TARGET_AVERAGE));
    }
    let percent = |of: &Value, old: &[&str]| {
        find(of, "/averageUtilization", old).and_then(Value::as_i64).map(|percent| format!("{percent}%"))
    };
    let current = current.and_then(|current| percent(current, CURRENT_PERCENT));
    let target = percent(target, TARGET_PERCENT);
    format!("{}/{}", current.as_deref().unwrap_or(UNKNOWN), target.as_deref().unwrap_or("<auto>"))
}

/// A metric of something else: a value, or one for each pod.
fn other(target: &Value, current: Option<&Value>) -> String {
    if find(target, "/averageValue", TARGET_AVERAGE).is_some() {
        let current = current.and_then(|current| find(current, "/averageValue", CURRENT_AVERAGE));
        let current = current.and_then(Value::as_str).unwrap_or(UNKNOWN);
        return format!("{current}/{} (avg)", amount(target, "/averageValue", TARGET_AVERAGE));
    }
    let current = current.map_or(UNKNOWN, |current| amount(current, "/value", &["/currentValue"]));
    format!("{current}/{}", amount(target, "/value", &["/targetValue"]))
}

/// An amount, or the word for none.
fn amount<'a>(of: &'a Value, name: &str, old: &[&str]) -> &'a str {
    find(of, name, old).and_then(|value| given(value, "")).unwrap_or("<nil>")
}

/// What a target or a status says under a name.
fn find<'a>(of: &'a Value, name: &str, old: &[&str]) -> Option<&'a Value> {
    let here = ["/target", "/current"].iter().find_map(|part| at(of, part)?.pointer(name));
    here.or_else(|| old.iter().find_map(|place| at(of, place)))
}
