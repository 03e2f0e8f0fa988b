//! Whether a schema is structural: every place has a type, and words that combine schemas only narrow what is named outside them.

use serde_json::{Value, json};

use super::super::field::{child, index, invalid, key, required};
use super::super::source_schema::SchemaLevel;
use super::no;
use crate::schema::STRUCTURAL_DEPTH;
use crate::status::StatusCause;

/// Words that a structural schema cannot have at all. The error is a sentence.
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

/// What keeps a schema from being structural, sorted.
pub(super) fn check(root: SchemaLevel<'_>, path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    invariants(root, Place::Root, path, STRUCTURAL_DEPTH, &mut causes);
    complete(root, Some(root), path, path, STRUCTURAL_DEPTH, &mut causes);
    causes.sort_by_key(|cause| format!("{}: {}", cause.field, cause.message));
    causes
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Root,
    Item,
    Field,
}

fn invariants(level: SchemaLevel<'_>, place: Place, path: &str, depth: usize, causes: &mut Vec<StatusCause>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let kind = level.kind();
    if kind == "array" && level.present("items").is_none() {
        causes.push(required(&child(path, "items"), "must be specified"));
    }
    if let Some(items) = level.level("items") {
        invariants(items, Place::Item, &child(path, "items"), depth, causes);
    }
    for (name, property) in level.properties() {
        invariants(property, Place::Field, &key(&child(path, "properties"), name), depth, causes);
    }
    let additional = level.present("additionalProperties");
    if additional.is_some() && place == Place::Root {
        causes.push(no(path, "additionalProperties", "must not be used at the root"));
    }
    if let Some(additional) = additional.and_then(SchemaLevel::of) {
        invariants(additional, Place::Field, &child(path, "additionalProperties"), depth, causes);
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
    types(level, place, path, causes);
    if embedded && additional.is_some() {
        let why = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(no(path, "additionalProperties", why));
    }
    metadata(level, place, path, causes);
    if embedded && !preserve && level.properties().next().is_none() {
        let why = "must not be empty if x-kubernetes-embedded-resource is true without \
                   x-kubernetes-preserve-unknown-fields";
        causes.push(required(&child(path, "properties"), why));
    }
}

fn types(level: SchemaLevel<'_>, place: Place, path: &str, causes: &mut Vec<StatusCause>) {
    let (kind, path) = (level.kind(), child(path, "type"));
    let free = level.flag("x-kubernetes-int-or-string") || level.flag("x-kubernetes-preserve-unknown-fields");
    if level.flag("x-kubernetes-embedded-resource") && kind != "object" {
        let why = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if kind.is_empty() { required(&path, why) } else { invalid(&path, &json!(kind), why) });
    } else if kind.is_empty() && !free {
        let why = match place {
            Place::Root => "must not be empty at the root",
            Place::Item => "must not be empty for specified array items",
            Place::Field => "must not be empty for specified object fields",
        };
        causes.push(required(&path, why));
    }
    if place == Place::Root && !kind.is_empty() && kind != "object" {
        causes.push(invalid(&path, &json!(kind), "must be object at the root"));
    }
}

/// What an object is, and its metadata, are the server's to describe.
fn metadata(level: SchemaLevel<'_>, place: Place, path: &str, causes: &mut Vec<StatusCause>) {
    let is_resource = place == Place::Root || level.flag("x-kubernetes-embedded-resource");
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
    if place != Place::Root {
        return;
    }
    let names_only = of.properties().all(|(name, _)| matches!(name.as_str(), "name" | "generateName"));
    let mut bare = of.value();
    if let Some(words) = bare.as_object_mut() {
        words.remove("type");
        words.remove("default");
        if names_only {
            words.remove("properties");
        }
        words.retain(|_, value| !matches!(value, Value::Null | Value::Bool(false)) && *value != json!(""));
    }
    if bare != json!({}) {
        let why = "must not specify anything other than name and generateName, but metadata is implicitly specified";
        causes.push(super::super::field::forbidden(&at("metadata"), why));
    }
}

/// Schemas that narrow another one.
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
            narrowing(part, false, &index(&child(path, "anyOf"), at), depth, causes);
        }
    }
    for (at, part) in level.levels("allOf") {
        let skip = skip_any_in_first_all && at == 0;
        narrowing(part, skip, &index(&child(path, "allOf"), at), depth, causes);
    }
    for (at, part) in level.levels("oneOf") {
        narrowing(part, false, &index(&child(path, "oneOf"), at), depth, causes);
    }
    if let Some(part) = level.level("not") {
        narrowing(part, false, &child(path, "not"), depth, causes);
    }
    let pattern = level.text("pattern");
    if let Err(error) = regex::Regex::new(pattern) {
        let why = format!("must be a valid regular expression, but isn't: {}", regex_error(pattern, &error));
        causes.push(invalid(&child(path, "pattern"), &json!(pattern), &why));
    }
}

fn narrowing(
    level: SchemaLevel<'_>,
    skip_any: bool,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    combined(level, skip_any, false, path, depth, causes);
    let Some(depth) = depth.checked_sub(1) else { return };
    if let Some(items) = level.level("items") {
        narrowing(items, false, &child(path, "items"), depth, causes);
    }
    for (name, property) in level.properties() {
        narrowing(property, false, &key(&child(path, "properties"), name), depth, causes);
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
        let place = key(&child(path, "properties"), "metadata");
        let why = "must not be specified in a nested context";
        causes.push(super::super::field::forbidden(&place, why));
    }
}

/// Whatever a narrowing schema names has to be named outside it too.
fn complete(
    narrow: SchemaLevel<'_>,
    wide: Option<SchemaLevel<'_>>,
    wide_path: &str,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    let Some(depth) = depth.checked_sub(1) else { return };
    let not = narrow.level("not").map(|level| (child(path, "not"), level));
    let lists = ["allOf", "anyOf", "oneOf"]
        .iter()
        .flat_map(|name| narrow.levels(name).map(|(at, level)| (index(&child(path, name), at), level)));
    for (path, part) in not.into_iter().chain(lists) {
        complete(part, wide, wide_path, &path, depth, causes);
        let because = |path: &str| format!("because it is defined in {path}");
        if let Some(items) = part.level("items") {
            let (wide_path, path) = (child(wide_path, "items"), child(&path, "items"));
            match wide.and_then(|wide| wide.level("items")) {
                None => causes.push(required(&wide_path, &because(&path))),
                Some(wide) => nested(items, wide, &wide_path, &path, depth, causes),
            }
        }
        for (name, property) in part.properties() {
            let wide_path = key(&child(wide_path, "properties"), name);
            let path = key(&child(&path, "properties"), name);
            match wide.and_then(|wide| wide.property(name)) {
                None => causes.push(required(&wide_path, &because(&path))),
                Some(wide) => nested(property, wide, &wide_path, &path, depth, causes),
            }
        }
    }
}

/// As [`complete`], for a part of a narrowing schema, whose own fields count too.
fn nested(
    part: SchemaLevel<'_>,
    wide: SchemaLevel<'_>,
    wide_path: &str,
    path: &str,
    depth: usize,
    causes: &mut Vec<StatusCause>,
) {
    let whole = json!({"allOf": [part.value()]});
    let Some(whole) = SchemaLevel::of(&whole) else { return };
    let before = causes.len();
    complete(whole, Some(wide), wide_path, path, depth, causes);
    // The list was made up to look at the part itself, so it has no place in the paths.
    for cause in causes.iter_mut().skip(before) {
        cause.message = cause.message.replacen(&format!("{path}.allOf[0]"), path, 1);
    }
}

/// What is wrong with a pattern, in the words of Go where they are known.
fn regex_error(pattern: &str, error: &regex::Error) -> String {
    let text = error.to_string();
    let from = |mark: char| pattern.rfind(mark).and_then(|at| pattern.get(at..)).unwrap_or(pattern);
    let what = match text.rsplit("error: ").next().unwrap_or_default() {
        what if what.starts_with("unclosed character class") => format!("missing closing ]: `{}`", from('[')),
        what if what.starts_with("unclosed group") => format!("missing closing ): `{pattern}`"),
        what if what.starts_with("unopened group") => format!("unexpected ): `{pattern}`"),
        what if what.starts_with("repetition operator missing") => {
            let sign: String = pattern.chars().filter(|letter| "*+?".contains(*letter)).take(1).collect();
            format!("missing argument to repetition operator: `{sign}`")
        }
        what if what.starts_with("look-around") => {
            let begin = ["(?=", "(?!", "(?<"].into_iter().find(|begin| pattern.contains(begin));
            format!("invalid or unsupported Perl syntax: `{}`", begin.unwrap_or("(?"))
        }
        _ => return text,
    };
    format!("error parsing regexp: {what}")
}

/// `anyOf` a number or a string, as it goes with `x-kubernetes-int-or-string`.
fn is_int_or_string(level: SchemaLevel<'_>) -> bool {
    level.list("anyOf") == [json!({"type": "integer"}), json!({"type": "string"})]
}

fn is_int_or_string_in_all(level: SchemaLevel<'_>) -> bool {
    level.levels("allOf").next().is_some_and(|(_, first)| is_int_or_string(first))
}
