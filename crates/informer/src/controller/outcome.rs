//! [`Outcome`], the success value of a reconcile function.

use std::fmt;
use std::time::Duration;

/// The result of a reconcile that did not return an error.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Success; the next change of the key causes the next reconcile.
    Done,
    /// Success; the key is reconciled again after this delay, or earlier if it changes.
    RequeueAfter(Duration),
    /// A failure, with its reason, that a retry cannot resolve: the key is reconciled again only after its
    /// next change.
    Terminal(Box<str>),
}

impl Outcome {
    /// Returns [`Outcome::Terminal`] with `reason` as text.
    pub fn terminal(reason: impl fmt::Display) -> Self {
        Self::Terminal(reason.to_string().into())
    }
}
