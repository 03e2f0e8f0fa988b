//! Rows of tables: what `kubectl get` shows of an object, kind by kind.
//!
//! [`informer_schema::TABLES`] has the columns, `rows` says how a kind fills them, `cell` fills one, and a file per topic has what takes
//! more than looking a field up. Pure: an object and the time in, cells out. What is not there counts as empty, as it would in a typed
//! object. How a table travels is not known here.

mod access;
mod age;
mod autoscalers;
mod cell;
mod custom;
mod devices;
mod events;
mod fields;
mod network;
mod nodes;
mod pods;
mod rows;
mod selectors;
mod storage;
mod workloads;

#[cfg(test)]
mod tests;

use informer_schema::{Column, TABLES};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::definition::Version;

/// What a table is about.
#[derive(Debug, Clone, Copy)]
pub struct Of<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// What a definition says about a custom kind; none for built-in ones.
    pub custom: Option<&'a Version>,
}

/// The columns of a kind, as a table defines them.
pub fn columns(of: Of<'_>) -> Vec<Value> {
    match of.custom {
        Some(version) => custom::columns(version),
        None => columns_of(of.group, of.kind).iter().map(definition).collect(),
    }
}

/// The cells of an object, one for each column.
pub fn cells(of: Of<'_>, object: &Value, now: Timestamp) -> Vec<Value> {
    match of.custom {
        Some(version) => custom::cells(version, object, now),
        None => cell::fill(rows::of(of.group, of.kind), object, now),
    }
}

/// The columns and the cells of a scale, whatever it scales.
pub fn scale(scale: &Value, now: Timestamp) -> (Vec<Value>, Vec<Value>) {
    let (group, kind) = ("autoscaling", "Scale");
    let columns = columns_of(group, kind).iter().map(definition).collect();
    (columns, cell::fill(rows::of(group, kind), scale, now))
}

/// What is said about a whole row; nothing about most.
pub fn conditions(of: Of<'_>, object: &Value) -> Option<Value> {
    if (of.group, of.kind) != ("", "Pod") {
        return None;
    }
    let (reason, message) = match fields::text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// Where a row stands in a list; rows with the same place keep the order of their names.
pub fn place(of: Of<'_>, object: &Value) -> i64 {
    match (of.group, of.kind) {
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => fields::number(object, "/spec/matchingPrecedence"),
        _ => 0,
    }
}

/// The columns of a built-in kind.
fn columns_of(group: &str, kind: &str) -> &'static [Column] {
    let find = |group: &str, kind: &str| {
        TABLES.binary_search_by(|table| (table.group, table.kind).cmp(&(group, kind))).ok()
    };
    let place = find(group, kind).or_else(|| find("", "default"));
    place.and_then(|place| TABLES.get(place)).map_or(&[], |table| table.columns)
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.kind,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}
