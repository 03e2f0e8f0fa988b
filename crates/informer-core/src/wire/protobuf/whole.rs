//! An object that came in one piece, as nearly all do, and as every server writes it: what is kept of it is copied in four pieces.
//!
//! Of anything else nothing is said here, and [`super::object::ObjectReader`] reads it field by field. What it makes of an object is the same.

use super::METADATA;
use super::fields::{DATA, FIXED32, FIXED64, Fields, Payload, VARINT, put_varint, tag, varint_length};
use super::head::numbers;
use std::ops::Range;

/// What is kept of an object.
pub(super) struct Whole {
    /// With no room to spare.
    pub(super) bytes: Vec<u8>,
    /// Where in it the metadata lies.
    pub(super) metadata: Range<usize>,
}

/// The object without its `metadata.managedFields`. None if it has no metadata, or is not in canonical form, or takes more than `limit`.
pub(super) fn whole(object: &[u8], limit: usize) -> Option<Whole> {
    let at = metadata_in(object)?;
    let [front, back] = without_managed(at.content)?;
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
    Some(Whole { bytes, metadata: start..start + length })
}

struct MetadataIn<'a> {
    /// The whole field.
    field: Range<usize>,
    content: &'a [u8],
}

/// Finds the metadata, which comes once.
fn metadata_in(object: &[u8]) -> Option<MetadataIn<'_>> {
    let (mut fields, mut found) = (Fields(object), None);
    loop {
        let start = object.len() - fields.0.len();
        let Some((number, payload)) = fields.next().ok()? else { return found };
        let field = start..object.len() - fields.0.len();
        match payload {
            Payload::Data(content) if number == METADATA => {
                if found.replace(MetadataIn { field, content }).is_some() {
                    return None;
                }
            }
            _ if is_canonical(number, payload, field.len()) => {}
            _ => return None,
        }
    }
}

/// What of the metadata lies before the managed fields and behind them; servers write them side by side.
fn without_managed(metadata: &[u8]) -> Option<[&[u8]; 2]> {
    let (mut fields, mut managed) = (Fields(metadata), None);
    loop {
        let start = metadata.len() - fields.0.len();
        let Some((number, payload)) = fields.next().ok()? else { break };
        let end = metadata.len() - fields.0.len();
        if number == numbers::MANAGED && payload != Payload::Group {
            let managed = managed.get_or_insert(start..start);
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

/// Whether a field takes no more than it has to, as far as that is plain.
#[inline]
fn is_canonical(number: u32, payload: Payload<'_>, length: usize) -> bool {
    let (layout, rest) = match payload {
        // The longest numbers have room for bits that count for nothing.
        Payload::Varint(value) if value >> 63 == 0 => (VARINT, varint_length(value)),
        Payload::Varint(_) | Payload::Group => return false,
        Payload::Data(bytes) => (DATA, varint_length(bytes.len() as u64) + bytes.len()),
        Payload::Fixed64(_) => (FIXED64, 8),
        Payload::Fixed32 => (FIXED32, 4),
    };
    length == varint_length(tag(number, layout)) + rest
}

#[cfg(test)]
mod tests {
    use super::super::fields::put_data;
    use super::super::message_of;
    use super::super::object::ObjectReader;
    use super::*;
    use crate::wire::TypeMeta;
    use crate::wire::problem::ObjectError;
    use crate::wire::scanned::ScannedObject;

    fn data(number: u32, bytes: &[u8]) -> Vec<u8> {
        let mut field = Vec::new();
        put_data(&mut field, number, bytes);
        field
    }

    /// Metadata with these fields behind name and version.
    fn metadata(others: &[Vec<u8>]) -> Vec<u8> {
        let named = [data(numbers::NAME, b"pod"), data(numbers::VERSION, b"7")];
        data(METADATA, &[named.concat(), others.concat()].concat())
    }

    fn read(object: &[u8], piece: usize, limit: usize) -> Result<ScannedObject, ObjectError> {
        let mut reader = ObjectReader::new(message_of(&TypeMeta::new("v1", "Pod")).unwrap(), limit);
        let mut read = |piece| {
            reader.begin(object.len() as u64);
            let complete = object.chunks(piece).fold(false, |_, piece| reader.feed(piece, &mut 0));
            assert!(complete);
            reader.take_object()
        };
        let first = read(piece);
        // Buffers are used again, whichever way the object before went.
        for before in [object.len(), 1, 7] {
            assert_eq!(read(before), first);
            assert_eq!(read(piece), first);
        }
        first
    }

    /// Whether it is read in one go. What comes out is the same in any case.
    #[track_caller]
    fn check(object: &[u8], expected: bool) {
        let limit = 1 << 20;
        assert_eq!(whole(object, limit).is_some(), expected);
        let pieces = read(object, 1, limit);
        assert_eq!(read(object, object.len(), limit), pieces);
        for limit in 0..object.len() + 3 {
            assert_eq!(read(object, object.len(), limit), read(object, 1, limit), "of at most {limit} bytes");
        }
    }

    const MANAGED: u32 = numbers::MANAGED;

    #[test]
    fn what_servers_send_is_read_in_one_go_and_the_same_as_in_pieces() {
        let label = data(numbers::LABELS, &[data(1, b"app"), data(2, b"web")].concat());
        let (managed, finalizer) = (data(MANAGED, b"who"), data(14, b"not yet"));
        let spec = data(2, &[7; 300]);
        check(&metadata(&[]), true);
        check(&[metadata(std::slice::from_ref(&label)), spec.clone()].concat(), true);
        check(&[metadata(&[label, managed.clone(), managed.clone(), finalizer]), spec].concat(), true);
        // The length of the metadata takes less once the managed fields are gone.
        check(&metadata(&[data(MANAGED, &[0; 400])]), true);
        // Numbers of all layouts, and fields that nobody knows.
        let others = [&[0x38, 0xac, 0x02][..], &[0x51, 1, 2, 3, 4, 5, 6, 7, 8], &[0x5d, 1, 2, 3, 4]];
        check(&[metadata(&others.map(<[u8]>::to_vec)), data(900, b"later")].concat(), true);
    }

    #[test]
    fn anything_else_is_read_in_pieces() {
        let (managed, finalizer) = (data(MANAGED, b"who"), data(14, b"not yet"));
        check(&metadata(&[managed.clone(), finalizer, managed]), false);
        check(&data(2, b"no metadata"), false);
        check(&[metadata(&[]), metadata(&[])].concat(), false);
        // A length, a number and a tag that take more than they have to.
        check(&[metadata(&[]), vec![0x12, 0x81, 0x00, 7]].concat(), false);
        check(&metadata(&[vec![0x38, 0x85, 0x00]]), false);
        check(&metadata(&[vec![0xba, 0x00, 0x01, 7]]), false);
        // A number of more bits than it can have, of which the highest are let go.
        check(&[metadata(&[]), [&[0x28][..], &[0x80; 9], &[0x03]].concat()].concat(), false);
        // Groups, also where the managed fields should be; and what ends too early.
        check(&[metadata(&[]), vec![0x23, 0x24]].concat(), false);
        check(&metadata(&[vec![0x8b, 0x01, 0x8c, 0x01]]), false);
        check(&[metadata(&[]), vec![0x12, 9, 1]].concat(), false);
    }

    #[test]
    fn nothing_is_kept_twice() {
        let found = whole(&metadata(&[data(MANAGED, b"who")]), 1 << 20).unwrap();
        assert_eq!(found.bytes.len(), found.bytes.capacity());
        assert_eq!(found.bytes, metadata(&[]));
        assert_eq!(found.bytes[found.metadata], metadata(&[])[2..]);
    }
}
