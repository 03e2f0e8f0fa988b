//! Validation of `metadata`: names by kind, labels, annotations, owners, finalizers, and immutable fields.

use std::collections::BTreeSet;

use informer_schema::RESOURCES;
use serde_json::Value;

use super::report::{Position, Report, quoted, shown};
use crate::text::formats;

/// The maximum size of all annotations of an object together.
const MAX_ANNOTATION_BYTES: usize = 256 * 1024;

const FIELD_IS_IMMUTABLE: &str = "field is immutable";

/// The format of the names of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Naming {
    Subdomain,
    Label,
    PathSegment,
}

/// Kinds whose names are DNS labels.
const LABEL_KINDS: &[(&str, &str)] = &[("", "Namespace"), ("", "Service"), ("apps", "StatefulSet")];

/// Kinds whose names only have to be valid in a path.
const PATH_SEGMENT_KINDS: &[(&str, &str)] = &[
    ("rbac.authorization.k8s.io", "Role"),
    ("rbac.authorization.k8s.io", "ClusterRole"),
    ("rbac.authorization.k8s.io", "RoleBinding"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"),
    ("apiregistration.k8s.io", "APIService"),
    ("networking.k8s.io", "IPAddress"),
];

pub(super) fn naming(group: &str, kind: &str) -> Naming {
    if LABEL_KINDS.contains(&(group, kind)) {
        Naming::Label
    } else if PATH_SEGMENT_KINDS.contains(&(group, kind)) {
        Naming::PathSegment
    } else {
        Naming::Subdomain
    }
}

impl Naming {
    fn errors(self, name: &str) -> Vec<String> {
        match self {
            Naming::Subdomain => formats::dns_subdomain(name),
            Naming::Label => formats::dns_label(name),
            Naming::PathSegment => formats::path_segment(name),
        }
    }

    fn prefix_errors(self, prefix: &str) -> Vec<String> {
        match self {
            Naming::PathSegment => self.errors(prefix),
            _ => self.errors(&formats::mask_trailing_dash(prefix)),
        }
    }
}

/// Whether objects of a kind are namespaced.
pub(super) fn is_namespaced(group: &str, kind: &str) -> bool {
    let same = |resource: &&informer_schema::Resource| resource.group == group && resource.kind == kind;
    RESOURCES.iter().find(same).is_some_and(|resource| resource.namespaced)
}

/// Checks metadata by the rules for any object.
pub(super) fn check(object: &Position<'_>, namespaced: bool, naming: Naming, report: &mut Report) {
    let metadata = object.at("metadata");
    let (name, prefix) = (metadata.at("name"), metadata.at("generateName"));
    if !prefix.text().is_empty() {
        report.invalid_each(&prefix, prefix.text(), naming.prefix_errors(prefix.text()));
    }
    if name.text().is_empty() {
        report.required(&name, "name or generateName is required");
    } else {
        report.invalid_each(&name, name.text(), naming.errors(name.text()));
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

/// Checks metadata by the rules for a built-in kind: with its name format and stricter finalizers.
pub(super) fn check_strictly(object: &Position<'_>, group: &str, kind: &str, report: &mut Report) {
    check(object, is_namespaced(group, kind), naming(group, kind), report);
    for finalizer in object.each("metadata.finalizers") {
        kube_finalizer(&finalizer, report);
    }
}

/// Checks the metadata of an update: immutable fields, new finalizers, and the values that may change.
pub(super) fn check_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
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
            let is_absent_text = matches!(field, "name" | "namespace" | "uid") && !after.is_set();
            let value = if is_absent_text { "\"\"".to_owned() } else { shown(after.value) };
            report.invalid_value(&after, &value, FIELD_IS_IMMUTABLE);
        }
    }
    labels(&new.at("labels"), report);
    annotations(&new.at("annotations"), report);
    owners(&new.at("ownerReferences"), report);
}

/// Checks a map of labels.
pub(super) fn labels(position: &Position<'_>, report: &mut Report) {
    for (key, value) in position.value.as_object().into_iter().flatten() {
        report.invalid_each(position, key, formats::qualified_name(key));
        let value = value.as_str().unwrap_or_default();
        report.invalid_each(position, value, formats::label_value(value));
    }
}

pub(super) fn annotations(position: &Position<'_>, report: &mut Report) {
    let mut bytes = 0;
    for (key, value) in position.value.as_object().into_iter().flatten() {
        report.invalid_each(position, key, formats::qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.as_str().unwrap_or_default().len();
    }
    if bytes > MAX_ANNOTATION_BYTES {
        report.too_long(position, MAX_ANNOTATION_BYTES);
    }
}

/// Checks a label selector.
pub(super) fn selector(position: &Position<'_>, report: &mut Report) {
    labels(&position.at("matchLabels"), report);
    for requirement in position.each("matchExpressions") {
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

/// Whether a selector matches labels; an absent or invalid selector matches nothing.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let plain = selector.get("matchLabels").and_then(Value::as_object);
    let all_plain = plain.into_iter().flatten().all(|(key, value)| label(key) == value.as_str());
    let requirements = selector.get("matchExpressions").and_then(Value::as_array);
    let all_required = requirements.into_iter().flatten().all(|requirement| {
        let text = |field: &str| requirement.get(field).and_then(Value::as_str).unwrap_or_default();
        let actual = label(text("key"));
        let values = requirement.get("values").and_then(Value::as_array);
        let listed = || values.is_some_and(|values| values.iter().any(|value| value.as_str() == actual));
        match text("operator") {
            "In" => actual.is_some() && listed(),
            "NotIn" => actual.is_none() || !listed(),
            "Exists" => actual.is_some(),
            "DoesNotExist" => actual.is_none(),
            _ => false,
        }
    });
    selector.is_object() && all_plain && all_required
}

pub(super) fn non_negative(position: &Position<'_>, report: &mut Report) {
    if position.number() < 0 {
        report.invalid(position, "must be greater than or equal to 0");
    }
}

/// Checks a field that must not change.
pub(super) fn immutable(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    if old.value != new.value {
        report.invalid(new, FIELD_IS_IMMUTABLE);
    }
}

fn owners(position: &Position<'_>, report: &mut Report) {
    let mut controller: Option<String> = None;
    for owner in position.value.as_array().into_iter().flatten() {
        let text = |field: &str| owner.get(field).and_then(Value::as_str).unwrap_or_default();
        let version = text("apiVersion").rsplit('/').next().unwrap_or_default();
        for (field, empty, why) in [
            ("apiVersion", version.is_empty(), "version must not be empty"),
            ("kind", text("kind").is_empty(), "must not be empty"),
            ("name", text("name").is_empty(), "must not be empty"),
            ("uid", text("uid").is_empty(), "must not be empty"),
        ] {
            if empty {
                report.invalid_text(&position.at(field), text(field), why);
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            let value = shown(owner);
            report.invalid_value(position, &value, "/v1, Kind=Event is disallowed from being an owner");
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
                report.invalid(position, &why);
            }
        }
    }
}

fn finalizers(metadata: &Position<'_>, report: &mut Report) {
    let position = metadata.at("finalizers");
    let names: Vec<&str> = metadata.each("finalizers").iter().map(Position::text).collect();
    for name in &names {
        report.invalid_each(&position, name, formats::qualified_name(name));
    }
    if names.contains(&"orphan") && names.contains(&"foregroundDeletion") {
        report.invalid(&position, "finalizer orphan and foregroundDeletion cannot be both set");
    }
}

/// Checks that a finalizer without a domain is a standard one.
pub(super) fn kube_finalizer(position: &Position<'_>, report: &mut Report) {
    let standard = ["kubernetes", "orphan", "foregroundDeletion"];
    if !position.text().contains('/') && !standard.contains(&position.text()) {
        report.invalid(position, "name is neither a standard finalizer name nor is it fully qualified");
    }
}

fn no_new_finalizers(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let texts = |position: &Position<'_>| -> BTreeSet<String> {
        let all = position.value.as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let existing = texts(old);
    let extra: Vec<String> =
        texts(new).iter().filter(|finalizer| !existing.contains(*finalizer)).map(|one| quoted(one)).collect();
    if !extra.is_empty() {
        let why = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
            extra.join(", ")
        );
        report.forbidden(new, &why);
    }
}
