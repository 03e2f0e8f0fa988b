//! JSON patches (RFC 6902), with the deviations of the Go library that kube-apiserver uses: `replace` of an
//! absent field adds it, indexes may count from the end, and the text before the first slash of a path is
//! ignored.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::error::rejected;
use crate::status::Status;
use crate::text::{self, Duplicates};

/// The maximum number of operations of a patch.
const MAX_OPERATIONS: usize = 10_000;

/// The maximum size of all copies made by one patch, in bytes of JSON.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;

/// The maximum depth of an object between operations; the result is limited to [`text::MAX_DEPTH`].
const MAX_INTERMEDIATE_DEPTH: usize = 1000;

/// The fields of an operation.
const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

/// Applies all operations of a patch to an object.
pub fn json(object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let undecodable = |what: String| Status::bad_request(format!("error decoding patch: {what}"));
    let read = text::read(patch, Duplicates::Replace).map_err(undecodable)?;
    check_operations(&read.value).map_err(undecodable)?;
    let Value::Array(operations) = read.value else { return Ok(object.clone()) };
    if operations.len() > MAX_OPERATIONS {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(Status::new(413, "RequestEntityTooLarge", message));
    }
    let texts = raw_values(patch);
    let mut patched = object.clone();
    let mut usage = Usage { copied: 0, depth: text::MAX_DEPTH };
    for (index, operation) in operations.iter().enumerate() {
        let raw = texts.get(index).and_then(|text| text.value);
        apply(&mut patched, operation, raw, &mut usage).ok_or_else(rejected)?;
    }
    if usage.depth > text::MAX_DEPTH && text::depth_of(&patched) > text::MAX_DEPTH {
        return Err(rejected());
    }
    Ok(patched)
}

/// The resources used by a patch, which are limited.
struct Usage {
    copied: usize,
    /// An upper bound of the depth of the object.
    depth: usize,
}

impl Usage {
    /// Records the depth of an inserted value; `None` if the limit is exceeded.
    fn depth(&mut self, depth: usize, path: &str) -> Option<()> {
        self.depth = self.depth.max(steps(path) + depth);
        (self.depth <= MAX_INTERMEDIATE_DEPTH).then_some(())
    }
}

/// Returns the findings of strict decoding about the operations, in the order of the text.
pub(super) fn problems(patch: &[u8]) -> Vec<String> {
    let Ok(read) = text::read(patch, Duplicates::Replace) else { return Vec::new() };
    let mut unknown = Vec::new();
    for (index, operation) in read.value.as_array().into_iter().flatten().enumerate() {
        let names = operation.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let others = names.filter(|name| !FIELDS.contains(name));
        unknown.extend(others.map(|name| format!("[{index}].{name}")));
    }
    if unknown.is_empty() && read.duplicates.is_empty() {
        return Vec::new();
    }
    let order = text::order(patch, &unknown);
    order
        .iter()
        .map(|field| {
            let what = if field.duplicate { "duplicate" } else { "unknown" };
            format!("json patch {what} field {}", text::quoted(&field.path))
        })
        .collect()
}

/// Checks that a patch is a list of operations whose names and paths are strings.
fn check_operations(patch: &Value) -> Result<(), String> {
    let mismatch = |found: &Value, what: &str| {
        Err(format!("json: cannot unmarshal {} into Go {what}", text::kind_of(found)))
    };
    let operations = match patch {
        Value::Null => return Ok(()),
        Value::Array(operations) => operations,
        other => return mismatch(other, "value of type []handlers.jsonPatchOp"),
    };
    for operation in operations {
        let fields = match operation {
            Value::Null => continue,
            Value::Object(fields) => fields,
            other => return mismatch(other, "value of type handlers.jsonPatchOp"),
        };
        for (name, value) in fields {
            let is_text = matches!(name.as_str(), "op" | "path" | "from");
            if is_text && !value.is_string() && !value.is_null() {
                return mismatch(value, &format!("struct field jsonPatchOp.{name} of type string"));
            }
        }
    }
    Ok(())
}

/// Applies one operation; `None` if it is impossible.
fn apply(object: &mut Value, operation: &Value, raw: Option<&RawValue>, usage: &mut Usage) -> Option<()> {
    let path = || operation.get("path")?.as_str();
    let from = || operation.get("from")?.as_str();
    let value = || operation.get("value").cloned().unwrap_or_default();
    match operation.get("op")?.as_str()? {
        "add" => {
            usage.depth(text::MAX_DEPTH, path()?)?;
            add(object, path()?, value())
        }
        "remove" => remove(object, path()?).map(drop),
        "replace" => {
            usage.depth(text::MAX_DEPTH, path()?)?;
            replace(object, path()?, operation.get("value"), value())
        }
        "move" => {
            let moved = remove(object, from()?)?;
            usage.depth(usage.depth.saturating_sub(steps(from()?)), path()?)?;
            add(object, path()?, moved)
        }
        "copy" => {
            let copy = get(object, from()?)?.clone();
            usage.copied += text::compact(&copy).len();
            usage.depth(usage.depth.saturating_sub(steps(from()?)), path()?)?;
            (usage.copied <= MAX_COPIED_BYTES).then(|| add(object, path()?, copy))?
        }
        "test" => {
            let path = path()?;
            let existing = if path.is_empty() { &*object } else { get(object, path)? };
            let equal = match (existing, raw) {
                (Value::Null, raw) => raw.is_none_or(|raw| raw.get() == "null"),
                (_, None) => false,
                (existing, Some(raw)) => equals_raw(existing, raw),
            };
            equal.then_some(())
        }
        _ => None,
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Option<()> {
    let (parent, key) = parent(object, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) if key == "-" => items.push(value),
        Value::Array(items) => {
            let position = index(&key, items.len() + 1)?;
            items.insert(position, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(object: &mut Value, path: &str) -> Option<Value> {
    let (parent, key) = parent(object, path)?;
    match parent {
        Value::Object(fields) => fields.remove(&key),
        Value::Array(items) => {
            let position = index(&key, items.len())?;
            Some(items.remove(position))
        }
        _ => None,
    }
}

fn replace(object: &mut Value, path: &str, given: Option<&Value>, value: Value) -> Option<()> {
    if path.is_empty() {
        let whole = given.is_some_and(|value| value.is_object() || value.is_array());
        return whole.then(|| *object = value);
    }
    let (parent, key) = parent(object, path)?;
    match parent {
        Value::Object(fields) => {
            fields.insert(key, value);
        }
        Value::Array(items) => {
            let position = index(&key, items.len())?;
            *items.get_mut(position)? = value;
        }
        _ => return None,
    }
    Some(())
}

/// Returns the value at a path; an absent field of an object is `null`, which is no error.
fn get<'a>(object: &'a mut Value, path: &str) -> Option<&'a Value> {
    let (parent, key) = parent(object, path)?;
    match &*parent {
        Value::Object(fields) => Some(fields.get(&key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(index(&key, items.len())?),
        _ => None,
    }
}

/// Returns the parent of the last step of a path, and that step.
fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (_, path) = path.split_once('/')?;
    let mut steps: Vec<&str> = path.split('/').collect();
    let last = steps.pop()?;
    let mut at = object;
    for step in steps {
        let step = unescaped(step);
        at = match at {
            Value::Object(fields) => fields.get_mut(&step)?,
            Value::Array(items) => {
                let position = index(&step, items.len())?;
                items.get_mut(position)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then(|| (at, unescaped(last)))
}

fn steps(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// Returns a position in a list of some length; negative indexes count from the end.
fn index(step: &str, length: usize) -> Option<usize> {
    let index: isize = step.parse().ok()?;
    let position = if index < 0 { length.checked_sub(index.unsigned_abs())? } else { index.unsigned_abs() };
    (position < length).then_some(position)
}

/// Decodes a step of a path: `~1` is a slash and `~0` a tilde.
pub(super) fn unescaped(step: &str) -> String {
    let mut out = String::with_capacity(step.len());
    let mut rest = step;
    while let Some(at) = rest.find('~') {
        let (before, tail) = rest.split_at(at);
        out.push_str(before);
        let (character, length) = match tail.as_bytes().get(1) {
            Some(b'0') => ('~', 2),
            Some(b'1') => ('/', 2),
            _ => ('~', 1),
        };
        out.push(character);
        rest = tail.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// An operation with its value as the client wrote it.
#[derive(Deserialize)]
struct RawOperation<'a> {
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

fn raw_values(patch: &[u8]) -> Vec<RawOperation<'_>> {
    serde_json::from_slice(patch).unwrap_or_default()
}

/// Whether a value equals the text a client wrote.
///
/// Scalars are compared as text: `1.0` is not `1`, and `<` is not the escape that the server writes for it.
fn equals_raw(value: &Value, raw: &RawValue) -> bool {
    match value {
        Value::Object(fields) => {
            let Ok(raw) = serde_json::from_str::<std::collections::BTreeMap<String, &RawValue>>(raw.get())
            else {
                return false;
            };
            fields.len() == raw.len()
                && fields.iter().all(|(name, value)| raw.get(name).is_some_and(|raw| equals_raw(value, raw)))
        }
        Value::Array(items) => {
            let Ok(raw) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else { return false };
            items.len() == raw.len() && items.iter().zip(raw).all(|(value, raw)| equals_raw(value, raw))
        }
        plain => text::compact(plain) == raw.get(),
    }
}
