//! Why bytes do not decode, and where.

use crate::wire::problem::ProtobufError;
use std::fmt::{self, Write as _};

/// What the decoder or the type that was asked for says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", inner.reason)]
pub(crate) struct Error {
    // Results are passed through every level; what is small costs nothing there.
    inner: Box<Inner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    reason: Box<str>,
    /// The way from the place to the object, which is how an error travels.
    steps: Vec<Step>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Member(Box<str>),
    Element(usize),
}

impl Error {
    pub(super) fn new(reason: impl Into<Box<str>>) -> Self {
        Self { inner: Box::new(Inner { reason: reason.into(), steps: Vec::new() }) }
    }

    /// The same, inside of something.
    #[cold]
    pub(super) fn inside(mut self, step: Step) -> Self {
        self.inner.steps.push(step);
        self
    }

    /// The path of the place, as in `spec.containers[0].name`; empty for the object as a whole.
    pub(crate) fn field_path(&self) -> String {
        let mut place = String::new();
        for step in self.inner.steps.iter().rev() {
            match step {
                Step::Element(index) => {
                    // Writing to a String cannot fail.
                    let _ = write!(place, "[{index}]");
                }
                Step::Member(name) if place.is_empty() => place.push_str(name),
                Step::Member(name) => {
                    place.push('.');
                    place.push_str(name);
                }
            }
        }
        place
    }
}

impl serde::de::Error for Error {
    fn custom<T: fmt::Display>(text: T) -> Self {
        Self::new(text.to_string())
    }
}

impl From<ProtobufError> for Error {
    fn from(broken: ProtobufError) -> Self {
        Self::new(broken.to_string())
    }
}

/// What is wrong in JSON that a message carries.
impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::new(error.to_string())
    }
}
