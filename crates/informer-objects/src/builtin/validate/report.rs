//! Collecting what is wrong: places in an object, and causes in the words of a kube-apiserver.

use serde_json::Value;

use crate::status::StatusCause;

/// Fields that Go writes before others, in this order; the rest follow sorted.
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

/// A place in an object: what stands there and how it is called.
#[derive(Debug, Clone)]
pub(super) struct Place<'a> {
    pub(super) value: &'a Value,
    pub(super) path: String,
}

impl<'a> Place<'a> {
    pub(super) fn root(value: &'a Value) -> Self {
        Place { value, path: String::new() }
    }

    /// The place of a field, `spec.template`; it may be empty.
    pub(super) fn at(&self, fields: &str) -> Place<'a> {
        let value = fields.split('.').try_fold(self.value, |value, field| value.get(field));
        // Written without formatting: this is done for every field of every object that is checked.
        let mut path = String::with_capacity(self.path.len() + 1 + fields.len());
        path.push_str(&self.path);
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(fields);
        Place { value: value.unwrap_or(&NULL), path }
    }

    /// The places of the entries of a list.
    pub(super) fn each(&self, field: &str) -> Vec<Place<'a>> {
        let list = self.at(field);
        let entries = list.value.as_array().map_or(&[][..], Vec::as_slice).iter().enumerate();
        entries.map(|(index, value)| Place { value, path: format!("{}[{index}]", list.path) }).collect()
    }

    /// The places of the entries of a map, `data[key]`.
    pub(super) fn entries(&self, field: &str) -> Vec<(&'a str, Place<'a>)> {
        let map = self.at(field);
        let entries = map.value.as_object().into_iter().flatten();
        let place = |(key, value): (&'a String, &'a Value)| {
            (key.as_str(), Place { value, path: format!("{}[{key}]", map.path) })
        };
        entries.map(place).collect()
    }

    /// The place of a key, whether it is there or not.
    pub(super) fn key(&self, key: &str) -> Place<'a> {
        Place { value: self.value.get(key).unwrap_or(&NULL), path: format!("{}[{key}]", self.path) }
    }

    pub(super) fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Whether nothing, or something empty, stands here.
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

/// What was found.
#[derive(Debug, Default)]
pub(super) struct Report {
    pub(super) causes: Vec<StatusCause>,
}

impl Report {
    pub(super) fn required(&mut self, place: &Place<'_>, why: &str) {
        let message =
            if why.is_empty() { "Required value".to_owned() } else { format!("Required value: {why}") };
        self.add("FieldValueRequired", place, message);
    }

    /// The value that stands at the place is wrong.
    pub(super) fn invalid(&mut self, place: &Place<'_>, why: &str) {
        self.invalid_value(place, &shown(place.value), why);
    }

    /// Some text is wrong.
    pub(super) fn invalid_text(&mut self, place: &Place<'_>, text: &str, why: &str) {
        self.invalid_value(place, &quoted(text), why);
    }

    /// A value that is written as given.
    pub(super) fn invalid_value(&mut self, place: &Place<'_>, value: &str, why: &str) {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        self.add("FieldValueInvalid", place, format!("Invalid value: {value}{why}"));
    }

    pub(super) fn invalid_each(&mut self, place: &Place<'_>, text: &str, reasons: Vec<String>) {
        for why in reasons {
            self.invalid_text(place, text, &why);
        }
    }

    pub(super) fn unsupported(&mut self, place: &Place<'_>, supported: &[&str]) {
        let list: Vec<String> = supported.iter().map(|value| quoted(value)).collect();
        let message =
            format!("Unsupported value: {}: supported values: {}", shown_text(place.value), list.join(", "));
        self.add("FieldValueNotSupported", place, message);
    }

    pub(super) fn duplicate(&mut self, place: &Place<'_>) {
        self.add("FieldValueDuplicate", place, format!("Duplicate value: {}", shown_text(place.value)));
    }

    pub(super) fn not_found(&mut self, place: &Place<'_>) {
        self.add("FieldValueNotFound", place, format!("Not found: {}", shown_text(place.value)));
    }

    pub(super) fn forbidden(&mut self, place: &Place<'_>, why: &str) {
        self.add("FieldValueForbidden", place, format!("Forbidden: {why}"));
    }

    pub(super) fn too_long(&mut self, place: &Place<'_>, limit: usize) {
        self.add("FieldValueTooLong", place, format!("Too long: may not be more than {limit} bytes"));
    }

    fn add(&mut self, reason: &str, place: &Place<'_>, message: String) {
        self.causes.push(StatusCause::new(reason, &place.path, message));
    }
}

/// A value as it is shown in messages.
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

/// As [`shown`], of a field that is text: nothing is the empty text.
fn shown_text(value: &Value) -> String {
    if value.is_null() { "\"\"".to_owned() } else { shown(value) }
}

/// Text in quotes.
pub(super) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
