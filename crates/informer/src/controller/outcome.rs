//! [`Outcome`], the success value of a reconcile function.

use std::fmt;
use std::time::Duration;

/// The result of a reconcile that did not return an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Success; the key is reconciled again when a source queues it.
    Done,
    /// Success; the key is reconciled again after this delay, or earlier if a source queues it.
    RequeueAfter(Duration),
    /// A failure that a retry cannot resolve, with its reason: the key is reconciled again only when a source
    /// queues it.
    Terminal(Box<str>),
}

impl Outcome {
    /// Returns [`Outcome::Terminal`] with `reason` as text.
    pub fn terminal(reason: impl fmt::Display) -> Self {
        Self::Terminal(reason.to_string().into())
    }
}
