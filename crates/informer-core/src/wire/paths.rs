//! Sets of paths relative to one value, and how they select the values to keep or drop.
//!
//! Both encodings prune by these rules. This file does not know how values are encoded.

use super::path::{PathStep, is_named};

/// How the values named by the paths are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Mode {
    /// They are dropped.
    Drop,
    /// They are kept, and everything else is dropped.
    Keep,
}

/// Paths relative to some value; an empty one names the value itself.
pub(super) type Paths<'p> = [&'p [PathStep]];

/// Returns the rest of `path` after the member `name`; `None` if the path does not lead into it.
pub(super) fn into_member<'p>(path: &&'p [PathStep], name: &[u8]) -> Option<&'p [PathStep]> {
    match path.split_first()? {
        (PathStep::Name(wanted), rest) => is_named(name, wanted).then_some(rest),
        (PathStep::Each, _) => None,
    }
}

/// Returns the rest of `path` inside an element of a list; `None` if the path does not lead into it.
///
/// A name leads into the elements of a list as well, but not into lists directly inside lists.
pub(super) fn into_element<'p>(path: &&'p [PathStep], in_list: bool) -> Option<&'p [PathStep]> {
    match path.split_first()? {
        (PathStep::Each, rest) => Some(rest),
        (PathStep::Name(_), _) => (!in_list).then_some(*path),
    }
}
