//! A definition in the form in which kube-apiserver checks it and prints it in messages.
//!
//! kube-apiserver converts a definition to an internal type first. There, parts that are equal in all
//! versions are at the top level, so that a message contains `spec.validation` instead of
//! `spec.versions[0].schema`. Versions, schemas and rules are printed with the Go names of their fields.

use serde_json::{Map, Value, json};

use super::field::{json, quote};

/// A level of a schema as JSON. A keyword is a field of the level, for example `type` or `items`.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaLevel<'a>(&'a Map<String, Value>);

impl<'a> SchemaLevel<'a> {
    pub(super) fn of(schema: &'a Value) -> Option<Self> {
        schema.as_object().map(SchemaLevel)
    }

    /// Returns the value of a keyword, unless it is `null`, empty or false.
    ///
    /// `{}` is not empty in `items` and `additionalProperties`, where it is a schema.
    pub(super) fn keyword(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| match value {
            Value::Null => false,
            Value::Bool(flag) => *flag,
            Value::String(text) => !text.is_empty(),
            Value::Array(items) => !items.is_empty(),
            Value::Object(fields) => !fields.is_empty() || name == "items" || name == "additionalProperties",
            Value::Number(_) => true,
        })
    }

    /// Returns the value of a keyword, even if it is empty or false; `None` if it is absent or `null`.
    pub(super) fn present(self, name: &str) -> Option<&'a Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(self, name: &str) -> &'a str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn flag(self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    pub(super) fn kind(self) -> &'a str {
        self.text("type")
    }

    pub(super) fn list(self, name: &str) -> &'a [Value] {
        self.0.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    pub(super) fn levels(self, name: &str) -> impl Iterator<Item = (usize, SchemaLevel<'a>)> {
        self.list(name).iter().filter_map(SchemaLevel::of).enumerate()
    }

    pub(super) fn level(self, name: &str) -> Option<SchemaLevel<'a>> {
        self.0.get(name).and_then(SchemaLevel::of)
    }

    pub(super) fn properties(self) -> impl Iterator<Item = (&'a String, SchemaLevel<'a>)> {
        let fields = self.0.get("properties").and_then(Value::as_object);
        fields.into_iter().flatten().filter_map(|(name, schema)| Some((name, SchemaLevel::of(schema)?)))
    }

    pub(super) fn property(self, name: &str) -> Option<SchemaLevel<'a>> {
        self.0.get("properties").and_then(|fields| fields.get(name)).and_then(SchemaLevel::of)
    }

    pub(super) fn value(self) -> Value {
        Value::Object(self.0.clone())
    }

    /// Whether a predicate is true for this level or any of the `depth` − 1 levels below.
    pub(super) fn any(self, depth: usize, predicate: &dyn Fn(SchemaLevel<'a>) -> bool) -> bool {
        let Some(depth) = depth.checked_sub(1) else { return false };
        predicate(self)
            || ["items", "additionalProperties", "not"]
                .iter()
                .filter_map(|name| self.level(name))
                .any(|level| level.any(depth, predicate))
            || ["allOf", "anyOf", "oneOf"]
                .iter()
                .flat_map(|name| self.levels(name))
                .any(|(_, level)| level.any(depth, predicate))
            || self.properties().any(|(_, level)| level.any(depth, predicate))
    }
}

/// The spec of a definition, with the parts that all versions share moved to the top level.
#[derive(Debug)]
pub(super) struct Spec<'a> {
    /// The unchanged spec.
    pub(super) whole: &'a Value,
    /// The parts that are equal in all versions.
    pub(super) shared: Part<'a>,
    /// Each version as written, and its parts that are not shared.
    pub(super) versions: Vec<(&'a Value, Part<'a>)>,
}

/// The parts of a version that versions may share.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Part<'a> {
    pub(super) schema: Option<&'a Value>,
    pub(super) subresources: Option<&'a Value>,
    pub(super) columns: &'a [Value],
    pub(super) selectable: &'a [Value],
}

impl<'a> Spec<'a> {
    pub(super) fn read(definition: &'a Value) -> Self {
        let spec = &definition["spec"];
        let source = spec.get("versions").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let mut versions: Vec<(&Value, Part<'_>)> =
            source.iter().map(|version| (version, Part::read(version))).collect();
        let first = versions.first().map(|(_, part)| *part).unwrap_or_default();
        let mut shared = Part::default();
        if versions.iter().all(|(_, part)| part.schema == first.schema) {
            shared.schema = first.schema;
            for (_, part) in &mut versions {
                part.schema = None;
            }
        }
        if versions.iter().all(|(_, part)| part.subresources == first.subresources) {
            shared.subresources = first.subresources;
            for (_, part) in &mut versions {
                part.subresources = None;
            }
        }
        if versions.iter().all(|(_, part)| part.columns == first.columns) {
            shared.columns = first.columns;
            for (_, part) in &mut versions {
                part.columns = &[];
            }
        }
        if versions.iter().all(|(_, part)| part.selectable == first.selectable) {
            shared.selectable = first.selectable;
            for (_, part) in &mut versions {
                part.selectable = &[];
            }
        }
        Spec { whole: spec, shared, versions }
    }

    /// Returns the text at a JSON pointer that starts at the spec; empty if it is absent.
    pub(super) fn text(&self, pointer: &str) -> &'a str {
        self.whole.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the `openAPIV3Schema`s, the shared one first.
    pub(super) fn schemas(&self) -> impl Iterator<Item = SchemaLevel<'a>> {
        let parts = std::iter::once(&self.shared).chain(self.versions.iter().map(|(_, part)| part));
        parts.filter_map(Part::openapi)
    }

    /// Returns the versions as printed in messages.
    pub(super) fn show_versions(&self) -> String {
        let versions: Vec<String> =
            self.versions.iter().map(|(version, part)| show_version(version, part)).collect();
        let is_list = self.whole.get("versions").is_some_and(Value::is_array);
        if is_list { format!("[{}]", versions.join(",")) } else { "null".to_owned() }
    }
}

impl<'a> Part<'a> {
    fn read(version: &'a Value) -> Self {
        let object = |name: &str| version.get(name).filter(|value| value.is_object());
        let list = |name: &str| version.get(name).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        Part {
            schema: object("schema"),
            subresources: object("subresources"),
            columns: list("additionalPrinterColumns"),
            selectable: list("selectableFields"),
        }
    }

    pub(super) fn openapi(&self) -> Option<SchemaLevel<'a>> {
        self.schema?.get("openAPIV3Schema").and_then(SchemaLevel::of)
    }

    pub(super) fn has_status(&self) -> bool {
        let status = self.subresources.and_then(|subresources| subresources.get("status"));
        status.is_some_and(Value::is_object)
    }
}

/// Returns a rule as printed in messages.
pub(super) fn show_rule(rule: &Value) -> String {
    let text = |name: &str| json_text(rule.get(name).and_then(Value::as_str).unwrap_or_default());
    let pointer = |name: &str| rule.get(name).map_or("null".to_owned(), json);
    format!(
        r#"{{"Rule":{},"Message":{},"MessageExpression":{},"Reason":{},"FieldPath":{},"OptionalOldSelf":{}}}"#,
        text("rule"),
        text("message"),
        text("messageExpression"),
        pointer("reason"),
        text("fieldPath"),
        pointer("optionalOldSelf"),
    )
}

/// Returns a level of a schema as printed in messages.
pub(super) fn show_level(level: SchemaLevel<'_>) -> String {
    let mut fields = Vec::with_capacity(FIELDS.len());
    for (shown, name, form) in FIELDS {
        fields.push(format!("{}:{}", quote(shown), show_keyword(level, name, *form)));
    }
    format!("{{{}}}", fields.join(","))
}

/// Returns the keywords of a schema: the Go name and the JSON name.
pub(super) fn keyword_names() -> impl Iterator<Item = (&'static str, &'static str)> {
    FIELDS.iter().map(|(shown, name, _)| (*shown, *name))
}

/// Returns the items of a list as printed in messages.
pub(super) fn show_items(level: SchemaLevel<'_>) -> String {
    show_keyword(level, "items", Form::Items)
}

/// The form in which Go prints a keyword.
#[derive(Debug, Clone, Copy)]
enum Form {
    /// A string; `""` if absent.
    Text,
    /// A boolean; `false` if absent.
    Flag,
    /// Any JSON; `null` if absent, as in all following forms.
    Pointer,
    Number,
    /// `x-kubernetes-validations`.
    Rules,
    /// `items`: a schema, or a list of schemas.
    Items,
    /// A schema or a boolean.
    Additional,
    /// A list of schemas.
    Levels,
    /// A schema.
    Level,
    /// Schemas by name.
    Named,
    /// `externalDocs`.
    Docs,
}

/// The keywords of a schema in the order in which Go prints them: Go name, JSON name and form.
const FIELDS: &[(&str, &str, Form)] = &[
    ("ID", "id", Form::Text),
    ("Schema", "$schema", Form::Text),
    ("Ref", "$ref", Form::Pointer),
    ("Description", "description", Form::Text),
    ("Type", "type", Form::Text),
    ("Nullable", "nullable", Form::Flag),
    ("Format", "format", Form::Text),
    ("Title", "title", Form::Text),
    ("Default", "default", Form::Pointer),
    ("Maximum", "maximum", Form::Number),
    ("ExclusiveMaximum", "exclusiveMaximum", Form::Flag),
    ("Minimum", "minimum", Form::Number),
    ("ExclusiveMinimum", "exclusiveMinimum", Form::Flag),
    ("MaxLength", "maxLength", Form::Pointer),
    ("MinLength", "minLength", Form::Pointer),
    ("Pattern", "pattern", Form::Text),
    ("MaxItems", "maxItems", Form::Pointer),
    ("MinItems", "minItems", Form::Pointer),
    ("UniqueItems", "uniqueItems", Form::Flag),
    ("MultipleOf", "multipleOf", Form::Number),
    ("Enum", "enum", Form::Pointer),
    ("MaxProperties", "maxProperties", Form::Pointer),
    ("MinProperties", "minProperties", Form::Pointer),
    ("Required", "required", Form::Pointer),
    ("Items", "items", Form::Items),
    ("AllOf", "allOf", Form::Levels),
    ("OneOf", "oneOf", Form::Levels),
    ("AnyOf", "anyOf", Form::Levels),
    ("Not", "not", Form::Level),
    ("Properties", "properties", Form::Named),
    ("AdditionalProperties", "additionalProperties", Form::Additional),
    ("PatternProperties", "patternProperties", Form::Named),
    ("Dependencies", "dependencies", Form::Pointer),
    ("AdditionalItems", "additionalItems", Form::Additional),
    ("Definitions", "definitions", Form::Named),
    ("ExternalDocs", "externalDocs", Form::Docs),
    ("Example", "example", Form::Pointer),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Form::Pointer),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Form::Flag),
    ("XIntOrString", "x-kubernetes-int-or-string", Form::Flag),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Form::Pointer),
    ("XListType", "x-kubernetes-list-type", Form::Pointer),
    ("XMapType", "x-kubernetes-map-type", Form::Pointer),
    ("XValidations", "x-kubernetes-validations", Form::Rules),
];

fn show_keyword(level: SchemaLevel<'_>, name: &str, form: Form) -> String {
    let null = || "null".to_owned();
    let value = level.present(name);
    match form {
        Form::Text => json_text(level.text(name)),
        Form::Flag => level.flag(name).to_string(),
        Form::Pointer => value.map_or_else(null, json),
        Form::Number => value.and_then(Value::as_f64).map_or_else(null, super::field::number),
        Form::Rules => value.and_then(Value::as_array).map_or_else(null, |rules| {
            format!("[{}]", rules.iter().map(show_rule).collect::<Vec<_>>().join(","))
        }),
        Form::Items => match value {
            None => null(),
            Some(Value::Array(_)) => {
                format!(r#"{{"Schema":null,"JSONSchemas":{}}}"#, show_levels(level, name))
            }
            Some(schema) => format!(r#"{{"Schema":{},"JSONSchemas":null}}"#, show_schema(schema)),
        },
        Form::Additional => match value {
            None => null(),
            Some(Value::Bool(allows)) => format!(r#"{{"Allows":{allows},"Schema":null}}"#),
            Some(schema) => format!(r#"{{"Allows":true,"Schema":{}}}"#, show_schema(schema)),
        },
        Form::Levels => value.map_or_else(null, |_| show_levels(level, name)),
        Form::Level => value.map_or_else(null, show_schema),
        Form::Named => value.and_then(Value::as_object).map_or_else(null, |fields| {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, schema)| format!("{}:{}", json_text(name), show_schema(schema)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }),
        Form::Docs => value.map_or_else(null, |docs| {
            let text = |name: &str| json_text(docs.get(name).and_then(Value::as_str).unwrap_or_default());
            format!(r#"{{"Description":{},"URL":{}}}"#, text("description"), text("url"))
        }),
    }
}

fn show_levels(level: SchemaLevel<'_>, name: &str) -> String {
    format!("[{}]", level.list(name).iter().map(show_schema).collect::<Vec<_>>().join(","))
}

fn show_schema(schema: &Value) -> String {
    SchemaLevel::of(schema).map_or_else(|| "null".to_owned(), show_level)
}

fn show_version(version: &Value, part: &Part<'_>) -> String {
    let text =
        |value: &Value, name: &str| json_text(value.get(name).and_then(Value::as_str).unwrap_or_default());
    let flag = |name: &str| version.get(name).and_then(Value::as_bool).unwrap_or_default();
    let pointer =
        |value: &Value, name: &str| value.get(name).filter(|v| !v.is_null()).map_or("null".to_owned(), json);
    let schema = part.schema.map_or("null".to_owned(), |schema| {
        format!(
            r#"{{"OpenAPIV3Schema":{}}}"#,
            schema.get("openAPIV3Schema").map_or("null".to_owned(), show_schema)
        )
    });
    let subresources = part.subresources.map_or("null".to_owned(), |subresources| {
        let scale =
            subresources.get("scale").filter(|scale| scale.is_object()).map_or("null".to_owned(), |scale| {
                format!(
                    r#"{{"SpecReplicasPath":{},"StatusReplicasPath":{},"LabelSelectorPath":{}}}"#,
                    text(scale, "specReplicasPath"),
                    text(scale, "statusReplicasPath"),
                    pointer(scale, "labelSelectorPath"),
                )
            });
        format!(r#"{{"Status":{},"Scale":{scale}}}"#, pointer(subresources, "status"))
    });
    let columns = show_list(part.columns, |column| {
        format!(
            r#"{{"Name":{},"Type":{},"Format":{},"Description":{},"Priority":{},"JSONPath":{}}}"#,
            text(column, "name"),
            text(column, "type"),
            text(column, "format"),
            text(column, "description"),
            column.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            text(column, "jsonPath"),
        )
    });
    let selectable =
        show_list(part.selectable, |field| format!(r#"{{"JSONPath":{}}}"#, text(field, "jsonPath")));
    format!(
        r#"{{"Name":{},"Served":{},"Storage":{},"Deprecated":{},"DeprecationWarning":{},"Schema":{schema},"Subresources":{subresources},"AdditionalPrinterColumns":{columns},"SelectableFields":{selectable}}}"#,
        text(version, "name"),
        flag("served"),
        flag("storage"),
        flag("deprecated"),
        pointer(version, "deprecationWarning"),
    )
}

fn show_list(items: &[Value], show: impl Fn(&Value) -> String) -> String {
    if items.is_empty() {
        return "null".to_owned();
    }
    format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(","))
}

/// Returns text as JSON.
fn json_text(text: &str) -> String {
    json(&json!(text))
}
