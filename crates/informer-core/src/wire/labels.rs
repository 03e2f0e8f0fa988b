//! Labels and owners of an object, each in one allocation.
//!
//! A cache interns them: objects with equal labels, or equal owners, usually share the allocation.

use crate::small_text::{Iter, PackedTexts, PackedTextsBuilder, as_text};
use std::fmt;

/// The labels of an object, in the server's order.
// The names and values alternate.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Labels(pub(crate) PackedTexts);

impl Labels {
    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut texts = self.0.iter();
        while let (Some(known), Some(value)) = (texts.next_bytes(), texts.next_bytes()) {
            if known == name.as_bytes() {
                return Some(as_text(value));
            }
        }
        None
    }

    /// Iterates over names and values.
    pub fn iter(&self) -> LabelsIter<'_> {
        LabelsIter(self.0.iter())
    }

    /// Returns the number of labels.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether the object has no labels.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An iterator over the labels of an object.
#[derive(Debug, Clone)]
pub struct LabelsIter<'a>(Iter<'a>);

impl<'a> Iterator for LabelsIter<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.0.next()?, self.0.next()?))
    }
}

impl<'a> IntoIterator for &'a Labels {
    type Item = (&'a str, &'a str);
    type IntoIter = LabelsIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The owners of an object, in the server's order.
// Each owner consists of five texts: see `Owner::push_to`.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Owners(pub(crate) PackedTexts);

impl Owners {
    /// Iterates over the owners.
    pub fn iter(&self) -> OwnersIter<'_> {
        OwnersIter(self.0.iter())
    }

    /// Returns the owner that is the managing controller.
    pub fn controller(&self) -> Option<Owner<'_>> {
        self.iter().find(|owner| owner.controller)
    }

    /// Returns the number of owners.
    pub fn len(&self) -> usize {
        self.iter().count()
    }

    /// Returns whether the object has no owners.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An iterator over the owners of an object.
#[derive(Debug, Clone)]
pub struct OwnersIter<'a>(Iter<'a>);

impl<'a> Iterator for OwnersIter<'a> {
    type Item = Owner<'a>;

    fn next(&mut self) -> Option<Owner<'a>> {
        let Self(texts) = self;
        Some(Owner {
            api_version: texts.next()?,
            kind: texts.next()?,
            name: texts.next()?,
            uid: texts.next()?,
            controller: texts.next()? == CONTROLLER,
        })
    }
}

impl<'a> IntoIterator for &'a Owners {
    type Item = Owner<'a>;
    type IntoIter = OwnersIter<'a>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Debug for Owners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// One entry of `metadata.ownerReferences`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct Owner<'a> {
    /// Group and version of the owner.
    pub api_version: &'a str,
    /// Kind of the owner.
    pub kind: &'a str,
    /// Name of the owner, in the object's own namespace or cluster-scoped.
    pub name: &'a str,
    /// Uid of the owner.
    pub uid: &'a str,
    /// Whether this owner is the managing controller.
    pub controller: bool,
}

/// The text stored for the managing controller; other owners store an empty one.
const CONTROLLER: &str = "c";

impl Owner<'_> {
    pub(super) fn push_to(&self, builder: &mut PackedTextsBuilder) {
        let controller = if self.controller { CONTROLLER } else { "" };
        for text in [self.api_version, self.kind, self.name, self.uid, controller] {
            builder.push(text);
        }
    }
}

/// An [`Owner`] with its own copies of the texts.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct OwnerReference {
    /// Group and version of the owner.
    pub api_version: Box<str>,
    /// Kind of the owner.
    pub kind: Box<str>,
    /// Name of the owner, in the object's own namespace or cluster-scoped.
    pub name: Box<str>,
    /// Uid of the owner.
    pub uid: Box<str>,
    /// Whether this owner is the managing controller.
    pub controller: bool,
}

impl From<Owner<'_>> for OwnerReference {
    fn from(owner: Owner<'_>) -> Self {
        Self {
            api_version: owner.api_version.into(),
            kind: owner.kind.into(),
            name: owner.name.into(),
            uid: owner.uid.into(),
            controller: owner.controller,
        }
    }
}
