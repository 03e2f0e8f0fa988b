//! Directives of strategic merge patches, and the errors of merging such a patch.
//!
//! Works on one object or one value at a time. Nothing here knows types of fields or the order of lists.

use serde_json::{Map, Value};

use super::error::rejected;
use crate::status::Status;
use crate::text;

/// The error of merging a patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The patch is malformed: 400.
    Malformed(&'static str),
    /// kube-apiserver rejects the patch without giving the reason: 422.
    Rejected,
    /// Any other error: 500, as in kube-apiserver.
    Internal(String),
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        match failure {
            Failure::Malformed(what) => Status::bad_request(what),
            Failure::Rejected => rejected(),
            Failure::Internal(what) => Status::internal(what),
        }
    }
}

pub(super) const DIRECTIVE: &str = "$patch";
pub(super) const RETAIN_KEYS: &str = "$retainKeys";
pub(super) const SET_ORDER: &str = "$setElementOrder";
pub(super) const DELETE_FROM: &str = "$deleteFromPrimitiveList";

pub(super) const BAD_PRIMITIVE_LIST: Failure = Failure::Malformed("invalid patch format of primitive list");
pub(super) const BAD_RETAIN_KEYS: Failure = Failure::Malformed("invalid patch format of retainKeys");
pub(super) const BAD_SET_ORDER: Failure = Failure::Malformed("invalid patch format of setElementOrder list");

/// Applies `$retainKeys`: removes the fields of the object that the directive does not list. A field of the
/// patch that it does not list is an error.
pub(super) fn retain_keys(
    fields: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
) -> Result<(), Failure> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(BAD_RETAIN_KEYS) };
    let retained: std::collections::BTreeSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let unlisted = patch.iter().any(|(name, value)| {
        !value.is_null()
            && !name.starts_with(DELETE_FROM)
            && !name.starts_with(SET_ORDER)
            && !retained.contains(name.as_str())
    });
    if unlisted {
        return Err(BAD_RETAIN_KEYS);
    }
    fields.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// Returns the name of the list that a directive applies to.
pub(super) fn list_of<'a>(directive: &'a str, prefix: &str, error: Failure) -> Result<&'a str, Failure> {
    match directive.split_once('/') {
        Some((before, name)) if before == prefix => Ok(name),
        _ => Err(error),
    }
}

pub(super) fn not_a_list(found: Option<&Value>) -> Failure {
    Failure::Internal(format!("expected a []interface {{}}, but received a {}", go_type(found)))
}

pub(super) fn not_an_object(found: &Value) -> Failure {
    Failure::Internal(format!(
        "expected a map[string]interface {{}}, but received a {}",
        go_type(Some(found))
    ))
}

pub(super) fn unknown_directive(directive: &Value, fields: &Map<String, Value>) -> Failure {
    let name = match directive {
        Value::String(name) => name.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        other => format!("%!s({}={})", go_type(Some(other)), text::shown(other)),
    };
    let fields = text::shown(&Value::Object(fields.clone()));
    Failure::Internal(format!("unknown patch type: {name} in map: {fields}"))
}

pub(super) fn go_type(value: Option<&Value>) -> &'static str {
    match value {
        None | Some(Value::Null) => "%!s(<nil>)",
        Some(Value::Bool(_)) => "bool",
        Some(Value::Number(number)) if number.is_i64() => "int64",
        Some(Value::Number(_)) => "float64",
        Some(Value::String(_)) => "string",
        Some(Value::Array(_)) => "[]interface {}",
        Some(Value::Object(_)) => "map[string]interface {}",
    }
}

/// Returns the type of a value, for comparisons.
pub(super) fn kind(value: &Value) -> &'static str {
    go_type(Some(value))
}

/// Returns a value without directives; `None` if it contains `$patch` itself.
pub(super) fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let fields =
                fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(fields.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        plain => Some(plain),
    }
}

/// Returns the `$patch` of an entry of a list.
pub(super) fn directive_of(entry: &Value) -> Option<&Value> {
    entry.get(DIRECTIVE)
}
