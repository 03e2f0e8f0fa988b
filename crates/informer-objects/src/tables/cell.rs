//! Filling of cells: by a lookup of a field, or by a function where a lookup is not enough.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::since;
use super::fields::{amount, at, count, each, filled, flag, given, list, number, shortened, text, texts};
use super::selectors::{labels, selector};

const UNSET: &str = "<unset>";

/// The maximum number of endpoints, ports and hosts shown.
pub(super) const MAX_SHOWN: usize = 3;

/// The source of a cell, or of several adjacent cells. Locations are JSON pointers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell {
    /// The object's name.
    Name,
    /// The age of the object.
    Age,
    /// The creation timestamp.
    Created,
    /// The string at a pointer; empty if absent.
    Text(&'static str),
    /// The string at a pointer, or a fallback if absent.
    Given(&'static str, &'static str),
    /// The string at a pointer, or a fallback if absent or empty.
    Filled(&'static str, &'static str),
    /// The number at a pointer; zero if absent.
    Number(&'static str),
    /// The boolean at a pointer, or a fallback if absent.
    Flag(&'static str, bool),
    /// The number of entries at these pointers.
    Count(&'static [&'static str]),
    /// The quantity at a pointer; zero if absent.
    Amount(&'static str),
    /// The strings of a list, or a fallback if there are none.
    Joined(&'static str, &'static str),
    /// Two numbers, as `ready/wanted`.
    Ratio(&'static str, &'static str),
    /// The age of the time at a pointer, or a fallback if absent.
    Since(&'static str, &'static str),
    /// The labels at a pointer.
    Labels(&'static str),
    /// The label selector at a pointer.
    Selector(&'static str),
    /// Two cells: the names and the images of the containers at a pointer.
    Containers(&'static str),
    /// The result of a function of the object.
    Computed(fn(&Value) -> String),
    /// The result of a function of object and time.
    ComputedWithTime(fn(&Value, Timestamp) -> String),
    /// Several cells, from a function.
    Several(fn(&Value, Timestamp) -> Vec<Value>),
}

/// Returns the cells of an object.
pub(super) fn fill(row: &[Cell], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = Vec::with_capacity(row.len());
    for cell in row {
        match *cell {
            Cell::Containers(pointer) => {
                let containers = list(object, pointer);
                cells.push(json!(each(containers, "/name").join(",")));
                cells.push(json!(each(containers, "/image").join(",")));
            }
            Cell::Several(several) => cells.extend(several(object, now)),
            cell => cells.push(single_cell(cell, object, now)),
        }
    }
    cells
}

fn single_cell(cell: Cell, object: &Value, now: Timestamp) -> Value {
    match cell {
        Cell::Name => json!(text(object, "/metadata/name")),
        Cell::Age => json!(since(object, "/metadata/creationTimestamp", now)),
        Cell::Created => {
            json!(given(object, "/metadata/creationTimestamp").unwrap_or("0001-01-01T00:00:00Z"))
        }
        Cell::Text(pointer) => json!(text(object, pointer)),
        Cell::Given(pointer, fallback) => json!(given(object, pointer).unwrap_or(fallback)),
        Cell::Filled(pointer, fallback) => json!(filled(object, pointer).unwrap_or(fallback)),
        Cell::Number(pointer) => json!(number(object, pointer)),
        Cell::Flag(pointer, fallback) => {
            json!(at(object, pointer).map_or(fallback, |_| flag(object, pointer)))
        }
        Cell::Count(pointers) => json!(pointers.iter().map(|pointer| count(object, pointer)).sum::<usize>()),
        Cell::Amount(pointer) => json!(amount(object, pointer)),
        Cell::Joined(pointer, fallback) => match texts(object, pointer).join(",") {
            joined if joined.is_empty() => json!(fallback),
            joined => json!(joined),
        },
        Cell::Ratio(ready, wanted) => json!(format!("{}/{}", number(object, ready), number(object, wanted))),
        Cell::Since(pointer, fallback) => match at(object, pointer) {
            Some(_) => json!(since(object, pointer, now)),
            None => json!(fallback),
        },
        Cell::Labels(pointer) => json!(labels(object, pointer)),
        Cell::Selector(pointer) => json!(selector(object, pointer)),
        Cell::Computed(function) => json!(function(object)),
        Cell::ComputedWithTime(function) => json!(function(object, now)),
        // `fill` handles the sources of several cells.
        Cell::Containers(_) | Cell::Several(_) => Value::Null,
    }
}

/// Returns a shortened list of texts, or `<unset>` if there are none.
pub(super) fn shortened_or_unset(texts: &[impl AsRef<str>]) -> String {
    match shortened(texts, MAX_SHOWN, ",") {
        shown if shown.is_empty() => UNSET.to_owned(),
        shown => shown,
    }
}
