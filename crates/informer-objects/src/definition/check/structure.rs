//! Checks whether a schema is structural: every position has a type, and keywords that combine schemas only
//! restrict fields that are specified outside them.

use serde_json::{Value, json};

use super::super::field::{child, index, invalid, key, required};
use super::super::source_schema::SchemaLevel;
use super::no;
use crate::schema::STRUCTURAL_DEPTH;
use crate::status::StatusCause;

/// Returns the error about a keyword that no structural schema may have.
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
    invariants(root, Position::Root, path, STRUCTURAL_DEPTH, &mut causes);
    complete(root, Some(root), path, path, STRUCTURAL_DEPTH, &mut causes);
    causes.sort_by_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Root,
    Item,
    Field,
}

fn invariants(
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
        invariants(items, Position::Item, &child(path, "items"), depth, causes);
    }
    for (name, property) in level.properties() {
        invariants(property, Position::Field, &key(&child(path, "properties"), name), depth, causes);
    }
    let additional = level.present("additionalProperties");
    if additional.is_some() && position == Position::Root {
        causes.push(no(path, "additionalProperties", "must not be used at the root"));
    }
    if let Some(additional) = additional.and_then(SchemaLevel::of) {
        invariants(additional, Position::Field, &child(path, "additionalProperties"), depth, causes);
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
    combined(level, is_int_or_string(level), is_int_or_string_in_all(level), path, depth, causes);
    types(level, position, path, causes);
    if embedded && additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(no(path, "additionalProperties", why));
    }
    metadata(level, position, path, causes);
    if embedded && !preserve && level.properties().next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        causes.push(required(&child(path, "properties"), why));
    }
}

fn types(level: SchemaLevel<'_>, position: Position, path: &str, causes: &mut Vec<StatusCause>) {
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

/// Checks type and metadata, which the server defines.
fn metadata(level: SchemaLevel<'_>, position: Position, path: &str, causes: &mut Vec<StatusCause>) {
    let is_resource = position == Position::Root || level.flag("x-kubernetes-embedded-resource");
    let at = |name: &str| key(&child(path, "properties"), name);
    for name in ["kind", "apiVersion"] {
        if let Some(of) = level.property(name).filter(|of| is_resource && of.kind() != "string") {
            causes.push(invalid(&child(&at(name), "type"), &json!(of.kind()), "must be string"));
        }
    }
    let Some(of) = level.property("metadata") else { return };
    if is_resource && of.kind() != "object" {
        causes.push(invalid(&child(&at("metadata"), "type"), &json!(of.kind()), "must be object"));
    }
    if position != Position::Root {
        return;
    }
    let names_only = of.properties().all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let mut bare = of.value();
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

/// Checks the schemas that restrict another one.
fn combined(
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
            restriction(part, false, &index(&child(path, "anyOf"), at), depth, causes);
        }
    }
    for (at, part) in level.levels("allOf") {
        let skip = skip_any_in_first_all && at == 0;
        restriction(part, skip, &index(&child(path, "allOf"), at), depth, causes);
    }
    for (at, part) in level.levels("oneOf") {
        restriction(part, false, &index(&child(path, "oneOf"), at), depth, causes);
    }
    if let Some(part) = level.level("not") {
        restriction(part, false, &child(path, "not"), depth, causes);
    }
    let pattern = level.text("pattern");
    if let Err(error) = regex::Regex::new(pattern) {
        let why = format!("must be a valid regular expression, but isn't: {}", regex_error(pattern, &error));
        causes.push(invalid(&child(path, "pattern"), &json!(pattern), &why));
    }
}

fn restriction(
    level: SchemaLevel<'_>,
    skip_any: bool,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    combined(level, skip_any, false, path, depth, causes);
    let Some(depth) = depth.checked_sub(1) else { return };
    if let Some(items) = level.level("items") {
        restriction(items, false, &child(path, "items"), depth, causes);
    }
    for (name, property) in level.properties() {
        restriction(property, false, &key(&child(path, "properties"), name), depth, causes);
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
            causes.push(no(path, name, &format!("must be {state} to be structural")));
        }
    }
    if level.property("metadata").is_some() {
        let field = key(&child(path, "properties"), "metadata");
        let why = "must not be specified in a nested context";
        causes.push(super::super::field::forbidden(&field, why));
    }
}

/// Checks that all fields of a restricting schema are also specified outside it.
fn complete(
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
        complete(part, outer, outer_path, &path, depth, causes);
        let because = |path: &str| format!("because it is defined in {path}");
        if let Some(items) = part.level("items") {
            let (outer_path, path) = (child(outer_path, "items"), child(&path, "items"));
            match outer.and_then(|outer| outer.level("items")) {
                None => causes.push(required(&outer_path, &because(&path))),
                Some(outer) => nested(items, outer, &outer_path, &path, depth, causes),
            }
        }
        for (name, property) in part.properties() {
            let outer_path = key(&child(outer_path, "properties"), name);
            let path = key(&child(&path, "properties"), name);
            match outer.and_then(|outer| outer.property(name)) {
                None => causes.push(required(&outer_path, &because(&path))),
                Some(outer) => nested(property, outer, &outer_path, &path, depth, causes),
            }
        }
    }
}

/// Like [`complete`], for a part of a restricting schema, including its own fields.
fn nested(
    part: SchemaLevel<'_>,
    outer: SchemaLevel<'_>,
    outer_path: &str,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    let whole = json!({"allOf": [part.value()]});
    let Some(whole) = SchemaLevel::of(&whole) else { return };
    let before = causes.len();
    complete(whole, Some(outer), outer_path, path, depth, causes);
    // The list was added to check the part itself, so it must not appear in the paths.
    for cause in causes.iter_mut().skip(before) {
        cause.message = cause.message.replacen(&format!("{path}.allOf[0]"), path, 1);
    }
}

/// Returns the error of a pattern, in Go's form where it is known.
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

/// Whether `anyOf` allows an integer or a string, as used with `x-kubernetes-int-or-string`.
fn is_int_or_string(level: SchemaLevel<'_>) -> bool {
    level.list("anyOf") == [json!({"type": "integer"}), json!({"type": "string"})]
}

fn is_int_or_string_in_all(level: SchemaLevel<'_>) -> bool {
    level.levels("allOf").next().is_some_and(|(_, first)| is_int_or_string(first))
}
