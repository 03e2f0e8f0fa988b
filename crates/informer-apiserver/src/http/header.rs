//! Helpers for headers: `Accept` of requests, content types and entity tags of responses.

use std::fmt::Write as _;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use ring::digest::{SHA512, digest};

use super::response::{self, ServerResponse};

/// Returns the `Accept` header of a request.
pub(super) fn accepted(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Returns a plain text response, with the header that disables content sniffing.
pub(super) fn text(code: u16, body: impl Into<Bytes>) -> ServerResponse {
    let mut response = response::raw(code, body.into());
    set(&mut response, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    set(&mut response, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    response
}

/// Sets a header. An invalid value is ignored; all values used here are valid.
pub(super) fn set(response: &mut ServerResponse, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        response.headers_mut().insert(name, value);
    }
}

/// Returns the hash of a document, for its entity tag.
pub(super) fn hash(document: &[u8]) -> String {
    let mut text = String::with_capacity(128);
    for byte in digest(&SHA512, document).as_ref() {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}
