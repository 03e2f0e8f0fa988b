//! JSON patches (RFC 6902), with the deviations of the Go library that kube-apiserver uses.
//!
//! - `replace` of an absent field adds it.
//! - `add` and `replace` without a value use `null`; `test` without a value expects `null`.
//! - `test` and `copy` read an absent field of an object as `null`.
//! - `test` compares scalars as text; see `equals_raw`.
//! - `replace` of the root needs an object or an array. `add`, `remove`, `move` and `copy` reject the root.
//! - Indexes may count from the end, as in `/items/-1`, and may have a sign or leading zeros.
//! - The text before the first slash of a path is ignored. A `~` that is not part of `~0` or `~1` stays.
//! - `null` is an empty patch. Of duplicate fields of an operation, the last one counts.
//!
//! Number of operations, size of copies and depth are limited.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::error::rejected;
use crate::status::Status;
use crate::text::{self, Duplicates};

/// The maximum number of operations in a patch.
const MAX_OPERATIONS: usize = 10_000;

/// The maximum total size of all copies made by one patch, in bytes of JSON.
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
    // `null` is an empty patch.
    let Value::Array(operations) = read.value else { return Ok(object.clone()) };
    if operations.len() > MAX_OPERATIONS {
        let message = format!(
            "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        );
        return Err(Status::new(413, "RequestEntityTooLarge", message));
    }
    let raw_operations = raw_operations(patch);
    let mut patched = object.clone();
    let mut usage = Usage { copied_bytes: 0, max_depth: text::MAX_DEPTH };
    for (index, operation) in operations.iter().enumerate() {
        let raw_value = raw_operations.get(index).and_then(|fields| fields.get("value")).copied();
        apply(&mut patched, operation, raw_value, &mut usage).ok_or_else(rejected)?;
    }
    if usage.max_depth > text::MAX_DEPTH && text::depth_of(&patched) > text::MAX_DEPTH {
        return Err(rejected());
    }
    Ok(patched)
}

/// The limited resources that a patch has used.
struct Usage {
    /// The total size of all copies, in bytes of JSON.
    copied_bytes: usize,
    /// An upper bound on the depth of the object.
    max_depth: usize,
}

impl Usage {
    /// Records that a value of this depth is inserted at a path; `None` if the limit is exceeded.
    fn record_depth(&mut self, depth: usize, path: &str) -> Option<()> {
        self.max_depth = self.max_depth.max(token_count(path) + depth);
        (self.max_depth <= MAX_INTERMEDIATE_DEPTH).then_some(())
    }
}

/// Returns the strict decoding errors of a patch, in the order of the text: unknown and duplicate fields.
pub(super) fn strict_decoding_errors(patch: &[u8]) -> Vec<String> {
    let Ok(read) = text::read(patch, Duplicates::Replace) else { return Vec::new() };
    let mut unknown = Vec::new();
    for (index, operation) in read.value.as_array().into_iter().flatten().enumerate() {
        let names = operation.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let unknown_names = names.filter(|name| !FIELDS.contains(name));
        unknown.extend(unknown_names.map(|name| format!("[{index}].{name}")));
    }
    if unknown.is_empty() && read.duplicates.is_empty() {
        return Vec::new();
    }
    let fields = text::fields_in_order(patch, &unknown);
    fields
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
            let is_string_field = matches!(name.as_str(), "op" | "path" | "from");
            if is_string_field && !value.is_string() && !value.is_null() {
                return mismatch(value, &format!("struct field jsonPatchOp.{name} of type string"));
            }
        }
    }
    Ok(())
}

/// Applies one operation, whose value as the client wrote it is `raw_value`; `None` if it cannot be applied.
fn apply(
    object: &mut Value,
    operation: &Value,
    raw_value: Option<&RawValue>,
    usage: &mut Usage,
) -> Option<()> {
    let path = || operation.get("path")?.as_str();
    let from = || operation.get("from")?.as_str();
    let value = || operation.get("value").cloned().unwrap_or_default();
    // The depth of a value from the patch is not measured: the whole patch was read with this limit.
    let value_depth = text::MAX_DEPTH;
    match operation.get("op")?.as_str()? {
        "add" => {
            usage.record_depth(value_depth, path()?)?;
            add(object, path()?, value())
        }
        "remove" => remove(object, path()?).map(drop),
        "replace" => {
            usage.record_depth(value_depth, path()?)?;
            replace(object, path()?, value())
        }
        "move" => {
            let moved = remove(object, from()?)?;
            usage.record_depth(usage.max_depth.saturating_sub(token_count(from()?)), path()?)?;
            add(object, path()?, moved)
        }
        "copy" => {
            let copy = get(object, from()?)?.clone();
            usage.copied_bytes += text::compact(&copy).len();
            usage.record_depth(usage.max_depth.saturating_sub(token_count(from()?)), path()?)?;
            (usage.copied_bytes <= MAX_COPIED_BYTES).then(|| add(object, path()?, copy))?
        }
        "test" => {
            let path = path()?;
            let existing = if path.is_empty() { &*object } else { get(object, path)? };
            let is_equal = match (existing, raw_value) {
                (Value::Null, raw_value) => raw_value.is_none_or(|raw_value| raw_value.get() == "null"),
                (_, None) => false,
                (existing, Some(raw_value)) => equals_raw(existing, raw_value),
            };
            is_equal.then_some(())
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

fn replace(object: &mut Value, path: &str, value: Value) -> Option<()> {
    if path.is_empty() {
        let is_container = value.is_object() || value.is_array();
        return is_container.then(|| *object = value);
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

/// Returns the value at a path; `null` if its last token names an absent field of an object.
fn get<'a>(object: &'a mut Value, path: &str) -> Option<&'a Value> {
    let (parent, key) = parent(object, path)?;
    match &*parent {
        Value::Object(fields) => Some(fields.get(&key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(index(&key, items.len())?),
        _ => None,
    }
}

/// Returns the object or array that contains the path's target, and the unescaped last token.
///
/// The tokens are the reference tokens of RFC 6901: the parts between the slashes. `None` if the path has no
/// slash, or if there is no such object or array.
fn parent<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (_, path) = path.split_once('/')?;
    let mut tokens: Vec<&str> = path.split('/').collect();
    let last = tokens.pop()?;
    let mut container = object;
    for token in tokens {
        let token = unescaped(token);
        container = match container {
            Value::Object(fields) => fields.get_mut(&token)?,
            Value::Array(items) => {
                let position = index(&token, items.len())?;
                items.get_mut(position)?
            }
            _ => return None,
        };
    }
    (container.is_object() || container.is_array()).then(|| (container, unescaped(last)))
}

fn token_count(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// Returns the position that a token names in an array of this length; negative indexes count from the end.
fn index(token: &str, length: usize) -> Option<usize> {
    let index: isize = token.parse().ok()?;
    let position = if index < 0 { length.checked_sub(index.unsigned_abs())? } else { index.unsigned_abs() };
    (position < length).then_some(position)
}

/// Decodes a token of a path: `~1` is a slash and `~0` a tilde.
fn unescaped(token: &str) -> String {
    let mut out = String::with_capacity(token.len());
    let mut remaining = token;
    while let Some(at) = remaining.find('~') {
        let (before, tail) = remaining.split_at(at);
        out.push_str(before);
        let (character, length) = match tail.as_bytes().get(1) {
            Some(b'0') => ('~', 2),
            Some(b'1') => ('/', 2),
            _ => ('~', 1),
        };
        out.push(character);
        remaining = tail.get(length..).unwrap_or_default();
    }
    out.push_str(remaining);
    out
}

/// The fields of an operation, with their values as the client wrote them.
type RawOperation<'a> = BTreeMap<String, &'a RawValue>;

/// Returns the operations of a patch; of duplicate fields the last one, as in Go.
fn raw_operations(patch: &[u8]) -> Vec<RawOperation<'_>> {
    // Fails in two cases. If an operation is `null`, the patch is rejected anyway. If the patch contains
    // invalid UTF-8, no `test` of a value other than `null` succeeds.
    serde_json::from_slice(patch).unwrap_or_default()
}

/// Returns whether a value equals the text that a client wrote.
///
/// Scalars are compared as text: `1.0` does not equal `1`, and a string written with `<`, `>` or `&` never
/// matches, because the stored string is compared in its escaped form, such as `\u003c`.
fn equals_raw(value: &Value, raw_value: &RawValue) -> bool {
    match value {
        Value::Object(fields) => {
            let Ok(raw_fields) = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw_value.get()) else {
                return false;
            };
            let is_equal = |name: &String, value: &Value| {
                raw_fields.get(name).is_some_and(|raw_value| equals_raw(value, raw_value))
            };
            fields.len() == raw_fields.len() && fields.iter().all(|(name, value)| is_equal(name, value))
        }
        Value::Array(items) => {
            let Ok(raw_items) = serde_json::from_str::<Vec<&RawValue>>(raw_value.get()) else { return false };
            items.len() == raw_items.len()
                && items.iter().zip(raw_items).all(|(value, raw_value)| equals_raw(value, raw_value))
        }
        scalar => text::compact(scalar) == raw_value.get(),
    }
}
