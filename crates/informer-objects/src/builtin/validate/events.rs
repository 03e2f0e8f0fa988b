//! Validation of events of the core group and of the new group, `events.k8s.io`.
//!
//! kube-apiserver converts events of both groups to one internal type. Its field names are those of the core
//! group, except `reportingController` instead of `reportingComponent`. Messages contain the internal names,
//! except that events of the core group keep `reportingComponent`.

use serde_json::Value;

use super::meta::{self, immutable};
use super::report::{Position, Report};
use crate::text::formats;

/// The field in the new group, and the field in the internal type.
const NAMES: &[(&str, &str)] = &[
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

pub(super) fn create(group: &str, object: &Position<'_>, report: &mut Report) {
    let event = Event { object, is_new_group: group == "events.k8s.io" };
    legacy(&event, report);
    if !event.is_new_group {
        return;
    }
    meta::check_strictly(object, group, "Event", report);
    series(&event, report);
    if !event.at("eventTime").is_set() {
        report.required(&event.at("eventTime"), "");
    }
    let kind = event.at("type");
    if !["Normal", "Warning"].contains(&kind.text()) {
        report.invalid_text(&kind, "", &format!("has invalid value: {}", kind.text()));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if !event.at(field).is_empty() {
            report.invalid_text(&event.at(field), "", "needs to be unset");
        }
    }
}

pub(super) fn update(group: &str, old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let is_new_group = group == "events.k8s.io";
    let (before, after) = (Event { object: old, is_new_group }, Event { object: new, is_new_group });
    legacy(&after, report);
    if !is_new_group {
        return;
    }
    meta::check_update(old, new, report);
    if before.at("series").value != after.at("series").value {
        series(&after, report);
    }
    for (_, field) in NAMES {
        immutable(&before.at(field), &after.at(field), report);
    }
}

/// An event, accessed by the field names of the internal type.
struct Event<'a, 'b> {
    object: &'b Position<'a>,
    is_new_group: bool,
}

impl<'a> Event<'a, '_> {
    fn at(&self, field: &str) -> Position<'a> {
        let (first, nested) = field.split_once('.').unwrap_or((field, ""));
        let name_in_group = match (self.is_new_group, first) {
            (true, _) => NAMES.iter().find(|(_, internal)| *internal == first).map_or(first, |(new, _)| new),
            (false, "reportingController") => "reportingComponent",
            (false, _) => first,
        };
        let position = self.object.at(name_in_group);
        let position = if nested.is_empty() { position } else { position.at(nested) };
        // An empty object, such as an unset source, counts as absent.
        let value = if position.value == &Value::Object(serde_json::Map::new()) {
            &Value::Null
        } else {
            position.value
        };
        let path = if self.is_new_group || first != "reportingController" {
            field.to_owned()
        } else {
            name_in_group.to_owned()
        };
        Position { value, path }
    }
}

/// Checks the rules for both groups, like `legacyValidateEvent` of kube-apiserver.
fn legacy(event: &Event<'_, '_>, report: &mut Report) {
    let namespace = event.object.at("metadata.namespace").text();
    let namespace_position = event.at("involvedObject.namespace");
    let mismatch = if event.at("eventTime").is_set() {
        namespace_position.is_empty() && !["default", "kube-system"].contains(&namespace)
    } else if namespace_position.is_empty() {
        !["", "default"].contains(&namespace)
    } else {
        namespace_position.text() != namespace
    };
    if mismatch {
        report.invalid_text(&namespace_position, namespace_position.text(), "does not match event.namespace");
    }
    if event.at("eventTime").is_set() {
        let controller = event.at("reportingController");
        if controller.is_empty() {
            report.required(&controller, "");
        }
        report.invalid_each(&controller, controller.text(), formats::qualified_name(controller.text()));
        for (field, limit) in
            [("reportingInstance", 128), ("action", 128), ("reason", 128), ("message", 1024)]
        {
            let position = event.at(field);
            if position.is_empty() && field != "message" {
                report.required(&position, "");
            }
            if position.text().len() > limit {
                report.invalid_text(&position, "", &format!("can have at most {limit} characters"));
            }
        }
    }
    let position = Position { path: "namespace".to_owned(), ..event.object.at("metadata.namespace") };
    report.invalid_each(&position, namespace, formats::dns_subdomain(namespace));
}

fn series(event: &Event<'_, '_>, report: &mut Report) {
    if !event.at("series").is_set() {
        return;
    }
    if event.at("series.count").number() < 2 {
        report.invalid_text(&event.at("series.count"), "", "should be at least 2");
    }
    if !event.at("series.lastObservedTime").is_set() {
        report.required(&event.at("series.lastObservedTime"), "");
    }
}
