//! Several paths that lead on from one value, and what becomes of the values that they name.
//!
//! Both forms cut by these rules. This file must not know how values are written.

use super::path::{PathStep, is_named};

/// What becomes of the values that the paths name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Mode {
    /// They go.
    Drop,
    /// They stay, and everything beside them goes.
    Keep,
}

/// The paths that lead on from some value; an empty one names the value itself.
pub(super) type Paths<'p> = [&'p [PathStep]];

pub(super) fn into_member<'p>(path: &&'p [PathStep], name: &[u8]) -> Option<&'p [PathStep]> {
    match path.split_first()? {
        (PathStep::Name(wanted), rest) => is_named(name, wanted).then_some(rest),
        (PathStep::Each, _) => None,
    }
}

/// A name leads into a list's elements as well, but not into lists directly inside lists.
pub(super) fn into_element<'p>(path: &&'p [PathStep], in_list: bool) -> Option<&'p [PathStep]> {
    match path.split_first()? {
        (PathStep::Each, rest) => Some(rest),
        (PathStep::Name(_), _) => (!in_list).then_some(*path),
    }
}
