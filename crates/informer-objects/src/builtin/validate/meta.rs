//! `metadata`: names by kind, labels, annotations, owners, finalizers, and what an update may not change.

use std::collections::BTreeSet;

use informer_schema::RESOURCES;
use serde_json::Value;

use super::report::{Place, Report, quoted, shown};
use crate::text::formats;

/// All annotations of an object together.
const ANNOTATION_BYTES: usize = 256 * 1024;

const IMMUTABLE: &str = "field is immutable";

/// How objects of a kind may be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Subdomain,
    Label,
    PathSegment,
}

const LABELS: &[(&str, &str)] = &[("", "Namespace"), ("", "Service"), ("apps", "StatefulSet")];
const PATH_SEGMENTS: &[(&str, &str)] = &[
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("apiregistration.k8s.io", "APIService"),
    ("networking.k8s.io", "IPAddress"),
];

pub(super) fn naming(group: &str, kind: &str) -> Naming {
    if LABELS.contains(&(group, kind)) {
        Naming::Label
    } else if PATH_SEGMENTS.contains(&(group, kind)) {
        Naming::PathSegment
    } else {
        Naming::Subdomain
    }
}

impl Naming {
    fn wrong(self, name: &str) -> Vec<String> {
        match self {
            Naming::Subdomain => formats::dns_subdomain(name),
            Naming::Label => formats::dns_label(name),
            Naming::PathSegment => formats::path_segment(name),
        }
    }

    fn wrong_prefix(self, prefix: &str) -> Vec<String> {
        match self {
            Naming::PathSegment => self.wrong(prefix),
            _ => self.wrong(&formats::mask_trailing_dash(prefix)),
        }
    }
}

/// Whether objects of a kind are in namespaces.
pub(super) fn is_namespaced(group: &str, kind: &str) -> bool {
    let same = |resource: &&informer_schema::Resource| resource.group == group && resource.kind == kind;
    RESOURCES.iter().find(same).is_some_and(|resource| resource.namespaced)
}

/// What every object's metadata must keep.
pub(super) fn check(object: &Place<'_>, namespaced: bool, naming: Naming, report: &mut Report) {
    let metadata = object.at("metadata");
    let (name, prefix) = (metadata.at("name"), metadata.at("generateName"));
    if !prefix.text().is_empty() {
        report.invalid_each(&prefix, prefix.text(), naming.wrong_prefix(prefix.text()));
    }
    if name.text().is_empty() {
        report.required(&name, "name or generateName is required");
    } else {
        report.invalid_each(&name, name.text(), naming.wrong(name.text()));
    }
    let namespace = metadata.at("namespace");
    match (namespaced, namespace.text()) {
        (true, "") => report.required(&namespace, ""),
        (true, text) => report.invalid_each(&namespace, text, formats::dns_label(text)),
        (false, "") => {}
        (false, _) => report.forbidden(&namespace, "not allowed on this type"),
    }
    non_negative(&metadata.at("generation"), report);
    labels(&metadata.at("labels"), report);
    annotations(&metadata.at("annotations"), report);
    owners(&metadata.at("ownerReferences"), report);
    finalizers(&metadata, report);
}

/// As [`check`], and what kinds of Kubernetes itself ask of finalizers beyond it.
pub(super) fn check_strictly(object: &Place<'_>, group: &str, kind: &str, report: &mut Report) {
    check(object, is_namespaced(group, kind), naming(group, kind), report);
    for finalizer in object.each("metadata.finalizers") {
        kube_finalizer(&finalizer, report);
    }
}

/// What an update may not do to metadata.
pub(super) fn check_update(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    let (old, new) = (old.at("metadata"), new.at("metadata"));
    if old.at("deletionTimestamp").is_set() {
        no_new_finalizers(&old.at("finalizers"), &new.at("finalizers"), report);
    }
    if new.at("resourceVersion").text().is_empty() {
        report.invalid_text(&new.at("resourceVersion"), "", "must be specified for an update");
    }
    if new.at("generation").number() < old.at("generation").number() {
        report.invalid(&new.at("generation"), "must not be decremented");
    }
    for field in
        ["name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"]
    {
        let (before, after) = (old.at(field), new.at(field));
        if before.value != after.value {
            let text = matches!(field, "name" | "namespace" | "uid") && !after.is_set();
            let value = if text { "\"\"".to_owned() } else { shown(after.value) };
            report.invalid_value(&after, &value, IMMUTABLE);
        }
    }
    labels(&new.at("labels"), report);
    annotations(&new.at("annotations"), report);
    owners(&new.at("ownerReferences"), report);
}

/// A map of labels.
pub(super) fn labels(place: &Place<'_>, report: &mut Report) {
    for (key, value) in place.value.as_object().into_iter().flatten() {
        report.invalid_each(place, key, formats::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        report.invalid_each(place, value, formats::label_value(value));
    }
}

pub(super) fn annotations(place: &Place<'_>, report: &mut Report) {
    let mut bytes = 0;
    for (key, value) in place.value.as_object().into_iter().flatten() {
        report.invalid_each(place, key, formats::qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    if bytes > ANNOTATION_BYTES {
        report.too_long(place, ANNOTATION_BYTES);
    }
}

/// A selector of labels.
pub(super) fn selector(place: &Place<'_>, report: &mut Report) {
    labels(&place.at("matchLabels"), report);
    for requirement in place.each("matchExpressions") {
        let values = requirement.at("values");
        match requirement.at("operator").text() {
            "In" | "NotIn" => {
                if values.is_empty() {
                    report.required(&values, "must be specified when `operator` is 'In' or 'NotIn'");
                }
            }
            "Exists" | "DoesNotExist" => {
                if !values.is_empty() {
                    let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                    report.forbidden(&values, why);
                }
            }
            operator => {
                report.invalid_text(&requirement.at("operator"), operator, "not a valid selector operator");
            }
        }
        let key = requirement.at("key");
        report.invalid_each(&key, key.text(), formats::qualified_name(key.text()));
        for value in requirement.each("values") {
            report.invalid_each(&value, value.text(), formats::label_value(value.text()));
        }
    }
}

/// Whether a selector selects labels; one that is not there, or makes no sense, selects nothing.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let plain = selector.get("matchLabels").and_then(Value::as_object);
    let all_plain = plain.into_iter().flatten().all(|(key, value)| label(key) == value.as_str());
    let requirements = selector.get("matchExpressions").and_then(Value::as_array);
    let all_required = requirements.into_iter().flatten().all(|requirement| {
        let text = |field: &str| requirement.get(field).and_then(Value::as_str).unwrap_or_default();
        let found = label(text("key"));
        let values = requirement.get("values").and_then(Value::as_array);
        let listed = || values.is_some_and(|values| values.iter().any(|value| value.as_str() == found));
        match text("operator") {
            "In" => found.is_some() && listed(),
            "NotIn" => found.is_none() || !listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    });
    selector.is_object() && all_plain && all_required
}

pub(super) fn non_negative(place: &Place<'_>, report: &mut Report) {
    if place.number() < 0 {
        report.invalid(place, "must be greater than or equal to 0");
    }
}

/// A field that may not change.
pub(super) fn immutable(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    if old.value != new.value {
        report.invalid(new, IMMUTABLE);
    }
}

fn owners(place: &Place<'_>, report: &mut Report) {
    let mut controller: Option<String> = None;
    for owner in place.value.as_array().into_iter().flatten() {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
        for (field, empty, why) in [
            ("apiVersion", version.is_empty(), "version must not be empty"),
            ("kind", text("kind").is_empty(), "must not be empty"),
            ("name", text("name").is_empty(), "must not be empty"),
            ("uid", text("uid").is_empty(), "must not be empty"),
        ] {
            if empty {
                report.invalid_text(&place.at(field), text(field), why);
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            let value = shown(owner);
            report.invalid_value(place, &value, "/v1, Kind=Event is disallowed from being an owner");
        }
        if owner.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let current = format!("{}/{}", text("kind"), text("name"));
        match &controller {
            None => controller = Some(current),
            Some(first) => {
                let why = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in references for {first} \
                     and {current}"
                );
                report.invalid(place, &why);
            }
        }
    }
}

fn finalizers(metadata: &Place<'_>, report: &mut Report) {
    let place = metadata.at("finalizers");
    let names: Vec<&str> = metadata.each("finalizers").iter().map(Place::text).collect();
    for name in &names {
        report.invalid_each(&place, name, formats::qualified_name(name));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        report.invalid(&place, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

/// A finalizer without a domain must be one of the server's own.
pub(super) fn kube_finalizer(place: &Place<'_>, report: &mut Report) {
    let standard = ["kubernetes", "orphan", "foregroundDeletion"];
    if !place.text().contains('/') && !standard.contains(&place.text()) {
        report.invalid(place, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn no_new_finalizers(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    let texts = |place: &Place<'_>| -> BTreeSet<String> {
        let all = place.value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let known = texts(old);
    let extra: Vec<String> =
        texts(new).iter().filter(|finalizer| !known.contains(*finalizer)).map(|one| quoted(one)).collect();
    if !extra.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            extra.join(", ")
        );
        report.forbidden(new, &why);
    }
}
