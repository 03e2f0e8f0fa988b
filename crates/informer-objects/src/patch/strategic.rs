//! Strategic merge patches: merging by the merge rules of the fields of a built-in type, and by directives in
//! the patch.
//!
//! Directives (`directive.rs`): `$patch` (`replace`, `delete`), `$retainKeys`, `$setElementOrder/LIST`,
//! `$deleteFromPrimitiveList/LIST`. The result contains no directives, with two exceptions: as in
//! kube-apiserver, they stay inside new entries of merged lists, and inside lists that are replaced. The
//! decoder limits the depth of a patch.
//!
//! Objects contain lists and lists contain objects, so both are merged in this file. In a merged list, the
//! entries of the patch have the order of the patch, and entries that only the server has keep their order.
//! An entry of the patch comes before the next entry that only the server has, unless it came after that
//! entry in the server's list. A new entry was not in the server's list, so it comes first. All lookups use
//! maps, never a search of one list for each entry of another.

use std::collections::{BTreeMap, BTreeSet};

use informer_schema::{Field, Shape, TypeId};
use serde_json::{Map, Value};

use super::directive::{
    BAD_PRIMITIVE_LIST, BAD_SET_ORDER, DELETE_FROM, DIRECTIVE, Failure, SET_ORDER, directive_of, kind,
    list_of, not_a_list, not_an_object, retain_keys, unknown_directive, without_directives,
};
use super::error::{PatchReadError, read_object};
use crate::status::Status;
use crate::text;

/// Merges a patch into an object of a built-in type.
pub fn strategic(type_id: TypeId, object: &Value, patch: &[u8]) -> Result<Value, Status> {
    let patch = match read_object(patch) {
        Ok(patch) => patch,
        // A null patch changes nothing.
        Err(PatchReadError::Null) => Map::new(),
        Err(PatchReadError::Unreadable(what)) => return Err(Status::bad_request(what)),
    };
    let fields = object.as_object().cloned().unwrap_or_default();
    Ok(Value::Object(merge_map(fields, patch, Shape::Object(type_id))?))
}

/// Merges a patch into an object, whose fields `shape` describes.
fn merge_map(
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
        (Some(Value::Object(existing)), Value::Object(patch)) => {
            let field = field_of(shape, &name)?;
            let merged = if field.patch.replace { patch } else { merge_map(existing, patch, field.shape)? };
            fields.insert(name, Value::Object(merged));
        }
        (Some(Value::Array(existing)), Value::Array(patch)) => {
            let (field, items) = list_field_of(shape, &name)?;
            let merged = if field.patch.merge || deletes {
                let elements = Elements { key: field.patch.key, shape: items };
                merge_list(existing, patch, elements, deletes)?
            } else {
                patch
            };
            fields.insert(name, Value::Array(merged));
        }
        // The value is not a list, so nothing can be deleted from it.
        (Some(existing), _) if deletes => drop(fields.insert(name, existing)),
        (_, _) if deletes => {}
        (existing, replacement) => {
            new = replacement;
            // Values of the same type that get here are scalars, which contain no nulls.
            if existing.as_ref().is_none_or(|existing| kind(existing) != kind(&new)) {
                discard_nulls(&mut new);
            }
            if let Some(value) = without_directives(new) {
                fields.insert(name, value);
            }
        }
    }
    Ok(())
}

/// Removes lists with a `$setElementOrder` from the patch and merges them in the given order.
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
        let existing = list_at(fields, name)?;
        let new = list_at(patch, name)?;
        let (field, items) = list_field_of(shape, name)?;
        let elements = Elements { key: field.patch.key, shape: items };
        check_order(new.as_deref().unwrap_or_default(), &order, elements)?;
        let merged = match (existing.clone(), new.clone()) {
            (None, None) => continue,
            (Some(existing), None) => existing,
            (None, Some(new)) => new.into_iter().filter_map(without_directives).collect(),
            (Some(existing), Some(new)) if field.patch.merge => {
                let deletes = false;
                merge_list(existing, new, elements, deletes)?
            }
            (Some(_), Some(new)) => new,
        };
        let server_order = existing.unwrap_or_default();
        check_same_type(&server_order, new.as_deref().unwrap_or_default())?;
        let ordered = arrange(merged, &order, &server_order, elements)?;
        fields.insert(name.to_owned(), Value::Array(ordered));
        patch.remove(name);
    }
    Ok(())
}

/// Returns the merge rules and the shape of a field.
fn field_of(shape: Shape, name: &str) -> Result<&'static Field, Failure> {
    let kind = match shape {
        Shape::Object(id) => {
            let object_type = id.get();
            // As in Go, the case of a name is ignored if no field has the exact name.
            let ignoring_case =
                || object_type.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            let field = object_type.field(name).or_else(ignoring_case);
            return field.ok_or_else(|| no_field(short(object_type.name), name));
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
    Err(Failure::Internal(format!(
        "merging an object in json but data type is not struct, instead is: {kind}"
    )))
}

/// Returns the merge rules of a list field, and the shape of its entries.
fn list_field_of(shape: Shape, name: &str) -> Result<(&'static Field, Shape), Failure> {
    let field = field_of(shape, name)?;
    match field.shape {
        Shape::List(Shape::List(..), _) => Err(Failure::Internal("unexpected slice of slice".to_owned())),
        Shape::List(items, _) => Ok((field, *items)),
        _ => Err(Failure::Internal("expected slice or array type, but got: struct".to_owned())),
    }
}

fn no_field(type_name: &str, name: &str) -> Failure {
    let name = text::quoted(name);
    Failure::Internal(format!("unable to find api field in struct {type_name} for the json field {name}"))
}

/// Returns `PodSpec` for `io.k8s.api.core.v1.PodSpec`.
fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn list_at(fields: &Map<String, Value>, name: &str) -> Result<Option<Vec<Value>>, Failure> {
    match fields.get(name) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items.clone())),
        other => Err(not_a_list(other)),
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

/// The description of the entries of a list.
#[derive(Debug, Clone, Copy)]
struct Elements {
    /// The field that identifies entries; empty if entries are scalars.
    key: &'static str,
    shape: Shape,
}

/// Merges a list of the patch into a list of the object. If `deletes`, removes the values in the patch's list
/// from a list of scalars instead.
fn merge_list(
    existing: Vec<Value>,
    new: Vec<Value>,
    elements: Elements,
    deletes: bool,
) -> Result<Vec<Value>, Failure> {
    if existing.is_empty() && new.is_empty() {
        return Ok(existing);
    }
    if check_same_type(&existing, &new)? == EntryKind::Scalars {
        if deletes {
            let removed: BTreeSet<String> = new.iter().map(identity).collect();
            return Ok(existing.into_iter().filter(|value| !removed.contains(&identity(value))).collect());
        }
        let mut seen = BTreeSet::new();
        let all = existing.iter().chain(&new);
        let merged = all.filter(|value| seen.insert(identity(value))).cloned().collect();
        return arrange(merged, &new, &existing, elements);
    }
    if elements.key.is_empty() {
        let kind = if matches!(elements.shape, Shape::Map(..)) { "map" } else { "struct" };
        return Err(Failure::Internal(format!("cannot merge lists without merge key for {kind}")));
    }
    let (existing, new) = apply_directives(existing, new, elements.key)?;
    let merged = merge_entries(existing.clone(), new.clone(), elements)?;
    arrange(merged, &new, &existing, elements)
}

/// The type of the entries of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EntryKind {
    Objects,
    Scalars,
}

/// Checks that all entries have the same type and none is a list.
fn check_same_type(existing: &[Value], new: &[Value]) -> Result<EntryKind, Failure> {
    let mut all = existing.iter().chain(new);
    let first = match all.next() {
        None => return Err(Failure::Internal("no elements in any of the given slices".to_owned())),
        Some(Value::Array(_)) => return Err(Failure::Rejected),
        Some(Value::Null) => {
            // kube-apiserver panics here.
            let message = "This request caused apiserver to panic. Look in the logs for details.";
            return Err(Failure::Internal(message.to_owned()));
        }
        Some(first) => first,
    };
    if all.any(|value| kind(value) != kind(first)) {
        let list = |values: &[Value]| text::shown(&Value::from(values.to_vec()));
        let lists = format!("[{} {}]", list(existing), list(new));
        return Err(Failure::Internal(format!("list element types are not identical: {lists}")));
    }
    Ok(if first.is_object() { EntryKind::Objects } else { EntryKind::Scalars })
}

/// Checks that a `$setElementOrder` contains the entries of the patch in the order of the patch. Entries with
/// a directive are ignored.
fn check_order(new: &[Value], order: &[Value], elements: Elements) -> Result<(), Failure> {
    if new.is_empty() || order.is_empty() {
        return Ok(());
    }
    let key = |value: &Value| -> Result<String, Failure> {
        if elements.key.is_empty() { Ok(identity(value)) } else { key_of(value, elements.key) }
    };
    if !elements.key.is_empty()
        && let Some(other) = new.iter().find(|value| !value.is_object())
    {
        return Err(not_an_object(other));
    }
    let is_delete = |value: &&Value| directive_of(value).and_then(Value::as_str) == Some("delete");
    let mut entries_left = new.iter().filter(|value| !is_delete(value)).peekable();
    let mut order_left = order.iter().peekable();
    while let (Some(next), Some(wanted)) = (entries_left.peek(), order_left.peek()) {
        if directive_of(next).is_some() {
            entries_left.next();
            continue;
        }
        if key(next)? == key(wanted)? {
            entries_left.next();
        }
        order_left.next();
    }
    if entries_left.peek().is_none() {
        return Ok(());
    }
    let list = |values: &[Value]| text::shown(&Value::from(values.to_vec()));
    Err(Failure::Internal(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        list(new),
        list(order)
    )))
}

/// Sorts merged entries: entries in `order` by their position there, all others by their position in
/// `server`. The module documentation says how the two sequences are combined.
fn arrange(
    merged: Vec<Value>,
    order: &[Value],
    server: &[Value],
    elements: Elements,
) -> Result<Vec<Value>, Failure> {
    let key = |value: &Value| -> Result<String, Failure> {
        if elements.key.is_empty() { Ok(identity(value)) } else { key_of(value, elements.key) }
    };
    let order = ranks(order, &key)?;
    let server = ranks(server, &key)?;
    let (mut ordered, mut unordered) = (Vec::new(), Vec::new());
    for value in merged {
        let key = key(&value)?;
        let server_rank = server.get(&key).copied();
        match order.get(&key) {
            Some(rank) => ordered.push((*rank, server_rank, value)),
            None => unordered.push((server_rank, value)),
        }
    }
    ordered.sort_by_key(|(rank, ..)| *rank);
    unordered.sort_by_key(|(server_rank, _)| *server_rank);
    let mut arranged = Vec::with_capacity(ordered.len() + unordered.len());
    let mut unordered = unordered.into_iter().peekable();
    for (_, server_rank, value) in ordered {
        while let Some((_, earlier)) = unordered.next_if(|(rank, _)| {
            server_rank.is_some_and(|server_rank| rank.is_some_and(|rank| rank < server_rank))
        }) {
            arranged.push(earlier);
        }
        arranged.push(value);
    }
    arranged.extend(unordered.map(|(_, value)| value));
    Ok(arranged)
}

/// Applies `$patch` in entries: deletes an entry, or replaces the list.
///
/// Returns the remaining entries of both lists.
fn apply_directives(
    existing: Vec<Value>,
    new: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let mut plain = Vec::new();
    let mut deleted = BTreeSet::new();
    let mut replace = false;
    for entry in new {
        let Some(directive) = directive_of(&entry) else {
            plain.push(entry);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                deleted.insert(key_of(&entry, key)?);
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(Failure::Internal(message.to_owned()));
            }
            _ => {
                let fields = entry.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(directive, &fields));
            }
        }
    }
    // The entries of the patch replace the list; nothing is left to merge into it.
    if replace {
        return Ok((plain, Vec::new()));
    }
    let is_kept = |entry: &Value| entry.get(key).is_none_or(|value| !deleted.contains(&identity(value)));
    Ok((existing.into_iter().filter(is_kept).collect(), plain))
}

/// Merges entries of `new` into those with the same key, and appends the entries whose key does not exist.
fn merge_entries(
    mut existing: Vec<Value>,
    new: Vec<Value>,
    elements: Elements,
) -> Result<Vec<Value>, Failure> {
    let mut indexes: BTreeMap<String, usize> = BTreeMap::new();
    for (index, entry) in existing.iter().enumerate() {
        if let Some(value) = entry.get(elements.key) {
            indexes.entry(identity(value)).or_insert(index);
        }
    }
    for entry in new {
        let key = key_of(&entry, elements.key)?;
        let (Some(index), Value::Object(patch)) = (indexes.get(&key), &entry) else {
            indexes.insert(key, existing.len());
            existing.push(entry);
            continue;
        };
        if let Some(slot) = existing.get_mut(*index) {
            let fields = match slot.take() {
                Value::Object(fields) => fields,
                _ => Map::new(),
            };
            *slot = Value::Object(merge_map(fields, patch.clone(), elements.shape)?);
        }
    }
    Ok(existing)
}

/// Returns the first position of each key in a list.
fn ranks(
    list: &[Value],
    key: &impl Fn(&Value) -> Result<String, Failure>,
) -> Result<BTreeMap<String, usize>, Failure> {
    let mut ranks = BTreeMap::new();
    for (rank, value) in list.iter().enumerate() {
        ranks.entry(key(value)?).or_insert(rank);
    }
    Ok(ranks)
}

/// Returns the identity of an entry: the value of its key field.
fn key_of(entry: &Value, key: &str) -> Result<String, Failure> {
    if !entry.is_object() {
        return Err(not_an_object(entry));
    }
    entry.get(key).map(identity).ok_or_else(|| {
        let entry = text::shown(entry);
        Failure::Internal(format!("map: {entry} does not contain declared merge key: {key}"))
    })
}

/// Returns a text that equal values have in common and that differs for different values.
fn identity(value: &Value) -> String {
    value.to_string()
}
