//! Definitions of custom resources: what they say, and how they are accepted.
//!
//! A definition is served as soon as it is stored, so its status says so from the beginning. Schemas are not looked
//! at yet: objects are kept as they come.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::{Field, Resource, Version, priority};
use super::status::{Cause, Status};

/// The finalizer that keeps a definition until its objects are gone.
pub(super) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Fills in the names that may be left out.
pub(super) fn complete(definition: &mut Value) {
    let Some(names) = definition.pointer_mut("/spec/names").and_then(Value::as_object_mut) else { return };
    let Some(kind) = names.get("kind").and_then(Value::as_str).map(str::to_owned) else { return };
    names.entry("listKind").or_insert_with(|| json!(format!("{kind}List")));
    names.entry("singular").or_insert_with(|| json!(kind.to_lowercase()));
}

/// Writes the status of a definition that is served.
pub(super) fn accept(now: Timestamp, definition: &mut Value) {
    complete(definition);
    let time = super::write::time(now);
    let condition = |kind: &str, reason: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": time, "reason": reason, "message": message});
    let stored: Vec<&Value> = versions(definition)
        .filter(|version| version["storage"] == json!(true))
        .map(|version| &version["name"])
        .collect();
    let status = json!({
        "conditions": [
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        ],
        "acceptedNames": definition["spec"]["names"],
        "storedVersions": stored,
    });
    definition["status"] = status;
}

/// Refuses what could not be served.
pub(super) fn check(definition: &Value) -> Result<(), Status> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let name = text("/metadata/name");
    let mut causes = Vec::new();
    for (pointer, field) in [
        ("/spec/group", "spec.group"),
        ("/spec/names/plural", "spec.names.plural"),
        ("/spec/names/kind", "spec.names.kind"),
        ("/spec/scope", "spec.scope"),
    ] {
        if text(pointer).is_empty() {
            causes.push(Cause::new("FieldValueRequired", field, "Required value"));
        }
    }
    if versions(definition).next().is_none() {
        causes.push(Cause::new("FieldValueRequired", "spec.versions", "Required value"));
    }
    if causes.is_empty() && name != format!("{}.{}", text("/spec/names/plural"), text("/spec/group")) {
        let message = format!("Invalid value: \"{name}\": must be spec.names.plural+\".\"+spec.group");
        causes.push(Cause::new("FieldValueInvalid", "metadata.name", message));
    }
    if causes.is_empty() {
        return Ok(());
    }
    Err(Status::invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, causes))
}

/// Refuses to turn a definition into another one: its objects are stored already.
pub(super) fn check_update(old: &Value, new: &Value) -> Result<(), Status> {
    let mut causes = Vec::new();
    for (pointer, field) in [("/spec/group", "spec.group"), ("/spec/scope", "spec.scope")] {
        let (old, new) = (old.pointer(pointer), new.pointer(pointer));
        if let Some(new) = new.filter(|new| Some(*new) != old) {
            let message = format!("Invalid value: {new}: field is immutable");
            causes.push(Cause::new("FieldValueInvalid", field, message));
        }
    }
    if causes.is_empty() {
        return Ok(());
    }
    let name = new.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
    Err(Status::invalid("apiextensions.k8s.io", "CustomResourceDefinition", name, causes))
}

/// The resource that a definition describes; none if it serves no version.
pub(super) fn resource(definition: &Value) -> Option<Resource> {
    let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let mut served: Vec<Version> = versions(definition)
        .filter(|version| version["served"] == json!(true))
        .filter_map(|version| {
            let status = version.pointer("/subresources/status").is_some_and(|status| !status.is_null());
            Some(Version { name: version["name"].as_str()?.to_owned(), status })
        })
        .collect();
    served.sort_by_key(|version| std::cmp::Reverse(priority(&version.name)));
    if served.is_empty() {
        return None;
    }
    let mut fields: Vec<Field> = Vec::new();
    for path in versions(definition).filter_map(|version| version["selectableFields"].as_array()).flatten() {
        let path = path["jsonPath"].as_str().unwrap_or_default().trim_start_matches('.');
        let field = Field::new(path, path, "");
        if !fields.contains(&field) {
            fields.push(field);
        }
    }
    let kind = text("/spec/names/kind")?;
    let short_names = definition.pointer("/spec/names/shortNames").and_then(Value::as_array);
    Some(Resource {
        group: text("/spec/group")?,
        list_kind: text("/spec/names/listKind").unwrap_or_else(|| format!("{kind}List")),
        plural: text("/spec/names/plural")?,
        singular: text("/spec/names/singular").unwrap_or_else(|| kind.to_lowercase()),
        short_names: short_names.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect(),
        kind,
        namespaced: text("/spec/scope")? == "Namespaced",
        custom: true,
        generation: true,
        fields,
        versions: served,
    })
}

fn versions(definition: &Value) -> impl Iterator<Item = &Value> {
    definition.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten()
}
