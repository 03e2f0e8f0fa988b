//! Table cells of custom objects: the name, then the columns of the definition, or the age if it has none.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::cell::{self, Cell};
use super::{columns_of, definition};
use crate::definition::{self as definitions, Version};

/// Returns the columns of a custom kind in one of its versions.
pub(super) fn columns(version: &Version) -> Vec<Value> {
    let name = columns_of("", "custom").iter().take(1).map(definition);
    let defined = version.columns.iter().map(|column| {
        json!({
            "name": column.name, "type": column.kind, "format": column.format,
            "description": column.description, "priority": column.priority,
        })
    });
    name.chain(defined).collect()
}

/// Returns the cells of a custom object, one for each column.
pub(super) fn cells(version: &Version, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = cell::fill(&[Cell::Name], object, now);
    cells.extend(definitions::cells(&version.columns, object, now));
    cells
}
