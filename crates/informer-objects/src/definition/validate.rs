//! Validation of custom objects: type, values, scale, embedded resources, lists, then rules.
//!
//! This module only decides which checks run, and in which order; the order is that of kube-apiserver.
//! Nothing here knows storage or requests.

use serde_json::Value;

use super::object::pair::Pair;
use super::object::{check_embedded, check_lists, check_values};
use super::version::Version;
use super::{field, rules, scale};
use crate::status::StatusCause;

/// The type that an object must have, and the extent of its validation.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The required kind.
    pub kind: &'a str,
    /// The required group and version.
    pub api_version: &'a str,
    /// Whether the object is written through the status subresource, which changes nothing but the status.
    pub status_only: bool,
}

/// Validates an object.
///
/// `old` is the object that it replaces. Errors in unchanged values are tolerated where kube-apiserver
/// tolerates them: in values, in rules that do not use the old value, and for duplicates in lists.
/// `metadata` contains the causes found in the metadata by the checks common to all kinds; the result
/// includes them if the type is right.
pub fn validate(
    version: &Version,
    subject: Subject<'_>,
    object: &Value,
    old: Option<&Value>,
    metadata: Vec<StatusCause>,
) -> Vec<StatusCause> {
    let schema = &version.schema;
    let mut causes = check_type_meta(subject, object);
    if causes.is_empty() {
        causes = metadata;
        let pair = old.map(|old| Pair::new(object, old, schema));
        if subject.status_only {
            if let (Some(status), Some(status_schema)) = (object.get("status"), schema.child("status")) {
                let pair = pair.and_then(|pair| pair.field("status"));
                causes.extend(check_values(status_schema, status, pair, "status"));
            }
        } else {
            causes.extend(check_values(schema, object, pair, ""));
        }
        if let Some(paths) = &version.scale {
            causes.extend(scale::check(paths, object, !subject.status_only));
        }
    }
    if !subject.status_only {
        causes.extend(check_embedded(schema, object, "", true));
    }
    // If the old object has duplicates, duplicates anywhere in the new one are tolerated.
    if old.is_none_or(|old| check_lists(schema, old).is_empty()) {
        causes.extend(check_lists(schema, object));
    }
    if schema.has_rules() {
        if causes.iter().any(prevents_rules) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing \
                       errors to complete validation";
            causes.push(field::invalid("", &Value::Null, why));
        } else {
            causes.extend(rules::check(schema, &version.programs, object, old, ""));
        }
    }
    causes
}

/// Whether a cause prevents rules from being run, because rules rely on types and sizes.
fn prevents_rules(cause: &StatusCause) -> bool {
    matches!(
        cause.reason.as_str(),
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

fn check_type_meta(subject: Subject<'_>, object: &Value) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    for (name, wanted) in [("kind", subject.kind), ("apiVersion", subject.api_version)] {
        let given = object.get(name).and_then(Value::as_str).unwrap_or_default();
        if given != wanted {
            causes.push(field::invalid(name, &Value::from(given), &format!("must be {wanted}")));
        }
    }
    causes
}
