//! The bodies of scripts in both encodings: JSON, and the equivalent protobuf.

#[path = "../../../tests/protobuf/encode.rs"]
mod encode;

use informer_schema::Message;
use serde_json::Value;

/// The encoding of the bodies of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

/// Parts of scripts that exist in JSON only: literal bytes, line ends, byte positions, content types, values
/// that are not objects, and objects with fields or kinds that a pod does not have.
const ONLY_JSON: [&str; 7] = ["bytes ", "blank", " at byte ", ";kind=", ";big", " =", "type="];

impl Encoding {
    /// Whether the script can run in this encoding.
    pub(super) fn supports(self, script: &str) -> bool {
        self == Self::Json || !ONLY_JSON.iter().any(|part| script.contains(part))
    }

    pub(super) fn content_type(self) -> Option<Box<str>> {
        (self == Self::Protobuf).then(|| "application/vnd.kubernetes.protobuf;stream=watch".into())
    }

    /// Encodes a list, a frame or a status, given as JSON.
    pub(super) fn body(self, json: &str) -> Vec<u8> {
        if self == Self::Json {
            return json.as_bytes().to_vec();
        }
        let body: Value = serde_json::from_str(json).unwrap();
        if body["type"].is_null() { envelope(&body) } else { frame(&body) }
    }
}

fn envelope(object: &Value) -> Vec<u8> {
    let kind = object["kind"].as_str().unwrap();
    let message = Message::of_kind("v1", kind).unwrap();
    let (mut type_meta, mut body) = (Vec::new(), b"k8s\0".to_vec());
    encode::data(&mut type_meta, 1, b"v1");
    encode::data(&mut type_meta, 2, kind.as_bytes());
    encode::data(&mut body, 1, &type_meta);
    encode::data(&mut body, 2, &encode::message(message.get(), object));
    body
}

fn frame(frame: &Value) -> Vec<u8> {
    let (mut event, mut raw) = (Vec::new(), Vec::new());
    encode::data(&mut raw, 1, &envelope(&frame["object"]));
    encode::data(&mut event, 1, frame["type"].as_str().unwrap().as_bytes());
    encode::data(&mut event, 2, &raw);
    [&u32::try_from(event.len()).unwrap().to_be_bytes(), &*event].concat()
}
