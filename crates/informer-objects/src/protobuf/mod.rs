//! Objects as protobuf, as kube-apiserver reads and writes them: [`encode`] and `decode`, and [`frame`] for
//! watches.
//!
//! Pure: JSON values in, bytes out, and back. The messages are those of `informer-schema`: one for every
//! built-in kind and for lists of them, for metadata, statuses, options and discovery; none for tables and
//! custom objects. Nothing here knows which encoding a client accepts or whether an object is valid.

mod corrupt;
mod decode;
mod decode_object;
mod document;
mod encode;
mod kinds;
mod read;
mod write;

#[cfg(test)]
mod tests;

use serde_json::Value;

use kinds::{MAGIC, message_of};
use write::Writer;

pub use corrupt::{corrupted_frame, corrupted_list};
#[cfg(test)]
pub(crate) use decode_object::DecodedObject;
pub(crate) use decode_object::decode;
pub use document::document;

/// Whether there is a message for a kind.
#[cfg(test)]
pub(crate) fn is_known(api_version: &str, kind: &str) -> bool {
    message_of(api_version, kind).is_some()
}

/// Encodes an object, a list or a status in the envelope that names its kind; `None` if it has no message.
///
/// The value is the one that would be written as JSON, including `kind` and `apiVersion`.
pub fn encode(object: &Value) -> Option<Vec<u8>> {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let message = message_of(api_version, kind)?.get();
    let mut writer = Writer::default();
    // The fields of `runtime.Unknown` from the last to the first: content type and content encoding, which
    // are empty, the object, and its type.
    writer.text(4, "");
    writer.text(3, "");
    writer.nested(2, |writer| encode::message(writer, message, object));
    writer.nested(1, |writer| {
        writer.text(2, kind);
        writer.text(1, api_version);
    });
    writer.bytes(MAGIC);
    Some(writer.finish())
}

/// Writes a watch frame with its length prefix.
///
/// The object has its own envelope and is copied once.
pub fn frame(out: &mut Vec<u8>, event_type: &str, object: &[u8]) {
    // Everything before the object, written backwards: the field of the raw object in its wrapper, the field
    // of the wrapper in the event, the type of the event, and the length of the event.
    let mut head = Writer::default();
    head.tag_and_length(1, object.len());
    head.tag_and_length(2, head.len() + object.len());
    head.text(1, event_type);
    let length = u32::try_from(head.len() + object.len()).unwrap_or(u32::MAX);
    head.bytes(&length.to_be_bytes());
    out.extend(head.finish());
    out.extend_from_slice(object);
}
