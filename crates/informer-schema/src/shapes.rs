//! The structs of the rows of `KINDS`, `GROUPS`, `RESOURCES` and `TABLES`.
//!
//! Only definitions. Nothing here knows the tables themselves or how a row is found.

use crate::fields::TypeId;

/// A kind in one version of its API group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Kind {
    /// The API group, `apps`; empty for the core group.
    pub group: &'static str,
    /// The version of the group, `v1`.
    pub version: &'static str,
    /// The name of the kind, `Deployment`.
    pub kind: &'static str,
    /// What it is called in paths, `deployments`.
    pub plural: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
}

/// A group of the API as Kubernetes 1.36 serves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// `apps`; empty for the core group.
    pub name: &'static str,
    /// Its versions; the first is the preferred one.
    pub versions: &'static [&'static str],
}

/// A resource as Kubernetes 1.36 serves it in one version of its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Resource {
    /// The API group, `apps`; empty for the core group.
    pub group: &'static str,
    /// The version of the group, `v1`.
    pub version: &'static str,
    /// The name of the kind, `Deployment`.
    pub kind: &'static str,
    /// What it is called in paths, `deployments`.
    pub plural: &'static str,
    /// `deployment`.
    pub singular: &'static str,
    /// Whether its objects are in namespaces.
    pub namespaced: bool,
    /// `deploy`.
    pub short_names: &'static [&'static str],
    /// `all`.
    pub categories: &'static [&'static str],
    /// What can be done with it.
    pub verbs: &'static [&'static str],
    /// The `storageVersionHash` of discovery; empty for what is not stored.
    pub storage_hash: &'static str,
    /// How its objects are built.
    pub of: Option<TypeId>,
    /// `status`, `scale` and the like.
    pub subresources: &'static [Subresource],
}

/// A part of a resource with a path of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Subresource {
    /// `scale`.
    pub name: &'static str,
    /// The group of what is read and written there.
    pub group: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
    /// How what is read and written there is built; options of a connection have no type.
    pub of: Option<TypeId>,
}

/// What a table shows of a kind, one column after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Table {
    /// The API group, `apps`; empty for the core group.
    pub group: &'static str,
    /// The name of the kind, `Deployment`.
    pub kind: &'static str,
    /// From left to right.
    pub columns: &'static [Column],
}

/// A column of a [`Table`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// `Up-to-date`.
    pub name: &'static str,
    /// The type of its cells: `string`, `integer`, `boolean`, `date`. Cells need not keep to it.
    pub kind: &'static str,
    /// `name` where the cells name objects.
    pub format: &'static str,
    /// For people.
    pub description: &'static str,
    /// Zero for what is always shown, more for what only wide tables show.
    pub priority: i32,
}

/// What a column is where the table says nothing.
pub(crate) const COLUMN: Column = Column { name: "", kind: "", format: "", description: "", priority: 0 };
