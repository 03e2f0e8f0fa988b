//! Sets of paths relative to one value, and how they select the values to keep or drop.
//!
//! Both encodings prune values, that is, remove values inside them, by these rules. This file does not know
//! how values are encoded.

use super::path::{PathStep, is_named};

/// How the values named by the paths are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Mode {
    /// The named values are dropped.
    Drop,
    /// The named values are kept, and everything else is dropped.
    Keep,
}

/// The value that directly contains a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Parent {
    /// An object, a map or a message.
    Object,
    List,
}

/// Paths relative to some value; an empty path names the value itself.
pub(super) type Paths<'p> = [&'p [PathStep]];

/// Returns the rest of `path` after the member `name`; `None` if the path does not lead into this member.
pub(super) fn enter_member<'p>(path: &&'p [PathStep], name: &[u8]) -> Option<&'p [PathStep]> {
    match path.split_first()? {
        (PathStep::Name(wanted), rest) => is_named(name, wanted).then_some(rest),
        (PathStep::Each, _) => None,
    }
}

/// Returns the rest of `path` inside an element of a list; `None` if the path does not lead into the
/// elements.
///
/// A name leads into the elements of a list as well, unless the parent of the list is a list.
pub(super) fn enter_element<'p>(path: &&'p [PathStep], parent_of_list: Parent) -> Option<&'p [PathStep]> {
    match path.split_first()? {
        (PathStep::Each, rest) => Some(rest),
        (PathStep::Name(_), _) => (parent_of_list != Parent::List).then_some(*path),
    }
}
