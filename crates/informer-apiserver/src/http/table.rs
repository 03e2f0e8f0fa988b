//! Tables as responses and as frames of a watch.
//!
//! The first frame of a watch defines the columns; in later frames they are `null`. A row contains the
//! metadata of its object, the whole object or neither, as requested; the row of a bookmark always contains
//! metadata. Rows are not cached, because they contain ages.

use std::sync::Arc;

use informer_objects::status::Status;
use informer_objects::tables;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::accept::Meta;
use crate::model::{ObjectShape, Resource, State, View};

/// The part of an object that a row contains besides its cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Metadata,
    Object,
    Nothing,
}

impl Include {
    pub(crate) fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" | "Metadata" => Ok(Include::Metadata),
            "Object" => Ok(Include::Object),
            "None" => Ok(Include::Nothing),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The parameters of a table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: usize,
    pub(crate) meta: Meta,
    pub(crate) include: Include,
    /// The view of whole objects, from which cells are computed.
    pub(crate) view: View,
}

impl Table {
    /// Returns a table with one row per state, in the order of kube-apiserver.
    pub(crate) fn whole(&self, metadata: &Value, states: &[Arc<State>], now: Timestamp) -> Value {
        let mut rows: Vec<(i64, Value)> =
            states.iter().map(|state| self.ordered_row(state, state.version, now)).collect();
        rows.sort_by_key(|(order, _)| *order);
        let rows: Vec<Value> = rows.into_iter().map(|(_, row)| row).collect();
        self.table(metadata, &json!(tables::columns(self.format())), &rows)
    }

    /// Returns the table of one frame of a watch; `first` includes the columns.
    pub(crate) fn frame(&self, state: &State, version: u64, first: bool, now: Timestamp) -> Value {
        let metadata = json!({"resourceVersion": version.to_string()});
        self.table(&metadata, &self.columns(first), &[self.ordered_row(state, version, now).1])
    }

    /// Returns the table of a bookmark, whose row contains only metadata.
    pub(crate) fn bookmark(&self, metadata: &Value, first: bool, now: Timestamp) -> Value {
        let cells = tables::cells(self.format(), &json!({}), now);
        let object = json!({
            "kind": "PartialObjectMetadata", "apiVersion": self.meta.api_version(), "metadata": metadata,
        });
        let table_metadata = json!({"resourceVersion": metadata["resourceVersion"]});
        self.table(&table_metadata, &self.columns(first), &[json!({"cells": cells, "object": object})])
    }

    fn format(&self) -> tables::TableKind<'_> {
        self.resource.table_format(self.version)
    }

    fn columns(&self, first: bool) -> Value {
        if first { json!(tables::columns(self.format())) } else { Value::Null }
    }

    fn table(&self, metadata: &Value, columns: &Value, rows: &[Value]) -> Value {
        json!({
            "kind": "Table", "apiVersion": self.meta.api_version(), "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }

    /// Returns a row and its sort key.
    fn ordered_row(&self, state: &State, version: u64, now: Timestamp) -> (i64, Value) {
        state.count_row();
        let shown = |view: &View| -> Value {
            let mut out = Vec::new();
            state.write(view, version, &mut out);
            serde_json::from_slice(&out).unwrap_or_default()
        };
        let whole = shown(&self.view);
        let cells = tables::cells(self.format(), &whole, now);
        let order = tables::sort_key(self.format(), &whole);
        let conditions = tables::conditions(self.format(), &whole);
        let object = match self.include {
            Include::Metadata => shown(&View { shape: ObjectShape::Metadata, ..self.view.clone() }),
            Include::Object => whole,
            Include::Nothing => Value::Null,
        };
        let mut row = json!({"cells": cells, "object": object});
        if let Some(conditions) = conditions {
            row["conditions"] = conditions;
        }
        (order, row)
    }
}

/// Returns the table of a scale, which is not an object of a resource.
pub(crate) fn scale(scale: Value, meta: Meta, include: Include, now: Timestamp) -> Value {
    let (columns, cells) = tables::scale(&scale, now);
    let metadata = json!({"resourceVersion": scale["metadata"]["resourceVersion"]});
    let object = match include {
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": meta.api_version(), "metadata": scale["metadata"],
        }),
        Include::Object => scale,
        Include::Nothing => Value::Null,
    };
    json!({
        "kind": "Table", "apiVersion": meta.api_version(), "metadata": metadata,
        "columnDefinitions": columns, "rows": [{"cells": cells, "object": object}],
    })
}
