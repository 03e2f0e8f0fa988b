//! How a turn ended.

use std::fmt;
use std::time::Duration;

/// How a turn of a key ended, if it did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// All is well; the next turn follows the next change.
    Done,
    /// All is well, and there is another turn after a while, or after the next change if that is sooner.
    RequeueAfter(Duration),
    /// It failed in a way that trying again cannot mend, for this reason. The next turn follows the next change.
    Terminal(Box<str>),
}

impl Outcome {
    /// It failed in a way that trying again cannot mend.
    pub fn terminal(reason: impl fmt::Display) -> Self {
        Self::Terminal(reason.to_string().into())
    }
}
