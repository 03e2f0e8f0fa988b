//! The result of checking a value against its schema: errors, and the number of matches.
//!
//! An outcome contains each error once. Nothing here knows which schemas exist.

use serde_json::Value;

use super::super::field;
use crate::status::StatusCause;

/// The result of checking a value.
///
/// The number of matches grows with each check, and is that of kube-openapi. Of several schemas that do not
/// match, the errors of the one with most matches are reported, because it was probably intended.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) errors: Vec<ValueError>,
    pub(super) matches: usize,
}

/// One error of a value.
#[derive(Debug)]
pub(super) struct ValueError {
    /// The field; errors of combined schemas have none.
    pub(super) path: Option<String>,
    pub(super) text: String,
    pub(super) kind: Kind,
}

/// The kind of cause that an error becomes.
#[derive(Debug)]
pub(super) enum Kind {
    Required,
    /// The actual type, or the text that does not have the format.
    Type(String),
    /// The value and the supported values.
    NotSupported(Value, Vec<String>),
    /// The maximum length.
    TooLong(i64),
    /// The number of entries and its maximum.
    TooMany(usize, i64),
    /// The value as it is printed.
    Invalid(String),
}

impl ValueError {
    /// Creates an error without a field; kube-apiserver prints its value as `""`.
    pub(super) fn without_path(text: String) -> Self {
        ValueError { path: None, text, kind: Kind::Invalid("\"\"".to_owned()) }
    }

    /// Returns the cause; `at` is the path of the checked value.
    pub(super) fn into_cause(self, at: &str) -> StatusCause {
        let path = self.path.as_deref().unwrap_or_default();
        let path = match path.strip_prefix('.').unwrap_or(path) {
            "" => at.to_owned(),
            path => field::child(at, path),
        };
        match self.kind {
            Kind::Required => field::required(&path, ""),
            Kind::Type(found) => field::wrong_type(&path, &found, &self.text),
            Kind::NotSupported(value, values) => field::not_supported(&path, &value, &values),
            Kind::TooLong(max) => field::too_long(&path, max),
            Kind::TooMany(count, max) => field::too_many(&path, count, max),
            Kind::Invalid(shown) => field::invalid_shown(&path, &shown, &self.text),
        }
    }
}

impl Outcome {
    pub(super) fn is_good(&self) -> bool {
        self.errors.is_empty()
    }

    pub(super) fn add(&mut self, error: ValueError) {
        if !self.errors.iter().any(|known| known.text == error.text) {
            self.errors.push(error);
        }
    }

    pub(super) fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        other.errors.into_iter().for_each(|error| self.add(error));
    }

    pub(super) fn add_match(&mut self) {
        self.matches += 1;
    }

    /// Merges the result of one of the checks of a value. The check counts as a match, even if it has errors.
    pub(super) fn add_check(&mut self, other: Outcome) {
        self.merge(other);
        self.matches += 1;
    }
}
