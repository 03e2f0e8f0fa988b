//! Label and field selectors with the semantics of Kubernetes.
//!
//! A selector is a set of requirements that must all hold, stored sorted and without duplicates. Two
//! selectors are therefore equal exactly if they have the same requirements, in whatever order these were
//! written, and `parse(print(s)) == s`. A selector that was parsed or built is valid; matching cannot fail.
//!
//! Selectors do not know objects: a lookup function supplies the value of a label or field. Nor do they know
//! which fields a server can select on, or how a query string is percent-encoded.

mod field;
mod label;
mod parse;
mod requirement;
mod rules;

pub use field::{FieldRequirement, FieldSelector};
pub use label::LabelSelector;
pub use requirement::Requirement;

/// A parser's error; [`ParseError`](crate::error::ParseError) adds the text.
#[derive(Debug, PartialEq, Eq)]
struct Unexpected {
    /// Offset in the text, in bytes.
    at: usize,
    /// Describes valid text, worded to follow "expected".
    expected: &'static str,
}

impl Unexpected {
    /// Returns a function for `map_err` that converts a violated rule into an error at `at`.
    fn at(at: usize) -> impl Fn(&'static str) -> Self {
        move |expected| Self { at, expected }
    }
}

/// Sorts and removes duplicates, which is how selectors store their requirements.
fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items.dedup();
    items
}

/// Inserts `item` into a [`sorted`] list, unless it is present.
fn insert_sorted<T: Ord>(items: &mut Vec<T>, item: T) {
    if let Err(index) = items.binary_search(&item) {
        items.insert(index, item);
    }
}

/// Writes `items` separated by commas.
fn write_joined<T: std::fmt::Display>(
    f: &mut std::fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
) -> std::fmt::Result {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            f.write_str(",")?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}
