//! The bodies of scripts in either form: JSON as they are written, or the same as protobuf.

#[path = "../../../tests/protobuf/encode.rs"]
mod encode;

use informer_schema::Message;
use serde_json::Value;

/// The form in which a run's bodies come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    Protobuf,
}

/// What a script may have that cannot be said in protobuf: bytes as they are, where they stand, and objects that are none, or say more
/// than a pod has.
const ONLY_JSON: [&str; 6] = ["bytes ", " at byte ", ";kind=", ";big", " =", "type="];

impl Form {
    /// Whether a script can be played in protobuf.
    pub(super) fn is_for(self, script: &str) -> bool {
        self == Self::Json || !ONLY_JSON.iter().any(|only| script.contains(only))
    }

    pub(super) fn content_type(self) -> Option<Box<str>> {
        (self == Self::Protobuf).then(|| "application/vnd.kubernetes.protobuf;stream=watch".into())
    }

    /// A list, a frame or a status.
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
    let of = Message::of_kind("v1", kind).unwrap();
    let (mut types, mut body) = (Vec::new(), b"k8s\0".to_vec());
    encode::data(&mut types, 1, b"v1");
    encode::data(&mut types, 2, kind.as_bytes());
    encode::data(&mut body, 1, &types);
    encode::data(&mut body, 2, &encode::message(of.get(), object));
    body
}

fn frame(frame: &Value) -> Vec<u8> {
    let (mut event, mut raw) = (Vec::new(), Vec::new());
    encode::data(&mut raw, 1, &envelope(&frame["object"]));
    encode::data(&mut event, 1, frame["type"].as_str().unwrap().as_bytes());
    encode::data(&mut event, 2, &raw);
    [&u32::try_from(event.len()).unwrap().to_be_bytes(), &*event].concat()
}
