//! How an object is shown: how much of it, under which apiVersion and in which form.
//!
//! A view is a fact about an answer. The object itself is not known here.

use super::forms::Representation;

/// How an object is shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) shape: ObjectShape,
    /// `None` where the stored bytes already say it.
    pub(crate) api_version: Option<String>,
    /// How the form that is shown differs from the stored one.
    pub(crate) representation: Representation,
}

/// How much of an object is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectShape {
    /// Everything.
    Whole,
    /// Everything but kind and apiVersion, as items of built-in lists are.
    Item,
    /// `PartialObjectMetadata`.
    Metadata,
}
