//! Decoding of protobuf objects: unwraps the envelope, then decodes the message of the kind.

use serde_json::{Map, Value};

use super::kinds::{MAGIC, message_of};
use super::read::{ObjectDecodeError, Payload, Reader, wrong_wire_type};
use crate::text::versions::split_api_version;
use crate::text::{MAX_DEPTH, depth_of, quoted};

/// An object without its envelope.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DecodedObject {
    pub api_version: String,
    pub kind: String,
    /// The JSON value with `kind` and `apiVersion`.
    ///
    /// Empty values of fields that Go always writes are omitted.
    pub object: Value,
}

/// Decodes an object; `expected` (apiVersion, kind) replaces what is empty in the envelope.
pub(crate) fn decode(bytes: &[u8], expected: (&str, &str)) -> Result<DecodedObject, ObjectDecodeError> {
    let unrecognized = |message: String| ObjectDecodeError { type_meta: None, message };
    let envelope = Envelope::read(bytes).map_err(unrecognized)?;
    let or_expected = |text: String, expected: &str| if text.is_empty() { expected.to_owned() } else { text };
    let api_version = or_expected(envelope.api_version, expected.0);
    let kind = or_expected(envelope.kind, expected.1);
    match object(envelope.object, &api_version, &kind) {
        Ok(object) => Ok(DecodedObject { api_version, kind, object }),
        Err(message) => Err(ObjectDecodeError { type_meta: Some((api_version, kind)), message }),
    }
}

fn object(bytes: &[u8], api_version: &str, kind: &str) -> Result<Value, String> {
    let Some(message) = message_of(api_version, kind) else {
        let (kind, version) = (quoted(kind), quoted(api_version));
        let scheme = quoted("pkg/api/legacyscheme/scheme.go:30");
        return Err(format!("no kind {kind} is registered for version {version} in scheme {scheme}"));
    };
    let mut fields = Map::new();
    super::decode::message(message.get(), bytes, 0, &mut fields)?;
    fields.insert("kind".to_owned(), kind.into());
    if split_api_version(api_version) != ("", "") {
        fields.insert("apiVersion".to_owned(), api_version.into());
    }
    let object = Value::Object(fields);
    // JSON inside messages adds its own depth.
    if depth_of(&object) > MAX_DEPTH { Err("exceeded max depth".to_owned()) } else { Ok(object) }
}

/// The envelope of an object.
#[derive(Debug, Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    object: &'a [u8],
}

impl<'a> Envelope<'a> {
    fn read(bytes: &'a [u8]) -> Result<Self, String> {
        if bytes.is_empty() {
            return Err("empty data".to_owned());
        }
        let Some(bytes) = bytes.strip_prefix(MAGIC) else {
            return Err(format!(
                "provided data does not appear to be a protobuf message, expected prefix [{}]",
                MAGIC.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
            ));
        };
        if bytes.is_empty() {
            return Err("empty body".to_owned());
        }
        let mut envelope = Envelope::default();
        let mut reader = Reader::new("Unknown", bytes);
        while let Some((number, payload)) = reader.next()? {
            match (number, payload) {
                (1, Payload::Data(data)) => envelope.read_type(data)?,
                (2, Payload::Data(data)) => envelope.object = data,
                (1, other) => return Err(wrong_wire_type(other, "TypeMeta")),
                (2, other) => return Err(wrong_wire_type(other, "Raw")),
                _ => {}
            }
        }
        Ok(envelope)
    }

    fn read_type(&mut self, bytes: &[u8]) -> Result<(), String> {
        let mut reader = Reader::new("TypeMeta", bytes);
        while let Some((number, payload)) = reader.next()? {
            match (number, payload) {
                (1, Payload::Data(text)) => self.api_version = String::from_utf8_lossy(text).into_owned(),
                (2, Payload::Data(text)) => self.kind = String::from_utf8_lossy(text).into_owned(),
                (1, other) => return Err(wrong_wire_type(other, "APIVersion")),
                (2, other) => return Err(wrong_wire_type(other, "Kind")),
                _ => {}
            }
        }
        Ok(())
    }
}
