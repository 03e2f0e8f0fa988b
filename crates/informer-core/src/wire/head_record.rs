//! Heads as bytes, for caches that are saved.
//!
//! Numbers are little-endian, and texts are preceded by their length as a `u32`. In this order: uid, version,
//! generation (`i64`, 0 for none), time of creation and of deletion (`i64` microseconds since 1970, the
//! minimum for none), start and end of `metadata` in the object's bytes (`u32`), labels and owners. The key is
//! not included.

use super::head::{Head, Stamp, Uid};
use super::labels::{Labels, Owners};
use crate::key::Key;
use crate::small_text::PackedTexts;
use crate::version::ResourceVersion;
use std::num::NonZeroI64;

impl Head {
    /// Appends the head to `output`, without its key.
    pub(crate) fn write_record(&self, output: &mut Vec<u8>) {
        put_bytes(output, self.uid.as_bytes());
        put_bytes(output, self.version.as_str().as_bytes());
        for number in [self.generation.map_or(0, NonZeroI64::get), self.created.0, self.deleted.0] {
            output.extend_from_slice(&number.to_le_bytes());
        }
        for offset in [self.metadata.start, self.metadata.end] {
            output.extend_from_slice(&offset.to_le_bytes());
        }
        put_bytes(output, &self.labels.0.0);
        put_bytes(output, &self.owners.0.0);
    }

    /// Removes a head from the front of `input`; `None` if it is malformed.
    pub(crate) fn read_record(key: Key, input: &mut &[u8]) -> Option<Self> {
        let uid = Uid::from(take_text(input)?);
        let version = ResourceVersion::new(take_text(input)?);
        let generation = NonZeroI64::new(take_i64(input)?);
        let (created, deleted) = (Stamp(take_i64(input)?), Stamp(take_i64(input)?));
        let metadata = take_u32(input)?..take_u32(input)?;
        let labels = Labels(PackedTexts::from_bytes(take_bytes(input)?)?);
        let owners = Owners(PackedTexts::from_bytes(take_bytes(input)?)?);
        Some(Self { key, uid, version, generation, created, deleted, labels, owners, metadata })
    }
}

fn put_bytes(output: &mut Vec<u8>, bytes: &[u8]) {
    // Parts of one object, which `wire::Limits` limits to far less than 4 GiB.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    output.extend_from_slice(&length.to_le_bytes());
    output.extend_from_slice(bytes);
}

/// Removes a number from the front of `input`; `None` if the input is too short.
pub(crate) fn take_u32(input: &mut &[u8]) -> Option<u32> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(u32::from_le_bytes(*bytes))
}

fn take_i64(input: &mut &[u8]) -> Option<i64> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(i64::from_le_bytes(*bytes))
}

fn take_bytes<'a>(input: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = usize::try_from(take_u32(input)?).ok()?;
    let (bytes, rest) = input.split_at_checked(length)?;
    *input = rest;
    Some(bytes)
}

fn take_text<'a>(input: &mut &'a [u8]) -> Option<&'a str> {
    std::str::from_utf8(take_bytes(input)?).ok()
}
