//! How an object is shown: which parts, under which apiVersion and in which representation.
//!
//! A view is a property of a response. It does not know the object.

use super::representation::Representation;

/// How an object is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) shape: ObjectShape,
    /// `None` if it is the apiVersion in the stored bytes.
    pub(crate) api_version: Option<String>,
    /// The difference between the shown and the stored representation.
    pub(crate) representation: Representation,
}

/// The parts of an object that are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectShape {
    /// The whole object.
    Whole,
    /// Everything but kind and apiVersion, as in lists of built-in kinds.
    Item,
    /// `PartialObjectMetadata`.
    Metadata,
}
