//! How a cell is filled: by looking a field up, or by a function where that does not do.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::since;
use super::fields::{amount, at, count, each, filled, flag, given, list, number, shortened, text, texts};
use super::selectors::{labels, selector};

const UNSET: &str = "<unset>";

/// How many endpoints, ports and hosts are shown.
pub(super) const MAX_SHOWN: usize = 3;

/// How one cell of a row is filled; a few fill several. Places are JSON pointers.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cell {
    /// The object's name.
    Name,
    /// How long ago it was created.
    Age,
    /// When it was created.
    Created,
    /// The text at a place; empty if there is none.
    Text(&'static str),
    /// The text at a place, or this where it is missing.
    Given(&'static str, &'static str),
    /// The text at a place, or this where it is missing or empty.
    Filled(&'static str, &'static str),
    /// The number at a place; zero if there is none.
    Number(&'static str),
    /// Whether it is so at a place, or this where that is not said.
    Flag(&'static str, bool),
    /// How many entries there are at these places.
    Count(&'static [&'static str]),
    /// The amount at a place; zero if there is none.
    Amount(&'static str),
    /// The texts of a list, or this where there are none.
    Joined(&'static str, &'static str),
    /// `ready/wanted`.
    Of(&'static str, &'static str),
    /// How long ago the time at a place was, or this where there is none.
    Since(&'static str, &'static str),
    /// The labels at a place.
    Labels(&'static str),
    /// The label selector at a place.
    Selector(&'static str),
    /// The names of the containers at a place, and their images: two cells.
    Containers(&'static str),
    /// What a function says.
    By(fn(&Value) -> String),
    /// What a function says at a time.
    ByTime(fn(&Value, Timestamp) -> String),
    /// Several cells.
    Several(fn(&Value, Timestamp) -> Vec<Value>),
}

/// The cells of an object.
pub(super) fn fill(row: &[Cell], object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = Vec::with_capacity(row.len());
    for cell in row {
        match *cell {
            Cell::Containers(place) => {
                let containers = list(object, place);
                cells.push(json!(each(containers, "/name").join(",")));
                cells.push(json!(each(containers, "/image").join(",")));
            }
            Cell::Several(several) => cells.extend(several(object, now)),
            cell => cells.push(one(cell, object, now)),
        }
    }
    cells
}

fn one(cell: Cell, object: &Value, now: Timestamp) -> Value {
    match cell {
        Cell::Name => json!(text(object, "/metadata/name")),
        Cell::Age => json!(since(object, "/metadata/creationTimestamp", now)),
        Cell::Created => {
            json!(given(object, "/metadata/creationTimestamp").unwrap_or("0001-01-01T00:00:00Z"))
        }
        Cell::Text(place) => json!(text(object, place)),
        Cell::Given(place, otherwise) => json!(given(object, place).unwrap_or(otherwise)),
        Cell::Filled(place, otherwise) => json!(filled(object, place).unwrap_or(otherwise)),
        Cell::Number(place) => json!(number(object, place)),
        Cell::Flag(place, otherwise) => json!(at(object, place).map_or(otherwise, |_| flag(object, place))),
        Cell::Count(places) => json!(places.iter().map(|place| count(object, place)).sum::<usize>()),
        Cell::Amount(place) => json!(amount(object, place)),
        Cell::Joined(place, otherwise) => match texts(object, place).join(",") {
            joined if joined.is_empty() => json!(otherwise),
            joined => json!(joined),
        },
        Cell::Of(ready, wanted) => json!(format!("{}/{}", number(object, ready), number(object, wanted))),
        Cell::Since(place, otherwise) => match at(object, place) {
            Some(_) => json!(since(object, place, now)),
            None => json!(otherwise),
        },
        Cell::Labels(place) => json!(labels(object, place)),
        Cell::Selector(place) => json!(selector(object, place)),
        Cell::By(say) => json!(say(object)),
        Cell::ByTime(say) => json!(say(object, now)),
        Cell::Containers(_) | Cell::Several(_) => Value::Null,
    }
}

/// A few texts, or that there are none.
pub(super) fn set_or_unset(texts: &[impl AsRef<str>]) -> String {
    match shortened(texts, MAX_SHOWN, ",") {
        shown if shown.is_empty() => UNSET.to_owned(),
        shown => shown,
    }
}
