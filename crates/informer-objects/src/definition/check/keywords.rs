//! Checks of the keywords of each level of a schema.
//!
//! CEL rules are checked only if the schema is structural and its defaults are valid, and if their level and
//! the levels below have no other error. Their errors come last.

use serde_json::{Value, json};

use super::super::field::{child, index, invalid, invalid_shown, key, not_supported, required};
use super::super::paths::{BracketNotation, field_path};
use super::super::rules::check_rules;
use super::super::source_schema::{SchemaLevel, keyword_names, show_items, show_level, show_rule};
use super::{defaults, forbidden_keyword, structure};
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
        causes.push(forbidden_keyword(path, "nullable", "nullable cannot be true at the root"));
    }
    let structural_error = structure::structural_error(root, STRUCTURAL_DEPTH);
    let value = root.value();
    let schema = Structural::read(&value);
    let mut compilable = None;
    if structural_error.is_none() {
        let mut schema_causes = structure::check(root, path);
        if schema_causes.is_empty() {
            schema_causes = defaults::check(&schema, path);
        }
        if schema_causes.is_empty() {
            compilable = Some(&schema);
        }
        causes.extend(schema_causes);
    }
    let LevelCauses { keywords, rules } =
        check_level(root, path, &LevelContext { is_root: true, ..LevelContext::default() }, compilable);
    causes.extend(keywords);
    causes.extend(rules);
    if let Some(why) = structural_error.filter(|_| causes.is_empty()) {
        causes.push(invalid(path, &json!(""), &why));
    }
    causes
}

/// Checks the keywords that are allowed at the root if the status is a subresource.
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

/// The causes of a level and of the levels below; those of rules are separate because they come last.
#[derive(Debug, Default)]
struct LevelCauses {
    keywords: Vec<StatusCause>,
    rules: Vec<StatusCause>,
}

impl LevelCauses {
    fn add(&mut self, other: LevelCauses) {
        self.keywords.extend(other.keywords);
        self.rules.extend(other.rules);
    }
}

/// The position of a level in the schema.
#[derive(Debug, Clone, Default)]
struct LevelContext {
    is_root: bool,
    /// The number of levels above.
    depth: usize,
    /// The reason why defaults are not allowed, if they are not.
    no_defaults: Option<String>,
    /// Whether the level describes type or metadata, which all objects have.
    in_meta: bool,
    /// The path of an enclosing list whose entries have no identity, so that rules inside cannot use
    /// `oldSelf`.
    no_old: Option<String>,
}

/// Checks a level and the levels below.
///
/// `compilable` is the same level, parsed. It is `None` if rules must not be compiled: the schema is not
/// structural, a default is invalid, or the level is inside `not`, `allOf`, `oneOf` or `anyOf`.
fn check_level(
    level: SchemaLevel<'_>,
    path: &str,
    context: &LevelContext,
    compilable: Option<&Structural>,
) -> LevelCauses {
    let mut found = LevelCauses { keywords: check_allowed(level, path, context), rules: Vec::new() };
    if context.depth >= STRUCTURAL_DEPTH {
        return found;
    }
    if level.flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.keywords.push(forbidden_keyword(path, "uniqueItems", why));
    }
    check_children(level, path, context, compilable, &mut found);
    if level.present("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
        let field = child(path, "x-kubernetes-preserve-unknown-fields");
        found.keywords.push(invalid(&field, &json!(false), "must be true or undefined"));
    }
    found.keywords.extend(check_map_type(level, path));
    found.keywords.extend(check_list_type(level, path));
    let rules = level.list("x-kubernetes-validations");
    found.keywords.extend(rules.iter().enumerate().flat_map(|(nth, rule)| {
        check_rule_fields(level, rule, &index(&child(path, "x-kubernetes-validations"), nth))
    }));
    if found.keywords.is_empty()
        && let Some(schema) = compilable
    {
        found.rules.extend(check_compiled_rules(rules, schema, path, context));
    }
    found
}

fn check_children(
    level: SchemaLevel<'_>,
    path: &str,
    context: &LevelContext,
    compilable: Option<&Structural>,
    found: &mut LevelCauses,
) {
    let inner = LevelContext { is_root: false, depth: context.depth + 1, ..context.clone() };
    if let Some(additional) = level.level("additionalProperties") {
        if level.properties().next().is_some() {
            let why = "additionalProperties and properties are mutual exclusive";
            found.keywords.push(forbidden_keyword(path, "additionalProperties", why));
        }
        let mut inner = inner.clone();
        if context.in_meta {
            inner.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        let compilable = compilable.and_then(|schema| schema.additional.as_deref());
        found.add(check_level(additional, &child(path, "additionalProperties"), &inner, compilable));
    }
    let is_resource = context.is_root || level.flag("x-kubernetes-embedded-resource");
    for (name, property) in level.properties() {
        let mut inner = inner.clone();
        if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            inner.in_meta = true;
            if context.is_root {
                inner.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        let compilable = compilable.and_then(|schema| schema.properties.get(name));
        found.add(check_level(property, &key(&child(path, "properties"), name), &inner, compilable));
    }
    if let Some(not) = level.level("not") {
        found.add(check_level(not, &child(path, "not"), &inner, None));
    }
    for name in ["allOf", "oneOf", "anyOf"] {
        for (nth, part) in level.levels(name) {
            found.add(check_level(part, &index(&child(path, name), nth), &inner, None));
        }
    }
    if let Some(items) = level.level("items") {
        let mut inner = inner;
        if level.text("x-kubernetes-list-type") != "map" && inner.no_old.is_none() {
            inner.no_old = Some(path.to_owned());
        }
        let compilable = compilable.and_then(|schema| schema.items.as_deref());
        found.add(check_level(items, &child(path, "items"), &inner, compilable));
    }
}

/// Checks for keywords that are not allowed, and for unknown types.
fn check_allowed(level: SchemaLevel<'_>, path: &str, context: &LevelContext) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let kind = level.kind();
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(not_supported(&child(path, "type"), &json!(kind), TYPES));
    }
    if let Some(why) = context.no_defaults.as_ref().filter(|_| level.present("default").is_some()) {
        causes.push(forbidden_keyword(path, "default", &format!("must not be set {why}")));
    }
    for name in ["id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref"] {
        if level.keyword(name).is_some() {
            causes.push(forbidden_keyword(path, name, &format!("{name} is not supported")));
        }
    }
    if kind == "null" {
        causes.push(forbidden_keyword(
            path,
            "type",
            "type cannot be set to null, use nullable as an alternative",
        ));
    }
    if level.present("items").is_some_and(Value::is_array) {
        causes.push(forbidden_keyword(path, "items", "items must be a schema object and not an array"));
    }
    if context.in_meta && level.flag("x-kubernetes-embedded-resource") {
        causes.push(forbidden_keyword(
            path,
            "x-kubernetes-embedded-resource",
            "must not be used inside of resource meta",
        ));
    }
    causes
}

/// Checks the type that a keyword requires.
fn check_required_type(
    level: SchemaLevel<'_>,
    path: &str,
    wanted: &str,
    keyword: &str,
) -> Option<StatusCause> {
    let (kind, field) = (level.kind(), child(path, "type"));
    let why = format!("must be {wanted} if {keyword} is specified");
    match kind {
        "" => Some(required(&field, &why)),
        kind if kind == wanted => None,
        kind => Some(invalid(&field, &json!(kind), &why)),
    }
}

fn check_map_type(level: SchemaLevel<'_>, path: &str) -> Vec<StatusCause> {
    const KEYWORD: &str = "x-kubernetes-map-type";
    let Some(map_type) = level.present(KEYWORD) else { return Vec::new() };
    let mut causes: Vec<StatusCause> =
        check_required_type(level, path, "object", KEYWORD).into_iter().collect();
    if *map_type != json!("atomic") && *map_type != json!("granular") {
        causes.push(not_supported(&child(path, KEYWORD), map_type, &["atomic", "granular"]));
    }
    causes
}

fn check_list_type(level: SchemaLevel<'_>, path: &str) -> Vec<StatusCause> {
    const KEYWORD: &str = "x-kubernetes-list-type";
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let mut causes = Vec::new();
    let list_type = level.present(KEYWORD);
    let items = level.level("items");
    let keys = level.list(KEYS);
    if list_type.is_some() {
        match check_required_type(level, path, "array", KEYWORD) {
            Some(cause) => causes.push(cause),
            None => causes.extend(
                items
                    .filter(|_| level.text(KEYWORD) == "set")
                    .and_then(|items| check_atomic_items(items, path)),
            ),
        }
    }
    if let Some(list_type) =
        list_type.filter(|list_type| !matches!(list_type.as_str(), Some("atomic" | "set" | "map")))
    {
        causes.push(not_supported(&child(path, KEYWORD), list_type, &["atomic", "set", "map"]));
    }
    if !keys.is_empty() && level.text(KEYWORD) != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        let field = child(path, KEYWORD);
        causes.push(
            list_type.map_or_else(|| required(&field, why), |list_type| invalid(&field, list_type, why)),
        );
    }
    if level.text(KEYWORD) == "map" {
        causes.extend(check_map_keys(level, items, keys, path));
    }
    if let Some(items) = items.filter(|_| matches!(level.text(KEYWORD), "set" | "map")) {
        causes.extend(check_identity(level, items, keys, path));
    }
    causes
}

/// Checks that the entries of a set are atomic, because a set compares whole entries.
fn check_atomic_items(items: SchemaLevel<'_>, path: &str) -> Option<StatusCause> {
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.present("x-kubernetes-list-type");
    let shown = list_type.cloned().unwrap_or(Value::Null);
    let keyword = match items.kind() {
        "array" if list_type.is_some_and(|list_type| *list_type != json!("atomic")) => {
            "x-kubernetes-list-type"
        }
        "object" if items.text("x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
        _ => return None,
    };
    // kube-apiserver quotes the list type in both cases.
    Some(invalid(&child(&child(path, "items"), keyword), &shown, why))
}

/// Checks a list of list type `map`: it needs keys, and entries that have them.
fn check_map_keys(
    level: SchemaLevel<'_>,
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
        causes.push(if level.present("items").is_some() {
            let why = "must only have a single schema if x-kubernetes-list-type is map";
            invalid_shown(&items_path, &show_items(level), why)
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
                // kube-apiserver prints the type of the entries, not that of the property.
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

/// Checks that entries of sets, and keys of entries, cannot be null or absent, because they identify entries.
fn check_identity(
    level: SchemaLevel<'_>,
    items: SchemaLevel<'_>,
    keys: &[Value],
    path: &str,
) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let items_path = child(path, "items");
    let list_type = level.text("x-kubernetes-list-type");
    if items.flag("nullable") {
        let why = format!("cannot be nullable when x-kubernetes-list-type is {list_type}");
        causes.push(forbidden_keyword(&items_path, "nullable", &why));
    }
    for name in keys.iter().filter(|_| list_type == "map") {
        let text = name.as_str().unwrap_or_default();
        let Some(property) = items.property(text) else { continue };
        let field = key(&child(&items_path, "properties"), text);
        if !items.list("required").contains(name) && property.present("default").is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(required(&child(&field, "default"), why));
        }
        if property.flag("nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(forbidden_keyword(&field, "nullable", why));
        }
    }
    causes
}

/// Checks the fields of a rule without compiling it.
fn check_rule_fields(level: SchemaLevel<'_>, rule: &Value, path: &str) -> Vec<StatusCause> {
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
    let (location, field) = (child(path, "fieldPath"), text("fieldPath"));
    if field.is_empty() {
        return causes;
    }
    if field.trim().is_empty() {
        causes.push(invalid(&location, &json!(field), "must be non-empty if specified"));
    }
    if has_line_break(field) {
        causes.push(invalid(&location, &json!(field), "must not contain line breaks"));
    }
    if field_path(field, &Structural::read_part(&level.value()), BracketNotation::Allowed).is_err() {
        causes.push(invalid(&location, &json!(field), "must be a valid path"));
    }
    causes
}

/// Checks the rules by compiling them.
fn check_compiled_rules(
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
