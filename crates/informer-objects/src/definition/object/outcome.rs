//! What looking at a value against its schema gave: complaints, and how much of the schema fitted.
//!
//! An outcome has each complaint once. Which schemas there are is not known here.

use serde_json::Value;

use super::super::field;
use crate::status::StatusCause;

/// What looking at a value gave: complaints, and how much of the schema fitted, which says which of several alternatives was meant.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) faults: Vec<Fault>,
    pub(super) matches: usize,
}

/// One complaint.
#[derive(Debug)]
pub(super) struct Fault {
    /// Where; complaints about a combination of schemas have no place.
    pub(super) path: Option<String>,
    pub(super) text: String,
    pub(super) kind: Kind,
}

/// What a complaint turns into.
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
            Kind::TooLong(most) => field::too_long(&path, most),
            Kind::TooMany(count, most) => field::too_many(&path, count, most),
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

    pub(super) fn one_more(&mut self) {
        self.matches += 1;
    }

    /// Takes over what one of the looks at a value gave.
    pub(super) fn step(&mut self, other: Outcome) {
        self.merge(other);
        self.matches += 1;
    }
}
