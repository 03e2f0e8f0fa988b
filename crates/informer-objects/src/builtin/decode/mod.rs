//! Decoding of a body as in kube-apiserver: into a Go type, which is then encoded again.
//!
//! Unknown fields are removed and reported; empty values are removed where Go omits them and added where Go
//! always writes them; quantities and times become canonical. A mismatching value is rejected with the text
//! of Go's decoder. The result depends on the body and the tables only: defaults and validation follow later.

mod go;
mod scalar;
mod time;

use std::fmt::Write as _;

use informer_schema::{Shape, Type, TypeId};
use serde_json::{Map, Value};

use super::value::is_empty;
#[cfg(test)]
use crate::status::Status;
use go::WriteCondition;

/// The maximum depth of a body, which only types that contain themselves can reach.
const MAX_DEPTH: usize = 120;

/// The maximum number of unknown fields that kube-apiserver collects.
const MAX_UNKNOWN: usize = 100;

/// A body after decoding.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object as Go encodes it.
    pub object: Value,
    /// The paths of unknown fields: `spec.containers[0].imagee`.
    pub unknown: Vec<String>,
}

#[cfg(test)]
/// Decodes a body as an object of a type; the error is the 400 of kube-apiserver.
pub(crate) fn decode(type_id: TypeId, kind: &str, version: &str, object: Value) -> Result<Decoded, Status> {
    read(type_id, object).map_err(|why| {
        Status::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
    })
}

/// Decodes an object of a type; the error is the text of Go's decoder.
pub fn read(type_id: TypeId, object: Value) -> Result<Decoded, String> {
    let mut reader = Reader::default();
    let shape = Shape::Object(type_id);
    let object = match object {
        Value::Null => Value::Object(Map::new()),
        other => other,
    };
    let object = reader.value(shape, object)?;
    match reader.type_error {
        Some(type_error) => Err(type_error),
        None => Ok(Decoded {
            object: object.unwrap_or_else(|| Value::Object(Map::new())),
            unknown: reader.unknown,
        }),
    }
}

/// A step of the path of the reader.
#[derive(Debug, Clone)]
enum Step {
    Field(&'static str),
    Key(String),
    Index(usize),
}

#[derive(Debug, Default)]
struct Reader {
    path: Vec<Step>,
    /// The types whose fields are being read, the outermost first.
    enclosing_types: Vec<&'static Type>,
    unknown: Vec<String>,
    /// The error for the first value of a wrong type.
    ///
    /// Go continues after such a value: if a later string cannot be parsed, that error takes precedence.
    type_error: Option<String>,
}

impl Reader {
    /// Reads a value; `None` if it is `null` or of a wrong type.
    fn value(&mut self, shape: Shape, value: Value) -> Result<Option<Value>, String> {
        if value.is_null() {
            return Ok(None);
        }
        if self.path.len() > MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        match (shape, value) {
            (Shape::Any, value) => Ok(Some(value)),
            (Shape::Object(id), Value::Object(fields)) => {
                self.object(id.get(), fields).map(|fields| Some(Value::Object(fields)))
            }
            (Shape::Map(values, _), Value::Object(entries)) => {
                let mut read = Map::new();
                for (key, value) in entries {
                    self.path.push(Step::Key(key.clone()));
                    let value = self.value(*values, value)?;
                    self.path.pop();
                    read.insert(key, self.or_zero(*values, value)?);
                }
                Ok(Some(Value::Object(read)))
            }
            (Shape::List(items, _), Value::Array(entries)) => {
                let mut read = Vec::with_capacity(entries.len());
                for (index, value) in entries.into_iter().enumerate() {
                    self.path.push(Step::Index(index));
                    let value = self.value(*items, value)?;
                    self.path.pop();
                    read.push(self.or_zero(*items, value)?);
                }
                Ok(Some(Value::Array(read)))
            }
            (shape, value) => match scalar::read(shape, value) {
                Ok(value) => Ok(Some(value)),
                Err(scalar::ScalarError::Text(text)) => Err(text),
                Err(scalar::ScalarError::Type(value_kind)) => {
                    self.record_type_error(&value_kind, shape);
                    Ok(None)
                }
            },
        }
    }

    fn object(
        &mut self,
        object_type: &'static Type,
        mut source: Map<String, Value>,
    ) -> Result<Map<String, Value>, String> {
        self.enclosing_types.push(object_type);
        let mut read = Map::new();
        for field in &object_type.fields {
            let Some(value) = source.remove(field.name) else { continue };
            self.path.push(Step::Field(field.name));
            let value = self.value(field.shape, value)?;
            self.path.pop();
            if let Some(value) = value {
                read.insert(field.name.to_owned(), value);
            }
        }
        for name in source.keys().take(MAX_UNKNOWN.saturating_sub(self.unknown.len())) {
            self.path.push(Step::Key(name.clone()));
            self.unknown.push(self.strict_path());
            self.path.pop();
        }
        self.omit_and_add_fields(object_type, &mut read)?;
        self.enclosing_types.pop();
        Ok(read)
    }

    /// Omits and adds the fields that Go omits and adds when it encodes a struct.
    fn omit_and_add_fields(
        &mut self,
        object_type: &'static Type,
        fields: &mut Map<String, Value>,
    ) -> Result<(), String> {
        for field in &object_type.fields {
            let value = fields.get(field.name);
            match go::write_condition(field) {
                WriteCondition::Given => {}
                WriteCondition::NotEmpty => {
                    if value.is_some_and(is_empty) {
                        fields.remove(field.name);
                    }
                }
                WriteCondition::NotZero => {
                    if value.is_some_and(is_zero) {
                        fields.remove(field.name);
                    }
                }
                WriteCondition::Always => {
                    // An empty list or map is written like an absent one: as `null`.
                    let is_empty_collection =
                        value.is_some_and(|value| is_collection(value) && is_empty(value));
                    let is_struct = matches!(field.shape, Shape::Object(_));
                    if value.is_none() || (is_empty_collection && !is_struct) {
                        let zero = self.zero(field.shape)?;
                        fields.insert(field.name.to_owned(), zero);
                    }
                }
                WriteCondition::AlwaysOrNull => {
                    if value.is_none() {
                        fields.insert(field.name.to_owned(), Value::Null);
                    }
                }
            }
        }
        Ok(())
    }

    fn or_zero(&mut self, shape: Shape, value: Option<Value>) -> Result<Value, String> {
        match value {
            Some(value) => Ok(value),
            None => self.zero(shape),
        }
    }

    /// Returns the value that Go writes for an unset field.
    fn zero(&mut self, shape: Shape) -> Result<Value, String> {
        Ok(match shape {
            Shape::Object(id) => Value::Object(self.object(id.get(), Map::new())?),
            Shape::Boolean => Value::Bool(false),
            Shape::Int32 | Shape::Int64 | Shape::Number | Shape::IntOrString => Value::from(0),
            Shape::String => Value::from(""),
            Shape::Quantity => Value::from("0"),
            _ => Value::Null,
        })
    }

    fn record_type_error(&mut self, value_kind: &str, shape: Shape) {
        if self.type_error.is_some() {
            return;
        }
        let go_type = go::shape_name(shape);
        let target = match self.enclosing_types.last() {
            Some(object_type) => {
                let name = object_type.name.rsplit('.').next().unwrap_or_default();
                format!("struct field {name}.{}", self.go_path())
            }
            None => "value".to_owned(),
        };
        self.type_error =
            Some(format!("json: cannot unmarshal {value_kind} into Go {target} of type {go_type}"));
    }

    /// Returns the names of fields only, as in Go's errors: `spec.containers.image`.
    fn go_path(&self) -> String {
        let names = self.path.iter().filter_map(|step| match step {
            Step::Field(name) => Some(*name),
            _ => None,
        });
        names.collect::<Vec<_>>().join(".")
    }

    /// Returns the path with keys and indexes: `spec.containers[0].imagee`.
    fn strict_path(&self) -> String {
        let mut text = String::new();
        for step in &self.path {
            let name = match step {
                Step::Field(name) => name,
                Step::Key(name) => name.as_str(),
                Step::Index(index) => {
                    // Writing to a String cannot fail.
                    let _ = write!(text, "[{index}]");
                    continue;
                }
            };
            if !text.is_empty() {
                text.push('.');
            }
            text.push_str(name);
        }
        text
    }
}

fn is_collection(value: &Value) -> bool {
    matches!(value, Value::Array(_) | Value::Object(_))
}

/// Whether `omitzero` omits a value.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Object(entries) => entries.values().all(is_zero),
        other => is_empty(other),
    }
}
