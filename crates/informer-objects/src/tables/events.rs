//! Table cells of events, with the field names of both API groups that have events.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::{UNKNOWN, since, time};
use super::fields::{at, filled, number, text};

/// Returns all cells of an event.
pub(super) fn cells(event: &Value, now: Timestamp) -> Vec<Value> {
    let involved = at(event, "/involvedObject").or_else(|| at(event, "/regarding")).unwrap_or(&Value::Null);
    let first_seen = first_of(event, &["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"], now);
    let last_seen =
        first_of(event, &["/lastTimestamp", "/deprecatedLastTimestamp"], now).or_else(|| first_seen.clone());
    let count = number(event, "/count").max(number(event, "/deprecatedCount")).max(1);
    let (last_seen, count) = match at(event, "/series") {
        Some(series) => (Some(since(series, "/lastObservedTime", now)), number(series, "/count")),
        None => (last_seen, count),
    };
    let unknown = || UNKNOWN.to_owned();
    let message = filled(event, "/message").unwrap_or_else(|| text(event, "/note"));
    vec![
        json!(last_seen.unwrap_or_else(unknown)),
        json!(text(event, "/type")),
        json!(text(event, "/reason")),
        json!(target(involved)),
        json!(text(involved, "/fieldPath")),
        json!(source(event)),
        json!(message.trim()),
        json!(first_seen.unwrap_or_else(unknown)),
        json!(count),
        json!(text(event, "/metadata/name")),
    ]
}

/// Returns the age of the first of these times that is present.
fn first_of(event: &Value, pointers: &[&str], now: Timestamp) -> Option<String> {
    let pointer = pointers.iter().find(|pointer| time(event, pointer).is_some())?;
    Some(since(event, pointer, now))
}

/// The object of an event, `pod/web-0`.
fn target(involved: &Value) -> String {
    let kind = text(involved, "/kind").to_lowercase();
    match filled(involved, "/name") {
        Some(name) => format!("{kind}/{name}"),
        None => kind,
    }
}

/// The component and the instance that reported an event, `kubelet, node-1`.
fn source(event: &Value) -> String {
    let first =
        |pointers: &[&str]| pointers.iter().find_map(|pointer| filled(event, pointer)).unwrap_or_default();
    let component = first(&[
        "/source/component",
        "/deprecatedSource/component",
        "/reportingComponent",
        "/reportingController",
    ]);
    match first(&["/source/host", "/deprecatedSource/host", "/reportingInstance"]) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
