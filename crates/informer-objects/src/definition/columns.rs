//! The table columns of a custom kind, except Name, with their cells.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::field;
use super::jsonpath::Path;
use crate::text::times;

/// A table column, from `additionalPrinterColumns`.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    pub(crate) name: String,
    /// `integer`, `number`, `string`, `boolean` or `date`.
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) description: String,
    pub(crate) priority: i64,
    /// The parsed `jsonPath`; `None` if it cannot be parsed, then all cells are null.
    path: Option<Path>,
}

/// Returns the columns of a version; only the age if it has none.
pub(crate) fn columns(version: &Value) -> Vec<Column> {
    let source = version.get("additionalPrinterColumns").and_then(Value::as_array);
    let columns: Vec<Column> = source.into_iter().flatten().map(Column::read).collect();
    if columns.is_empty() { vec![Column::age()] } else { columns }
}

/// Returns the cells of an object, one for each column.
pub(crate) fn cells(columns: &[Column], object: &Value, now: Timestamp) -> Vec<Value> {
    columns.iter().map(|column| column.cell(object, now)).collect()
}

impl Column {
    fn read(source: &Value) -> Self {
        let text = |name: &str| source.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let json_path = text("jsonPath");
        let description = match text("description") {
            given if !given.is_empty() => given,
            _ => format!("Custom resource definition column (in JSONPath format): {json_path}"),
        };
        Column {
            name: text("name"),
            kind: text("type"),
            format: text("format"),
            description,
            priority: source.get("priority").and_then(Value::as_i64).unwrap_or_default(),
            path: Path::parse(&json_path),
        }
    }

    fn age() -> Self {
        let json_path = ".metadata.creationTimestamp".to_owned();
        Column {
            name: "Age".to_owned(),
            kind: "date".to_owned(),
            format: String::new(),
            description: AGE_DESCRIPTION.to_owned(),
            priority: 0,
            path: Path::parse(&json_path),
        }
    }

    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let Some(value) = self.path.as_ref().and_then(|path| path.first(object)) else { return Value::Null };
        match (self.kind.as_str(), value) {
            ("string", value) => json!(text_of(value)),
            ("integer", Value::Number(number)) => {
                let whole = number.as_i64().or_else(|| number.as_f64().map(truncate));
                json!(whole)
            }
            ("number", Value::Number(_)) | ("boolean", Value::Bool(_)) => value.clone(),
            ("date", Value::String(text)) => json!(age_of(text, now)),
            _ => Value::Null,
        }
    }
}

/// Returns a value as text for a cell.
fn text_of(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.to_string(),
            None => field::number(number.as_f64().unwrap_or_default()),
        },
        other => field::json(other),
    }
}

/// Returns the age of a time: `<unknown>` for an empty text and for `null`, `<invalid>` for any other text
/// that is not a time.
fn age_of(text: &str, now: Timestamp) -> String {
    if text.is_empty() || text == "null" {
        return "<unknown>".to_owned();
    }
    match text.parse::<Timestamp>() {
        Ok(then) => times::human_duration(times::between(then, now)),
        Err(_) => "<invalid>".to_owned(),
    }
}

#[allow(clippy::cast_possible_truncation, reason = "a cell holds 64 bits")]
fn truncate(float: f64) -> i64 {
    float as i64
}

const AGE_DESCRIPTION: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not \
                   guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It \
                   is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More \
                   info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
