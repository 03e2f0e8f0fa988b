//! Which objects of a kind an informer caches: namespaces and selectors.

use super::InformerOptions;
use crate::shard_view::ShardHandle;
use informer_core::shard::ShardProperty;
use informer_core::{FieldSelector, LabelSelector};

/// Namespaces and selectors of an informer. A part that is not set is taken from the factory.
///
/// ```
/// use informer::Selection;
///
/// let web = Selection::default().namespace("shop").label_selector("app=web".parse()?);
/// # Ok::<(), informer::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[must_use]
pub struct Selection {
    /// Sorted; empty selects all namespaces.
    pub(super) namespaces: Option<Vec<String>>,
    pub(super) label_selector: Option<LabelSelector>,
    pub(super) field_selector: Option<FieldSelector>,
    pub(super) shard: Option<Shard>,
}

/// The hash ranges of a shard group that this process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) group: ShardHandle,
    /// The property by whose hash the objects of this kind are divided.
    pub(crate) property: ShardProperty,
}

impl Selection {
    /// Selects one namespace; an empty name selects all namespaces.
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        self.namespaces([namespace])
    }

    /// Selects several namespaces, which share one cache; an empty list or an empty name selects all
    /// namespaces.
    ///
    /// Costs one list and one watch per namespace, each with its own position and state. Requires
    /// permissions in these namespaces only, not in the whole cluster.
    pub fn namespaces<S: Into<String>>(mut self, namespaces: impl IntoIterator<Item = S>) -> Self {
        let mut names: Vec<String> = namespaces.into_iter().map(Into::into).collect();
        names.sort_unstable();
        names.dedup();
        // In the Kubernetes API, an empty name means all namespaces.
        if names.iter().any(String::is_empty) {
            names.clear();
        }
        self.namespaces = Some(names);
        self
    }

    /// Selects all namespaces, even if the factory selects some.
    pub fn all_namespaces(self) -> Self {
        self.namespaces([""])
    }

    /// Selects the objects whose labels match. The server filters.
    pub fn label_selector(mut self, selector: LabelSelector) -> Self {
        self.label_selector = Some(selector);
        self
    }

    /// Selects the objects whose fields match. The server filters, and supports only a few fields of each kind.
    pub fn field_selector(mut self, selector: FieldSelector) -> Self {
        self.field_selector = Some(selector);
        self
    }

    /// Selects the objects of the hash ranges that this process holds.
    pub(crate) fn shard(mut self, group: ShardHandle, property: ShardProperty) -> Self {
        self.shard = Some(Shard { group, property });
        self
    }

    /// Takes the parts that are not set from `defaults`.
    pub(super) fn or(self, defaults: Self) -> Self {
        Self {
            namespaces: self.namespaces.or(defaults.namespaces),
            label_selector: self.label_selector.or(defaults.label_selector),
            field_selector: self.field_selector.or(defaults.field_selector),
            shard: self.shard.or(defaults.shard),
        }
    }
}

impl From<Selection> for InformerOptions {
    fn from(selection: Selection) -> Self {
        Self { selection, ..Self::default() }
    }
}
