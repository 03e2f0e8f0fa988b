//! The fast path for an object that arrived in one chunk in canonical form, as nearly all do: its output is
//! copied in four pieces.
//!
//! The canonical form is defined in [`super::object`]. For any other object, [`without_managed_fields`]
//! returns `None`, and [`super::object::ObjectReader`] parses the object field by field, with the same
//! output.

use super::METADATA;
use super::fields::{DATA, FIXED32, FIXED64, Fields, Payload, VARINT, put_varint, tag, varint_length};
use super::head::numbers;
use std::ops::Range;

/// An object without managed fields.
pub(super) struct StrippedObject {
    /// The object, without spare capacity.
    pub(super) bytes: Vec<u8>,
    /// The range of the metadata in `bytes`.
    pub(super) metadata: Range<usize>,
}

/// Returns the object without its `metadata.managedFields`. `None` if it has no metadata, is not in
/// canonical form, or exceeds `limit`.
pub(super) fn without_managed_fields(object: &[u8], limit: usize) -> Option<StrippedObject> {
    let at = find_metadata(object)?;
    let [front, back] = split_at_managed_fields(at.content)?;
    let (before, after) = (&object[..at.field.start], &object[at.field.end..]);
    let length = front.len() + back.len();
    let start = before.len() + varint_length(tag(METADATA, DATA)) + varint_length(length as u64);
    let size = start + length + after.len();
    if size > limit {
        return None;
    }
    let mut bytes = Vec::with_capacity(size);
    bytes.extend_from_slice(before);
    put_varint(&mut bytes, tag(METADATA, DATA));
    put_varint(&mut bytes, length as u64);
    for piece in [front, back, after] {
        bytes.extend_from_slice(piece);
    }
    Some(StrippedObject { bytes, metadata: start..start + length })
}

struct MetadataField<'a> {
    /// The range of the field, including its tag and length.
    field: Range<usize>,
    content: &'a [u8],
}

/// Finds the metadata; `None` if it is missing or repeated, or the object is not in canonical form.
fn find_metadata(object: &[u8]) -> Option<MetadataField<'_>> {
    let (mut fields, mut found) = (Fields(object), None);
    loop {
        let start = object.len() - fields.0.len();
        let Some((number, payload)) = fields.next().ok()? else { return found };
        let field = start..object.len() - fields.0.len();
        match payload {
            Payload::Data(content) if number == METADATA => {
                if found.replace(MetadataField { field, content }).is_some() {
                    return None;
                }
            }
            _ if is_canonical(number, payload, field.len()) => {}
            _ => return None,
        }
    }
}

/// Returns the metadata before and after the managed fields; `None` if they are not adjacent, as servers
/// write them, or the metadata is not in canonical form.
fn split_at_managed_fields(metadata: &[u8]) -> Option<[&[u8]; 2]> {
    let (mut fields, mut managed) = (Fields(metadata), None);
    loop {
        let start = metadata.len() - fields.0.len();
        let Some((number, payload)) = fields.next().ok()? else { break };
        let end = metadata.len() - fields.0.len();
        if number == numbers::MANAGED && payload != Payload::Group {
            let managed = managed.get_or_insert(start..start);
            // Adjacent fields start where the previous one ends.
            if std::mem::replace(&mut managed.end, end) != start {
                return None;
            }
        } else if !is_canonical(number, payload, end - start) {
            return None;
        }
    }
    let Range { start, end } = managed.unwrap_or(metadata.len()..metadata.len());
    Some([&metadata[..start], &metadata[end..]])
}

/// Whether the encoding of a field of `length` bytes is certainly minimal.
#[inline]
fn is_canonical(number: u32, payload: Payload<'_>, length: usize) -> bool {
    let (wire_type, value_length) = match payload {
        // A varint of ten bytes has unused bits, which are ignored, so it may not be minimal.
        Payload::Varint(value) if value >> 63 == 0 => (VARINT, varint_length(value)),
        Payload::Varint(_) | Payload::Group => return false,
        Payload::Data(bytes) => (DATA, varint_length(bytes.len() as u64) + bytes.len()),
        Payload::Fixed64(_) => (FIXED64, 8),
        Payload::Fixed32 => (FIXED32, 4),
    };
    length == varint_length(tag(number, wire_type)) + value_length
}

#[cfg(test)]
mod tests {
    use super::super::fields::put_data;
    use super::super::message_of;
    use super::super::object::ObjectReader;
    use super::*;
    use crate::wire::TypeMeta;
    use crate::wire::error::ObjectError;
    use crate::wire::scanned::ScannedObject;

    fn data(number: u32, bytes: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        put_data(&mut field, number, bytes);
        field
    }

    /// Returns metadata with these fields after name and version.
    fn metadata(others: &[Vec<u8>]) -> Vec<u8> {
        let named = [data(numbers::NAME, b"pod"), data(numbers::VERSION, b"7")];
        data(METADATA, &[named.concat(), others.concat()].concat())
    }

    fn read(object: &[u8], chunk: usize, limit: usize) -> Result<ScannedObject, ObjectError> {
        let mut reader = ObjectReader::new(message_of(&TypeMeta::new("v1", "Pod")).unwrap(), limit);
        let mut read = |chunk| {
            reader.begin(object.len() as u64);
            let complete = object.chunks(chunk).fold(false, |_, chunk| reader.feed(chunk, &mut 0));
            assert!(complete);
            reader.take_object()
        };
        let first = read(chunk);
        // Buffers are reused, however the previous object arrived.
        for before in [object.len(), 1, 7] {
            assert_eq!(read(before), first);
            assert_eq!(read(chunk), first);
        }
        first
    }

    /// Checks whether the fast path applies, and that the result does not depend on it.
    #[track_caller]
    fn check(object: &[u8], is_fast: bool) {
        let limit = 1 << 20;
        assert_eq!(without_managed_fields(object, limit).is_some(), is_fast);
        let expected_object = read(object, 1, limit);
        assert_eq!(read(object, object.len(), limit), expected_object);
        for limit in 0..object.len() + 3 {
            assert_eq!(read(object, object.len(), limit), read(object, 1, limit), "limit {limit}");
        }
    }

    const MANAGED: u32 = numbers::MANAGED;

    #[test]
    fn canonical_objects_take_the_fast_path() {
        let label = data(numbers::LABELS, &[data(1, b"app"), data(2, b"web")].concat());
        let (managed, finalizer) = (data(MANAGED, b"who"), data(14, b"not yet"));
        let spec = data(2, &[7; 300]);
        check(&metadata(&[]), true);
        check(&[metadata(std::slice::from_ref(&label)), spec.clone()].concat(), true);
        check(&[metadata(&[label, managed.clone(), managed.clone(), finalizer]), spec].concat(), true);
        // The length of the metadata needs fewer bytes without the managed fields.
        check(&metadata(&[data(MANAGED, &[0; 400])]), true);
        // All wire types, and unknown fields.
        let others = [&[0x38, 0xac, 0x02][..], &[0x51, 1, 2, 3, 4, 5, 6, 7, 8], &[0x5d, 1, 2, 3, 4]];
        check(&[metadata(&others.map(<[u8]>::to_vec)), data(900, b"later")].concat(), true);
    }

    #[test]
    fn other_objects_are_parsed_field_by_field() {
        let (managed, finalizer) = (data(MANAGED, b"who"), data(14, b"not yet"));
        check(&metadata(&[managed.clone(), finalizer, managed]), false);
        check(&data(2, b"no metadata"), false);
        check(&[metadata(&[]), metadata(&[])].concat(), false);
        // A length, a number and a tag that are not minimal.
        check(&[metadata(&[]), vec![0x12, 0x81, 0x00, 7]].concat(), false);
        check(&metadata(&[vec![0x38, 0x85, 0x00]]), false);
        check(&metadata(&[vec![0xba, 0x00, 0x01, 7]]), false);
        // A number of more than 64 bits, of which the highest are ignored.
        check(&[metadata(&[]), [&[0x28][..], &[0x80; 9], &[0x03]].concat()].concat(), false);
        // Groups, also in the place of the managed fields, and a truncated field.
        check(&[metadata(&[]), vec![0x23, 0x24]].concat(), false);
        check(&metadata(&[vec![0x8b, 0x01, 0x8c, 0x01]]), false);
        check(&[metadata(&[]), vec![0x12, 9, 1]].concat(), false);
    }

    #[test]
    fn stripped_object_has_no_spare_capacity() {
        let found = without_managed_fields(&metadata(&[data(MANAGED, b"who")]), 1 << 20).unwrap();
        assert_eq!(found.bytes.len(), found.bytes.capacity());
        assert_eq!(found.bytes, metadata(&[]));
        assert_eq!(found.bytes[found.metadata], metadata(&[])[2..]);
    }
}
