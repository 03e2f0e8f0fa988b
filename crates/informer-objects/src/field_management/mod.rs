//! Who owns which field of an object (`metadata.managedFields`), and server-side apply.
//!
//! Pure: a write gives the object before and after, or before and what is applied, and gets the owners after it. An object
//! comes here decoded and defaulted, but before admission and before the server fills in what is its own: those fields have no
//! owner. Nothing is stored, and nothing is known of HTTP, of paths to resources or of who may write.
//!
//! `set` and `element` are the sets of paths and their JSON, `place` is the schema as owners see it, `validate`, `compare`,
//! `merge` and `fields` walk objects beside it, `entries` reads and writes `managedFields`, `ownership` has the rules,
//! and `scale` and `last_applied` are the two odd ways in.

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
use self::validate::validate;
use crate::schema::Node;
use crate::status::{Status, StatusCause, StatusDetails};

pub use self::scale::{owners_after_scale, owners_of_scale};

/// Values nested deeper than this are not looked into. What was read from JSON is not as deep.
const MAX_DEPTH: usize = 256;

/// The manager whose applies take over from an apply on the client's side.
const KUBECTL: &str = "kubectl";

/// The owner of everything that was there before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, what, and when.
#[derive(Debug, Clone, Copy)]
pub struct Manager<'a> {
    /// The `fieldManager` of the request, or what its user agent says; empty becomes `unknown`.
    pub name: &'a str,
    /// `status`; empty for the object itself.
    pub subresource: &'a str,
    /// The version through which the object is written, `apps/v1`.
    pub api_version: &'a str,
    /// The kind that is written, `Deployment`.
    pub kind: &'a str,
    /// `2024-01-01T00:00:00Z`.
    pub time: &'a str,
    /// Dotted paths of fields that cannot be written here, and so are not owned by writing them: `status` for the object
    /// itself, `spec` for its status.
    pub reset: &'a [&'a str],
}

/// Why nothing was applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// Others own what would change. Never empty.
    Conflicts(Vec<Conflict>),
    /// The request makes no sense: 400.
    BadRequest(String),
    /// Something does not fit the schema: 500 without a reason, as the real server has it.
    Internal(String),
}

/// A field that would change although another manager owns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// `"recorder" using v1`.
    manager: String,
    /// `.data.k`.
    field: String,
}

/// After a create (`old` is `None`), an update or a patch: writes the owners into `new`.
///
/// `new` has as `managedFields` what the request gave. Entries there replace the owners that `old` had, an empty list or `[{}]`
/// forgets them all, anything else is ignored. An object that has no owners stays without them until something is applied to
/// it. An object that does not fit its schema loses its owners, as on a real server; nothing fails.
pub fn updated(node: Node<'_>, old: Option<&Value>, new: &mut Value, manager: &Manager<'_>) {
    let place = SchemaPosition::root(node);
    let given = take_managed_fields(new);
    let had = old.and_then(managed_fields);
    let mut owners = if manager.subresource.is_empty() {
        given_or_had(given.as_ref(), had)
    } else {
        Owners::read(had).unwrap_or_default()
    };
    let old = match old {
        Some(_) if owners.0.is_empty() => return,
        Some(old) => without_managed_fields(old),
        None => without_managed_fields(&place.blank(new)),
    };
    let fits = |value: &Value| shallow(value, MAX_DEPTH) && validate(place, value, true).is_ok();
    if fits(&old) && fits(new) {
        let reset = ownership::paths(manager.reset);
        ownership::update(ApplyContext { position: place, manager, reset: &reset }, &old, new, &mut owners);
        put_managed_fields(new, owners.write());
    }
}

/// Server-side apply of `config` to `live` (`None` creates): the object to store, with its owners and not yet defaulted. Where
/// nothing was left of an object or a list there may be a `null`.
pub fn applied(
    node: Node<'_>,
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let place = SchemaPosition::root(node);
    let owners = Owners::read(live.and_then(managed_fields))
        .map_err(|why| ApplyError::Internal(format!("failed to decode managed fields: {why}")))?;
    check_type(config, manager)?;
    if managed_fields(config).is_some_and(Value::is_array) {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let problem = |what: &str, object: &Value, why: String| {
        ApplyError::Internal(format!("failed to create typed {what} object ({}): {why}", described(object)))
    };
    let fits = |value: &Value, twice: bool| {
        if !shallow(value, MAX_DEPTH) {
            return Err("exceeded max depth".to_owned());
        }
        validate(place, value, twice).map_err(|why| why.to_string())
    };
    fits(config, false).map_err(|why| problem("patch", config, why))?;
    let empty = Value::Object(Map::new());
    let before = without_managed_fields(live.unwrap_or(&empty));
    fits(&before, true).map_err(|why| problem("live", &before, why))?;

    let reset = ownership::paths(manager.reset);
    let door = ApplyContext { position: place, manager, reset: &reset };
    let (mut object, owners) = apply(door, live.is_some(), &before, config, owners, force)?;
    if manager.name == KUBECTL {
        last_applied::renew(&mut object, config);
    }
    take_managed_fields(&mut object);
    put_managed_fields(&mut object, owners.write());
    Ok(object)
}

/// Gives the times of the owners in `old` to `new` if nothing else differs between the two: then nothing is to be stored.
pub fn keep_times(old: &Value, new: &mut Value) {
    let metadata = |old: &Value, new: &Value| same_but(old, new, "managedFields", same_but_times);
    if same_but(old, new, "metadata", metadata) {
        new.clone_from(old);
    }
}

/// The text of a `fieldsV1`, with its members in the order in which the real server writes them for built-in kinds. Sorting
/// names as text differs where numbers are keys.
pub(crate) fn fields_text(fields: &Value) -> String {
    set::Set::parse(fields).map_or_else(|_| fields.to_string(), |set| set.to_text())
}

impl ApplyError {
    /// The refusal as an answer.
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

/// Applies; what is there without an owner first gets one, and kubectl may take what it applied itself before there were owners.
fn apply(
    door: ApplyContext<'_>,
    exists: bool,
    live: &Value,
    config: &Value,
    mut owners: Owners,
    force: bool,
) -> Result<(Value, Owners), ApplyError> {
    if exists && owners.0.is_empty() {
        let first = Manager { name: BEFORE_FIRST_APPLY, ..*door.manager };
        owners = ownership::everything(ApplyContext { manager: &first, ..door }, live);
    }
    let mut after = owners.clone();
    let conflicts = match ownership::apply(door, live, config, &mut after, force) {
        Ok(object) => return Ok((object, after)),
        Err(conflicts) => conflicts,
    };
    let conflicts: Vec<_> = match last_applied::set(door, live).filter(|_| door.manager.name == KUBECTL) {
        Some(allowed) => conflicts.into_iter().filter(|(_, path)| !allowed.has(path)).collect(),
        None => conflicts,
    };
    if !conflicts.is_empty() {
        let conflicts = conflicts.into_iter().map(|(manager, path)| Conflict::new(manager, &path));
        return Err(ApplyError::Conflicts(conflicts.collect()));
    }
    match ownership::apply(door, live, config, &mut owners, true) {
        Ok(object) => Ok((object, owners)),
        Err(_) => Err(ApplyError::Internal("an apply with force has no conflicts".to_owned())),
    }
}

/// What an apply is applied to must be what the path says.
fn check_type(config: &Value, manager: &Manager<'_>) -> Result<(), ApplyError> {
    let text = |name: &str| config.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if version == manager.api_version && kind == manager.kind {
        return Ok(());
    }
    Err(ApplyError::BadRequest(format!("invalid object type: {}", described_type(version, kind))))
}

/// `NAMESPACE/NAME; apps/v1, Kind=Deployment`.
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

/// The owners that a request sets, or else those that were there.
fn given_or_had(given: Option<&Value>, had: Option<&Value>) -> Owners {
    if is_reset(given) {
        return Owners::default();
    }
    match Owners::read(given) {
        Ok(owners) if !owners.0.is_empty() => owners,
        _ => Owners::read(had).unwrap_or_default(),
    }
}

/// Whether an object says who owns its fields.
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

/// A copy without owners, who are often longer than the object.
fn without_managed_fields(object: &Value) -> Value {
    let copy = |fields: &Map<String, Value>, but: &str, instead: Option<Value>| -> Map<String, Value> {
        let instead = instead.map(|value| (but.to_owned(), value));
        let others = fields.iter().filter(|(name, _)| *name != but);
        others.map(|(name, value)| (name.clone(), value.clone())).chain(instead).collect()
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

/// Whether two objects have the same fields, of which one is compared in its own way.
fn same_but(old: &Value, new: &Value, name: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(olds), Some(news)) = (old.as_object(), new.as_object()) else { return old == new };
    olds.len() == news.len()
        && olds.iter().zip(news).all(|((old_name, old), (new_name, new))| {
            old_name == new_name && if old_name == name { same(old, new) } else { old == new }
        })
}

/// Whether two lists of owners differ in nothing but when.
fn same_but_times(old: &Value, new: &Value) -> bool {
    let (Some(olds), Some(news)) = (old.as_array(), new.as_array()) else { return old == new };
    let timeless = |entry: &'_ Value| {
        entry.as_object().map(|fields| fields.len() - usize::from(fields.contains_key("time")))
    };
    let same = |(old, new): (&Value, &Value)| match (old.as_object(), new.as_object()) {
        (Some(fields), Some(others)) => {
            timeless(old) == timeless(new)
                && fields.iter().all(|(name, value)| name == "time" || others.get(name) == Some(value))
        }
        _ => old == new,
    };
    olds.len() == news.len() && olds.iter().zip(news).all(same)
}

/// Whether no value is nested deeper than this.
fn shallow(value: &Value, deepest: usize) -> bool {
    let Some(left) = deepest.checked_sub(1) else { return false };
    match value {
        Value::Array(entries) => entries.iter().all(|entry| shallow(entry, left)),
        Value::Object(fields) => fields.values().all(|value| shallow(value, left)),
        _ => true,
    }
}
