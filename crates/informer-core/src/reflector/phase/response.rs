//! The response to one request. It must not know what was requested.

use crate::reflector::failure::ErrorResponse;

/// The state of the response to a request.
#[derive(Debug)]
pub(in crate::reflector) enum ResponseState<R> {
    /// No headers have been received yet.
    Pending,
    /// The headers report success, and the body is being read by `R`.
    Body(R),
    /// The headers report an error or an unreadable encoding; the body is being received.
    Error(ErrorResponse),
}

impl<R> ResponseState<R> {
    /// Returns the response, if it is an error response.
    pub(in crate::reflector) fn error_response(&self) -> Option<&ErrorResponse> {
        if let Self::Error(response) = self { Some(response) } else { None }
    }
}
