//! Checks of columns, subresources, selectable fields, conversion and deprecation warnings of a definition.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::field::{child, duplicate, forbidden, index, invalid, required, too_many};
use super::super::names::name_cause;
use super::super::paths::{BracketNotation, field_path};
use super::super::source_schema::Part;
use super::one_of;
use crate::schema::{Structural, StructuralType};
use crate::status::StatusCause;
use crate::text::formats::dns_label_1035;

/// The maximum number of selectable fields of a version.
const MAX_SELECTABLE_FIELDS: usize = 8;

const COLUMN_TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: &[&str] =
    &["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

pub(super) fn check_column(column: &Value, path: &str) -> Vec<StatusCause> {
    let text = |name: &str| column.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut causes = Vec::new();
    if text("name").is_empty() {
        causes.push(required(&child(path, "name"), ""));
    }
    let types = format!("must be one of {}", COLUMN_TYPES.join(","));
    match text("type") {
        "" => causes.push(required(&child(path, "type"), &types)),
        kind if COLUMN_TYPES.contains(&kind) => {}
        kind => causes.push(invalid(&child(path, "type"), &json!(kind), &types)),
    }
    let format = text("format");
    if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
        let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
        causes.push(invalid(&child(path, "format"), &json!(format), &why));
    }
    match text("jsonPath") {
        "" => causes.push(required(&child(path, "JSONPath"), "")),
        json_path => causes.extend(check_simple_path(json_path, &child(path, "JSONPath"))),
    }
    causes
}

pub(super) fn check_subresources(subresources: &Value, path: &str) -> Vec<StatusCause> {
    let Some(scale) = subresources.get("scale").filter(|scale| scale.is_object()) else { return Vec::new() };
    let text = |name: &str| scale.get(name).and_then(Value::as_str).unwrap_or_default();
    let mut causes = Vec::new();
    let rows = [
        ("specReplicasPath", &[".spec."][..], "should be a json path under .spec", true),
        ("statusReplicasPath", &[".status."], "should be a json path under .status", true),
        (
            "labelSelectorPath",
            &[".spec.", ".status."],
            "should be a json path under either .spec or .status",
            false,
        ),
    ];
    for (name, prefixes, why, is_required) in rows {
        let field = format!("{path}.scale.{name}");
        match text(name) {
            "" if is_required => causes.push(required(&field, "")),
            "" => {}
            value => match check_simple_path(value, &field) {
                Some(cause) => causes.push(cause),
                None if prefixes.iter().any(|prefix| value.starts_with(prefix)) => {}
                None => causes.push(invalid(&field, &json!(value), why)),
            },
        }
    }
    causes
}

pub(super) fn check_selectable(part: &Part<'_>, path: &str) -> Vec<StatusCause> {
    let fields_path = child(path, "selectableFields");
    let Some(schema) = part.schema.and_then(|schema| schema.get("openAPIV3Schema")) else {
        let why = if path == "spec" {
            "may only be set when validations.schema is included"
        } else {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        };
        return vec![invalid(&fields_path, &json!(""), why)];
    };
    let schema = Structural::read(schema);
    let mut causes = Vec::new();
    let mut seen = BTreeSet::new();
    for (at, selectable) in part.selectable.iter().enumerate() {
        let field = child(&index(&fields_path, at), "jsonPath");
        let text = selectable.get("jsonPath").and_then(Value::as_str).unwrap_or_default();
        if text.is_empty() {
            causes.push(required(&field, ""));
            continue;
        }
        let (resolved, field_schema) = match field_path(text, &schema, BracketNotation::Forbidden) {
            Ok(resolved) => resolved,
            Err(why) => {
                causes.push(invalid(&field, &json!(text), &format!("is an invalid path: {why}")));
                continue;
            }
        };
        if resolved.split(['.', '[']).next() == Some("metadata") {
            causes.push(invalid(&field, &json!(text), "must not point to fields in metadata"));
        }
        if !matches!(
            field_schema.kind,
            StructuralType::String | StructuralType::Boolean | StructuralType::Integer
        ) {
            let why = "must point to a field of type string, boolean or integer. Enum string fields and strings with \
                       formats are allowed.";
            causes.push(invalid(&field, &json!(text), why));
        }
        if !seen.insert(resolved) {
            causes.push(duplicate(&field, &json!(text)));
        }
    }
    if seen.len() > MAX_SELECTABLE_FIELDS {
        causes.push(too_many(&fields_path, seen.len(), 8));
    }
    causes
}

pub(super) fn check_conversion(conversion: &Value, path: &str) -> Vec<StatusCause> {
    if conversion.is_null() {
        return Vec::new();
    }
    let strategy = conversion.get("strategy").and_then(Value::as_str).unwrap_or_default();
    let mut causes: Vec<StatusCause> =
        one_of(&child(path, "strategy"), strategy, &["None", "Webhook"]).into_iter().collect();
    let client = conversion.pointer("/webhook/clientConfig").filter(|client| client.is_object());
    let versions = conversion.pointer("/webhook/conversionReviewVersions").and_then(Value::as_array);
    let (client_path, versions_path) =
        (child(path, "webhookClientConfig"), child(path, "conversionReviewVersions"));
    if strategy != "Webhook" {
        let why = "should not be set when strategy is not set to Webhook";
        if client.is_some() {
            causes.push(forbidden(&client_path, why));
        }
        if versions.is_some_and(|versions| !versions.is_empty()) {
            causes.push(forbidden(&versions_path, why));
        }
        return causes;
    }
    match client {
        None => causes.push(required(&client_path, "required when strategy is set to Webhook")),
        Some(client) => {
            let has = |name: &str| client.get(name).is_some_and(|value| !value.is_null());
            if has("url") == has("service") {
                causes.push(required(&client_path, "exactly one of url or service is required"));
            }
        }
    }
    let versions: Vec<&str> = versions.into_iter().flatten().filter_map(Value::as_str).collect();
    if versions.is_empty() {
        causes.push(required(&versions_path, ""));
        return causes;
    }
    for (at, version) in versions.iter().enumerate() {
        let field = index(&versions_path, at);
        if versions.iter().take(at).any(|earlier| earlier == version) {
            causes.push(invalid(&field, &json!(version), "duplicate version"));
        } else {
            causes.extend(name_cause(&field, version, "", &dns_label_1035(version)));
        }
    }
    if !versions.iter().any(|version| matches!(*version, "v1" | "v1beta1")) {
        causes.push(invalid(&versions_path, &json!(versions), "must include at least one of v1, v1beta1"));
    }
    causes
}

pub(super) fn check_warning(version: &Value, path: &str) -> Vec<StatusCause> {
    let Some(warning) = version.get("deprecationWarning").and_then(Value::as_str) else { return Vec::new() };
    let mut messages = Vec::new();
    if version.get("deprecated").and_then(Value::as_bool) == Some(true) {
        if warning.len() > 256 {
            messages.push("must be <= 256 characters long".to_owned());
        }
        if warning.is_empty() {
            messages.push("must not be an empty string".to_owned());
        }
        if let Some((at, _)) = warning.char_indices().find(|(_, letter)| letter.is_control()) {
            messages.push(format!(
                "must only contain printable UTF-8 characters; non-printable character found at index {at}"
            ));
        }
    } else {
        messages.push("can only be set for deprecated versions".to_owned());
    }
    let field = child(path, "deprecationWarning");
    messages.iter().map(|why| invalid(&field, &json!(warning), why)).collect()
}

/// Checks that a JSON path starts with a dot.
fn check_simple_path(text: &str, path: &str) -> Option<StatusCause> {
    (!text.starts_with('.'))
        .then(|| invalid(path, &json!(text), "must be a simple json path starting with ."))
}
