//! The result of checking a value against its schema: faults, and the number of matching parts.
//!
//! An outcome contains each fault once. Nothing here knows which schemas exist.

use serde_json::Value;

use super::super::field;
use crate::status::StatusCause;

/// The result of checking a value.
///
/// The number of matching parts determines which of several alternatives was probably intended.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) faults: Vec<Fault>,
    pub(super) matches: usize,
}

/// One error.
#[derive(Debug)]
pub(super) struct Fault {
    /// The field; errors of combined schemas have none.
    pub(super) path: Option<String>,
    pub(super) text: String,
    pub(super) kind: Kind,
}

/// The cause that an error becomes.
#[derive(Debug)]
pub(super) enum Kind {
    Required,
    Type(String),
    Values(Value, Vec<String>),
    TooLong(i64),
    TooMany(usize, i64),
    Other(String),
}

impl Fault {
    pub(super) fn plain(text: String) -> Self {
        Fault { path: None, text, kind: Kind::Other("\"\"".to_owned()) }
    }

    pub(super) fn cause(self, at: &str) -> StatusCause {
        let path = self.path.as_deref().unwrap_or_default();
        let path = match path.strip_prefix('.').unwrap_or(path) {
            "" => at.to_owned(),
            path => field::child(at, path),
        };
        match self.kind {
            Kind::Required => field::required(&path, ""),
            Kind::Type(found) => field::wrong_type(&path, &found, &self.text),
            Kind::Values(value, values) => field::not_supported(&path, &value, &values),
            Kind::TooLong(max) => field::too_long(&path, max),
            Kind::TooMany(count, max) => field::too_many(&path, count, max),
            Kind::Other(shown) => field::invalid_shown(&path, &shown, &self.text),
        }
    }
}

impl Outcome {
    pub(super) fn is_good(&self) -> bool {
        self.faults.is_empty()
    }

    pub(super) fn fault(&mut self, fault: Fault) {
        if !self.faults.iter().any(|known| known.text == fault.text) {
            self.faults.push(fault);
        }
    }

    pub(super) fn merge(&mut self, other: Outcome) {
        self.matches += other.matches;
        other.faults.into_iter().for_each(|fault| self.fault(fault));
    }

    pub(super) fn add_match(&mut self) {
        self.matches += 1;
    }

    /// Merges the result of one of the checks of a value, which counts as a match.
    pub(super) fn step(&mut self, other: Outcome) {
        self.merge(other);
        self.matches += 1;
    }
}
