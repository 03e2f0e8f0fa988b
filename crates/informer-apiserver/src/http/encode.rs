//! Encodes responses in the requested format: encoding, indentation and gzip.
//!
//! The model provides compact JSON; all other formats are derived from it here. The content of responses is
//! decided elsewhere.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, header};
use informer_objects::protobuf;
use informer_objects::status::Status;
use informer_objects::text::to_yaml;

use super::accept::{Encoding, ResponseFormat};
use super::response::{self, ServerResponse};
use crate::request::is_true;

/// The media type of protobuf.
pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// Minimum length of a response to be compressed.
const MIN_GZIP_BYTES: usize = 128 * 1024;

/// Encodes JSON in a format. A JSON body ends with a newline, as in kube-apiserver. Content without a
/// protobuf encoding is sent as JSON.
pub(crate) fn encode(format: ResponseFormat, gzip: bool, code: u16, json: Vec<u8>) -> ServerResponse {
    let (content_type, bytes) = match format.encoding {
        Encoding::Yaml => {
            let value = serde_json::from_slice(&json).unwrap_or_default();
            ("application/yaml", to_yaml(&value).into_bytes())
        }
        Encoding::Protobuf => match protobuf::encode(&serde_json::from_slice(&json).unwrap_or_default()) {
            Some(bytes) => (PROTOBUF, bytes),
            None => return encode(ResponseFormat { encoding: Encoding::Json, ..format }, gzip, code, json),
        },
        Encoding::Json => {
            let mut bytes = if format.pretty { indent(&json) } else { json };
            bytes.push(b'\n');
            ("application/json", bytes)
        }
    };
    with_gzip(gzip, code, content_type, bytes)
}

/// Encodes an error in the format of [`ResponseFormat::of_errors`]. If `pretty`, JSON is indented in any
/// case.
pub(crate) fn error(status: &Status, accept: &str, pretty: bool) -> ServerResponse {
    let mut format = ResponseFormat::of_errors(accept);
    format.pretty |= pretty;
    // kube-apiserver indents this error for all clients.
    if status.code == 406 && status.reason == "NotAcceptable" && format.encoding == Encoding::Json {
        format.pretty = true;
    }
    let gzip = false;
    let mut response = encode(format, gzip, status.code, status.to_json());
    if let Some(seconds) = status.retry_after() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// Returns whether JSON is indented. The query parameter `pretty` decides; without it, JSON is indented for
/// curl, wget and browsers.
pub(crate) fn is_pretty(headers: &HeaderMap, parameter: Option<&str>) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match parameter {
        Some(value) => is_true(value),
        None => ["curl", "Wget", "Mozilla/5.0"].iter().any(|name| agent.starts_with(name)),
    }
}

/// Returns whether a client accepts gzip.
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    accepted.unwrap_or_default().split(',').any(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        parts.next() == Some("gzip")
            && !parts.any(|part| matches!(part, "q=0" | "q=0.0" | "q=0.00" | "q=0.000"))
    })
}

fn with_gzip(gzip: bool, code: u16, content_type: &'static str, bytes: Vec<u8>) -> ServerResponse {
    if !gzip || bytes.len() < MIN_GZIP_BYTES {
        return response::bytes(code, content_type, Bytes::from(bytes));
    }
    let mut response = response::bytes(code, content_type, Bytes::from(compress(&bytes)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    response
}

/// Compresses bytes with gzip.
pub(super) fn compress(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    // Writing to a Vec cannot fail.
    encoder.write_all(bytes).and_then(|()| encoder.finish()).unwrap_or_default()
}

/// Decompresses bytes with gzip; `None` if they are not valid.
pub(super) fn decompress(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    GzDecoder::new(bytes).read_to_end(&mut out).ok()?;
    Some(out)
}

/// Indents compact JSON by two spaces. Nothing else changes.
fn indent(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len() * 2);
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut escaped = false;
    for (at, byte) in json.iter().copied().enumerate() {
        if in_string {
            out.push(byte);
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        let newline = |out: &mut Vec<u8>, depth: usize| {
            out.push(b'\n');
            out.resize(out.len() + 2 * depth, b' ');
        };
        match byte {
            b'{' | b'[' => {
                out.push(byte);
                if !matches!(json.get(at + 1), Some(b'}' | b']')) {
                    depth += 1;
                    newline(&mut out, depth);
                }
            }
            b'}' | b']' => {
                if !matches!(json.get(at.wrapping_sub(1)), Some(b'{' | b'[')) {
                    depth = depth.saturating_sub(1);
                    newline(&mut out, depth);
                }
                out.push(byte);
            }
            b',' => {
                out.push(byte);
                newline(&mut out, depth);
            }
            b':' => out.extend_from_slice(b": "),
            b'"' => {
                in_string = true;
                out.push(byte);
            }
            _ => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indentation_matches_go() {
        let shown = |json: &str| String::from_utf8(indent(json.as_bytes())).unwrap();
        assert_eq!(shown(r#"{"a":{},"b":[]}"#), "{\n  \"a\": {},\n  \"b\": []\n}");
        assert_eq!(shown(r#"[1,{"k":"a,b:{\""}]"#), "[\n  1,\n  {\n    \"k\": \"a,b:{\\\"\"\n  }\n]");
    }

    #[test]
    fn gzip_is_used_only_if_accepted() {
        let accepts = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_str(text).unwrap());
            accepts_gzip(&headers)
        };
        assert!(accepts("gzip") && accepts("deflate, gzip;q=0.5"));
        assert!(!accepts("gzip;q=0") && !accepts("identity"));
    }
}
