//! Strategic merge patches: merging by what the fields of a built-in type say about themselves, and by directives in the patch.
//!
//! Directives: `$patch` (`replace`, `delete`), `$retainKeys`, `$setElementOrder/LIST`, `$deleteFromPrimitiveList/LIST`. They never
//! reach the object, except inside new entries of merged lists and inside lists that are replaced, where the real server
//! leaves them too. Order is decided in `lists`. A patch is as deep as its reader allows.

use informer_schema::{Field, Shape, TypeId};
use serde_json::{Map, Value};

use super::lists::{self, Elements};
use super::{Refused, read_object, rejected};
use crate::status::Status;
use crate::text;

/// The object with the patch merged in; both are of the given type.
pub(crate) fn strategic(of: TypeId, object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let patch = match read_object(patch) {
        Ok(patch) => patch,
        // Nothing to merge is nothing to complain about.
        Err(Refused::Null) => Map::new(),
        Err(Refused::Unreadable(what)) => return Err(Status::bad_request(what)),
    };
    let fields = object.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_map(fields, patch, Shape::Object(of))?))
}

/// Why a patch cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The patch has the wrong form.
    Form(&'static str),
    /// Known to the real server as unprocessable; it does not say why.
    Rejected,
    /// Any other error.
    Other(String),
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Status {
        match failure {
            Failure::Form(what) => Status::bad_request(what),
            Failure::Rejected => rejected(),
            Failure::Other(what) => Status::internal(what),
        }
    }
}

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ORDER: &str = "$setElementOrder";
const DELETE_FROM: &str = "$deleteFromPrimitiveList";

const BAD_PRIMITIVE_LIST: Failure = Failure::Form("invalid patch format of primitive list");
const BAD_RETAIN_KEYS: Failure = Failure::Form("invalid patch format of retainKeys");
const BAD_SET_ORDER: Failure = Failure::Form("invalid patch format of setElementOrder list");

/// Merges a patch into an object of some shape.
pub(super) fn merge_map(
    mut fields: Map<String, Value>,
    mut patch: Map<String, Value>,
    shape: Shape,
) -> Result<Map<String, Value>, Failure> {
    if let Some(directive) = patch.get(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Map::new()),
            _ => Err(unknown_directive(directive, &patch)),
        };
    }
    retain_keys(&mut fields, &mut patch)?;
    merge_ordered_lists(&mut fields, &mut patch, shape)?;
    for (name, value) in patch {
        merge_field(&mut fields, name, value, shape)?;
    }
    Ok(fields)
}

fn merge_field(
    fields: &mut Map<String, Value>,
    name: String,
    mut new: Value,
    shape: Shape,
) -> Result<(), Failure> {
    let deletes = name.starts_with(DELETE_FROM);
    let name = if deletes { list_of(&name, DELETE_FROM, BAD_PRIMITIVE_LIST)?.to_owned() } else { name };
    if new.is_null() {
        fields.remove(&name);
        return Ok(());
    }
    match (fields.remove(&name), new) {
        (Some(Value::Object(there)), Value::Object(patch)) => {
            let field = field_of(shape, &name)?;
            let merged = if field.patch.replace { patch } else { merge_map(there, patch, field.shape)? };
            fields.insert(name, Value::Object(merged));
        }
        (Some(Value::Array(there)), Value::Array(patch)) => {
            let (field, items) = list_field_of(shape, &name)?;
            let merged = if field.patch.merge || deletes {
                let elements = Elements { key: field.patch.key, shape: items };
                lists::merge(there, patch, elements, deletes)?
            } else {
                patch
            };
            fields.insert(name, Value::Array(merged));
        }
        // Whatever is to be deleted from it, it is no list.
        (Some(there), _) if deletes => drop(fields.insert(name, there)),
        (_, _) if deletes => {}
        (there, other) => {
            new = other;
            if there.as_ref().is_none_or(|there| kind(there) != kind(&new)) {
                discard_nulls(&mut new);
            }
            if let Some(value) = without_directives(new) {
                fields.insert(name, value);
            }
        }
    }
    Ok(())
}

/// `$retainKeys`: fields that it does not name go, and the patch may name no others.
fn retain_keys(fields: &mut Map<String, Value>, patch: &mut Map<String, Value>) -> Result<(), Failure> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let Value::Array(retained) = retained else { return Err(BAD_RETAIN_KEYS) };
    let retained: std::collections::BTreeSet<&str> = retained.iter().filter_map(Value::as_str).collect();
    let strange = patch.iter().any(|(name, value)| {
        !value.is_null()
            && !name.starts_with(DELETE_FROM)
            && !name.starts_with(SET_ORDER)
            && !retained.contains(name.as_str())
    });
    if strange {
        return Err(BAD_RETAIN_KEYS);
    }
    fields.retain(|name, _| retained.contains(name.as_str()));
    Ok(())
}

/// Takes lists with a `$setElementOrder` out of the patch and merges them in the order it gives.
fn merge_ordered_lists(
    fields: &mut Map<String, Value>,
    patch: &mut Map<String, Value>,
    shape: Shape,
) -> Result<(), Failure> {
    let directives: Vec<String> = patch.keys().filter(|name| name.starts_with(SET_ORDER)).cloned().collect();
    for directive in directives {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            other => return Err(not_a_list(other.as_ref())),
        };
        let name = list_of(&directive, SET_ORDER, BAD_SET_ORDER)?;
        let there = list_at(fields, name)?;
        let new = list_at(patch, name)?;
        let (field, items) = list_field_of(shape, name)?;
        let elements = Elements { key: field.patch.key, shape: items };
        lists::check_order(new.as_deref().unwrap_or_default(), &order, elements)?;
        let merged = match (there.clone(), new.clone()) {
            (None, None) => continue,
            (Some(there), None) => there,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(there), Some(new)) if field.patch.merge => lists::merge(there, new, elements, false)?,
            (Some(_), Some(new)) => new,
        };
        let server_order = there.unwrap_or_default();
        lists::check_alike(&server_order, new.as_deref().unwrap_or_default())?;
        let ordered = lists::arrange(merged, &order, &server_order, elements)?;
        fields.insert(name.to_owned(), Value::Array(ordered));
        patch.remove(name);
    }
    Ok(())
}

/// What a patch says about a field, and what stands there.
fn field_of(shape: Shape, name: &str) -> Result<&'static Field, Failure> {
    let kind = match shape {
        Shape::Object(id) => {
            let of = id.get();
            let folded = || of.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            return of.field(name).or_else(folded).ok_or_else(|| no_field(short(of.name), name));
        }
        Shape::Any => return Err(no_field("RawExtension", name)),
        Shape::Time => return Err(no_field("Time", name)),
        Shape::MicroTime => return Err(no_field("MicroTime", name)),
        Shape::Quantity => return Err(no_field("Quantity", name)),
        Shape::IntOrString => return Err(no_field("IntOrString", name)),
        Shape::Map(..) => "map",
        Shape::List(..) | Shape::Bytes => "slice",
        Shape::Boolean => "bool",
        Shape::Int32 => "int32",
        Shape::Int64 => "int64",
        Shape::Number => "float64",
        _ => "string",
    };
    Err(Failure::Other(format!("merging an object in json but data type is not struct, instead is: {kind}")))
}

/// The same for a list, with the shape of its entries.
fn list_field_of(shape: Shape, name: &str) -> Result<(&'static Field, Shape), Failure> {
    let field = field_of(shape, name)?;
    match field.shape {
        Shape::List(Shape::List(..), _) => Err(Failure::Other("unexpected slice of slice".to_owned())),
        Shape::List(items, _) => Ok((field, *items)),
        _ => Err(Failure::Other("expected slice or array type, but got: struct".to_owned())),
    }
}

fn no_field(of: &str, name: &str) -> Failure {
    let name = text::quoted(name);
    Failure::Other(format!("unable to find api field in struct {of} for the json field {name}"))
}

/// `PodSpec` of `io.k8s.api.core.v1.PodSpec`.
fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// The list that a directive is about.
fn list_of<'a>(directive: &'a str, prefix: &str, otherwise: Failure) -> Result<&'a str, Failure> {
    match directive.split_once('/') {
        Some((before, name)) if before == prefix => Ok(name),
        _ => Err(otherwise),
    }
}

fn list_at(fields: &Map<String, Value>, name: &str) -> Result<Option<Vec<Value>>, Failure> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        other => Err(not_a_list(other)),
    }
}

fn not_a_list(found: Option<&Value>) -> Failure {
    Failure::Other(format!("expected a []interface {{}}, but received a {}", go_type(found)))
}

pub(super) fn not_an_object(found: &Value) -> Failure {
    Failure::Other(format!("expected a map[string]interface {{}}, but received a {}", go_type(Some(found))))
}

pub(super) fn unknown_directive(directive: &Value, fields: &Map<String, Value>) -> Failure {
    let name = match directive {
        Value::String(name) => name.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        other => format!("%!s({}={})", go_type(Some(other)), text::shown(other)),
    };
    let fields = text::shown(&Value::Object(fields.clone()));
    Failure::Other(format!("unknown patch type: {name} in map: {fields}"))
}

fn go_type(value: Option<&Value>) -> &'static str {
    match value {
        None | Some(Value::Null) => "%!s(<nil>)",
        Some(Value::Bool(_)) => "bool",
        Some(Value::Number(number)) if number.is_i64() => "int64",
        Some(Value::Number(_)) => "float64",
        Some(Value::String(_)) => "string",
        Some(Value::Array(_)) => "[]interface {}",
        Some(Value::Object(_)) => "map[string]interface {}",
    }
}

/// What has to be the same for two values to be of the same type.
pub(super) fn kind(value: &Value) -> &'static str {
    go_type(Some(value))
}

/// A value without what only directs; nothing if it is a directive itself.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => {
            let kept =
                fields.into_iter().filter_map(|(name, value)| Some((name, without_directives(value)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        plain => Some(plain),
    }
}

fn discard_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(discard_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(discard_nulls),
        _ => {}
    }
}

/// The `$patch` of an entry of a list.
pub(super) fn directive_of(entry: &Value) -> Option<&Value> {
    entry.get(DIRECTIVE)
}
