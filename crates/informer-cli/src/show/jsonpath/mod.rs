//! `JSONPath` templates as in `kubectl -o jsonpath`, for objects as JSON values.
//!
//! Supported are fields (`.a`, `['a']`, `.a\.b`), indexes and slices (`[0]`, `[-1]`, `[1:3]`, `[::2]`), lists of
//! both (`['a','b']`), all children (`[*]`), all descendants (`..a`), filters (`[?(@.a=="b")]`), loops
//! (`{range .items[*]}…{end}`) and quoted text (`{"\n"}`).
//!
//! As in kubectl, a missing field prints nothing, `['a.b']` is the path `.a.b` unless there is a field of that
//! name, and `$` is the current object inside loops and filters. Unlike in kubectl, an index out of bounds
//! prints nothing, and a filter compares each of several values instead of failing.

mod eval;
mod parse;
#[cfg(test)]
mod tests;

use serde_json::Value;
use std::str::FromStr;

/// Text with expressions in braces.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Template {
    parts: Vec<Part>,
}

/// A single expression, such as `.metadata.name`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct JsonPath {
    steps: Vec<Step>,
}

/// The reason why a template or path is invalid, and the position of the character, counted from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ParseError {
    position: usize,
    message: String,
}

#[derive(Debug, Clone, PartialEq)]
enum Part {
    Text(String),
    Values(JsonPath),
    Range { over: JsonPath, body: Vec<Part> },
}

#[derive(Debug, Clone, PartialEq)]
enum Step {
    /// Fields or items: several are printed in their order in the path.
    Select(Vec<Selector>),
    Children,
    /// The value and all values inside it that have children.
    Descendants,
    Filter(Filter),
}

#[derive(Debug, Clone, PartialEq)]
enum Selector {
    Field(String),
    /// A field whose name contains dots, or the path of these fields.
    FieldOrPath(String, Vec<String>),
    Index(i64),
    Slice {
        start: Option<i64>,
        end: Option<i64>,
        step: usize,
    },
}

/// A condition on the items of a list; without a comparison, the left side must exist.
#[derive(Debug, Clone, PartialEq)]
struct Filter {
    left: Operand,
    comparison: Option<(Comparison, Operand)>,
}

#[derive(Debug, Clone, PartialEq)]
enum Operand {
    Path(JsonPath),
    Literal(Value),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Template {
    /// Formats an object. Control characters in values are escaped, apart from line breaks and tabs.
    pub(crate) fn render(&self, object: &Value) -> String {
        let mut out = String::new();
        eval::render(&self.parts, object, &mut out);
        out
    }
}

/// Parses a template. A template without braces that starts with a dot is an expression.
impl FromStr for Template {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        if !text.contains('{') && text.starts_with(['.', '$', '@']) {
            return Ok(Self { parts: vec![Part::Values(text.parse()?)] });
        }
        Ok(Self { parts: parse::template(text)? })
    }
}

impl JsonPath {
    /// Returns the values that the path selects.
    pub(crate) fn select<'a>(&self, object: &'a Value) -> Vec<&'a Value> {
        eval::select(&self.steps, object)
    }
}

/// Parses a path; braces and the first dot are optional, as in `kubectl --sort-by`.
impl FromStr for JsonPath {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        parse::path(text)
    }
}

/// Formats a value as kubectl does: strings without quotes, everything else as JSON.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl std::fmt::Display for ParseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "character {}: {}", self.position, self.message)
    }
}

impl std::error::Error for ParseError {}
