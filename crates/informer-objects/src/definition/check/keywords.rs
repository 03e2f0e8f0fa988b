//! What each level of a schema may say.
//!
//! Rules in CEL are looked at last, and only where everything else is right.

use serde_json::{Value, json};

use super::super::field::{child, index, invalid, invalid_shown, key, not_supported, required};
use super::super::paths::field_path;
use super::super::rules::judge;
use super::super::source_schema::{SchemaLevel, keyword_names, show_items, show_level, show_rule};
use super::{defaults, no, structure};
use crate::schema::{STRUCTURAL_DEPTH, Structural};
use crate::status::StatusCause;

const TYPES: &[&str] = &["array", "boolean", "integer", "number", "object", "string"];
const REASONS: &[&str] =
    &["FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"];

/// What the root may say if the status is a subresource, by the server's own names.
const AT_ROOT: &[&str] = &[
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

/// What is wrong with the schema of a version.
pub(super) fn check(root: SchemaLevel<'_>, has_status: bool, path: &str) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if has_status {
        causes.extend(check_root(root, path));
    }
    if root.flag("nullable") {
        causes.push(no(path, "nullable", "nullable cannot be true at the root"));
    }
    let refused = structure::structural_error(root, STRUCTURAL_DEPTH);
    let value = root.value();
    let schema = Structural::read(&value);
    let mut judged = None;
    if refused.is_none() {
        let found = structure::check(root, path);
        let found = if found.is_empty() { defaults::check(&schema, path) } else { found };
        if found.is_empty() {
            judged = Some(&schema);
        }
        causes.extend(found);
    }
    let Found { words, rules } = level(root, path, &Around { is_root: true, ..Around::default() }, judged);
    causes.extend(words);
    causes.extend(rules);
    if let Some(why) = refused.filter(|_| causes.is_empty()) {
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
        } else if !AT_ROOT.contains(&shown) {
            let why = format!(
                "only [{}] fields are allowed at the root of the schema if the status subresource is enabled",
                AT_ROOT.join(" ")
            );
            return Some(invalid_shown(path, &show_level(root), &why));
        }
    }
    None
}

/// What was found: rules apart, because they come last.
#[derive(Debug, Default)]
struct Found {
    words: Vec<StatusCause>,
    rules: Vec<StatusCause>,
}

impl Found {
    fn add(&mut self, other: Found) {
        self.words.extend(other.words);
        self.rules.extend(other.rules);
    }
}

/// Where a level stands.
#[derive(Debug, Clone, Default)]
struct Around {
    is_root: bool,
    /// How deep it is.
    depth: usize,
    /// Why there may be no defaults.
    no_defaults: Option<String>,
    /// Whether it describes what all objects have.
    in_meta: bool,
    /// The list above whose entries cannot be told apart, so that nothing below has an old value.
    no_old: Option<String>,
}

/// `judged` is the same level as rules see it; none where there are no rules, or where something else is wrong.
fn level(at: SchemaLevel<'_>, path: &str, around: &Around, judged: Option<&Structural>) -> Found {
    let mut found = Found { words: allowed(at, path, around), rules: Vec::new() };
    if around.depth >= STRUCTURAL_DEPTH {
        return found;
    }
    if at.flag("uniqueItems") {
        let why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        found.words.push(no(path, "uniqueItems", why));
    }
    below(at, path, around, judged, &mut found);
    if at.present("x-kubernetes-preserve-unknown-fields") == Some(&json!(false)) {
        let place = child(path, "x-kubernetes-preserve-unknown-fields");
        found.words.push(invalid(&place, &json!(false), "must be true or undefined"));
    }
    found.words.extend(maps(at, path));
    found.words.extend(lists(at, path));
    let rules = at.list("x-kubernetes-validations");
    found.words.extend(rules.iter().enumerate().flat_map(|(nth, rule)| {
        written_rule(at, rule, &index(&child(path, "x-kubernetes-validations"), nth))
    }));
    if found.words.is_empty()
        && let Some(schema) = judged
    {
        found.rules.extend(judged_rules(rules, schema, path, around));
    }
    found
}

fn below(at: SchemaLevel<'_>, path: &str, around: &Around, judged: Option<&Structural>, found: &mut Found) {
    let inner = Around { is_root: false, depth: around.depth + 1, ..around.clone() };
    if let Some(additional) = at.level("additionalProperties") {
        if at.properties().next().is_some() {
            let why = "additionalProperties and properties are mutual exclusive";
            found.words.push(no(path, "additionalProperties", why));
        }
        let mut inner = inner.clone();
        if around.in_meta {
            inner.no_defaults = Some("inside additionalProperties applying to object metadata".to_owned());
        }
        let judged = judged.and_then(|schema| schema.additional.as_deref());
        found.add(level(additional, &child(path, "additionalProperties"), &inner, judged));
    }
    let is_resource = around.is_root || at.flag("x-kubernetes-embedded-resource");
    for (name, property) in at.properties() {
        let mut inner = inner.clone();
        if is_resource && matches!(name.as_str(), "metadata" | "kind" | "apiVersion") {
            inner.in_meta = true;
            if around.is_root {
                inner.no_defaults = Some(format!("in top-level {name}"));
            }
        }
        let judged = judged.and_then(|schema| schema.properties.get(name));
        found.add(level(property, &key(&child(path, "properties"), name), &inner, judged));
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
        let judged = judged.and_then(|schema| schema.items.as_deref());
        found.add(level(items, &child(path, "items"), &inner, judged));
    }
}

/// Words that are not allowed, and types that are none.
fn allowed(at: SchemaLevel<'_>, path: &str, around: &Around) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    let kind = at.kind();
    if !kind.is_empty() && !TYPES.contains(&kind) {
        causes.push(not_supported(&child(path, "type"), &json!(kind), TYPES));
    }
    if let Some(why) = around.no_defaults.as_ref().filter(|_| at.present("default").is_some()) {
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
    if around.in_meta && at.flag("x-kubernetes-embedded-resource") {
        causes.push(no(path, "x-kubernetes-embedded-resource", "must not be used inside of resource meta"));
    }
    causes
}

/// A type that another word asks for.
fn wants_type(at: SchemaLevel<'_>, path: &str, wanted: &str, word: &str) -> Option<StatusCause> {
    let (kind, place) = (at.kind(), child(path, "type"));
    let why = format!("must be {wanted} if {word} is specified");
    match kind {
        "" => Some(required(&place, &why)),
        kind if kind == wanted => None,
        kind => Some(invalid(&place, &json!(kind), &why)),
    }
}

fn maps(at: SchemaLevel<'_>, path: &str) -> Vec<StatusCause> {
    const WORD: &str = "x-kubernetes-map-type";
    let Some(of) = at.present(WORD) else { return Vec::new() };
    let mut causes: Vec<StatusCause> = wants_type(at, path, "object", WORD).into_iter().collect();
    if *of != json!("atomic") && *of != json!("granular") {
        causes.push(not_supported(&child(path, WORD), of, &["atomic", "granular"]));
    }
    causes
}

fn lists(at: SchemaLevel<'_>, path: &str) -> Vec<StatusCause> {
    const WORD: &str = "x-kubernetes-list-type";
    const KEYS: &str = "x-kubernetes-list-map-keys";
    let mut causes = Vec::new();
    let of = at.present(WORD);
    let items = at.level("items");
    let keys = at.list(KEYS);
    if of.is_some() {
        match wants_type(at, path, "array", WORD) {
            Some(cause) => causes.push(cause),
            None => causes
                .extend(items.filter(|_| at.text(WORD) == "set").and_then(|items| whole_items(items, path))),
        }
    }
    if let Some(of) = of.filter(|of| !matches!(of.as_str(), Some("atomic" | "set" | "map"))) {
        causes.push(not_supported(&child(path, WORD), of, &["atomic", "set", "map"]));
    }
    if !keys.is_empty() && at.text(WORD) != "map" {
        let why = "must be map if x-kubernetes-list-map-keys is non-empty";
        let place = child(path, WORD);
        causes.push(of.map_or_else(|| required(&place, why), |of| invalid(&place, of, why)));
    }
    if at.text(WORD) == "map" {
        causes.extend(keyed(at, items, keys, path));
    }
    if let Some(items) = items.filter(|_| matches!(at.text(WORD), "set" | "map")) {
        causes.extend(definite(at, items, keys, path));
    }
    causes
}

/// Entries of a set are compared, so they have to be wholes.
fn whole_items(items: SchemaLevel<'_>, path: &str) -> Option<StatusCause> {
    let why = "must be atomic as item of a list with x-kubernetes-list-type=set";
    let list_type = items.present("x-kubernetes-list-type");
    let shown = list_type.cloned().unwrap_or(Value::Null);
    let word = match items.kind() {
        "array" if list_type.is_some_and(|of| *of != json!("atomic")) => "x-kubernetes-list-type",
        "object" if items.text("x-kubernetes-map-type") != "atomic" => "x-kubernetes-map-type",
        _ => return None,
    };
    // The real message quotes the list type in both cases.
    Some(invalid(&child(&child(path, "items"), word), &shown, why))
}

/// Lists by key need keys, and entries that have them.
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
                let place = child(&key(&child(&items_path, "properties"), text), "type");
                causes.push(invalid(&place, &json!(items.kind()), why));
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

/// Entries and keys that may be missing cannot tell entries apart.
fn definite(at: SchemaLevel<'_>, items: SchemaLevel<'_>, keys: &[Value], path: &str) -> Vec<StatusCause> {
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
        let place = key(&child(&items_path, "properties"), text);
        if !items.list("required").contains(name) && property.present("default").is_none() {
            let why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
            causes.push(required(&child(&place, "default"), why));
        }
        if property.flag("nullable") {
            let why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
            causes.push(no(&place, "nullable", why));
        }
    }
    causes
}

/// What is wrong with how a rule is written down.
fn written_rule(at: SchemaLevel<'_>, rule: &Value, path: &str) -> Vec<StatusCause> {
    let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default();
    let broken = |text: &str| text.contains(['\n', '\r']);
    let (message, trimmed) = (text("message"), text("message").trim());
    let mut causes = Vec::new();
    if text("rule").trim().is_empty() {
        causes.push(required(&child(path, "rule"), "rule is not specified"));
    } else if !message.is_empty() && trimmed.is_empty() {
        causes.push(invalid(&child(path, "message"), &json!(message), "must be non-empty if specified"));
    } else if broken(trimmed) {
        causes.push(invalid(&child(path, "message"), &json!(message), "must not contain line breaks"));
    } else if broken(text("rule").trim()) && trimmed.is_empty() {
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
    let (place, field) = (child(path, "fieldPath"), text("fieldPath"));
    if field.is_empty() {
        return causes;
    }
    if field.trim().is_empty() {
        causes.push(invalid(&place, &json!(field), "must be non-empty if specified"));
    }
    if broken(field) {
        causes.push(invalid(&place, &json!(field), "must not contain line breaks"));
    }
    if field_path(field, &Structural::part(&at.value()), true).is_err() {
        causes.push(invalid(&place, &json!(field), "must be a valid path"));
    }
    causes
}

/// What is wrong with the rules themselves.
fn judged_rules(rules: &[Value], schema: &Structural, path: &str, around: &Around) -> Vec<StatusCause> {
    let mut causes = Vec::new();
    if rules.is_empty() {
        return causes;
    }
    for (nth, (rule, verdict)) in rules.iter().zip(judge(&schema.rules, schema)).enumerate() {
        let place = index(&child(path, "x-kubernetes-validations"), nth);
        let rule_place = child(&place, "rule");
        if let Some(why) = &verdict.rule {
            causes.push(invalid_shown(&rule_place, &show_rule(rule), why));
        }
        if let Some(why) = &verdict.message {
            causes.push(invalid_shown(&child(&place, "messageExpression"), &show_rule(rule), why));
        }
        if verdict.uses_old {
            if let Some(above) = &around.no_old {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {above}"
                );
                causes.push(invalid(&rule_place, &rule["rule"], &why));
            }
        } else if let Some(optional) = rule.get("optionalOldSelf").filter(|value| !value.is_null()) {
            let why = "may not be set if oldSelf is not used in rule";
            causes.push(invalid(&child(&place, "optionalOldSelf"), optional, why));
        }
    }
    causes
}
