//! What is shown of custom objects: the name, and then what their definition says, or their age if it says nothing.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell::{self, Cell};
use super::{columns_of, definition};
use crate::definition::{self as definitions, Version};

/// The columns of a custom kind in one of its versions.
pub(super) fn columns(of: &Version) -> Vec<Value> {
    let name = columns_of("", "custom").iter().take(1).map(definition);
    let others = of.columns.iter().map(|column| {
        json!({
            "name": column.name, "type": column.kind, "format": column.format,
            "description": column.description, "priority": column.priority,
        })
    });
    name.chain(others).collect()
}

/// The cells of a custom object, one for each column.
pub(super) fn cells(of: &Version, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = cell::fill(&[Cell::Name], object, now);
    cells.extend(definitions::cells(&of.columns, object, now));
    cells
}
