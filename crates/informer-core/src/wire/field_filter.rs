//! Filters that leave fields out of objects while they are read.
//!
//! A [`FieldFilter`] is complete before the first byte arrives. It decides at the name of each member of an
//! object and of its `metadata` whether the member is kept, dropped or pruned (kept without some of the
//! values inside it). It does not know how members are found, nor how values are pruned: each encoding does
//! that itself.

use super::head::{Field, member_name};
use super::path::{PathStep, is_named, steps};
use super::paths::Mode;
use crate::error::ConfigError;
use std::fmt;
use std::sync::Arc;

/// A set of paths that are dropped from, or kept in, every object while it is read. Cheap to clone.
///
/// Paths have the syntax of a [`FieldPath`](super::FieldPath): `status`, `spec.containers[*].env`,
/// `metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']`. A list on the path is
/// entered with or without `[*]`, but a list directly inside a list only with `[*]`. Order and repetition of
/// paths do not matter. A path that leads into a value named by another path is redundant.
///
/// - **Identifying fields are always kept**: `apiVersion`, `kind`, and in `metadata` the fields `name`,
///   `namespace`, `uid`, `resourceVersion`, `generation`, `creationTimestamp` and `deletionTimestamp`.
///   `managedFields` are dropped, unless [`keep_managed_fields`](FieldFilter::keep_managed_fields) keeps them.
/// - **Fields that controllers depend on are always kept**: `ownerReferences`, `finalizers` and
///   `deletionGracePeriodSeconds`. A controller that did not see its finalizer would never remove it, and
///   the deleted object would stay forever.
/// - **Dropped fields are invisible everywhere**, as if the server had not sent them: in typed objects, in
///   indexes, and in heads if labels were dropped. Typed objects are decoded from the remaining fields, so
///   a dropped field must be optional in the type or have a default.
/// - **Members dropped at the top level or in `metadata` are never buffered**, and do not count against the
///   [limit](super::Limits::max_object_bytes). Deeper fields are removed when the member around them is
///   complete, and count until then.
/// - **Bookmarks and errors** of a watch are not objects and are not filtered.
/// - **Protobuf has no empty lists and maps**: a list or map from which everything was dropped disappears.
///   An object decoded without a type then has `null` where the server's JSON always has a list or a map.
///   Typed objects are equal in both encodings.
///
/// ```
/// # use informer_core::FieldFilter;
///
/// let lean = FieldFilter::drop(["status", "spec.containers[*].env", "metadata.annotations"])?;
/// let placement = FieldFilter::keep(["spec.nodeName", "status.phase"])?;
/// assert!(FieldFilter::drop(["metadata.uid"]).is_err());
/// # Ok::<(), informer_core::error::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldFilter {
    rules: Arc<Rules>,
    managed_fields: ManagedFields,
}

/// Whether `metadata.managedFields` are left out of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) enum ManagedFields {
    #[default]
    Drop,
    Keep,
}

#[derive(PartialEq, Eq, Hash)]
struct Rules {
    mode: Mode,
    /// The paths without repetitions. Invariant: sorted, and none leads into the value of another.
    paths: Vec<Vec<PathStep>>,
    /// Whether one of the paths is `metadata`. Only in [`Mode::Keep`]: `metadata` cannot be dropped.
    all_metadata: bool,
    /// The paths, grouped by the first member they name; inside `metadata`, by the second.
    members: Vec<Member>,
}

/// A member of an object or of its metadata that some path names or leads into.
#[derive(PartialEq, Eq, Hash)]
struct Member {
    level: Level,
    name: Box<str>,
    /// The rest of each path after this member; an empty rest names the member itself.
    paths: Vec<Box<[PathStep]>>,
}

/// The level of a member: the object itself or its `metadata`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Level {
    Object,
    Metadata,
}

/// How a reader treats a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberAction {
    Keep,
    Drop,
    /// Keep the member, and prune it by the [`FieldFilter::rule`] with this index once it is complete.
    Prune(usize),
}

impl FieldFilter {
    /// Creates a filter that drops the values the paths name and keeps the rest. Without paths, everything
    /// is kept.
    ///
    /// An object or list from which everything was dropped stays, as `{}` or `[]`; in protobuf, an empty list
    /// or map disappears. A path that ends in `[*]` empties the list. A path has no effect on a value that it
    /// cannot enter, such as a string instead of a map.
    ///
    /// Labels may be dropped; then they are missing from the head as well.
    ///
    /// # Errors
    ///
    /// If a path is malformed, or would drop a field that is always kept.
    pub fn drop<S: AsRef<str>>(paths: impl IntoIterator<Item = S>) -> Result<Self, ConfigError> {
        Self::new(Mode::Drop, paths)
    }

    /// Creates a filter that keeps the values the paths name and drops the rest. Without paths, only the
    /// head is kept.
    ///
    /// The head, which is always kept, consists of the identifying fields, the fields that controllers
    /// depend on, and the labels. Annotations are kept if a path names them; `metadata` names all of the
    /// metadata. Objects and lists on the path to a kept value are kept as well, even if nothing is left in
    /// them: `{}` or `[]`; in protobuf, an empty list or map disappears. A value that a path cannot enter,
    /// such as a string or null instead of a map, is dropped; in a list, such an element is removed.
    ///
    /// # Errors
    ///
    /// If a path is malformed.
    pub fn keep<S: AsRef<str>>(paths: impl IntoIterator<Item = S>) -> Result<Self, ConfigError> {
        Self::new(Mode::Keep, paths)
    }

    fn new<S: AsRef<str>>(mode: Mode, texts: impl IntoIterator<Item = S>) -> Result<Self, ConfigError> {
        let mut paths = Vec::new();
        for text in texts {
            let path = steps(text.as_ref())?;
            if mode == Mode::Drop && is_protected(&path) {
                return Err(ConfigError::RequiredField { path: text.as_ref().into() });
            }
            paths.push(path);
        }
        // Sorting places a path directly before the paths that lead into its value, which are redundant.
        paths.sort_unstable();
        paths.dedup_by(|later, earlier| later.starts_with(earlier));
        let mut members: Vec<Member> = Vec::new();
        for path in &paths {
            let Some((level, name, rest)) = split_member(path) else { continue };
            match members.iter_mut().find(|member| member.level == level && &*member.name == name) {
                Some(member) => member.paths.push(rest.into()),
                None => members.push(Member { level, name: name.into(), paths: vec![rest.into()] }),
            }
        }
        let all_metadata = paths.contains(&vec![PathStep::Name("metadata".into())]);
        let rules = Arc::new(Rules { mode, paths, all_metadata, members });
        Ok(Self { rules, managed_fields: ManagedFields::Drop })
    }

    /// Returns this filter with `metadata.managedFields` kept, as a whole if this filter keeps fields. Paths of a
    /// filter that drops fields apply to them as to other fields.
    #[must_use]
    pub fn keep_managed_fields(self) -> Self {
        Self { managed_fields: ManagedFields::Keep, ..self }
    }

    /// Returns whether `metadata.managedFields` are left out. Without a filter, they are.
    pub(crate) fn managed_fields(filter: Option<&Self>) -> ManagedFields {
        filter.map_or(ManagedFields::Drop, |filter| filter.managed_fields)
    }

    /// Returns how to treat the member that was sent with this name.
    pub(super) fn action(&self, level: Level, sent: &[u8]) -> MemberAction {
        let Rules { mode, members, .. } = &*self.rules;
        let is_sent = |member: &Member| member.level == level && is_named(sent, &member.name);
        let index = members.iter().position(is_sent);
        match (index, mode) {
            _ if level == Level::Metadata && *mode == Mode::Keep && self.keeps_metadata_member(sent) => {
                MemberAction::Keep
            }
            (None, Mode::Drop) => MemberAction::Keep,
            (None, Mode::Keep) => MemberAction::Drop,
            (Some(index), mode) if members[index].paths.iter().any(|path| path.is_empty()) => match mode {
                Mode::Drop => MemberAction::Drop,
                Mode::Keep => MemberAction::Keep,
            },
            (Some(index), _) => MemberAction::Prune(index),
        }
    }

    /// Returns how to prune a member: the mode, and the paths relative to it.
    pub(super) fn rule(&self, member: usize) -> (Mode, Vec<&[PathStep]>) {
        (self.rules.mode, self.rules.members[member].paths.iter().map(|path| &**path).collect())
    }

    /// Whether this filter, in [`Mode::Keep`], keeps the whole member of `metadata` with this name, because
    /// every filter does, because `metadata` is one of its paths, or because it is `managedFields` and they are
    /// kept.
    fn keeps_metadata_member(&self, sent: &[u8]) -> bool {
        let field = member_name(sent).and_then(|name| Field::from_name(name.as_bytes()));
        self.rules.all_metadata
            || field.is_some_and(|field| field != Field::Annotations)
            || (self.managed_fields == ManagedFields::Keep && is_named(sent, "managedFields"))
    }
}

/// Whether dropping this path would drop a field that is always kept, or a part of one.
fn is_protected(path: &[PathStep]) -> bool {
    let name = |index: usize| match path.get(index) {
        Some(PathStep::Name(name)) => Some(&**name),
        Some(PathStep::Each) | None => None,
    };
    match (name(0), name(1)) {
        (Some("apiVersion" | "kind"), _) | (Some("metadata"), None) => true,
        (Some("metadata"), Some(field)) => {
            Field::from_name(field.as_bytes()).is_some_and(Field::is_protected)
        }
        _ => false,
    }
}

/// Splits a path into a member and the rest. The member is the first name, or the second in `metadata`.
///
/// `None` for `metadata` itself, and for `metadata[*]`, which leads nowhere because `metadata` is not a list.
fn split_member(path: &[PathStep]) -> Option<(Level, &str, &[PathStep])> {
    match path {
        [PathStep::Name(first), PathStep::Name(second), rest @ ..] if **first == *"metadata" => {
            Some((Level::Metadata, second, rest))
        }
        [PathStep::Name(first), rest @ ..] if **first != *"metadata" => Some((Level::Object, first, rest)),
        _ => None,
    }
}

impl fmt::Debug for FieldFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}", self.rules.mode, self.rules.paths)
    }
}
