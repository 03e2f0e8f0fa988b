//! Validation of definitions: names, versions, subresources, columns, conversion.
//!
//! Schemas are checked in [`structure`] (whether a schema is structural), [`defaults`] and [`keywords`] (the
//! keywords of each level). The caller passes a definition with its defaults ([`super::complete`]) and with
//! the status that is stored with it.

mod defaults;
mod keywords;
mod structure;
mod subresources;

use std::cell::Cell;

use serde_json::{Value, json};

use super::field::{child, forbidden, index, invalid, invalid_shown, not_supported, quote, required};
use super::names::{check_names, is_true, name_cause};
use super::source_schema::{Part, SchemaLevel, Spec};
use crate::schema::STRUCTURAL_DEPTH;
use crate::status::StatusCause;
use crate::text::formats::{dns_label_1035, dns_subdomain};

/// The maximum length of all rules of a definition together. kube-apiserver has no such limit.
const MAX_RULES_BYTES: usize = 128 << 10;
/// The length that a shorter rule counts as.
const MIN_RULE_BYTES: usize = 32;

/// Checks a new definition.
pub fn check(definition: &Value) -> Vec<StatusCause> {
    let name = definition.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    let mut causes: Vec<StatusCause> =
        dns_subdomain(name).iter().map(|why| invalid("metadata.name", &json!(name), why)).collect();
    let spec = Spec::read(definition);
    if name != format!("{}.{}", spec.text("/names/plural"), spec.text("/group")) {
        let why = "must be spec.names.plural+\".\"+spec.group";
        causes.push(invalid("metadata.name", &json!(name), why));
    }
    causes.extend(check_spec(&spec));
    causes.extend(check_stored(definition, &spec));
    causes.extend(check_approval(definition, None));
    causes.extend(check_preserving(definition, None));
    causes
}

/// Checks a changed definition: immutable fields must be the same, and stored versions must still exist.
pub fn check_update(old: &Value, new: &Value) -> Vec<StatusCause> {
    let spec = Spec::read(new);
    let mut causes = check_spec(&spec);
    let mut immutable = Vec::new();
    if is_true(old, "Established") {
        immutable.extend(["scope", "names/kind"]);
    }
    immutable.extend(["group", "names/plural"]);
    for name in immutable {
        let pointer = format!("/spec/{name}");
        let (old, new) = (old.pointer(&pointer), new.pointer(&pointer));
        if old != new {
            let path = child("spec", &name.replace('/', "."));
            causes.push(invalid(&path, new.unwrap_or(&json!("")), "field is immutable"));
        }
    }
    causes.extend(check_stored(new, &spec));
    causes.extend(check_approval(new, Some(old)));
    causes.extend(check_preserving(new, Some(old)));
    causes
}

fn check_spec(spec: &Spec<'_>) -> Vec<StatusCause> {
    if has_too_many_rules(spec) {
        let why = format!("rules of all versions together may not be longer than {MAX_RULES_BYTES} bytes");
        return vec![forbidden("spec.versions", &why)];
    }
    let mut causes = check_group_and_scope(spec);
    let preserving = spec.whole.get("preserveUnknownFields").and_then(Value::as_bool).unwrap_or_default();
    if spec.shared.openapi().is_none() {
        for (at, (_, part)) in spec.versions.iter().enumerate() {
            if part.openapi().is_none() {
                causes.push(required(&child(&index("spec.versions", at), "schema.openAPIV3Schema"), ""));
            }
        }
    }
    let has_default = |level: SchemaLevel<'_>| level.present("default").is_some();
    if preserving && spec.schemas().any(|schema| schema.any(STRUCTURAL_DEPTH, &has_default)) {
        let why = "must be false in order to use defaults in the schema";
        causes.push(invalid("spec.preserveUnknownFields", &json!(true), why));
    }
    for (at, (version, part)) in spec.versions.iter().enumerate() {
        let path = index("spec.versions", at);
        let name = version.get("name").and_then(Value::as_str).unwrap_or_default();
        causes.extend(name_cause(&child(&path, "name"), name, "", &dns_label_1035(name)));
        causes.extend(subresources::check_warning(version, &path));
        let has_status = part.has_status() || spec.shared.has_status();
        causes.extend(check_part(part, &path, "schema", has_status));
    }
    causes.extend(check_versions(spec));
    // The internal type of kube-apiserver repeats the first version as `spec.version`.
    if let Some((first, _)) = spec.versions.first() {
        let name = first.get("name").and_then(Value::as_str).unwrap_or_default();
        causes
            .extend(name_cause("spec.version", name, "", &dns_label_1035(name)).filter(|_| !name.is_empty()));
    }
    causes.extend(check_all_names(spec));
    let has_status = spec.shared.has_status() || spec.versions.iter().any(|(_, part)| part.has_status());
    causes.extend(check_part(&spec.shared, "spec", "validation", has_status));
    if preserving && !matches!(spec.text("/conversion/strategy"), "" | "None") {
        let why = "must be None if spec.preserveUnknownFields is true";
        causes.push(invalid("spec.conversion.strategy", &json!(spec.text("/conversion/strategy")), why));
    }
    causes.extend(subresources::check_conversion(&spec.whole["conversion"], "spec.conversion"));
    causes
}

/// Whether the rules exceed [`MAX_RULES_BYTES`].
///
/// The limit exists because rules are parsed while the client waits. Short rules have a cost too, so a rule
/// counts as at least [`MIN_RULE_BYTES`].
fn has_too_many_rules(spec: &Spec<'_>) -> bool {
    let total = Cell::new(0);
    let exceeds_limit = |level: SchemaLevel<'_>| {
        for rule in level.list("x-kubernetes-validations") {
            let texts = ["rule", "messageExpression"].map(|name| rule.get(name).and_then(Value::as_str));
            let length: usize = texts.iter().flatten().map(|text| text.len()).sum();
            total.set(total.get() + length.max(MIN_RULE_BYTES));
        }
        total.get() > MAX_RULES_BYTES
    };
    spec.schemas().any(|schema| schema.any(STRUCTURAL_DEPTH, &exceeds_limit))
}

fn check_group_and_scope(spec: &Spec<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let group = spec.text("/group");
    if group.is_empty() {
        causes.push(required("spec.group", ""));
    } else if let Some(cause) = name_cause("spec.group", group, "", &dns_subdomain(group)) {
        causes.push(cause);
    } else if !group.contains('.') {
        causes.push(invalid("spec.group", &json!(group), "should be a domain with at least one dot"));
    }
    match spec.text("/scope") {
        "" => causes.push(required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        scope => causes.push(not_supported("spec.scope", &json!(scope), &["Cluster", "Namespaced"])),
    }
    causes
}

/// Checks the parts of one version, or those shared by all versions; `schema_field` is the name of the field
/// that contains the schema.
fn check_part(part: &Part<'_>, path: &str, schema_field: &str, has_status: bool) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if let Some(level) = part.openapi() {
        causes.extend(keywords::check(
            level,
            has_status,
            &child(&child(path, schema_field), "openAPIV3Schema"),
        ));
    }
    if let Some(subresources) = part.subresources {
        causes.extend(subresources::check_subresources(subresources, &child(path, "subresources")));
    }
    for (at, column) in part.columns.iter().enumerate() {
        causes
            .extend(subresources::check_column(column, &index(&child(path, "additionalPrinterColumns"), at)));
    }
    if !part.selectable.is_empty() {
        causes.extend(subresources::check_selectable(part, path));
    }
    causes
}

fn check_versions(spec: &Spec<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let mut names: Vec<&Value> = spec.versions.iter().map(|(version, _)| &version["name"]).collect();
    let count = names.len();
    names.sort_by_key(|name| name.as_str());
    names.dedup();
    if names.len() < count {
        let why = "must contain unique version names";
        causes.push(invalid_shown("spec.versions", &spec.show_versions(), why));
    }
    let stored = spec.versions.iter().filter(|(version, _)| version["storage"] == json!(true)).count();
    if stored != 1 {
        let why = "must have exactly one version marked as storage version";
        causes.push(invalid_shown("spec.versions", &spec.show_versions(), why));
    }
    causes
}

fn check_all_names(spec: &Spec<'_>) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    for name in ["plural", "singular", "kind", "listKind"] {
        if spec.text(&format!("/names/{name}")).is_empty() {
            causes.push(required(&child("spec.names", name), ""));
        }
    }
    if let Some(names) = spec.whole.get("names").and_then(Value::as_object) {
        causes.extend(check_names(names, "spec.names"));
    }
    causes
}

/// Checks that the stored versions include the storage version, and that all of them exist.
fn check_stored(definition: &Value, spec: &Spec<'_>) -> Vec<StatusCause> {
    let path = "status.storedVersions";
    let stored = definition.pointer("/status/storedVersions").and_then(Value::as_array);
    let Some(stored) = stored.filter(|stored| !stored.is_empty()) else {
        return vec![invalid(path, &Value::Null, "must have at least one stored version")];
    };
    let mut causes = Vec::new();
    for (version, _) in &spec.versions {
        let name = &version["name"];
        if version["storage"] == json!(true) && !stored.contains(name) {
            let why = format!("must have the storage version {}", name.as_str().unwrap_or_default());
            causes.push(invalid(path, &json!(stored), &why));
        }
    }
    for (at, name) in stored.iter().enumerate() {
        if !spec.versions.iter().any(|(version, _)| version["name"] == *name) {
            let text = name.as_str().unwrap_or_default();
            let why = format!(
                "missing from spec.versions; {text} was previously a storage version, and must remain in spec.versions until \
                 a storage migration ensures no data remains persisted in {text} and removes {text} from \
                 status.storedVersions"
            );
            causes.push(invalid(&index(path, at), name, &why));
        }
    }
    causes
}

const APPROVED: &str = "api-approved.kubernetes.io";

/// Checks the annotation that kube-apiserver requires for groups of the Kubernetes community, unless its
/// state is the same in the old definition.
fn check_approval(definition: &Value, old: Option<&Value>) -> Option<StatusCause> {
    let group = definition.pointer("/spec/group").and_then(Value::as_str).unwrap_or_default();
    let protected = ["k8s.io", "kubernetes.io"]
        .iter()
        .any(|domain| group == *domain || group.ends_with(&format!(".{domain}")));
    let annotation = |definition: &Value| {
        let annotations = definition.pointer("/metadata/annotations");
        let text = annotations.and_then(|annotations| annotations.get(APPROVED)).and_then(Value::as_str);
        text.unwrap_or_default().to_owned()
    };
    let text = annotation(definition);
    let state = approval(&text);
    if !protected || old.is_some_and(|old| approval(&annotation(old)) == state) {
        return None;
    }
    let path = super::field::key("metadata.annotations", APPROVED);
    let (name, see) = (quote(APPROVED), "see https://github.com/kubernetes/enhancements/pull/1111");
    match state {
        Approval::Missing => {
            Some(required(&path, &format!("protected groups must have approval annotation {name}, {see}")))
        }
        Approval::Invalid => {
            let why = format!(
                "protected groups must have approval annotation {name} with either a URL or a reason starting with \
                 \"unapproved\", {see}"
            );
            Some(invalid(&path, &json!(text), &why))
        }
        Approval::Given => None,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Approval {
    Missing,
    Invalid,
    Given,
}

fn approval(text: &str) -> Approval {
    let is_url = text.split_once("://").is_some_and(|(scheme, rest)| !scheme.is_empty() && !rest.is_empty());
    match text {
        "" => Approval::Missing,
        _ if is_url || text.starts_with("unapproved") => Approval::Given,
        _ => Approval::Invalid,
    }
}

/// Checks that `preserveUnknownFields` is not true, unless it is true in the old definition.
fn check_preserving(definition: &Value, old: Option<&Value>) -> Option<StatusCause> {
    let preserves = |definition: &Value| {
        definition.pointer("/spec/preserveUnknownFields").and_then(Value::as_bool).unwrap_or_default()
    };
    if old.is_some_and(preserves) || !preserves(definition) {
        return None;
    }
    let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead";
    Some(invalid("spec.preserveUnknownFields", &json!(true), why))
}

/// Checks a required value that must be one of `accepted`.
fn one_of(path: &str, value: &str, accepted: &[&str]) -> Option<StatusCause> {
    match value {
        "" => Some(required(path, "")),
        value if accepted.contains(&value) => None,
        value => Some(not_supported(path, &json!(value), accepted)),
    }
}

/// Returns the cause for a keyword that is not allowed.
fn forbidden_keyword(path: &str, name: &str, why: &str) -> StatusCause {
    forbidden(&child(path, name), why)
}
