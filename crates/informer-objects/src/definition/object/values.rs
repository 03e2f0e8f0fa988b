//! Checks of values against a schema: types, lengths, limits, and keywords that combine schemas.
//!
//! Errors have the order and the texts of kube-openapi, each once. An invalid value that is unchanged from
//! the old object is tolerated ([`Pair`]); kube-apiserver calls this ratcheting. CEL rules, duplicates in
//! lists and metadata are checked elsewhere.

use serde_json::Value;

use super::super::field;
use super::formats::has_format;
use super::numbers;
use super::outcome::{Kind, Outcome, ValueError};
use super::pair::Pair;
use crate::schema::{Structural, StructuralType};
use crate::status::StatusCause;

/// Checks a value at the path `at`. The field of a cause includes `at`; paths in its message start at the
/// value itself.
pub(crate) fn check(
    schema: &Structural,
    value: &Value,
    pair: Option<Pair<'_>>,
    at: &str,
) -> Vec<StatusCause> {
    let outcome = match pair {
        Some(pair) => check_ratcheted(schema, value, pair, ""),
        None => check_level(schema, value, None, ""),
    };
    outcome.errors.into_iter().map(|error| error.into_cause(at)).collect()
}

/// Like [`check_level`], but tolerates errors in values that have not changed.
fn check_ratcheted(schema: &Structural, value: &Value, pair: Pair<'_>, path: &str) -> Outcome {
    let outcome = check_level(schema, value, Some(pair), path);
    if outcome.is_good() || !pair.is_same() {
        return outcome;
    }
    Outcome { errors: Vec::new(), matches: outcome.matches }
}

fn check_level(schema: &Structural, value: &Value, pair: Option<Pair<'_>>, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if value.is_null() {
        outcome.merge(check_type(schema, value, path));
        outcome.merge(check_enum(schema, value, path));
        return outcome;
    }
    if !types(schema).is_empty() || schema.checks.format.is_some() {
        outcome.add_check(check_type(schema, value, path));
    }
    outcome.add_check(check_combinations(schema, value, pair, path));
    match value {
        Value::String(text) => {
            outcome.add_check(check_text(schema, text, path));
            if let Some(format) = &schema.checks.format
                && numbers::is_text_format(format)
            {
                outcome.add_check(check_format(format, text, path));
            }
        }
        Value::Number(number) => outcome.add_check(numbers::check(schema, number, path)),
        Value::Array(items) => outcome.add_check(check_items(schema, items, pair, path)),
        _ => {}
    }
    outcome.add_check(check_enum(schema, value, path));
    if let Value::Object(fields) = value {
        outcome.add_check(check_fields(schema, fields, pair, path));
    }
    outcome.matches += 1;
    outcome
}

fn check_type(schema: &Structural, value: &Value, path: &str) -> Outcome {
    let types = types(schema);
    let wrong = |wanted: &str, found: &str| {
        let mut outcome = Outcome::default();
        outcome.add(ValueError {
            path: Some(path.to_owned()),
            text: format!("{path} in body must be of type {wanted}: {}", field::quote(found)),
            kind: Kind::Type(found.to_owned()),
        });
        outcome
    };
    let good = Outcome { errors: Vec::new(), matches: 1 };
    let (found, found_format) = type_of(value);
    if value.is_null() {
        return if types.is_empty() || schema.nullable { good } else { wrong(&types.join(","), "null") };
    }
    let numeric = types.iter().any(|name| matches!(*name, "integer" | "number"));
    let whole =
        found == "number" && types.contains(&"integer") && value.as_f64().is_some_and(numbers::is_whole);
    let fits = types.contains(&found) || whole || (found == "integer" && types.contains(&"number"));
    if let Some(format) = schema.checks.format.as_deref() {
        if value.is_string() || value.is_array() {
            // As in kube-openapi, the type is not checked, only the format.
            if !numeric {
                return good;
            }
        } else if !fits && found_format != format {
            return wrong(format, found_format);
        }
    }
    if fits { good } else { wrong(&types.join(","), found) }
}

/// Checks `anyOf`, `oneOf`, `allOf` and `not`.
fn check_combinations(schema: &Structural, value: &Value, pair: Option<Pair<'_>>, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let checks = &schema.checks;
    let shown = field::quote(path);
    if !checks.any_of.is_empty() {
        let (best, matching) = alternatives(&checks.any_of, value, pair, path, Search::FirstMatch);
        if matching == 0 {
            let text = format!("{shown} must validate at least one schema (anyOf)");
            outcome.add(ValueError::without_path(text));
        }
        outcome.merge(best);
    }
    if !checks.one_of.is_empty() {
        let (best, matching) = alternatives(&checks.one_of, value, pair, path, Search::AllMatches);
        if matching != 1 {
            let found = match matching {
                0 => "Found none valid".to_owned(),
                count => format!("Found {count} valid alternatives"),
            };
            let text = format!("{shown} must validate one and only one schema (oneOf). {found}");
            outcome.add(ValueError::without_path(text));
        }
        if matching < 2 {
            outcome.merge(best);
        }
    }
    if !checks.all_of.is_empty() {
        let mut matching = 0;
        for schema in &checks.all_of {
            let result = check_level(schema, value, pair, path);
            matching += usize::from(result.is_good());
            outcome.merge(result);
        }
        if matching != checks.all_of.len() {
            let none = if matching == 0 { ". None validated" } else { "" };
            let text = format!("{shown} must validate all the schemas (allOf){none}");
            outcome.add(ValueError::without_path(text));
        }
    }
    if let Some(schema) = &checks.not
        && check_level(schema, value, pair, path).is_good()
    {
        outcome.add(ValueError::without_path(format!("{shown} must not validate the schema (not)")));
    }
    outcome.matches += 1;
    outcome
}

/// Whether [`alternatives`] continues after the first matching schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Search {
    FirstMatch,
    AllMatches,
}

/// Returns the outcome of the first matching schema, or of the one with most matches if no schema matches,
/// and the number of matching schemas found.
fn alternatives(
    schemas: &[Structural],
    value: &Value,
    pair: Option<Pair<'_>>,
    path: &str,
    search: Search,
) -> (Outcome, usize) {
    let mut best: Option<Outcome> = None;
    let mut matching = 0;
    for schema in schemas {
        let result = check_level(schema, value, pair, path);
        if result.is_good() {
            matching += 1;
            if matching == 1 {
                best = Some(result);
            }
            if search == Search::FirstMatch {
                break;
            }
        } else if matching == 0 && best.as_ref().is_none_or(|best| result.matches > best.matches) {
            best = Some(result);
        }
    }
    (best.unwrap_or_default(), matching)
}

fn check_text(schema: &Structural, text: &str, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let checks = &schema.checks;
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let value_error = |text: String, kind| ValueError { path: Some(path.to_owned()), text, kind };
    let shown = || Kind::Invalid(field::quote(text));
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        let text = format!("{path} in body should be at most {max} chars long");
        outcome.add(value_error(text, Kind::TooLong(max)));
    } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
        outcome.add(value_error(format!("{path} in body should be at least {min} chars long"), shown()));
    } else if let Some(pattern) = &checks.pattern {
        match &pattern.regex {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => {
                outcome.add(value_error(format!("{path} in body should match '{}'", pattern.text), shown()));
            }
            Err(error) => {
                let bad = format!("{}, but pattern is invalid: {error}", pattern.text);
                outcome.add(value_error(format!("{path} in body should match '{bad}'"), shown()));
            }
        }
    }
    outcome
}

fn check_format(format: &str, text: &str, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    if !has_format(format, text) {
        outcome.add(ValueError {
            path: Some(path.to_owned()),
            text: format!("{path} in body must be of type {format}: {}", field::quote(text)),
            kind: Kind::Type(text.to_owned()),
        });
    }
    outcome
}

fn check_items(schema: &Structural, items: &[Value], pair: Option<Pair<'_>>, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let checks = &schema.checks;
    if let Some(item_schema) = &schema.items {
        let old = pair.map(Pair::items);
        for (at, item) in items.iter().enumerate() {
            let path = field::index(path, at);
            outcome.merge(match old.as_ref().and_then(|old| old.get(item)) {
                Some(pair) => check_ratcheted(item_schema, item, pair, &path),
                None => check_level(item_schema, item, None, &path),
            });
        }
    }
    let size = i64::try_from(items.len()).unwrap_or(i64::MAX);
    let value_error = |text: String, kind| ValueError { path: Some(path.to_owned()), text, kind };
    if let Some(min) = checks.min_items.filter(|min| size < *min) {
        let text = format!("{path} in body should have at least {min} items");
        outcome.add(value_error(text, Kind::Invalid(size.to_string())));
    }
    if let Some(max) = checks.max_items.filter(|max| size > *max) {
        let text = format!("{path} in body should have at most {max} items");
        outcome.add(value_error(text, Kind::TooMany(items.len(), max)));
    }
    if checks.unique_items && super::lists::first_duplicate(items.iter()).is_some() {
        let text = format!("{path} in body shouldn't contain duplicates");
        outcome.add(value_error(text, Kind::Invalid("\"\"".to_owned())));
    }
    outcome.matches += 1;
    outcome
}

fn check_enum(schema: &Structural, value: &Value, path: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let values = &schema.checks.values;
    if !values.is_empty() && !values.iter().any(|allowed| numbers::is_equal(value, allowed)) {
        let texts: Vec<String> = values
            .iter()
            .map(|value| value.as_str().map_or_else(|| field::json(value), str::to_owned))
            .collect();
        outcome.add(ValueError {
            path: Some(path.to_owned()),
            text: format!("{path} in body should be one of [{}]", texts.join(" ")),
            kind: Kind::NotSupported(value.clone(), texts),
        });
    }
    outcome
}

fn check_fields(
    schema: &Structural,
    fields: &serde_json::Map<String, Value>,
    pair: Option<Pair<'_>>,
    path: &str,
) -> Outcome {
    let mut outcome = Outcome::default();
    let checks = &schema.checks;
    let size = i64::try_from(fields.len()).unwrap_or(i64::MAX);
    let value_error = |text: String, kind| ValueError { path: Some(path.to_owned()), text, kind };
    if let Some(min) = checks.min_properties.filter(|min| size < *min) {
        let text = format!("{path} in body should have at least {min} properties");
        outcome.add(value_error(text, Kind::Invalid(size.to_string())));
    }
    if let Some(max) = checks.max_properties.filter(|max| size > *max) {
        let text = format!("{path} in body should have at most {max} properties");
        outcome.add(value_error(text, Kind::TooMany(fields.len(), max)));
    }
    for (name, value) in fields.iter().filter(|(name, _)| !schema.properties.contains_key(*name)) {
        if schema.open == Some(false) {
            let text = format!("{path}.{name} in body is a forbidden property");
            outcome.add(value_error(text, Kind::Invalid(field::quote(name))));
        } else if let Some(field_schema) = &schema.additional {
            outcome.merge(check_field(field_schema, name, value, pair, path, &format!("{path}.{name}")));
        }
    }
    for (name, field_schema) in &schema.properties {
        if let Some(value) = fields.get(name) {
            outcome.merge(check_field(field_schema, name, value, pair, path, &field::child(path, name)));
        }
    }
    for name in checks.required.iter().filter(|name| !fields.contains_key(*name)) {
        let path = format!("{path}.{name}");
        let text = format!("{path} in body is required");
        outcome.add(ValueError { path: Some(path), text, kind: Kind::Required });
    }
    outcome
}

fn check_field(
    schema: &Structural,
    name: &str,
    value: &Value,
    pair: Option<Pair<'_>>,
    parent: &str,
    path: &str,
) -> Outcome {
    // At the root, `kind` and `apiVersion` never count as unchanged: old and new object were converted to the
    // same type.
    let pair = pair.filter(|_| !(parent.is_empty() && matches!(name, "kind" | "apiVersion")));
    match pair.and_then(|pair| pair.field(name)) {
        Some(pair) => check_ratcheted(schema, value, pair, path),
        None => check_level(schema, value, None, path),
    }
}

/// Returns the types a schema allows; empty if it allows any.
fn types(schema: &Structural) -> &'static [&'static str] {
    match schema.kind {
        StructuralType::Any => &[],
        StructuralType::IntOrString => &["integer", "string"],
        StructuralType::Object => &["object"],
        StructuralType::Array => &["array"],
        StructuralType::String => &["string"],
        StructuralType::Integer => &["integer"],
        StructuralType::Number => &["number"],
        StructuralType::Boolean => &["boolean"],
    }
}

/// Returns the type of a value and the format that kube-openapi assigns to it; empty if there is none.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_i64() => ("integer", "int64"),
        Value::Number(_) => ("number", "float64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}
