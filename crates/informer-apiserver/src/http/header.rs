//! Headers of requests and answers that several answers need: what is accepted, content types, entity tags.
//!
//! Works on one answer at a time. Which answer it is, is not known here.

use std::fmt::Write as _;

use bytes::Bytes;
use http::HeaderMap;
use http::header::{self, HeaderName, HeaderValue};
use sha2::{Digest as _, Sha512};

use super::response::{self, ServerResponse};

/// What a client accepts, as it says it.
pub(super) fn accepted(headers: &HeaderMap) -> &str {
    headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Text in the given form, with the header that keeps browsers from guessing.
pub(super) fn text(code: u16, body: impl Into<Bytes>) -> ServerResponse {
    let mut answer = response::raw(code, body.into());
    set(&mut answer, header::CONTENT_TYPE, "text/plain; charset=utf-8");
    set(&mut answer, header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    answer
}

/// A value that cannot be a header is left out; ours always can.
pub(super) fn set(answer: &mut ServerResponse, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        answer.headers_mut().insert(name, value);
    }
}

/// What an entity tag is made of: the hash of a document.
pub(super) fn hash(document: &[u8]) -> String {
    let mut text = String::with_capacity(128);
    for byte in Sha512::digest(document) {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02X}");
    }
    text
}
