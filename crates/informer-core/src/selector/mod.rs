//! Label and field selectors, as Kubernetes means them.
//!
//! Both are a set of requirements that must all hold, kept sorted and without duplicates: two selectors are
//! equal exactly when they state the same requirements, in whatever order they were written, and
//! `parse(print(s)) == s`. A selector that was parsed or built is valid; matching cannot fail.
//!
//! Selectors do not know objects: they ask a lookup for the value of a key. Nor do they know which fields a
//! server can select on, or how a query string is percent-encoded.

mod field;
mod label;
mod parse;
mod requirement;
mod rules;

pub use field::{FieldRequirement, FieldSelector};
pub use label::LabelSelector;
pub use requirement::Requirement;

/// What a parser stumbled over; the public error adds the text.
#[derive(Debug, PartialEq, Eq)]
struct Unexpected {
    at: usize,
    expected: &'static str,
}

impl Unexpected {
    /// For use in `map_err`: turns a broken rule into an error at `at`.
    fn at(at: usize) -> impl Fn(&'static str) -> Self {
        move |expected| Self { at, expected }
    }
}

/// The form in which selectors keep their requirements: in order, each once.
fn sorted<T: Ord>(mut items: Vec<T>) -> Vec<T> {
    items.sort_unstable();
    items.dedup();
    items
}

/// Adds `item` to a list that is [`sorted`], which it stays.
fn insert_sorted<T: Ord>(items: &mut Vec<T>, item: T) {
    if let Err(place) = items.binary_search(&item) {
        items.insert(place, item);
    }
}

/// Writes `items` with commas between.
fn write_joined<T: std::fmt::Display>(
    f: &mut std::fmt::Formatter<'_>,
    items: impl IntoIterator<Item = T>,
) -> std::fmt::Result {
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            f.write_str(",")?;
        }
        write!(f, "{item}")?;
    }
    Ok(())
}
