//! Lists in strategic merge patches: which entries are the same, and in which order they end up.
//!
//! The rule of order: entries that the patch names come in the patch's order, the others in the server's, and where the two meet, the
//! patch's go first unless the server had them the other way round. So new entries come in front. Everything is found through
//! maps, never by searching a list for each entry of another.

use std::collections::{BTreeMap, BTreeSet};

use informer_schema::Shape;
use serde_json::{Map, Value};

use super::strategic::{Failure, directive_of, kind, merge_map, not_an_object, unknown_directive};
use crate::text;

/// What the entries of a list are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Elements {
    /// The field that tells entries apart; empty where entries are plain values.
    pub(super) key: &'static str,
    pub(super) shape: Shape,
}

/// Merges a list of the patch into one of the object, or deletes its values from it.
pub(super) fn merge(
    there: Vec<Value>,
    new: Vec<Value>,
    elements: Elements,
    deletes: bool,
) -> Result<Vec<Value>, Failure> {
    if there.is_empty() && new.is_empty() {
        return Ok(there);
    }
    if check_alike(&there, &new)? == Kind::Plain {
        if deletes {
            let gone: BTreeSet<String> = new.iter().map(identity).collect();
            return Ok(there.into_iter().filter(|value| !gone.contains(&identity(value))).collect());
        }
        let mut seen = BTreeSet::new();
        let all = there.iter().chain(&new);
        let merged = all.filter(|value| seen.insert(identity(value))).cloned().collect();
        return arrange(merged, &new, &there, elements);
    }
    if elements.key.is_empty() {
        let kind = if matches!(elements.shape, Shape::Map(..)) { "map" } else { "struct" };
        return Err(Failure::Other(format!("cannot merge lists without merge key for {kind}")));
    }
    let (there, new) = follow_directives(there, new, elements.key)?;
    let merged = merge_entries(there.clone(), new.clone(), elements)?;
    arrange(merged, &new, &there, elements)
}

/// Whether entries are objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Objects,
    Plain,
}

/// Checks that all entries are of one type, and none is a list.
pub(super) fn check_alike(there: &[Value], new: &[Value]) -> Result<Kind, Failure> {
    let mut all = there.iter().chain(new);
    let first = match all.next() {
        None => return Err(Failure::Other("no elements in any of the given slices".to_owned())),
        Some(Value::Array(_)) => return Err(Failure::Rejected),
        Some(Value::Null) => {
            // The real server trips over it.
            let message = "This request caused apiserver to panic. Look in the logs for details.";
            return Err(Failure::Other(message.to_owned()));
        }
        Some(first) => first,
    };
    if all.any(|value| kind(value) != kind(first)) {
        let list = |values: &[Value]| text::shown(&Value::from(values.to_vec()));
        let lists = format!("[{} {}]", list(there), list(new));
        return Err(Failure::Other(format!("list element types are not identical: {lists}")));
    }
    Ok(if first.is_object() { Kind::Objects } else { Kind::Plain })
}

/// Checks that a `$setElementOrder` names the patch's entries, in the patch's order.
pub(super) fn check_order(new: &[Value], order: &[Value], elements: Elements) -> Result<(), Failure> {
    if new.is_empty() || order.is_empty() {
        return Ok(());
    }
    let key = |value: &Value| -> Result<String, Failure> {
        if elements.key.is_empty() { Ok(identity(value)) } else { key_of(value, elements.key) }
    };
    if !elements.key.is_empty()
        && let Some(strange) = new.iter().find(|value| !value.is_object())
    {
        return Err(not_an_object(strange));
    }
    let is_delete = |value: &&Value| directive_of(value).and_then(Value::as_str) == Some("delete");
    let mut rest = new.iter().filter(|value| !is_delete(value)).peekable();
    let mut order_left = order.iter().peekable();
    while let (Some(next), Some(wanted)) = (rest.peek(), order_left.peek()) {
        if directive_of(next).is_some() {
            rest.next();
            continue;
        }
        if key(next)? == key(wanted)? {
            rest.next();
        }
        order_left.next();
    }
    if rest.peek().is_none() {
        return Ok(());
    }
    let list = |values: &[Value]| text::shown(&Value::from(values.to_vec()));
    Err(Failure::Other(format!(
        "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
        list(new),
        list(order)
    )))
}

/// Puts merged entries in order: those that `order` names by it, the others as the server had them.
pub(super) fn arrange(
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
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for value in merged {
        let key = key(&value)?;
        let at = server.get(&key).copied();
        match order.get(&key) {
            Some(rank) => named.push((*rank, at, value)),
            None => others.push((at, value)),
        }
    }
    named.sort_by_key(|(rank, ..)| *rank);
    others.sort_by_key(|(at, _)| *at);
    let mut arranged = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, at, value) in named {
        while let Some((_, other)) =
            others.next_if(|(other, _)| at.is_some_and(|at| other.is_some_and(|other| other < at)))
        {
            arranged.push(other);
        }
        arranged.push(value);
    }
    arranged.extend(others.map(|(_, other)| other));
    Ok(arranged)
}

/// Follows `$patch` in entries: deletes, or begins anew. Returns what is left of both lists.
fn follow_directives(
    there: Vec<Value>,
    new: Vec<Value>,
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let mut plain = Vec::new();
    let mut gone = BTreeSet::new();
    let mut replace = false;
    for entry in new {
        let Some(directive) = directive_of(&entry) else {
            plain.push(entry);
            continue;
        };
        match directive.as_str() {
            Some("delete") => {
                gone.insert(key_of(&entry, key)?);
            }
            Some("replace") => replace = true,
            Some("merge") => {
                let message = "merging lists cannot yet be specified in the patch";
                return Err(Failure::Other(message.to_owned()));
            }
            _ => {
                let fields = entry.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(directive, &fields));
            }
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    let stays = |entry: &Value| entry.get(key).is_none_or(|value| !gone.contains(&identity(value)));
    Ok((there.into_iter().filter(stays).collect(), plain))
}

/// Merges entries with the same key, and appends the others.
fn merge_entries(mut there: Vec<Value>, new: Vec<Value>, elements: Elements) -> Result<Vec<Value>, Failure> {
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (place, entry) in there.iter().enumerate() {
        if let Some(value) = entry.get(elements.key) {
            places.entry(identity(value)).or_insert(place);
        }
    }
    for entry in new {
        let key = key_of(&entry, elements.key)?;
        let (Some(place), Value::Object(patch)) = (places.get(&key), &entry) else {
            places.insert(key, there.len());
            there.push(entry);
            continue;
        };
        if let Some(slot) = there.get_mut(*place) {
            let fields = match slot.take() {
                Value::Object(fields) => fields,
                _ => Map::new(),
            };
            *slot = Value::Object(merge_map(fields, patch.clone(), elements.shape)?);
        }
    }
    Ok(there)
}

/// Where values stand first in a list.
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

/// What tells an entry apart: the value of its key field.
fn key_of(entry: &Value, key: &str) -> Result<String, Failure> {
    if !entry.is_object() {
        return Err(not_an_object(entry));
    }
    entry.get(key).map(identity).ok_or_else(|| {
        let entry = text::shown(entry);
        Failure::Other(format!("map: {entry} does not contain declared merge key: {key}"))
    })
}

/// A value as text that no other value has.
fn identity(value: &Value) -> String {
    value.to_string()
}
