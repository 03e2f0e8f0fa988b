//! Rows of tables: what `kubectl get` shows of an object, kind by kind.
//!
//! [`informer_schema::TABLES`] has the columns, [`rows`] says how a kind fills them, [`cell`] fills one, and a file per topic has what takes
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

use crate::model::Resource;

/// The columns of a resource in one of its versions, as a table defines them.
pub(crate) fn columns(resource: &Resource, version: usize) -> Vec<Value> {
    if resource.custom {
        return custom::columns(resource, version);
    }
    columns_of(&resource.group, &resource.kind).iter().map(definition).collect()
}

/// The cells of an object, one for each column.
pub(crate) fn cells(resource: &Resource, version: usize, object: &Value, now: Timestamp) -> Vec<Value> {
    if resource.custom {
        return custom::cells(resource, version, object, now);
    }
    cell::fill(rows::of(&resource.group, &resource.kind), object, now)
}

/// The columns and the cells of a scale, whatever it scales.
pub(crate) fn scale(scale: &Value, now: Timestamp) -> (Vec<Value>, Vec<Value>) {
    let (group, kind) = ("autoscaling", "Scale");
    let columns = columns_of(group, kind).iter().map(definition).collect();
    (columns, cell::fill(rows::of(group, kind), scale, now))
}

/// What is said about a whole row; nothing about most.
pub(crate) fn conditions(resource: &Resource, object: &Value) -> Option<Value> {
    if (resource.group.as_str(), resource.kind.as_str()) != ("", "Pod") {
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
pub(crate) fn place(resource: &Resource, object: &Value) -> i64 {
    match (resource.group.as_str(), resource.kind.as_str()) {
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
