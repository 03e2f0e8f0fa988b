//! Checks of the keywords of each level of a schema.
//!
//! CEL rules are checked last, and only if everything else is valid.

use serde_json::{Value, json};

use super::super::field::{child, index, invalid, invalid_shown, key, not_supported, required};
use super::super::paths::{BracketNotation, field_path};
use super::super::rules::check_rules;
use super::super::source_schema::{SchemaLevel, keyword_names, show_items, show_level, show_rule};
use super::{defaults, no, structure};
use crate::schema::{STRUCTURAL_DEPTH, Structural};
use crate::status::StatusCause;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// The keywords allowed at the root if the status is a subresource, by their Go names.
const ALLOWED_AT_ROOT: &[&str] = &[
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Checks the schema of a version.
pub(super) fn check(root: SchemaLevel<'_>, has_status: bool, path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if has_status {
        causes.extend(check_root(root, path));
    }
    if root.flag("nullable") {
        causes.push(no(path, "nullable", "nullable cannot be true at the root"));
    }
    let structural_error = structure::structural_error(root, STRUCTURAL_DEPTH);
    let value = root.value();
    let schema = Structural::read(&value);
    let mut compilable = None;
    if structural_error.is_none() {
        let found = structure::check(root, path);
        let found = if found.is_empty() { defaults::check(&schema, path) } else { found };
        if found.is_empty() {
            compilable = Some(&schema);
        }
        causes.extend(found);
    }
    let Found { keywords, rules } =
        level(root, path, &LevelContext { is_root: true, ..LevelContext::default() }, compilable);
    causes.extend(keywords);
    causes.extend(rules);
    if let Some(why) = structural_error.filter(|_| causes.is_empty()) {
        causes.push(invalid(path, &json!(""), &why));
    }
    causes
}

fn check_root(root: SchemaLevel<'_>, path: &str) -> Option<StatusCause> {
    for (shown, name) in keyword_names() {
        if root.keyword(name).is_none() {
            continue;
        }
        if shown == "Type" {
            if root.kind() != "object" {
                let why = "only \"object\" is allowed as the type at the root of the schema if the status subresource is enabled";
                return Some(invalid(&child(path, "type"), &json!(root.kind()), why));
            }
        } else if !ALLOWED_AT_ROOT.contains(&shown) {
            let why = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                ALLOWED_AT_ROOT.join(" ")
            );
            return Some(invalid_shown(path, &show_level(root), &why));
        }
    }
    None
}

/// The causes found; those of rules are separate because they come last.
#[derive(Debug, Default)]
struct Found {
    keywords: Vec<StatusCause>,
    rules: Vec<StatusCause>,
}

impl Found {
    fn add(&mut self, other: Found) {
        self.keywords.extend(other.keywords);
        self.rules.extend(other.rules);
    }
}

/// The position of a level in the schema.
#[derive(Debug, Clone, Default)]
struct LevelContext {
    is_root: bool,
    /// The depth of the level.
    depth: usize,
    /// The reason why defaults are not allowed.
    no_defaults: Option<String>,
    /// Whether the level describes type or metadata, which all objects have.
    in_meta: bool,
    /// The enclosing list whose entries have no identity, so that nothing below has an old value.
    no_old: Option<String>,
}

/// Checks a level; `compilable` is the level as rules see it, or `None` if there are no rules or something
/// else is invalid.
fn level(at: SchemaLevel<'_>, path: &str, context: &LevelContext, compilable: Option<&Structural>) -> Found {
    let mut found = Found { keywords: allowed(at, path, context), rules: Vec::new() };
    if context.depth >= STRUCTURAL_DEPTH {
        return found;
    }
    if at.flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.keywords.push(no(path, "uniqueItems", why));
    }
    below(at, path, context, compilable, &mut found);
    if at.present("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
        let field = child(path, "x-kubernetes-preserve-unknown-fields");
        found.keywords.push(invalid(&field, &json!(false), "must be true or undefined"));
    }
    found.keywords.extend(maps(at, path));
    found.keywords.extend(lists(at, path));
    let rules = at.list("x-kubernetes-validations");
    found.keywords.extend(rules.iter().enumerate().flat_map(|(nth, rule)| {
        rule_fields(at, rule, &index(&child(path, "x-kubernetes-validations"), nth))
    }));
    if found.keywords.is_empty()
        && let Some(schema) = compilable
    {
        found.rules.extend(compiled_rules(rules, schema, path, context));
    }
    found
}

fn below(
    at: SchemaLevel<'_>,
    path: &str,
    context: &LevelContext,
    compilable: Option<&Structural>,
    found: &mut Found,
) {
    let inner = LevelContext { is_root: false, depth: context.depth + 1, ..context.clone() };
    if let Some(additional) = at.level("additionalProperties") {
        if at.properties().next().is_some() {
            let why = "additionalProperties and properties are mutual exclusive";
            found.keywords.push(no(path, "additionalProperties", why));
        }
        let mut inner = inner.clone();
        if context.in_meta {
            inner.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        let compilable = compilable.and_then(|schema| schema.additional.as_deref());
        found.add(level(additional, &child(path, "additionalProperties"), &inner, compilable));
    }
    let is_resource = context.is_root || at.flag("x-kubernetes-embedded-resource");
    for (name, property) in at.properties() {
        let mut inner = inner.clone();
        if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            inner.in_meta = true;
            if context.is_root {
                inner.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        let compilable = compilable.and_then(|schema| schema.properties.get(name));
        found.add(level(property, &key(&child(path, "properties"), name), &inner, compilable));
    }
    if let Some(not) = at.level("not") {
        found.add(level(not, &child(path, "not"), &inner, None));
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (nth, part) in at.levels(name) {
            found.add(level(part, &index(&child(path, name), nth), &inner, None));
        }
    }
    if let Some(items) = at.level("items") {
        let mut inner = inner;
        if at.text("x-kubernetes-list-type") != "map" && inner.no_old.is_none() {
            inner.no_old = Some(path.to_owned());
        }
        let compilable = compilable.and_then(|schema| schema.items.as_deref());
        found.add(level(items, &child(path, "items"), &inner, compilable));
    }
}

/// Checks for keywords that are not allowed, and for unknown types.
fn allowed(at: SchemaLevel<'_>, path: &str, context: &LevelContext) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let kind = at.kind();
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(not_supported(&child(path, "type"), &json!(kind), TYPES));
    }
    if let Some(why) = context.no_defaults.as_ref().filter(|_| at.present("default").is_some()) {
        causes.push(no(path, "default", &format!("must not be set {why}")));
    }
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if at.keyword(name).is_some() {
            causes.push(no(path, name, &format!("{name} is not supported")));
        }
    }
    if kind == "null" {
        causes.push(no(path, "type", "type cannot be set to null, use nullable as an alternative"));
    }
    if at.present("items").is_some_and(Value::is_array) {
        causes.push(no(path, "items", "items must be a schema object and not an array"));
    }
    if context.in_meta && at.flag("x-kubernetes-embedded-resource") {
        causes.push(no(path, "x-kubernetes-embedded-resource", "must not be used inside of resource meta"));
    }
    causes
}

/// Checks the type that a keyword requires.
fn required_type(at: SchemaLevel<'_>, path: &str, wanted: &str, keyword: &str) -> Option<StatusCause> {
    let (kind, field) = (at.kind(), child(path, "type"));
    let why = format!("must be {wanted} if {keyword} is specified");
    match kind {
        "" => Some(required(&field, &why)),
        kind if kind == wanted => None,
        kind => Some(invalid(&field, &json!(kind), &why)),
    }
}

fn maps(at: SchemaLevel<'_>, path: &str) -> Vec<StatusCause> {
    const KEYWORD: &str = "x-kubernetes-map-type";
    let Some(of) = at.present(KEYWORD) else { return Vec::new() };
    let mut causes: Vec<StatusCause> = required_type(at, path, "object", KEYWORD).into_iter().collect();
    if *of != json!("atomic") && *of != json!("granular") {
        causes.push(not_supported(&child(path, KEYWORD), of, &["atomic", "granular"]));
    }
    causes
}

fn lists(at: SchemaLevel<'_>, path: &str) -> Vec<StatusCause> {
    const KEYWORD: &str = "x-kubernetes-list-type";
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let mut causes = Vec::new();
    let of = at.present(KEYWORD);
    let items = at.level("items");
    let keys = at.list(KEYS);
    if of.is_some() {
        match required_type(at, path, "array", KEYWORD) {
            Some(cause) => causes.push(cause),
            None => causes.extend(
                items.filter(|_| at.text(KEYWORD) == "set").and_then(|items| atomic_items(items, path)),
            ),
        }
    }
    if let Some(of) = of.filter(|of| !matches!(of.as_str(), Some("atomic" | "set" | "map"))) {
        causes.push(not_supported(&child(path, KEYWORD), of, &["atomic", "set", "map"]));
    }
    if !keys.is_empty() && at.text(KEYWORD) != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        let field = child(path, KEYWORD);
        causes.push(of.map_or_else(|| required(&field, why), |of| invalid(&field, of, why)));
    }
    if at.text(KEYWORD) == "map" {
        causes.extend(keyed(at, items, keys, path));
    }
    if let Some(items) = items.filter(|_| matches!(at.text(KEYWORD), "set" | "map")) {
        causes.extend(identifying(at, items, keys, path));
    }
    causes
}

/// Checks the entries of a set, which must be atomic because they are compared.
fn atomic_items(items: SchemaLevel<'_>, path: &str) -> Option<StatusCause> {
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.present("x-kubernetes-list-type");
    let shown = list_type.cloned().unwrap_or(Value::Null);
    let keyword = match items.kind() {
        "array" if list_type.is_some_and(|of| *of != json!("atomic")) => "x-kubernetes-list-type",
        "object" if items.text("x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
        _ => return None,
    };
    // kube-apiserver quotes the list type in both cases.
    Some(invalid(&child(&child(path, "items"), keyword), &shown, why))
}

/// Checks a list with keys: it needs keys, and entries that have them.
fn keyed(
    at: SchemaLevel<'_>,
    items: Option<SchemaLevel<'_>>,
    keys: &[Value],
    path: &str,
) -> Vec<StatusCause> {
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let mut causes = Vec::new();
    let (keys_path, items_path) = (child(path, KEYS), child(path, "items"));
    if keys.is_empty() {
        causes.push(required(&keys_path, "must not be empty if x-kubernetes-list-type is map"));
    }
    let Some(items) = items else {
        causes.push(if at.present("items").is_some() {
            let why = "must only have a single schema if x-kubernetes-list-type is map";
            invalid_shown(&items_path, &show_items(at), why)
        } else {
            required(&items_path, "must have a schema if x-kubernetes-list-type is map")
        });
        return causes;
    };
    if items.kind() != "object" {
        let why = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(invalid(&child(&items_path, "type"), &json!(items.kind()), why));
        return causes;
    }
    for (nth, name) in keys.iter().enumerate() {
        let text = name.as_str().unwrap_or_default();
        match items.property(text) {
            Some(property) if matches!(property.kind(), "array" | "object") => {
                let why = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                let field = child(&key(&child(&items_path, "properties"), text), "type");
                causes.push(invalid(&field, &json!(items.kind()), why));
            }
            Some(_) => {}
            None => {
                causes.push(invalid(
                    &keys_path,
                    &json!(keys),
                    "entries must all be names of item properties",
                ));
            }
        }
        if keys.iter().take(nth).any(|earlier| earlier == name) {
            causes.push(invalid(&keys_path, &json!(keys), "must not contain duplicate entries"));
        }
    }
    causes
}

/// Checks that entries and keys are never absent, because they identify entries.
fn identifying(at: SchemaLevel<'_>, items: SchemaLevel<'_>, keys: &[Value], path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let items_path = child(path, "items");
    let of = at.text("x-kubernetes-list-type");
    if items.flag("nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {of}");
        causes.push(no(&items_path, "nullable", &why));
    }
    for name in keys.iter().filter(|_| of == "map") {
        let text = name.as_str().unwrap_or_default();
        let Some(property) = items.property(text) else { continue };
        let field = key(&child(&items_path, "properties"), text);
        if !items.list("required").contains(name) && property.present("default").is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(required(&child(&field, "default"), why));
        }
        if property.flag("nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(no(&field, "nullable", why));
        }
    }
    causes
}

/// Checks the fields of a rule.
fn rule_fields(at: SchemaLevel<'_>, rule: &Value, path: &str) -> Vec<StatusCause> {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let has_line_break = |text: &str| text.contains(['\n', '\r']);
    let (message, trimmed) = (text("message"), text("message").trim());
    let mut causes = Vec::new();
    if text("rule").trim().is_empty() {
        causes.push(required(&child(path, "rule"), "rule is not specified"));
    } else if !message.is_empty() && trimmed.is_empty() {
        causes.push(invalid(&child(path, "message"), &json!(message), "must be non-empty if specified"));
    } else if has_line_break(trimmed) {
        causes.push(invalid(&child(path, "message"), &json!(message), "must not contain line breaks"));
    } else if has_line_break(text("rule").trim()) && trimmed.is_empty() {
        let why = "message must be specified if rule contains line breaks";
        causes.push(required(&child(path, "message"), why));
    }
    if !text("messageExpression").is_empty() && text("messageExpression").trim().is_empty() {
        let why = "messageExpression must be non-empty if specified";
        causes.push(required(&child(path, "messageExpression"), why));
    }
    if let Some(reason) = rule.get("reason").and_then(Value::as_str)
        && !REASONS.contains(&reason)
    {
        causes.push(not_supported(&child(path, "reason"), &json!(reason), REASONS));
    }
    let (field_path_place, field) = (child(path, "fieldPath"), text("fieldPath"));
    if field.is_empty() {
        return causes;
    }
    if field.trim().is_empty() {
        causes.push(invalid(&field_path_place, &json!(field), "must be non-empty if specified"));
    }
    if has_line_break(field) {
        causes.push(invalid(&field_path_place, &json!(field), "must not contain line breaks"));
    }
    if field_path(field, &Structural::read_part(&at.value()), BracketNotation::Allowed).is_err() {
        causes.push(invalid(&field_path_place, &json!(field), "must be a valid path"));
    }
    causes
}

/// Checks the rules by compiling them.
fn compiled_rules(
    rules: &[Value],
    schema: &Structural,
    path: &str,
    context: &LevelContext,
) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if rules.is_empty() {
        return causes;
    }
    for (nth, (rule, result)) in rules.iter().zip(check_rules(&schema.rules, schema)).enumerate() {
        let path_of_rule = index(&child(path, "x-kubernetes-validations"), nth);
        let rule_field = child(&path_of_rule, "rule");
        if let Some(why) = &result.rule {
            causes.push(invalid_shown(&rule_field, &show_rule(rule), why));
        }
        if let Some(why) = &result.message {
            causes.push(invalid_shown(&child(&path_of_rule, "messageExpression"), &show_rule(rule), why));
        }
        if result.uses_old {
            if let Some(list) = &context.no_old {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {list}"
                );
                causes.push(invalid(&rule_field, &rule["rule"], &why));
            }
        } else if let Some(optional) = rule.get("optionalOldSelf").filter(|value| !value.is_null()) {
            let why = "may not be set if oldSelf is not used in rule";
            causes.push(invalid(&child(&path_of_rule, "optionalOldSelf"), optional, why));
        }
    }
    causes
}
