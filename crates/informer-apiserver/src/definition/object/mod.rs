//! Objects of custom kinds: what a definition's schema makes of them.
//!
//! In order: decode the metadata ([`meta`]), drop what is unknown ([`prune`]), fill in defaults ([`default`]), and say what is
//! wrong ([`validate`]). Nothing here knows storage or requests.

mod formats;
mod lists;
mod meta;
pub(super) mod numbers;
pub(super) mod pair;
mod prune;
mod values;

use serde_json::Value;

use super::scale;
use super::version::Version;
use super::{field, rules};
use crate::status::Cause;

pub(crate) use meta::{check_embedded, decode, decode_embedded};
pub(crate) use prune::{convert, default, prune};
pub(crate) use values::check as check_values;

use pair::Pair;

/// What an object is checked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subject<'a> {
    /// The kind that it has to be.
    pub(crate) kind: &'a str,
    /// The group and version that it has to be.
    pub(crate) api_version: &'a str,
    /// Whether only the status may have changed.
    pub(crate) status_only: bool,
}

/// What is wrong with an object. `old` is what it replaces: what was wrong before and has not changed is let through.
///
/// `metadata` is what was found wrong with its metadata, by the rules of all kinds.
pub(crate) fn validate(
    version: &Version,
    subject: Subject<'_>,
    object: &Value,
    old: Option<&Value>,
    metadata: Vec<Cause>,
) -> Vec<Cause> {
    let schema = &version.schema;
    let mut causes = wrong_type(subject, object);
    if causes.is_empty() {
        causes = metadata;
        let pair = old.map(|old| Pair::new(object, old, schema));
        if subject.status_only {
            if let (Some(status), Some(of)) = (object.get("status"), schema.child("status")) {
                let pair = pair.and_then(|pair| pair.field("status"));
                causes.extend(values::check(of, status, pair, "status"));
            }
        } else {
            causes.extend(values::check(schema, object, pair, ""));
        }
        if let Some(paths) = &version.scale {
            causes.extend(scale::check(paths, object, !subject.status_only));
        }
    }
    if !subject.status_only {
        causes.extend(meta::check_embedded(schema, object, "", true));
    }
    if old.is_none_or(|old| lists::check(schema, old).is_empty()) {
        causes.extend(lists::check(schema, object));
    }
    if schema.has_rules() {
        if causes.iter().any(hides_rules) {
            let why = "some validation rules were not checked because the object was invalid; correct the existing \
                       errors to complete validation";
            causes.push(field::invalid("", &Value::Null, why));
        } else {
            causes.extend(rules::check(schema, &version.programs, object, old, ""));
        }
    }
    causes
}

/// Whether rules are not run because of a cause: they count on types and sizes.
fn hides_rules(cause: &Cause) -> bool {
    matches!(
        cause.reason.as_str(),
        "FieldValueNotSupported"
            | "FieldValueRequired"
            | "FieldValueTooLong"
            | "FieldValueTooMany"
            | "FieldValueTypeInvalid"
    )
}

fn wrong_type(subject: Subject<'_>, object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, wanted) in [("kind", subject.kind), ("apiVersion", subject.api_version)] {
        let given = object.get(name).and_then(Value::as_str).unwrap_or_default();
        if given != wanted {
            causes.push(field::invalid(name, &Value::from(given), &format!("must be {wanted}")));
        }
    }
    causes
}
