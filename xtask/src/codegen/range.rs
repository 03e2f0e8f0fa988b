//! Ranges of Kubernetes versions, and the macros of `k8s-openapi` that limit code to a range.
//!
//! A range has no gap: `k8s-openapi` has macros for "from", "up to" and "exactly", with which a gap would
//! need the code twice. This file does not know the guarded code.

use std::collections::BTreeSet;
use std::fmt;

/// The minor versions of Kubernetes 1 that `k8s-openapi` contains and code is generated for.
pub(super) const ALL: Range = Range { first: 33, last: 37 };

/// An inclusive range of minor versions of Kubernetes 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Range {
    pub(super) first: u8,
    pub(super) last: u8,
}

impl Range {
    /// Returns the range of exactly these versions. Fails if there are none or if they have a gap.
    pub(super) fn of(versions: &BTreeSet<u8>) -> Result<Self, String> {
        let (Some(&first), Some(&last)) = (versions.first(), versions.last()) else {
            return Err("exists in no version".to_owned());
        };
        let range = Self { first, last };
        if range.versions().eq(versions.iter().copied()) {
            Ok(range)
        } else {
            Err(format!("exists in the minor versions {versions:?}, a gap that no macro can express"))
        }
    }

    pub(super) fn versions(self) -> impl Iterator<Item = u8> {
        self.first..=self.last
    }

    /// Returns the macros that limit code to this range, outermost first.
    pub(super) fn guards(self) -> Vec<String> {
        let Self { first, last } = self;
        if first == last {
            return vec![format!("k8s_openapi::k8s_if_1_{first}!")];
        }
        let from = (first > ALL.first).then(|| format!("k8s_openapi::k8s_if_ge_1_{first}!"));
        let up_to = (last < ALL.last).then(|| format!("k8s_openapi::k8s_if_le_1_{last}!"));
        from.into_iter().chain(up_to).collect()
    }
}

/// Formats the range for documentation: `1.34 to 1.36`.
impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last { write!(f, "1.{first}") } else { write!(f, "1.{first} to 1.{last}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(versions: &[u8]) -> Result<Range, String> {
        Range::of(&versions.iter().copied().collect())
    }

    #[test]
    fn full_range_needs_no_guard() {
        assert_eq!(of(&[33, 34, 35, 36, 37]), Ok(ALL));
        assert_eq!(ALL.guards(), Vec::<String>::new());
    }

    #[test]
    fn partial_range_has_guards() {
        let check = |versions: &[u8], expected: &[&str]| {
            let names: Vec<String> =
                expected.iter().map(|name| format!("k8s_openapi::k8s_if_{name}!")).collect();
            assert_eq!(of(versions).map(Range::guards), Ok(names));
        };
        check(&[34, 35, 36, 37], &["ge_1_34"]);
        check(&[33, 34], &["le_1_34"]);
        check(&[33], &["1_33"]);
        check(&[35], &["1_35"]);
        check(&[37], &["1_37"]);
        check(&[34, 35, 36], &["ge_1_34", "le_1_36"]);
    }

    #[test]
    fn gap_is_an_error() {
        assert!(of(&[33, 35]).unwrap_err().starts_with("exists in the minor versions {33, 35}"));
        assert!(of(&[]).is_err());
    }

    #[test]
    fn range_is_formatted_for_documentation() {
        assert_eq!(ALL.to_string(), "1.33 to 1.37");
        assert_eq!(of(&[35]).unwrap().to_string(), "1.35");
    }
}
