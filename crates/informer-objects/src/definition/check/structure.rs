//! Checks whether a schema is structural: every position has a type, and keywords that combine schemas only
//! restrict fields that are specified outside them.

use serde_json::{Value, json};

use super::super::field::{child, index, invalid, key, required};
use super::super::source_schema::SchemaLevel;
use super::forbidden_keyword;
use crate::schema::STRUCTURAL_DEPTH;
use crate::status::StatusCause;

/// Returns the error about a keyword that no structural schema may have, at this level or below.
pub(super) fn structural_error(level: SchemaLevel<'_>, depth: usize) -> Option<String> {
    let depth = depth.checked_sub(1)?;
    for (name, shown) in [
        ("id", "id"),
        ("$schema", "schema"),
        ("$ref", "$ref"),
        ("patternProperties", "patternProperties"),
        ("dependencies", "dependencies"),
        ("additionalItems", "additionalItems"),
        ("definitions", "definitions"),
    ] {
        if level.keyword(name).is_some() {
            return Some(format!("OpenAPIV3Schema '{shown}' is not supported"));
        }
    }
    if level.present("items").is_some_and(Value::is_array) {
        return Some("OpenAPIV3Schema 'items' must be a schema, but is an array".to_owned());
    }
    let parts = ["items", "additionalProperties", "not"].iter().filter_map(|name| level.level(name));
    let lists =
        ["allOf", "anyOf", "oneOf"].iter().flat_map(|name| level.levels(name)).map(|(_, level)| level);
    parts
        .chain(lists)
        .chain(level.properties().map(|(_, level)| level))
        .find_map(|level| structural_error(level, depth))
}

/// Returns the causes that prevent a schema from being structural, sorted.
pub(super) fn check(root: SchemaLevel<'_>, path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    check_invariants(root, Position::Root, path, STRUCTURAL_DEPTH, &mut causes);
    check_complete(root, Some(root), path, path, STRUCTURAL_DEPTH, &mut causes);
    causes.sort_by_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes
}

/// The position of a level in its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Root,
    Item,
    Field,
}

/// Checks a level outside `anyOf`, `allOf`, `oneOf` and `not`, and the levels below it.
fn check_invariants(
    level: SchemaLevel<'_>,
    position: Position,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let kind = level.kind();
    if kind == "array" && level.present("items").is_none() {
        causes.push(required(&child(path, "items"), "must be specified"));
    }
    if let Some(items) = level.level("items") {
        check_invariants(items, Position::Item, &child(path, "items"), depth, causes);
    }
    for (name, property) in level.properties() {
        check_invariants(property, Position::Field, &key(&child(path, "properties"), name), depth, causes);
    }
    let additional = level.present("additionalProperties");
    if additional.is_some() && position == Position::Root {
        causes.push(forbidden_keyword(path, "additionalProperties", "must not be used at the root"));
    }
    if let Some(additional) = additional.and_then(SchemaLevel::of) {
        check_invariants(additional, Position::Field, &child(path, "additionalProperties"), depth, causes);
    }
    let embedded = level.flag("x-kubernetes-embedded-resource");
    let int_or_string = level.flag("x-kubernetes-int-or-string");
    let preserve = level.flag("x-kubernetes-preserve-unknown-fields");
    for (name, set) in
        [("x-kubernetes-preserve-unknown-fields", preserve), ("x-kubernetes-embedded-resource", embedded)]
    {
        if int_or_string && set {
            let why = "must be false if x-kubernetes-int-or-string is true";
            causes.push(invalid(&child(path, name), &json!(true), why));
        }
    }
    check_combinations(
        level,
        is_int_or_string(level),
        is_int_or_string_in_first_all(level),
        path,
        depth,
        causes,
    );
    check_type(level, position, path, causes);
    if embedded && additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(forbidden_keyword(path, "additionalProperties", why));
    }
    check_metadata(level, position, path, causes);
    if embedded && !preserve && level.properties().next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        causes.push(required(&child(path, "properties"), why));
    }
}

fn check_type(level: SchemaLevel<'_>, position: Position, path: &str, causes: &mut Vec<StatusCause>) {
    let (kind, path) = (level.kind(), child(path, "type"));
    let free = level.flag("x-kubernetes-int-or-string") || level.flag("x-kubernetes-preserve-unknown-fields");
    if level.flag("x-kubernetes-embedded-resource") && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() { required(&path, why) } else { invalid(&path, &json!(kind), why) });
    } else if kind.is_empty() && !free {
        let why = match position {
            Position::Root => "must not be empty at the root",
            Position::Item => "must not be empty for specified array items",
            Position::Field => "must not be empty for specified object fields",
        };
        causes.push(required(&path, why));
    }
    if position == Position::Root && !kind.is_empty() && kind != "object" {
        causes.push(invalid(&path, &json!(kind), "must be object at the root"));
    }
}

/// Checks the schemas of `kind`, `apiVersion` and `metadata`, whose contents kube-apiserver defines.
fn check_metadata(level: SchemaLevel<'_>, position: Position, path: &str, causes: &mut Vec<StatusCause>) {
    let is_resource = position == Position::Root || level.flag("x-kubernetes-embedded-resource");
    let at = |name: &str| key(&child(path, "properties"), name);
    for name in ["kind", "apiVersion"] {
        if let Some(property) =
            level.property(name).filter(|property| is_resource && property.kind() != "string")
        {
            causes.push(invalid(&child(&at(name), "type"), &json!(property.kind()), "must be string"));
        }
    }
    let Some(property) = level.property("metadata") else { return };
    if is_resource && property.kind() != "object" {
        causes.push(invalid(&child(&at("metadata"), "type"), &json!(property.kind()), "must be object"));
    }
    if position != Position::Root {
        return;
    }
    let names_only = property.properties().all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let mut bare = property.value();
    if let Some(keywords) = bare.as_object_mut() {
        keywords.remove("type");
        keywords.remove("default");
        if names_only {
            keywords.remove("properties");
        }
        keywords.retain(|_, value| !matches!(value, Value::Null | Value::Bool(false)) && *value != json!(""));
    }
    if bare != json!({}) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(super::super::field::forbidden(&at("metadata"), why));
    }
}

/// Checks `pattern`, and the schemas in `anyOf`, `allOf`, `oneOf` and `not`.
///
/// `skip_any` skips `anyOf`, and `skip_any_in_first_all` skips `anyOf` in the first schema of `allOf`: there,
/// an integer or a string is allowed ([`is_int_or_string`]), although types are forbidden inside `anyOf`.
fn check_combinations(
    level: SchemaLevel<'_>,
    skip_any: bool,
    skip_any_in_first_all: bool,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    if !skip_any {
        for (at, part) in level.levels("anyOf") {
            check_restriction(part, false, &index(&child(path, "anyOf"), at), depth, causes);
        }
    }
    for (at, part) in level.levels("allOf") {
        let skip = skip_any_in_first_all && at == 0;
        check_restriction(part, skip, &index(&child(path, "allOf"), at), depth, causes);
    }
    for (at, part) in level.levels("oneOf") {
        check_restriction(part, false, &index(&child(path, "oneOf"), at), depth, causes);
    }
    if let Some(part) = level.level("not") {
        check_restriction(part, false, &child(path, "not"), depth, causes);
    }
    let pattern = level.text("pattern");
    if let Err(error) = regex::Regex::new(pattern) {
        let why = format!("must be a valid regular expression, but isn't: {}", regex_error(pattern, &error));
        causes.push(invalid(&child(path, "pattern"), &json!(pattern), &why));
    }
}

/// Checks a schema inside `anyOf`, `allOf`, `oneOf` or `not`, which may only restrict values.
fn check_restriction(
    level: SchemaLevel<'_>,
    skip_any: bool,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    check_combinations(level, skip_any, false, path, depth, causes);
    let Some(depth) = depth.checked_sub(1) else { return };
    if let Some(items) = level.level("items") {
        check_restriction(items, false, &child(path, "items"), depth, causes);
    }
    for (name, property) in level.properties() {
        check_restriction(property, false, &key(&child(path, "properties"), name), depth, causes);
    }
    for (name, state) in [
        ("type", "empty"),
        ("additionalProperties", "undefined"),
        ("default", "undefined"),
        ("title", "empty"),
        ("description", "empty"),
        ("nullable", "false"),
        ("x-kubernetes-preserve-unknown-fields", "false"),
        ("x-kubernetes-embedded-resource", "false"),
        ("x-kubernetes-int-or-string", "false"),
        ("x-kubernetes-list-map-keys", "empty"),
        ("x-kubernetes-list-type", "undefined"),
        ("x-kubernetes-map-type", "undefined"),
        ("x-kubernetes-validations", "empty"),
    ] {
        let set = if state == "undefined" { level.present(name) } else { level.keyword(name) };
        if set.is_some() {
            causes.push(forbidden_keyword(path, name, &format!("must be {state} to be structural")));
        }
    }
    if level.property("metadata").is_some() {
        let field = key(&child(path, "properties"), "metadata");
        let why = "must not be specified in a nested context";
        causes.push(super::super::field::forbidden(&field, why));
    }
}

/// Checks that all fields in `anyOf`, `allOf`, `oneOf` and `not` of the level `restricting` are also
/// specified in the level `outer`.
fn check_complete(
    restricting: SchemaLevel<'_>,
    outer: Option<SchemaLevel<'_>>,
    outer_path: &str,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let not = restricting.level("not").map(|level| (child(path, "not"), level));
    let lists = ["allOf", "anyOf", "oneOf"]
        .iter()
        .flat_map(|name| restricting.levels(name).map(|(at, level)| (index(&child(path, name), at), level)));
    for (path, part) in not.into_iter().chain(lists) {
        check_complete(part, outer, outer_path, &path, depth, causes);
        let because = |path: &str| format!("because it is defined in {path}");
        if let Some(items) = part.level("items") {
            let (outer_path, path) = (child(outer_path, "items"), child(&path, "items"));
            match outer.and_then(|outer| outer.level("items")) {
                None => causes.push(required(&outer_path, &because(&path))),
                Some(outer) => check_complete_part(items, outer, &outer_path, &path, depth, causes),
            }
        }
        for (name, property) in part.properties() {
            let outer_path = key(&child(outer_path, "properties"), name);
            let path = key(&child(&path, "properties"), name);
            match outer.and_then(|outer| outer.property(name)) {
                None => causes.push(required(&outer_path, &because(&path))),
                Some(outer) => check_complete_part(property, outer, &outer_path, &path, depth, causes),
            }
        }
    }
}

/// Checks that all fields of the schema `part` itself are also specified in the level `outer`.
fn check_complete_part(
    part: SchemaLevel<'_>,
    outer: SchemaLevel<'_>,
    outer_path: &str,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    // `check_complete` looks inside `allOf`, so the part is wrapped in one.
    let wrapped = json!({"allOf": [part.value()]});
    let Some(wrapped) = SchemaLevel::of(&wrapped) else { return };
    let before = causes.len();
    check_complete(wrapped, Some(outer), outer_path, path, depth, causes);
    // The definition does not contain this `allOf`, so it must not appear in messages.
    for cause in causes.iter_mut().skip(before) {
        cause.message = cause.message.replacen(&format!("{path}.allOf[0]"), path, 1);
    }
}

/// Returns the error of a pattern as Go prints it, or as the `regex` crate does if Go's text is unknown.
fn regex_error(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let from = |mark: char| pattern.rfind(mark).and_then(|at| pattern.get(at..)).unwrap_or(pattern);
    let what = match text.rsplit("error: ").next().unwrap_or_default() {
        what if what.starts_with("unclosed character class") => format!("missing closing ]: `{}`", from('[')),
        what if what.starts_with("unclosed group") => format!("missing closing ): `{pattern}`"),
        what if what.starts_with("unopened group") => format!("unexpected ): `{pattern}`"),
        what if what.starts_with("repetition operator missing") => {
            let operator: String = pattern.chars().filter(|letter| "*+?".contains(*letter)).take(1).collect();
            format!("missing argument to repetition operator: `{operator}`")
        }
        what if what.starts_with("look-around") => {
            let prefix = ["(?=", "(?!", "(?<"].into_iter().find(|prefix| pattern.contains(prefix));
            format!("invalid or unsupported Perl syntax: `{}`", prefix.unwrap_or("(?"))
        }
        _ => return text,
    };
    format!("error parsing regexp: {what}")
}

/// Whether `anyOf` allows exactly an integer or a string, as used with `x-kubernetes-int-or-string`.
fn is_int_or_string(level: SchemaLevel<'_>) -> bool {
    level.list("anyOf") == [json!({"type": "integer"}), json!({"type": "string"})]
}

fn is_int_or_string_in_first_all(level: SchemaLevel<'_>) -> bool {
    level.levels("allOf").next().is_some_and(|(_, first)| is_int_or_string(first))
}
