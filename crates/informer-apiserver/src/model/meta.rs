//! The metadata of objects: what a body may contain, and what the server owns.
//!
//! Pure functions of one object's metadata and, for preconditions, its stored state. Writers are not known
//! here.

use informer_objects::status::{Status, StatusCause};
use informer_objects::text::times;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::json_edit::is_empty;
use super::resource::Resource;
use super::state::{self, State};

/// Returns the metadata of an object, created if it is missing. Fields of the wrong type are an error.
pub(super) fn metadata<'a>(
    resource: &Resource,
    object: &'a mut Value,
) -> Result<&'a mut Map<String, Value>, Status> {
    let kind = &resource.kind;
    let version = resource.versions.first().map_or("", |version| version.name.as_str());
    let unreadable = |go_target: &str| {
        let handled = format!("{kind} in version \"{version}\" cannot be handled as a {kind}");
        Status::bad_request(format!("{handled}: json: cannot unmarshal into Go {go_target}"))
    };
    let fields = object.as_object_mut().ok_or_else(|| unreadable(&format!("value of type {kind}")))?;
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    let metadata = metadata
        .as_object_mut()
        .ok_or_else(|| unreadable(&format!("struct field {kind}.metadata of type v1.ObjectMeta")))?;
    let malformed = metadata.iter().find(|(field, value)| !is_well_formed(field, value));
    if let Some((field, _)) = malformed {
        return Err(unreadable(&format!("struct field ObjectMeta.metadata.{field}")));
    }
    Ok(metadata)
}

/// Returns whether a metadata field has the type that this module relies on.
fn is_well_formed(field: &str, value: &Value) -> bool {
    match field {
        _ if value.is_null() => true,
        "labels" | "annotations" => {
            value.as_object().is_some_and(|fields| fields.values().all(Value::is_string))
        }
        "finalizers" => value.as_array().is_some_and(|items| items.iter().all(Value::is_string)),
        "ownerReferences" | "managedFields" => value.is_array(),
        "generation" | "deletionGracePeriodSeconds" => value.is_number(),
        "name" | "generateName" | "namespace" | "uid" | "resourceVersion" | "creationTimestamp"
        | "deletionTimestamp" | "selfLink" => value.is_string(),
        _ => true,
    }
}

/// Returns the number of a resource version in a body; 0, which stands for none, if it is not a number.
pub(super) fn version_number(text: &str) -> u64 {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_decimal).unwrap_or(0)
}

/// The error for a body with another namespace than the path.
pub(crate) const NAMESPACES_DIFFER: &str =
    "the namespace of the provided object does not match the namespace sent on the request";

/// Rejects another namespace than that of the request. Removes the namespace of a cluster-scoped object.
pub(super) fn check_namespace(
    resource: &Resource,
    namespace: &str,
    metadata: &mut Map<String, Value>,
) -> Result<(), Status> {
    let given = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
    if !resource.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    if !given.is_empty() && given != namespace {
        return Err(Status::bad_request(NAMESPACES_DIFFER));
    }
    Ok(())
}

/// Removes duplicate owner references; returns a warning if there were any.
pub(super) fn dedup_owners(metadata: &mut Map<String, Value>) -> Option<String> {
    let owners = metadata.get_mut("ownerReferences")?.as_array_mut()?;
    let mut unique: Vec<Value> = Vec::new();
    let mut duplicates: Vec<String> = Vec::new();
    for owner in std::mem::take(owners) {
        let uid = owner.get("uid").and_then(Value::as_str).unwrap_or_default().to_owned();
        if !unique.contains(&owner) {
            unique.push(owner);
        } else if !duplicates.contains(&uid) {
            duplicates.push(uid);
        }
    }
    *owners = unique;
    (!duplicates.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and may \
             reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
            duplicates.join(", ")
        )
    })
}

/// Sets the metadata that the server owns in a new object.
pub(super) fn initialize_metadata(
    resource: &Resource,
    metadata: &mut Map<String, Value>,
    namespace: &str,
    uid: &str,
    now: Timestamp,
) {
    for field in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
        metadata.remove(field);
    }
    metadata.retain(|_, value| !is_empty(value));
    if resource.namespaced {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    metadata.insert("uid".to_owned(), json!(uid));
    metadata.insert("creationTimestamp".to_owned(), json!(times::written(now)));
    if resource.generation {
        metadata.insert("generation".to_owned(), json!(1));
    }
}

/// Rejects an update without a resource version, if the kind requires one.
pub(super) fn check_version_is_set(
    resource: &Resource,
    name: &str,
    metadata: &Map<String, Value>,
) -> Result<(), Status> {
    let version = metadata.get("resourceVersion").and_then(Value::as_str).unwrap_or_default();
    if !matches!(version, "" | "0") || !resource.update_needs_version() {
        return Ok(());
    }
    let message = "Invalid value: 0: must be specified for an update";
    let cause = StatusCause::new("FieldValueInvalid", "metadata.resourceVersion", message);
    Err(Status::invalid(&resource.group, &resource.plural, name, vec![cause]))
}

/// Rejects an update of another resource version, or of another incarnation of the object.
pub(super) fn check_preconditions(
    resource: &Resource,
    before: &State,
    metadata: &Map<String, Value>,
) -> Result<(), Status> {
    let (group, plural, name) = (&resource.group, &resource.plural, &before.name);
    let text = |field: &str| metadata.get(field).and_then(Value::as_str).unwrap_or_default();
    let (version, uid) = (text("resourceVersion"), text("uid"));
    if !matches!(version, "" | "0") {
        let parsed: u64 = version.parse().map_err(|_| {
            Status::internal(format!("strconv.ParseUint: parsing {version:?}: invalid syntax"))
        })?;
        if parsed != before.version {
            let why =
                "the object has been modified; please apply your changes to the latest version and try again";
            return Err(Status::conflict(group, plural, name, why));
        }
    }
    if !uid.is_empty() && uid != before.uid {
        return Err(uid_conflict(resource, name, &before.key(), [uid, &before.uid]));
    }
    Ok(())
}

/// Rejects an update that was meant for an incarnation of an object, and would create another one.
pub(super) fn check_no_uid_is_expected(
    resource: &Resource,
    namespace: &str,
    name: &str,
    metadata: &Map<String, Value>,
) -> Result<(), Status> {
    let uid = metadata.get("uid").and_then(Value::as_str).unwrap_or_default();
    if uid.is_empty() {
        return Ok(());
    }
    Err(uid_conflict(resource, name, &state::key(namespace, name), [uid, ""]))
}

/// Returns the error for an update of another incarnation: the expected uid and the stored one.
fn uid_conflict(resource: &Resource, name: &str, key: &str, [expected, stored]: [&str; 2]) -> Status {
    let plural = &resource.plural;
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{plural}/{key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {expected}, UID in object meta: {stored}"
    );
    Status::conflict(&resource.group, plural, name, &why)
}

/// Returns the error for a body without a name.
pub(super) fn undeterminable(name: &str) -> String {
    format!("the name of the object ({name} based on URL) was undeterminable: name must be provided")
}

/// Returns the error for a body with another name than the path.
pub(super) fn mismatch(given: &str, name: &str) -> String {
    format!("the name of the object ({given}) does not match the name on the URL ({name})")
}
