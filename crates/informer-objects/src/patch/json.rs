//! JSON patches (RFC 6902), with the liberties of the Go library that the real server uses: `replace` of a field that is not
//! there adds it, indexes may count from the end, and whatever stands before the first slash of a path is not looked at.

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::refusal::rejected;
use crate::status::Status;
use crate::text::{self, Duplicates};

/// How many operations a patch may have.
const MAX_OPERATIONS: usize = 10_000;

/// How many bytes of JSON the copies of one patch may add up to.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// How deep an object may get on the way to its end, where [`text::MAX_DEPTH`] holds.
const MAX_DEPTH_MEANWHILE: usize = 1000;

/// The fields of an operation.
const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

/// The object after all operations.
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
    let texts = values_as_written(patch);
    let mut patched = object.clone();
    let mut spent = Spent { copied: 0, depth: text::MAX_DEPTH };
    for (index, operation) in operations.iter().enumerate() {
        let written = texts.get(index).and_then(|text| text.value);
        apply(&mut patched, operation, written, &mut spent).ok_or_else(rejected)?;
    }
    if spent.depth > text::MAX_DEPTH && text::depth_of(&patched) > text::MAX_DEPTH {
        return Err(rejected());
    }
    Ok(patched)
}

/// What a patch has used of what it may use.
struct Spent {
    copied: usize,
    /// No part of the object is deeper than this.
    depth: usize,
}

impl Spent {
    /// Counts a value that is put somewhere, and refuses what would grow without end.
    fn depth(&mut self, depth: usize, path: &str) -> Option<()> {
        self.depth = self.depth.max(steps(path) + depth);
        (self.depth <= MAX_DEPTH_MEANWHILE).then_some(())
    }
}

/// What a strict reader says about the operations, in the order of the text.
pub(super) fn problems(patch: &[u8]) -> Vec<String> {
    let Ok(read) = text::read(patch, Duplicates::Replace) else { return Vec::new() };
    let mut unknown = Vec::new();
    for (index, operation) in read.value.as_array().into_iter().flatten().enumerate() {
        let names = operation.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
        let strange = names.filter(|name| !FIELDS.contains(name));
        unknown.extend(strange.map(|name| format!("[{index}].{name}")));
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

/// Checks that a patch is a list of operations whose names and paths are text.
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
            let text = matches!(name.as_str(), "op" | "path" | "from");
            if text && !value.is_string() && !value.is_null() {
                return mismatch(value, &format!("struct field jsonPatchOp.{name} of type string"));
            }
        }
    }
    Ok(())
}

/// Carries out one operation; `None` if it cannot be done.
fn apply(object: &mut Value, operation: &Value, written: Option<&RawValue>, spent: &mut Spent) -> Option<()> {
    let path = || operation.get("path")?.as_str();
    let from = || operation.get("from")?.as_str();
    let value = || operation.get("value").cloned().unwrap_or_default();
    match operation.get("op")?.as_str()? {
        "add" => {
            spent.depth(text::MAX_DEPTH, path()?)?;
            add(object, path()?, value())
        }
        "remove" => remove(object, path()?).map(drop),
        "replace" => {
            spent.depth(text::MAX_DEPTH, path()?)?;
            replace(object, path()?, operation.get("value"), value())
        }
        "move" => {
            let moved = remove(object, from()?)?;
            spent.depth(spent.depth.saturating_sub(steps(from()?)), path()?)?;
            add(object, path()?, moved)
        }
        "copy" => {
            let copy = get(object, from()?)?.clone();
            spent.copied += text::compact(&copy).len();
            spent.depth(spent.depth.saturating_sub(steps(from()?)), path()?)?;
            (spent.copied <= MAX_COPIED).then(|| add(object, path()?, copy))?
        }
        "test" => {
            let path = path()?;
            let there = if path.is_empty() { &*object } else { get(object, path)? };
            let equal = match (there, written) {
                (Value::Null, written) => written.is_none_or(|written| written.get() == "null"),
                (_, None) => false,
                (there, Some(written)) => is_written(there, written),
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
            let place = index(&key, items.len() + 1)?;
            items.insert(place, value);
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
            let place = index(&key, items.len())?;
            Some(items.remove(place))
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
            let place = index(&key, items.len())?;
            *items.get_mut(place)? = value;
        }
        _ => return None,
    }
    Some(())
}

/// What stands at a path; a field that an object does not have is `null`, which is no error.
fn get<'a>(object: &'a mut Value, path: &str) -> Option<&'a Value> {
    let (parent, key) = parent(object, path)?;
    match &*parent {
        Value::Object(fields) => Some(fields.get(&key).unwrap_or(&Value::Null)),
        Value::Array(items) => items.get(index(&key, items.len())?),
        _ => None,
    }
}

/// What holds the last step of a path, and that step.
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
                let place = index(&step, items.len())?;
                items.get_mut(place)?
            }
            _ => return None,
        };
    }
    (at.is_object() || at.is_array()).then(|| (at, unescaped(last)))
}

fn steps(path: &str) -> usize {
    path.bytes().filter(|byte| *byte == b'/').count()
}

/// A place in a list of some length; negative ones count from its end.
fn index(step: &str, length: usize) -> Option<usize> {
    let index: isize = step.parse().ok()?;
    let place = if index < 0 { length.checked_sub(index.unsigned_abs())? } else { index.unsigned_abs() };
    (place < length).then_some(place)
}

/// `~1` is a slash and `~0` a tilde.
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

/// An operation's value as the client wrote it.
#[derive(Deserialize)]
struct Written<'a> {
    #[serde(borrow, default)]
    value: Option<&'a RawValue>,
}

fn values_as_written(patch: &[u8]) -> Vec<Written<'_>> {
    serde_json::from_slice(patch).unwrap_or_default()
}

/// Whether a value is what a client wrote, by the text of its plain values: `1.0` is not `1`, and `<` is not what the server
/// writes for it.
fn is_written(value: &Value, written: &RawValue) -> bool {
    match value {
        Value::Object(fields) => {
            let Ok(written) =
                serde_json::from_str::<std::collections::BTreeMap<String, &RawValue>>(written.get())
            else {
                return false;
            };
            fields.len() == written.len()
                && fields
                    .iter()
                    .all(|(name, value)| written.get(name).is_some_and(|written| is_written(value, written)))
        }
        Value::Array(items) => {
            let Ok(written) = serde_json::from_str::<Vec<&RawValue>>(written.get()) else { return false };
            items.len() == written.len()
                && items.iter().zip(written).all(|(value, written)| is_written(value, written))
        }
        plain => text::compact(plain) == written.get(),
    }
}
