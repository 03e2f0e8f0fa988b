//! What of each object is read at all, by declared paths.
//!
//! A [`FieldFilter`] is settled before the first byte arrives: for each member of an object and of its `metadata` it says at once
//! whether it stays, goes, or is cut. It does not know how members are found, nor how values are
//! cut: each form does that itself.

use super::head::{Field, string};
use super::path::{PathStep, is_named, steps};
use super::paths::Mode;
use crate::error::ConfigError;
use std::fmt;
use std::sync::Arc;

/// Leaves parts of every object out of the cache, by declared paths, while the object is being read. Cheap to clone.
///
/// A path is written as a [`FieldPath`](super::FieldPath) is: `status`, `spec.containers[*].env`,
/// `metadata.annotations['kubectl.kubernetes.io/last-applied-configuration']`. A list on the way is gone into with or without `[*]`, but a
/// list directly inside a list only with it. Order and repetition do not matter, and a path that lies within another
/// adds nothing to it.
///
/// - **What an object is known by always stays**: `apiVersion`, `kind`, and of `metadata` the fields `name`, `namespace`, `uid`,
///   `resourceVersion`, `generation`, `creationTimestamp` and `deletionTimestamp`. `managedFields` are never there.
/// - **What controllers go by always stays**: `ownerReferences`, `finalizers` and `deletionGracePeriodSeconds`. Who looked for a finalizer
///   that was left out would let a deleted object wait for ever.
/// - **What goes is gone** for everybody, as if the server had not sent it: typed views, indexes, and heads, where labels
///   were dropped. A typed view is decoded from what is left, so what is dropped must be optional in the type, or have a
///   default there.
/// - **What goes at the top or in `metadata` is never held**, and does not count against the
///   [limit](super::Limits::max_object_bytes). What lies deeper is cut when the member around it is complete, and until then counts.
/// - Bookmarks and errors of a watch are no objects and are read as they are.
/// - **Protobuf has no empty lists and maps**, so there what is left of them is nothing, and who looks at such an object without a type sees `null` where
///   the server's JSON always has a list or a map. Typed views are the same.
///
/// ```
/// use informer_core::FieldFilter;
///
/// let lean = FieldFilter::drop(["status", "spec.containers[*].env", "metadata.annotations"])?;
/// let placement = FieldFilter::keep(["spec.nodeName", "status.phase"])?;
/// assert!(FieldFilter::drop(["metadata.uid"]).is_err());
/// # Ok::<(), informer_core::error::ConfigError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct FieldFilter(Arc<Rules>);

#[derive(PartialEq, Eq, Hash)]
struct Rules {
    mode: Mode,
    /// As they were written, without repetitions. Invariant: sorted, and none lies within another.
    paths: Vec<Vec<PathStep>>,
    /// Whether one of them is `metadata`. Only to keep: nobody can drop it.
    all_metadata: bool,
    /// The paths by the first member they name; behind `metadata`, by the second.
    members: Vec<Member>,
}

/// A member of an object or of its metadata that some path names or leads into.
#[derive(PartialEq, Eq, Hash)]
struct Member {
    level: Level,
    name: Box<str>,
    /// Where the paths go from here; an empty one names the member itself.
    paths: Vec<Box<[PathStep]>>,
}

/// Whose members are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Level {
    Object,
    Metadata,
}

/// What becomes of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemberAction {
    Keep,
    Drop,
    /// It is kept, and when complete cut by the [`FieldFilter::rule`] with this number.
    Prune(usize),
}

impl FieldFilter {
    /// Drops what the paths name and keeps the rest. With no paths at all, everything stays.
    ///
    /// What is left of an object or list stays, even if that is nothing: `{}` or `[]`. A path that ends in `[*]` empties
    /// the list. Where a path meets something that it cannot lead into, such as a text where there should be a map, nothing happens.
    ///
    /// Labels may be dropped; then the cache knows none of them either.
    pub fn drop<S: AsRef<str>>(paths: impl IntoIterator<Item = S>) -> Result<Self, ConfigError> {
        Self::new(Mode::Drop, paths)
    }

    /// Keeps what the paths name and drops the rest. With no paths at all, only the head stays.
    ///
    /// The head, which always stays, is what an object is known by, what controllers go by, and its labels: the cache answers questions
    /// about them. Annotations stay if they are named; `metadata` names all of it. Objects and lists on the way to what
    /// is kept stay as well, even if nothing is in them: `{}` or `[]`. Where a path meets something that it cannot lead into,
    /// such as a text or null where there should be a map, that is not kept; in a list, such an element is left out.
    pub fn keep<S: AsRef<str>>(paths: impl IntoIterator<Item = S>) -> Result<Self, ConfigError> {
        Self::new(Mode::Keep, paths)
    }

    fn new<S: AsRef<str>>(mode: Mode, texts: impl IntoIterator<Item = S>) -> Result<Self, ConfigError> {
        let mut paths = Vec::new();
        for text in texts {
            let path = steps(text.as_ref())?;
            if mode == Mode::Drop && is_identity(&path) {
                return Err(ConfigError::RequiredField { path: text.as_ref().into() });
            }
            paths.push(path);
        }
        // Sorted, a path stands right before those that lie within it.
        paths.sort_unstable();
        paths.dedup_by(|later, earlier| later.starts_with(earlier));
        let mut members: Vec<Member> = Vec::new();
        for path in &paths {
            let Some((level, name, rest)) = split(path) else { continue };
            match members.iter_mut().find(|member| member.level == level && &*member.name == name) {
                Some(member) => member.paths.push(rest.into()),
                None => members.push(Member { level, name: name.into(), paths: vec![rest.into()] }),
            }
        }
        let all_metadata = paths.contains(&vec![PathStep::Name("metadata".into())]);
        Ok(Self(Arc::new(Rules { mode, paths, all_metadata, members })))
    }

    /// What becomes of the member that was sent with this name.
    pub(super) fn action(&self, level: Level, sent: &[u8]) -> MemberAction {
        let Rules { mode, members, .. } = &*self.0;
        let named = |member: &Member| member.level == level && is_named(sent, &member.name);
        let found = members.iter().position(named);
        match (found, mode) {
            _ if level == Level::Metadata && *mode == Mode::Keep && self.always_keeps(sent) => {
                MemberAction::Keep
            }
            (None, Mode::Drop) => MemberAction::Keep,
            (None, Mode::Keep) => MemberAction::Drop,
            (Some(found), mode) if members[found].paths.iter().any(|path| path.is_empty()) => match mode {
                Mode::Drop => MemberAction::Drop,
                Mode::Keep => MemberAction::Keep,
            },
            (Some(found), _) => MemberAction::Prune(found),
        }
    }

    /// What becomes of a member that is cut: of what its paths name, and of what is beside them.
    pub(super) fn rule(&self, member: usize) -> (Mode, Vec<&[PathStep]>) {
        (self.0.mode, self.0.members[member].paths.iter().map(|path| &**path).collect())
    }

    /// Whether a member of `metadata` stays whatever else is kept.
    fn always_keeps(&self, sent: &[u8]) -> bool {
        let field = string(sent, false).and_then(|name| Field::named(name.as_bytes()));
        self.0.all_metadata || field.is_some_and(|field| field != Field::Annotations)
    }
}

/// Whether dropping this would drop something that always stays.
fn is_identity(path: &[PathStep]) -> bool {
    let name = |index: usize| match path.get(index) {
        Some(PathStep::Name(name)) => Some(&**name),
        Some(PathStep::Each) | None => None,
    };
    match (name(0), name(1)) {
        (Some("apiVersion" | "kind"), _) | (Some("metadata"), None) => true,
        (Some("metadata"), Some(field)) => Field::named(field.as_bytes()).is_some_and(Field::always_stays),
        _ => false,
    }
}

/// The member that a path begins with, and the way from there. `None` if it names `metadata` as a whole.
fn split(path: &[PathStep]) -> Option<(Level, &str, &[PathStep])> {
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
        write!(f, "{:?}{:?}", self.0.mode, self.0.paths)
    }
}
