//! The answer to one request. It must not know what was requested.

use crate::reflector::failure::Refusal;

/// How far the answer to a request has come.
#[derive(Debug)]
pub(in crate::reflector) enum ResponseState<R> {
    Pending,
    /// Headers said success.
    Body(R),
    /// Headers said something else; the reason is coming in.
    Rejected(Refusal),
}

impl<R> ResponseState<R> {
    pub(in crate::reflector) fn rejected(&self) -> Option<&Refusal> {
        if let Self::Rejected(refusal) = self { Some(refusal) } else { None }
    }
}
