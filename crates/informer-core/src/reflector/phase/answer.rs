//! The answer to one request. It must not know what was requested.

use crate::reflector::failure::Refusal;

/// How far the answer to a request has come.
#[derive(Debug)]
pub(in crate::reflector) enum Answer<R> {
    Awaited,
    /// Headers said success.
    Body(R),
    /// Headers said something else; the reason is coming in.
    Refused(Refusal),
}

impl<R> Answer<R> {
    pub(in crate::reflector) fn refused(&self) -> Option<&Refusal> {
        if let Self::Refused(refusal) = self { Some(refusal) } else { None }
    }
}
