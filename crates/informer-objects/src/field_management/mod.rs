//! Field management (`metadata.managedFields`) and server-side apply.
//!
//! The owners of an object are the managers in its `managedFields`, each with the set of fields that it owns.
//!
//! Pure functions. The input of an update is the object before and after it; the input of an apply is the
//! live object and the applied configuration. The output contains the owners after the write. Objects are
//! decoded and defaulted, but the server and its admission have not set fields yet: fields that they set have
//! no owner. Nothing here knows HTTP, paths of resources or permissions.
//!
//! `set` and `element` are the sets of paths and their JSON; `schema_position` is the schema as field
//! management sees it; `validate`, `compare`, `merge` and `fields` walk objects along their schema; `entries`
//! reads and writes `managedFields`; `ownership` contains the rules; `scale` and `last_applied` are the two
//! special cases.

mod compare;
mod element;
mod entries;
mod fields;
mod last_applied;
mod merge;
mod ownership;
mod scale;
mod schema_position;
mod set;
mod validate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use self::element::{Element, path_text};
use self::entries::{Owners, is_reset};
use self::ownership::ApplyContext;
use self::schema_position::SchemaPosition;
use self::validate::{DuplicateEntries, validate};
use crate::schema::Node;
use crate::status::{Status, StatusCause, StatusDetails};

pub use self::scale::{owners_after_scale, owners_of_scale};

/// The maximum depth to which values are examined; values decoded from JSON are less deep.
const MAX_DEPTH: usize = 256;

/// The manager whose applies take over from client-side apply.
const KUBECTL: &str = "kubectl";

/// The owner of all fields that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The manager of a write, with the properties of the write.
#[derive(Debug, Clone, Copy)]
pub struct Manager<'a> {
    /// The `fieldManager` of the request, or derived from its user agent; empty becomes `unknown`.
    pub name: &'a str,
    /// The subresource, for example `status`; empty for the object itself.
    pub subresource: &'a str,
    /// The version through which the object is written, for example `apps/v1`.
    pub api_version: &'a str,
    /// The kind that is written, for example `Deployment`.
    pub kind: &'a str,
    /// The time of the write, for example `2024-01-01T00:00:00Z`.
    pub time: &'a str,
    /// Dotted paths of fields that this write cannot change and that the manager therefore does not own:
    /// `status` in a write of the object itself, `spec` in a write of its status.
    pub reset: &'a [&'a str],
}

/// The error of an apply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// Other managers own fields that would change. Never empty.
    Conflicts(Vec<Conflict>),
    /// The request is invalid: 400.
    BadRequest(String),
    /// A value does not match the schema: 500 without a reason, as in kube-apiserver.
    Internal(String),
}

/// A field that would change although another manager owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The description of the manager, `"recorder" using v1`.
    manager: String,
    /// The path of the field, `.data.k`.
    field: String,
}

/// Writes the owners into `new` after a create (`old` is `None`), an update or a patch.
///
/// `new` contains the `managedFields` of the request. In a write of the object itself, valid entries replace
/// the owners of `old`, and an empty list or `[{}]` removes them; other values are ignored. In a write of a
/// subresource, all values are ignored. An existing object without owners gets none until something is
/// applied to it. An object that does not match its schema loses its owners, as in kube-apiserver; nothing
/// fails.
pub fn updated(node: Node<'_>, old: Option<&Value>, new: &mut Value, manager: &Manager<'_>) {
    let position = SchemaPosition::root(node);
    let requested = take_managed_fields(new);
    let previous = old.and_then(managed_fields);
    let mut owners = if manager.subresource.is_empty() {
        requested_or_previous(requested.as_ref(), previous)
    } else {
        Owners::read(previous).unwrap_or_default()
    };
    let old = match old {
        Some(_) if owners.0.is_empty() => return,
        Some(old) => without_managed_fields(old),
        // A create is treated as an update of a blank object.
        None => without_managed_fields(&position.blank(new)),
    };
    let is_valid = |value: &Value| {
        is_shallow(value, MAX_DEPTH) && validate(position, value, DuplicateEntries::Allow).is_ok()
    };
    if is_valid(&old) && is_valid(new) {
        let reset = ownership::paths(manager.reset);
        ownership::update(ApplyContext { position, manager, reset: &reset }, &old, new, &mut owners);
        put_managed_fields(new, owners.write());
    }
}

/// Returns the object after a server-side apply of `config` to `live`, with its owners. If `live` is `None`,
/// the apply creates the object.
///
/// The result is not defaulted yet. An object or a list in it of which nothing remains may be `null`.
pub fn applied(
    node: Node<'_>,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let position = SchemaPosition::root(node);
    let owners = Owners::read(live.and_then(managed_fields))
        .map_err(|why| ApplyError::Internal(format!("failed to decode managed fields: {why}")))?;
    check_type(config, manager)?;
    if managed_fields(config).is_some_and(Value::is_array) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let typed_error = |what: &str, object: &Value, why: String| {
        ApplyError::Internal(format!("failed to create typed {what} object ({}): {why}", described(object)))
    };
    let check = |value: &Value, duplicates: DuplicateEntries| {
        if !is_shallow(value, MAX_DEPTH) {
            return Err("exceeded max depth".to_owned());
        }
        validate(position, value, duplicates).map_err(|why| why.to_string())
    };
    check(config, DuplicateEntries::Reject).map_err(|why| typed_error("patch", config, why))?;
    let empty = Value::Object(Map::new());
    let before = without_managed_fields(live.unwrap_or(&empty));
    check(&before, DuplicateEntries::Allow).map_err(|why| typed_error("live", &before, why))?;

    let reset = ownership::paths(manager.reset);
    let context = ApplyContext { position, manager, reset: &reset };
    let (mut object, owners) = apply(context, live.is_some(), &before, config, owners, force)?;
    if manager.name == KUBECTL {
        last_applied::renew(&mut object, config);
    }
    take_managed_fields(&mut object);
    put_managed_fields(&mut object, owners.write());
    Ok(object)
}

/// Makes `new` equal to `old` if they differ only in the times of owners, so that nothing needs to be stored.
pub fn keep_times(old: &Value, new: &mut Value) {
    let metadata = |old: &Value, new: &Value| equal_except(old, new, "managedFields", equal_except_times);
    if equal_except(old, new, "metadata", metadata) {
        new.clone_from(old);
    }
}

/// Returns the text of a `fieldsV1` with its members in the order of kube-apiserver for built-in kinds.
///
/// This order differs from the order of the names as text if keys are numbers.
pub(crate) fn fields_text(fields: &Value) -> String {
    set::Set::parse(fields).map_or_else(|_| fields.to_string(), |set| set.to_text())
}

impl ApplyError {
    /// Returns the error as a status.
    pub fn to_status(&self) -> Status {
        match self {
            ApplyError::Conflicts(conflicts) => conflict_status(conflicts),
            ApplyError::BadRequest(message) => Status::bad_request(message),
            ApplyError::Internal(message) => Status::internal(message),
        }
    }
}

impl Conflict {
    fn new(manager: String, path: &[Element]) -> Self {
        Conflict { manager, field: path_text(path) }
    }
}

/// Applies a configuration.
///
/// If the object exists and has no owners, `before-first-apply` first becomes the owner of its fields. The
/// manager `kubectl` has no conflict about fields of its client-side apply: it takes them over.
fn apply(
    context: ApplyContext<'_>,
    exists: bool,
    live: &Value,
    config: &Value,
    mut owners: Owners,
    force: bool,
) -> Result<(Value, Owners), ApplyError> {
    if exists && owners.0.is_empty() {
        let earlier = Manager { name: BEFORE_FIRST_APPLY, ..*context.manager };
        owners = ownership::everything(ApplyContext { manager: &earlier, ..context }, live);
    }
    let mut after = owners.clone();
    let conflicts = match ownership::apply(context, live, config, &mut after, force) {
        Ok(object) => return Ok((object, after)),
        Err(conflicts) => conflicts,
    };
    let client_side_applied = last_applied::unchanged_fields(context, live);
    let conflicts: Vec<_> = match client_side_applied.filter(|_| context.manager.name == KUBECTL) {
        Some(allowed) => conflicts.into_iter().filter(|(_, path)| !allowed.has(path)).collect(),
        None => conflicts,
    };
    if !conflicts.is_empty() {
        let conflicts = conflicts.into_iter().map(|(manager, path)| Conflict::new(manager, &path));
        return Err(ApplyError::Conflicts(conflicts.collect()));
    }
    // All conflicts were about fields that kubectl takes over.
    let force = true;
    match ownership::apply(context, live, config, &mut owners, force) {
        Ok(object) => Ok((object, owners)),
        Err(_) => Err(ApplyError::Internal("an apply with force has no conflicts".to_owned())),
    }
}

/// Checks that the type of the configuration is that of the path.
fn check_type(config: &Value, manager: &Manager<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version == manager.api_version && kind == manager.kind {
        return Ok(());
    }
    Err(ApplyError::BadRequest(format!("invalid object type: {}", described_type(version, kind))))
}

/// Returns `NAMESPACE/NAME; apps/v1, Kind=Deployment`.
fn described(object: &Value) -> String {
    let text = |value: Option<&Value>, name: &str| {
        value.and_then(|value| value.get(name)).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let metadata = object.get("metadata");
    let (version, kind) = (text(Some(object), "apiVersion"), text(Some(object), "kind"));
    let (namespace, name) = (text(metadata, "namespace"), text(metadata, "name"));
    format!("{namespace}/{name}; {}", described_type(&version, &kind))
}

fn described_type(version: &str, kind: &str) -> String {
    let slash = if version.contains('/') { "" } else { "/" };
    format!("{slash}{version}, Kind={kind}")
}

fn conflict_status(conflicts: &[Conflict]) -> Status {
    let cause = |conflict: &Conflict| {
        let message = format!("conflict with {}", conflict.manager);
        StatusCause::new("FieldManagerConflict", &conflict.field, message)
    };
    let details = StatusDetails { causes: conflicts.iter().map(cause).collect(), ..StatusDetails::default() };
    Status { details: Some(Box::new(details)), ..Status::new(409, "Conflict", conflict_message(conflicts)) }
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", one.manager, one.field);
    }
    let mut by_manager: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        by_manager.entry(&conflict.manager).or_default().push(&conflict.field);
    }
    let mut lines = Vec::new();
    for (manager, fields) in by_manager {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(fields.into_iter().map(|field| format!("- {field}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// Returns the owners in a request; none if the request resets them; the previous owners if the request has
/// no valid ones.
fn requested_or_previous(requested: Option<&Value>, previous: Option<&Value>) -> Owners {
    if is_reset(requested) {
        return Owners::default();
    }
    match Owners::read(requested) {
        Ok(owners) if !owners.0.is_empty() => owners,
        _ => Owners::read(previous).unwrap_or_default(),
    }
}

/// Returns whether an object has owners.
pub fn has_owners(object: &Value) -> bool {
    managed_fields(object).is_some()
}

fn managed_fields(object: &Value) -> Option<&Value> {
    object.get("metadata")?.get("managedFields")
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn put_managed_fields(object: &mut Value, entries: Option<Value>) {
    let Some(object) = object.as_object_mut() else { return };
    let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    if let (Some(metadata), Some(entries)) = (metadata.as_object_mut(), entries) {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

/// Returns a copy without owners. They are often larger than the rest of the object, so they are not copied
/// first.
fn without_managed_fields(object: &Value) -> Value {
    let copy =
        |fields: &Map<String, Value>, except: &str, replacement: Option<Value>| -> Map<String, Value> {
            let replacement = replacement.map(|value| (except.to_owned(), value));
            let others = fields.iter().filter(|(name, _)| *name != except);
            others.map(|(name, value)| (name.clone(), value.clone())).chain(replacement).collect()
        };
    let (Some(fields), Some(metadata)) = (object.as_object(), object.get("metadata")) else {
        return object.clone();
    };
    let metadata = match metadata.as_object() {
        Some(metadata) => Value::Object(copy(metadata, "managedFields", None)),
        None => metadata.clone(),
    };
    Value::Object(copy(fields, "metadata", Some(metadata)))
}

/// Whether two objects are equal, comparing one field with a given function.
fn equal_except(old: &Value, new: &Value, name: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(olds), Some(news)) = (old.as_object(), new.as_object()) else { return old == new };
    olds.len() == news.len()
        && olds.iter().zip(news).all(|((old_name, old), (new_name, new))| {
            old_name == new_name && if old_name == name { same(old, new) } else { old == new }
        })
}

/// Whether two lists of owners are equal except for their times.
fn equal_except_times(old: &Value, new: &Value) -> bool {
    let (Some(olds), Some(news)) = (old.as_array(), new.as_array()) else { return old == new };
    let fields_without_time = |entry: &'_ Value| {
        entry.as_object().map(|fields| fields.len() - usize::from(fields.contains_key("time")))
    };
    let same = |(old, new): (&Value, &Value)| match (old.as_object(), new.as_object()) {
        (Some(fields), Some(others)) => {
            fields_without_time(old) == fields_without_time(new)
                && fields.iter().all(|(name, value)| name == "time" || others.get(name) == Some(value))
        }
        _ => old == new,
    };
    olds.len() == news.len() && olds.iter().zip(news).all(same)
}

/// Whether no value is nested deeper than `max_depth`.
fn is_shallow(value: &Value, max_depth: usize) -> bool {
    let Some(remaining) = max_depth.checked_sub(1) else { return false };
    match value {
        Value::Array(entries) => entries.iter().all(|entry| is_shallow(entry, remaining)),
        Value::Object(fields) => fields.values().all(|value| is_shallow(value, remaining)),
        _ => true,
    }
}
