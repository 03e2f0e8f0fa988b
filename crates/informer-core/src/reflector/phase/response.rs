//! The answer to one request. It must not know what was requested.

use crate::reflector::failure::ErrorResponse;

/// How far the answer to a request has come.
#[derive(Debug)]
pub(in crate::reflector) enum ResponseState<R> {
    Pending,
    /// Headers said success.
    Body(R),
    /// Headers said something else; the reason is coming in.
    Rejected(ErrorResponse),
}

impl<R> ResponseState<R> {
    pub(in crate::reflector) fn rejected(&self) -> Option<&ErrorResponse> {
        if let Self::Rejected(response) = self { Some(response) } else { None }
    }
}
