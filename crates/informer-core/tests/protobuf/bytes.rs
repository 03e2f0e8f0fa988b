//! Writing protobuf by hand, and reading it.
#![allow(dead_code, reason = "each test uses a part of it")]

use informer_core::wire::{
    Frame, Limits, ListItem, ProtobufListReader, ProtobufWatchReader, ScannedObject, TypeMeta, WireError,
};
use informer_core::{Entry, FieldFilter, Object, Retention};
use std::sync::Arc;

pub(crate) type Read<T> = (Vec<T>, Result<(), WireError>);

/// Appends a varint.
pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// A length-delimited field.
pub(crate) fn data(number: u32, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, u64::from(number) << 3 | 2);
    varint(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

/// A varint field.
pub(crate) fn number(number: u32, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    varint(&mut out, u64::from(number) << 3);
    varint(&mut out, value);
    out
}

/// A message in an envelope with its type.
pub(crate) fn envelope(types: &TypeMeta, message: &[u8]) -> Vec<u8> {
    let type_meta = [data(1, types.api_version.as_bytes()), data(2, types.kind.as_bytes())].concat();
    [b"k8s\0".to_vec(), data(1, &type_meta), data(2, message), data(3, b""), data(4, b"")].concat()
}

/// Removes the envelope of a message.
pub(crate) fn opened(body: &[u8]) -> Vec<u8> {
    let mut rest = body.strip_prefix(b"k8s\0").unwrap();
    while !rest.is_empty() {
        let (number, value, behind) = field(rest);
        if number == 2 {
            return value.unwrap().to_vec();
        }
        rest = behind;
    }
    panic!("no object");
}

/// Number of the first field, its bytes (`None` for varints), and the remaining bytes.
pub(crate) fn field(bytes: &[u8]) -> (u32, Option<&[u8]>, &[u8]) {
    fn number(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..).step_by(7) {
            let (byte, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
        }
        value
    }
    let mut rest = bytes;
    let tag = number(&mut rest);
    let own = u32::try_from(tag >> 3).unwrap();
    match tag & 7 {
        0 => {
            number(&mut rest);
            (own, None, rest)
        }
        1 => (own, None, &rest[8..]),
        2 => {
            let length = usize::try_from(number(&mut rest)).unwrap();
            (own, Some(&rest[..length]), &rest[length..])
        }
        other => panic!("layout {other}"),
    }
}

/// A list of messages.
pub(crate) fn list(types: &TypeMeta, items: &[Vec<u8>]) -> Vec<u8> {
    let metadata = data(1, &data(2, b"9"));
    let items: Vec<u8> = items.iter().flat_map(|item| data(2, item)).collect();
    let of = TypeMeta::new(types.api_version.clone(), format!("{}List", types.kind));
    envelope(&of, &[metadata, items].concat())
}

/// A watch frame with an object in its envelope.
pub(crate) fn frame(kind: &str, object: &[u8]) -> Vec<u8> {
    let event = [data(1, kind.as_bytes()), data(2, &data(1, object))].concat();
    [&u32::try_from(event.len()).unwrap().to_be_bytes()[..], &event].concat()
}

pub(crate) fn read_list(types: &TypeMeta, limit: usize, pieces: &[&[u8]]) -> Read<ListItem> {
    read_list_by(types, None, limit, pieces)
}

pub(crate) fn read_list_by(
    types: &TypeMeta,
    by: Option<&FieldFilter>,
    limit: usize,
    pieces: &[&[u8]],
) -> Read<ListItem> {
    let reader =
        ProtobufListReader::new(types.clone(), Limits::new(limit)).unwrap().with_field_filter(by.cloned());
    let (mut reader, mut items) = (reader, Vec::new());
    let read = pieces.iter().try_for_each(|piece| reader.read(piece, |item| items.push(item)));
    (items, read.and_then(|()| reader.finish()))
}

pub(crate) fn read_watch(types: &TypeMeta, limit: usize, pieces: &[&[u8]]) -> Read<Frame> {
    read_watch_by(types, None, limit, pieces)
}

pub(crate) fn read_watch_by(
    types: &TypeMeta,
    by: Option<&FieldFilter>,
    limit: usize,
    pieces: &[&[u8]],
) -> Read<Frame> {
    let reader =
        ProtobufWatchReader::new(types.clone(), Limits::new(limit)).unwrap().with_field_filter(by.cloned());
    let (mut reader, mut frames) = (reader, Vec::new());
    let read = pieces.iter().try_for_each(|piece| reader.read(piece, |frame| frames.push(frame)));
    (frames, read.and_then(|()| reader.finish()))
}

/// The object as a cache stores it.
pub(crate) fn object<K>(scanned: ScannedObject) -> Object<K> {
    Object::new(Arc::new(Entry::new(scanned, Retention::Bytes)))
}

/// Scans the single object of a message.
#[track_caller]
pub(crate) fn scanned(types: &TypeMeta, message: &[u8]) -> ScannedObject {
    let body = frame("ADDED", &envelope(types, message));
    let (mut frames, end) = read_watch(types, usize::MAX, &[&body]);
    assert_eq!(end, Ok(()));
    match frames.pop() {
        Some(Frame::Added(scanned)) => scanned,
        other => panic!("{other:?}"),
    }
}
