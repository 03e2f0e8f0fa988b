//! Corruption of encoded objects, to test how decoders handle objects that do not match their type.
//!
//! Protobuf has no names: the corruption inserts a field with the number of `spec`, 2, that contains a number
//! instead of a message. All other bytes are unchanged, except lengths.

use super::kinds::MAGIC;
use super::read::{Payload, Reader};
use super::write::Writer;

/// The field number of `spec` in every kind that has one, and of `items` in every list.
const SPEC_OR_ITEMS: u16 = 2;

/// Returns an enveloped object with a number as its `spec`; `None` if there is no object.
fn corrupted_object(object: &[u8]) -> Option<Vec<u8>> {
    in_envelope(object, |object| Some(corrupted_message(object)))
}

/// Returns an enveloped list whose first object is corrupted; `None` if it has no items.
pub fn corrupted_list(list: &[u8]) -> Option<Vec<u8>> {
    in_envelope(list, |list| with_field(list, SPEC_OR_ITEMS, |item| Some(corrupted_message(item))))
}

/// Returns a watch frame whose object is corrupted, followed by the remaining bytes.
pub fn corrupted_frame(bytes: &[u8]) -> Option<Vec<u8>> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let (event, rest) = rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)?;
    let event = with_field(event, 2, |object| with_field(object, 1, corrupted_object))?;
    let length = u32::try_from(event.len()).ok()?.to_be_bytes();
    Some([&length[..], &event, rest].concat())
}

/// Returns an envelope in which `change` has replaced the object.
fn in_envelope(object: &[u8], change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let changed = with_field(object.strip_prefix(MAGIC)?, 2, change)?;
    Some([MAGIC, &changed].concat())
}

fn corrupted_message(message: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.integer(SPEC_OR_ITEMS, 7);
    writer.bytes(message);
    writer.finish()
}

/// Returns a message in which `change` has replaced the data of the first field with this number.
fn with_field(message: &[u8], number: u16, change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let mut reader = Reader::new("", message);
    loop {
        let start = message.len() - reader.left();
        let (field_number, payload) = reader.next().ok()??;
        let Payload::Data(data) = payload else { continue };
        if field_number == u64::from(number) {
            let mut writer = Writer::default();
            writer.bytes(message.get(message.len() - reader.left()..)?);
            writer.data(number, &change(data)?);
            writer.bytes(message.get(..start)?);
            return Some(writer.finish());
        }
    }
}

#[cfg(test)]
mod tests {
    use informer_schema::RESOURCES;
    use serde_json::{Value, json};

    use super::super::{decode, encode, frame, message_of};
    use super::*;

    fn pod() -> Value {
        let spec = json!({"containers": [{"name": "c", "image": "i"}]});
        json!({"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "p"}, "spec": spec})
    }

    fn error_message(bytes: &[u8]) -> String {
        decode(bytes, ("", "")).unwrap_err().message
    }

    #[test]
    fn corrupted_object_has_a_number_as_spec() {
        let object = encode(&pod()).unwrap();
        let changed = corrupted_object(&object).unwrap();
        assert_eq!(error_message(&changed), "proto: wrong wireType = 0 for field spec");
        assert_eq!(changed.len(), object.len() + 2);

        let list = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": [pod(), pod()]});
        let changed = corrupted_list(&encode(&list).unwrap()).unwrap();
        assert_eq!(error_message(&changed), "proto: wrong wireType = 0 for field spec");
        let empty = json!({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": []});
        assert_eq!(corrupted_list(&encode(&empty).unwrap()), None);

        let (mut good, mut bad) = (Vec::new(), Vec::new());
        frame(&mut good, "ADDED", &object);
        frame(&mut bad, "ADDED", &corrupted_object(&object).unwrap());
        assert_eq!(corrupted_frame(&good), Some(bad.clone()));
        assert_eq!(
            corrupted_frame(&good.repeat(2)),
            Some([bad, good].concat()),
            "only the first frame is corrupted"
        );
        assert_eq!(
            (corrupted_object(b"{}"), corrupted_frame(b"{}"), corrupted_frame(&[0, 0, 0, 9, 1])),
            (None, None, None)
        );
    }

    #[test]
    fn spec_is_field_2_of_every_kind() {
        for row in RESOURCES {
            let api_version = if row.group.is_empty() {
                row.version.to_owned()
            } else {
                format!("{}/{}", row.group, row.version)
            };
            let Some(message) = message_of(&api_version, row.kind) else { continue };
            let spec = message.get().parts.iter().find(|part| part.name == "spec");
            assert!(spec.is_none_or(|part| part.number == SPEC_OR_ITEMS), "{api_version} {}", row.kind);
        }
    }
}
