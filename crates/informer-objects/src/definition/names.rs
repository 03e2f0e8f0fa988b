//! Names of definitions: their format, their defaults, conflicts between definitions, and the conditions that
//! result.
//!
//! A name conflicts if it is accepted for another definition of the group. Without conflicts, the condition
//! `NamesAccepted` becomes true, then `Established`; the server serves an established definition. The caller
//! knows which definitions exist.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::field::{child, index, invalid, quote};
use crate::status::StatusCause;
use crate::text::{formats::dns_label_1035, times};

/// Sets the defaults of a definition: names, the conversion `None`, `served` and `storage` of each version,
/// and the port of a conversion webhook.
pub fn complete(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    if let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) {
        let kind = text(names, "kind").to_owned();
        if text(names, "singular").is_empty() {
            names.insert("singular".to_owned(), json!(kind.to_lowercase()));
        }
        if text(names, "listKind").is_empty() && !kind.is_empty() {
            names.insert("listKind".to_owned(), json!(format!("{kind}List")));
        }
    }
    if spec.get("conversion").is_none_or(Value::is_null) {
        spec.insert("conversion".to_owned(), json!({"strategy": "None"}));
    }
    for version in spec.get_mut("versions").and_then(Value::as_array_mut).into_iter().flatten() {
        for flag in ["served", "storage"] {
            if let Some(version) = version.as_object_mut() {
                version.entry(flag).or_insert(json!(false));
            }
        }
    }
    let webhook = spec.get_mut("conversion").and_then(|conversion| conversion.get_mut("webhook"));
    let service = webhook.and_then(|webhook| webhook.pointer_mut("/clientConfig/service"));
    if let Some(service) = service.and_then(Value::as_object_mut) {
        service.entry("port").or_insert(json!(443));
    }
}

/// Returns the status of a new definition: no accepted names, and the storage version as the only stored
/// version.
pub fn new_status(definition: &Value) -> Value {
    json!({
        "conditions": null,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": storage_version(definition).map(|name| vec![name]),
    })
}

/// Adds the storage version of a changed definition to the stored versions.
pub fn note_storage_version(definition: &mut Value) {
    let Some(name) = storage_version(definition) else { return };
    let Some(status) = definition.get_mut("status").and_then(Value::as_object_mut) else { return };
    let stored = status.entry("storedVersions").or_insert(json!([]));
    if let Some(stored) = stored.as_array_mut()
        && !stored.contains(&name)
    {
        stored.push(name);
    }
}

/// The names that are accepted for the definitions of a group.
#[derive(Debug, Default)]
pub struct Taken {
    resources: Vec<String>,
    kinds: Vec<String>,
}

impl Taken {
    /// Collects the accepted names of a group.
    ///
    /// `definitions` may include the definition whose names are to be accepted: names that are already
    /// accepted for it do not conflict.
    pub fn in_group<'a>(group: &str, definitions: impl IntoIterator<Item = &'a Value>) -> Taken {
        let mut taken = Taken::default();
        for definition in definitions {
            let of_group = definition.pointer("/spec/group").and_then(Value::as_str) == Some(group);
            let names = definition.pointer("/status/acceptedNames").and_then(Value::as_object);
            if let Some(names) = names.filter(|_| of_group) {
                taken
                    .resources
                    .extend([text(names, "plural").to_owned(), text(names, "singular").to_owned()]);
                taken.resources.extend(list(names, "shortNames").map(str::to_owned));
                taken.kinds.extend([text(names, "kind").to_owned(), text(names, "listKind").to_owned()]);
            }
        }
        taken
    }
}

/// Accepts or rejects the names of a definition in its status; returns whether the status changed.
///
/// This is the first of two status changes after a definition is stored. Even if all names are accepted, the
/// condition `Established` of a new definition is false (`Installing`) until [`establish`] makes the second
/// change.
pub fn accept_names(definition: &mut Value, taken: &Taken, now: Timestamp) -> bool {
    let wanted = definition.pointer("/spec/names").and_then(Value::as_object).cloned().unwrap_or_default();
    let accepted_names =
        definition.pointer("/status/acceptedNames").and_then(Value::as_object).cloned().unwrap_or_default();
    if wanted == accepted_names {
        return false;
    }
    let (names, conflict) = decide(&wanted, accepted_names.clone(), taken);
    let (status, reason, message) = match conflict {
        None => ("True", "NoConflicts", "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", reason, message),
    };
    let is_accepted = status == "True";
    let same = |condition: &Value| {
        condition["status"] == status && condition["reason"] == reason && condition["message"] == message
    };
    if names == accepted_names && find_condition(definition, "NamesAccepted").is_some_and(same) {
        return false;
    }
    let established = find_condition(definition, "Established").cloned();
    definition["status"]["acceptedNames"] = Value::Object(names);
    set_condition(definition, now, "NamesAccepted", status, reason, &message);
    if established.as_ref().is_none_or(|old| old["status"] != "True") {
        if is_accepted {
            let message = "the initial names have been accepted";
            set_condition(definition, now, "Established", "False", "Installing", message);
        } else if established.is_none() {
            let message = "not all names are accepted";
            set_condition(definition, now, "Established", "False", "NotAccepted", message);
        }
    }
    true
}

/// Marks a definition as established if its names are accepted; returns whether the status changed.
pub fn establish(definition: &mut Value, now: Timestamp) -> bool {
    if !is_true(definition, "NamesAccepted") || is_true(definition, "Established") {
        return false;
    }
    let message = "the initial names have been accepted";
    set_condition(definition, now, "Established", "True", "InitialNamesAccepted", message);
    true
}

/// Sets a condition; its transition time changes only with its status.
pub fn set_condition(
    definition: &mut Value,
    now: Timestamp,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) {
    let mut time = json!(times::written(now));
    if let Some(old) = find_condition(definition, kind).filter(|old| old["status"] == status) {
        time = old["lastTransitionTime"].clone();
    }
    let new = json!({
        "type": kind, "status": status, "lastTransitionTime": time, "reason": reason, "message": message,
    });
    let Some(status) = definition.get_mut("status").and_then(Value::as_object_mut) else { return };
    let conditions = status.entry("conditions").or_insert(json!([]));
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else { return };
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// Returns whether a condition of a definition is true.
pub fn is_true(definition: &Value, kind: &str) -> bool {
    find_condition(definition, kind).is_some_and(|condition| condition["status"] == "True")
}

fn find_condition<'a>(definition: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = definition.pointer("/status/conditions").and_then(Value::as_array)?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// Adds the names without a conflict to the names accepted so far, `names`; also returns the reason and the
/// message of the last conflict.
fn decide(
    wanted: &Map<String, Value>,
    mut names: Map<String, Value>,
    taken: &Taken,
) -> (Map<String, Value>, Option<(&'static str, String)>) {
    let mut conflict = None;
    let mut accept = |field: &str, used: &[String], reason, names: &mut Map<String, Value>| {
        let name = text(wanted, field);
        if name != text(names, field) && used.iter().any(|used| used == name) {
            conflict = Some((reason, in_use(name)));
        } else if let Some(name) = wanted.get(field) {
            names.insert(field.to_owned(), name.clone());
        }
    };
    accept("plural", &taken.resources, "PluralConflict", &mut names);
    accept("singular", &taken.resources, "SingularConflict", &mut names);
    let previous: Vec<String> = list(&names, "shortNames").map(str::to_owned).collect();
    let mut conflicts: Vec<String> = list(wanted, "shortNames")
        .filter(|name| {
            !previous.iter().any(|previous| previous == name)
                && taken.resources.iter().any(|used| used == name)
        })
        .map(in_use)
        .collect();
    let short = match conflicts.len() {
        0 => {
            replace(&mut names, wanted, "shortNames");
            None
        }
        1 => conflicts.pop(),
        _ => Some(format!("[{}]", conflicts.join(", "))),
    };
    accept("kind", &taken.kinds, "KindConflict", &mut names);
    accept("listKind", &taken.kinds, "ListKindConflict", &mut names);
    replace(&mut names, wanted, "categories");
    // kube-apiserver reports the last conflict: short names come after plural and singular, and before kind.
    let conflict = match (conflict, short) {
        (Some((reason @ ("KindConflict" | "ListKindConflict"), message)), _) => Some((reason, message)),
        (_, Some(message)) => Some(("ShortNamesConflict", message)),
        (conflict, None) => conflict,
    };
    (names, conflict)
}

fn in_use(name: &str) -> String {
    format!("{} is already in use", quote(name))
}

/// Makes a field of the accepted names equal to the wanted one, also if it is absent.
fn replace(names: &mut Map<String, Value>, wanted: &Map<String, Value>, field: &str) {
    match wanted.get(field) {
        Some(value) => names.insert(field.to_owned(), value.clone()),
        None => names.remove(field),
    };
}

fn storage_version(definition: &Value) -> Option<Value> {
    let versions = definition.pointer("/spec/versions").and_then(Value::as_array)?;
    versions.iter().find(|version| version["storage"] == json!(true)).map(|version| version["name"].clone())
}

/// Returns the causes for malformed names of a definition.
pub(super) fn check_names(names: &Map<String, Value>, path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    for field in ["plural", "singular"] {
        let name = text(names, field);
        if !name.is_empty() {
            causes.extend(name_cause(&child(path, field), name, "", &dns_label_1035(name)));
        }
    }
    for field in ["kind", "listKind"] {
        let name = text(names, field);
        if !name.is_empty() {
            let mixed = "may have mixed case, but should otherwise match: ";
            causes.extend(name_cause(
                &child(path, field),
                name,
                mixed,
                &dns_label_1035(&name.to_lowercase()),
            ));
        }
    }
    for (at, name) in list(names, "shortNames").enumerate() {
        causes.extend(name_cause(&index(&child(path, "shortNames"), at), name, "", &dns_label_1035(name)));
    }
    let (kind, list_kind) = (text(names, "kind"), text(names, "listKind"));
    if !kind.is_empty() && kind == list_kind {
        let why = "kind and listKind may not be the same";
        causes.push(invalid(&child(path, "listKind"), &json!(list_kind), why));
    }
    for (at, name) in list(names, "categories").enumerate() {
        causes.extend(name_cause(&index(&child(path, "categories"), at), name, "", &dns_label_1035(name)));
    }
    causes
}

/// Returns one cause for all errors of a name.
pub(super) fn name_cause(path: &str, name: &str, prefix: &str, messages: &[String]) -> Option<StatusCause> {
    (!messages.is_empty()).then(|| invalid(path, &json!(name), &format!("{prefix}{}", messages.join(","))))
}

fn text<'a>(names: &'a Map<String, Value>, field: &str) -> &'a str {
    names.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(names: &'a Map<String, Value>, field: &str) -> impl Iterator<Item = &'a str> {
    names.get(field).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
