//! The row types of `GROUPS`, `RESOURCES` and `TABLES`.
//!
//! Definitions only. Nothing here knows the tables themselves or how a row is found.

use crate::fields::TypeId;

/// An API group as served by Kubernetes 1.36.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// The name, for example `apps`; empty for the core group.
    pub name: &'static str,
    /// The versions, the preferred one first.
    pub versions: &'static [&'static str],
}

/// A resource as served by Kubernetes 1.36 in one version of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource {
    /// The API group, for example `apps`; empty for the core group.
    pub group: &'static str,
    /// The version of the group, for example `v1`.
    pub version: &'static str,
    /// The name of the kind, for example `Deployment`.
    pub kind: &'static str,
    /// The plural name used in paths, for example `deployments`.
    pub plural: &'static str,
    /// The singular name, for example `deployment`.
    pub singular: &'static str,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// Short names, for example `deploy`.
    pub short_names: &'static [&'static str],
    /// Categories, for example `all`.
    pub categories: &'static [&'static str],
    /// The supported verbs.
    pub verbs: &'static [&'static str],
    /// The `storageVersionHash` of discovery; empty if objects are not stored.
    pub storage_hash: &'static str,
    /// The type of its objects.
    pub type_id: Option<TypeId>,
    /// The subresources, for example `status` and `scale`.
    pub subresources: &'static [Subresource],
}

/// A subresource, served at its own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subresource {
    /// The name, for example `scale`.
    pub name: &'static str,
    /// The group of the objects read and written there.
    pub group: &'static str,
    /// The version of these objects.
    pub version: &'static str,
    /// The kind of these objects.
    pub kind: &'static str,
    /// The supported verbs.
    pub verbs: &'static [&'static str],
    /// The type of these objects; `None` for the options of connections such as `exec`.
    pub type_id: Option<TypeId>,
}

/// The table columns of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// The API group, for example `apps`; empty for the core group.
    pub group: &'static str,
    /// The name of the kind, for example `Deployment`.
    pub kind: &'static str,
    /// The columns from left to right.
    pub columns: &'static [Column],
}

/// A column of a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// The header, for example `Up-to-date`.
    pub name: &'static str,
    /// The declared type of the cells: `string`, `integer`, `boolean` or `date`.
    ///
    /// Cells may contain values of another type.
    pub cell_type: &'static str,
    /// The format: `name` if the cells are names of objects, else empty.
    pub format: &'static str,
    /// The description shown to users.
    pub description: &'static str,
    /// Zero if the column is always shown, greater if only wide tables show it.
    pub priority: i32,
}

// The constructors of the generated tables.

/// Default values of the fields that a resource in the table omits.
pub(crate) const RESOURCE: Resource = Resource {
    group: "",
    version: "",
    kind: "",
    plural: "",
    singular: "",
    namespaced: false,
    short_names: &[],
    categories: &[],
    verbs: &[],
    storage_hash: "",
    type_id: None,
    subresources: &[],
};

pub(crate) const fn of(type_id: u16) -> TypeId {
    TypeId(type_id)
}

pub(crate) const fn table(group: &'static str, kind: &'static str, columns: &'static [Column]) -> Table {
    Table { group, kind, columns }
}

pub(crate) const fn column(name: &'static str, cell_type: &'static str, description: &'static str) -> Column {
    Column { name, cell_type, format: "", description, priority: 0 }
}

impl Column {
    pub(crate) const fn format(self, format: &'static str) -> Self {
        Self { format, ..self }
    }

    pub(crate) const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }
}
