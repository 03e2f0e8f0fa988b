//! Table rows: the cells that `kubectl get` shows of an object, by kind.
//!
//! [`informer_schema::TABLES`] contains the columns, `rows` the cells of each kind, `cell` fills one cell,
//! and one file per topic contains the cells that need more than a lookup. Pure: the input is an object and
//! the time, the output is cells. An absent field counts as empty, as in a typed object. Nothing here knows
//! how a table is encoded.

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

/// The kind that a table shows.
#[derive(Debug, Clone, Copy)]
pub struct TableKind<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The kind.
    pub kind: &'a str,
    /// The version of the definition of a custom kind; `None` for built-in kinds.
    pub custom: Option<&'a Version>,
}

/// Returns the column definitions of a kind.
pub fn columns(table: TableKind<'_>) -> Vec<Value> {
    match table.custom {
        Some(version) => custom::columns(version),
        None => columns_of(table.group, table.kind).iter().map(definition).collect(),
    }
}

/// Returns the cells of an object, one for each column.
pub fn cells(table: TableKind<'_>, object: &Value, now: Timestamp) -> Vec<Value> {
    match table.custom {
        Some(version) => custom::cells(version, object, now),
        None => cell::fill(rows::row(table.group, table.kind), object, now),
    }
}

/// Returns the columns and the cells of a scale, whatever it scales.
pub fn scale(scale: &Value, now: Timestamp) -> (Vec<Value>, Vec<Value>) {
    let (group, kind) = ("autoscaling", "Scale");
    let columns = columns_of(group, kind).iter().map(definition).collect();
    (columns, cell::fill(rows::row(group, kind), scale, now))
}

/// Returns the conditions of a row; only completed pods have some.
pub fn conditions(table: TableKind<'_>, object: &Value) -> Option<Value> {
    if (table.group, table.kind) != ("", "Pod") {
        return None;
    }
    let (reason, message) = match fields::text(object, "/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

/// Returns the sort key of a row in a list; rows with equal keys stay sorted by name.
pub fn sort_key(table: TableKind<'_>, object: &Value) -> i64 {
    match (table.group, table.kind) {
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => fields::number(object, "/spec/matchingPrecedence"),
        _ => 0,
    }
}

/// Returns the columns of a built-in kind.
fn columns_of(group: &str, kind: &str) -> &'static [Column] {
    let find = |group: &str, kind: &str| {
        TABLES.binary_search_by(|table| (table.group, table.kind).cmp(&(group, kind))).ok()
    };
    let index = find(group, kind).or_else(|| find("", "default"));
    index.and_then(|index| TABLES.get(index)).map_or(&[], |table| table.columns)
}

fn definition(column: &Column) -> Value {
    json!({
        "name": column.name,
        "type": column.cell_type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}
