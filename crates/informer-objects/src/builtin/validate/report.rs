//! Collection of causes: positions in an object, and causes with the texts of kube-apiserver.

use serde_json::Value;

use crate::status::StatusCause;

/// Fields that Go writes first, in this order; the others follow sorted.
const GO_ORDER: &[&str] = &[
    "apiVersion",
    "kind",
    "name",
    "uid",
    "controller",
    "blockOwnerDeletion",
    "matchLabels",
    "matchExpressions",
    "key",
    "operator",
    "values",
    "type",
];

static NULL: Value = Value::Null;

/// A position in an object: the value and its path.
#[derive(Debug, Clone)]
pub(super) struct Position<'a> {
    pub(super) value: &'a Value,
    pub(super) path: String,
}

impl<'a> Position<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Position { value, path: String::new() }
    }

    /// Returns the position of a field, `spec.template`; the value may be absent.
    pub(super) fn at(&self, fields: &str) -> Position<'a> {
        let value = fields.split('.').try_fold(self.value, |value, field| value.get(field));
        // Without `format!`, because this is called for every field of every validated object.
        let mut path = String::with_capacity(self.path.len() + 1 + fields.len());
        path.push_str(&self.path);
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(fields);
        Position { value: value.unwrap_or(&NULL), path }
    }

    /// Returns the positions of the entries of a list.
    pub(super) fn each(&self, field: &str) -> Vec<Position<'a>> {
        let list = self.at(field);
        let entries = list.value.as_array().map_or(&[][..], Vec::as_slice).iter().enumerate();
        entries.map(|(index, value)| Position { value, path: format!("{}[{index}]", list.path) }).collect()
    }

    /// Returns the positions of the entries of a map, `data[key]`.
    pub(super) fn entries(&self, field: &str) -> Vec<(&'a str, Position<'a>)> {
        let map = self.at(field);
        let entries = map.value.as_object().into_iter().flatten();
        let position = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), Position { value, path: format!("{}[{key}]", map.path) })
        };
        entries.map(position).collect()
    }

    /// Returns the position of a key, present or not.
    pub(super) fn key(&self, key: &str) -> Position<'a> {
        Position { value: self.value.get(key).unwrap_or(&NULL), path: format!("{}[{key}]", self.path) }
    }

    pub(super) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether the value is absent or empty.
    pub(super) fn is_empty(&self) -> bool {
        super::super::value::is_empty(self.value)
    }

    pub(super) fn text(&self) -> &'a str {
        self.value.as_str().unwrap_or_default()
    }

    pub(super) fn number(&self) -> i64 {
        self.value.as_i64().unwrap_or_default()
    }
}

/// The causes found so far.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) causes: Vec<StatusCause>,
}

impl Report {
    /// Adds a cause for a missing value; `why` may be empty.
    pub(super) fn required(&mut self, position: &Position<'_>, why: &str) {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        self.add("FieldValueRequired", position, message);
    }

    /// Adds a cause that shows the value at the position.
    pub(super) fn invalid(&mut self, position: &Position<'_>, why: &str) {
        self.invalid_value(position, &shown(position.value), why);
    }

    /// Adds a cause that shows `text` in quotes, whatever the value at the position is.
    pub(super) fn invalid_text(&mut self, position: &Position<'_>, text: &str, why: &str) {
        self.invalid_value(position, &quoted(text), why);
    }

    /// Adds a cause that shows `value`, which is already formatted; `why` may be empty.
    pub(super) fn invalid_value(&mut self, position: &Position<'_>, value: &str, why: &str) {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        self.add("FieldValueInvalid", position, format!("Invalid value: {value}{why}"));
    }

    /// Adds a cause for each reason why a text is invalid.
    pub(super) fn invalid_each(&mut self, position: &Position<'_>, text: &str, reasons: Vec<String>) {
        for why in reasons {
            self.invalid_text(position, text, &why);
        }
    }

    pub(super) fn unsupported(&mut self, position: &Position<'_>, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|value| quoted(value)).collect();
        let message = format!(
            "Unsupported value: {}: supported values: {}",
            shown_text(position.value),
            list.join(", ")
        );
        self.add("FieldValueNotSupported", position, message);
    }

    pub(super) fn duplicate(&mut self, position: &Position<'_>) {
        self.add("FieldValueDuplicate", position, format!("Duplicate value: {}", shown_text(position.value)));
    }

    pub(super) fn not_found(&mut self, position: &Position<'_>) {
        self.add("FieldValueNotFound", position, format!("Not found: {}", shown_text(position.value)));
    }

    pub(super) fn forbidden(&mut self, position: &Position<'_>, why: &str) {
        self.add("FieldValueForbidden", position, format!("Forbidden: {why}"));
    }

    pub(super) fn too_long(&mut self, position: &Position<'_>, limit: usize) {
        self.add("FieldValueTooLong", position, format!("Too long: may not be more than {limit} bytes"));
    }

    fn add(&mut self, reason: &str, position: &Position<'_>, message: String) {
        self.causes.push(StatusCause::new(reason, &position.path, message));
    }
}

/// Returns a value as printed in messages.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        Value::Array(items) => {
            format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(","))
        }
        Value::Object(fields) => {
            let rank = |key: &str| GO_ORDER.iter().position(|known| *known == key).unwrap_or(GO_ORDER.len());
            let mut entries: Vec<(&String, &Value)> = fields.iter().collect();
            entries.sort_by_key(|(key, _)| (rank(key), key.as_str()));
            let texts: Vec<String> =
                entries.iter().map(|(key, value)| format!("{}:{}", quoted(key), shown(value))).collect();
            format!("{{{}}}", texts.join(","))
        }
        other => other.to_string(),
    }
}

/// Like [`shown`], but null is the empty string.
fn shown_text(value: &Value) -> String {
    if value.is_null() { "\"\"".to_owned() } else { shown(value) }
}

/// Returns text in quotes.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
