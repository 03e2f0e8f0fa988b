//! Decoding errors with their field path.

use crate::wire::error::ProtobufError;
use std::fmt::{self, Write as _};

/// An error of the decoder or of the requested type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", details.reason)]
pub(crate) struct Error {
    // Boxed, because results are passed through every level and a small error makes that cheap.
    details: Box<Details>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Details {
    reason: Box<str>,
    /// The path from the value up to the object, in the order in which the error is passed on.
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Member(Box<str>),
    Element(usize),
}

impl Error {
    pub(super) fn new(reason: impl Into<Box<str>>) -> Self {
        Self { details: Box::new(Details { reason: reason.into(), steps: Vec::new() }) }
    }

    /// Adds an outer step to the path.
    #[cold]
    pub(super) fn inside(mut self, step: Step) -> Self {
        self.details.steps.push(step);
        self
    }

    /// The field path, as in `spec.containers[0].name`; empty for the object as a whole.
    pub(crate) fn field_path(&self) -> String {
        let mut path = String::new();
        for step in self.details.steps.iter().rev() {
            match step {
                Step::Element(index) => {
                    // Writing to a String cannot fail.
                    let _ = write!(path, "[{index}]");
                }
                Step::Member(name) if path.is_empty() => path.push_str(name),
                Step::Member(name) => {
                    path.push('.');
                    path.push_str(name);
                }
            }
        }
        path
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(text.to_string())
    }
}

impl From<ProtobufError> for Error {
    fn from(error: ProtobufError) -> Self {
        Self::new(error.to_string())
    }
}

/// An error in JSON inside a message.
impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string())
    }
}
