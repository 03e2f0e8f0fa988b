//! Lists and maps: all fields with one number.

use super::context::{Context, RawValue, TrackPath, wrong_wire_type};
use super::error::{Error, Step};
use super::special;
use super::value::Value;
use crate::wire::protobuf::fields::{Fields, Payload};
use informer_schema::Wire;
use serde::de::{DeserializeSeed, SeqAccess};
use std::borrow::Cow;

/// The elements of a list, as a serde sequence.
pub(super) struct Elements<'de, 'c> {
    /// The current element.
    value: Value<'de, 'c>,
    fields: Fields<'de>,
    number: u32,
    /// Number of elements, if it is known.
    count: Option<usize>,
    /// Number of elements read.
    read: usize,
    /// The remaining numbers of a packed field.
    packed: Fields<'de>,
}

impl<'de, 'c> Elements<'de, 'c> {
    /// Creates the list of the fields with `number` in `bytes`. `count` is how many there are, if that is
    /// known.
    #[inline]
    pub(super) fn new(
        items: Wire,
        bytes: &'de [u8],
        number: u32,
        count: Option<usize>,
        context: Context<'c>,
    ) -> Self {
        // A packed field contains several elements.
        let count = count.filter(|_| !can_be_packed(items));
        let value = Value { wire: items, raw: RawValue::Null, writes_type: true, context };
        Self { value, fields: Fields(bytes), number, count, read: 0, packed: Fields(&[]) }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<RawValue<'de>>, Error> {
        loop {
            if !self.packed.0.is_empty()
                && let Some(payload) = self.packed.next_packed(self.value.wire == Wire::Double)?
            {
                return RawValue::of(payload).map(Some);
            }
            match self.fields.next()? {
                None => return Ok(None),
                Some((number, _)) if number != self.number => {}
                Some((_, Payload::Data(bytes))) if can_be_packed(self.value.wire) => {
                    self.packed = Fields(bytes);
                }
                Some((_, payload)) => return RawValue::of(payload).map(Some),
            }
        }
    }
}

/// Whether several values of this type can be packed into one field.
pub(super) fn can_be_packed(items: Wire) -> bool {
    matches!(items, Wire::Boolean | Wire::Int32 | Wire::Int64 | Wire::Double)
}

impl<'de> SeqAccess<'de> for Elements<'de, '_> {
    type Error = Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(raw) = self.next()? else { return Ok(None) };
        self.value.raw = raw;
        let index = self.read;
        self.read += 1;
        if self.value.context.track_path == TrackPath::No {
            return seed.deserialize(&self.value).map(Some);
        }
        seed.deserialize(&self.value).map(Some).map_err(|error| error.inside(Step::Element(index)))
    }

    /// The number of remaining elements. Each element takes at least one byte, so the input cannot make the
    /// number arbitrarily large.
    fn size_hint(&self) -> Option<usize> {
        self.count.map(|count| count.saturating_sub(self.read))
    }
}

/// The entries of a map.
pub(super) struct Entries<'de, 'c> {
    fields: Fields<'de>,
    remaining: usize,
    /// The key of the current entry.
    key: &'de [u8],
    value: Value<'de, 'c>,
}

impl<'de, 'c> Entries<'de, 'c> {
    #[inline]
    pub(super) fn new(values: Wire, bytes: &'de [u8], count: usize, context: Context<'c>) -> Self {
        let value = Value { wire: values, raw: RawValue::Null, writes_type: false, context };
        Self { fields: Fields(bytes), remaining: count, key: &[], value }
    }

    /// Advances to the next entry and returns its key.
    pub(super) fn next_name(&mut self) -> Result<Option<Cow<'de, str>>, Error> {
        let Some((_, payload)) = self.fields.next()? else { return Ok(None) };
        self.remaining = self.remaining.saturating_sub(1);
        let Payload::Data(entry) = payload else { return Err(wrong_wire_type()) };
        let (key, value) = entry_of(entry)?;
        self.key = key;
        self.value.raw = value.map_or_else(|| Ok(omitted_value(self.value.wire)), RawValue::of)?;
        Ok(Some(special::text(key)))
    }

    /// The value of the current entry.
    pub(super) fn value(&self) -> &Value<'de, 'c> {
        &self.value
    }

    pub(super) fn name(&self) -> Cow<'de, str> {
        special::text(self.key)
    }

    /// Number of remaining entries.
    pub(super) fn remaining(&self) -> usize {
        self.remaining
    }
}

/// Parses key and value of an entry. If one of them is repeated, the last counts.
pub(super) fn entry_of(entry: &[u8]) -> Result<(&[u8], Option<Payload<'_>>), Error> {
    let (mut key, mut value) = (&[][..], None);
    let mut fields = Fields(entry);
    while let Some((number, payload)) = fields.next()? {
        match (number, payload) {
            (1, Payload::Data(bytes)) => key = bytes,
            (1, _) => return Err(wrong_wire_type()),
            (2, payload) => value = Some(payload),
            _ => {}
        }
    }
    Ok((key, value))
}

/// Returns the value of an entry that omits its value.
fn omitted_value(values: Wire) -> RawValue<'static> {
    match values {
        Wire::Boolean | Wire::Int32 | Wire::Int64 => RawValue::Varint(0),
        Wire::Double => RawValue::Fixed64(0),
        _ => RawValue::Data(&[]),
    }
}
