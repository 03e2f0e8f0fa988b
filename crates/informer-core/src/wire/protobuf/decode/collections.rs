//! Lists and maps: all fields of one number.

use super::context::{Context, Given, wrong_layout};
use super::error::{Error, Step};
use super::special;
use super::value::Value;
use crate::wire::protobuf::fields::{Fields, Payload};
use informer_schema::Wire;
use serde::de::{DeserializeSeed, SeqAccess};
use std::borrow::Cow;

/// The elements of a list.
pub(super) struct Elements<'de, 'c> {
    /// What was read last.
    value: Value<'de, 'c>,
    fields: Fields<'de>,
    number: u32,
    /// How many there are, if that is known, and how many of them were read.
    count: Option<usize>,
    read: usize,
    /// What is left of numbers that were packed into one field.
    packed: Fields<'de>,
}

impl<'de, 'c> Elements<'de, 'c> {
    /// The fields with `number` among `bytes`; `count` of them, if that is known.
    #[inline]
    pub(super) fn new(
        items: Wire,
        bytes: &'de [u8],
        number: u32,
        count: Option<usize>,
        context: Context<'c>,
    ) -> Self {
        let count = count.filter(|_| !is_number(items));
        let value = Value { wire: items, given: Given::Null, writes_type: true, context };
        Self { value, fields: Fields(bytes), number, count, read: 0, packed: Fields(&[]) }
    }

    #[inline]
    fn next(&mut self) -> Result<Option<Given<'de>>, Error> {
        loop {
            if !self.packed.0.is_empty()
                && let Some(payload) = self.packed.packed(self.value.wire == Wire::Double)?
            {
                return Given::of(payload).map(Some);
            }
            match self.fields.next()? {
                None => return Ok(None),
                Some((number, _)) if number != self.number => {}
                Some((_, Payload::Data(bytes))) if is_number(self.value.wire) => self.packed = Fields(bytes),
                Some((_, payload)) => return Given::of(payload).map(Some),
            }
        }
    }
}

/// Whether several can be packed into one field.
pub(super) fn is_number(items: Wire) -> bool {
    matches!(items, Wire::Boolean | Wire::Int32 | Wire::Int64 | Wire::Double)
}

impl<'de> SeqAccess<'de> for Elements<'de, '_> {
    type Error = Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(given) = self.next()? else { return Ok(None) };
        self.value.given = given;
        let index = self.read;
        self.read += 1;
        if !self.value.context.places {
            return seed.deserialize(&self.value).map(Some);
        }
        seed.deserialize(&self.value).map(Some).map_err(|error| error.inside(Step::Element(index)))
    }

    /// Each takes a byte at least, so no length can lie about it.
    fn size_hint(&self) -> Option<usize> {
        self.count.map(|count| count.saturating_sub(self.read))
    }
}

/// The entries of a map.
pub(super) struct Entries<'de, 'c> {
    fields: Fields<'de>,
    left: usize,
    /// What was told last.
    key: &'de [u8],
    value: Value<'de, 'c>,
}

impl<'de, 'c> Entries<'de, 'c> {
    #[inline]
    pub(super) fn new(values: Wire, bytes: &'de [u8], count: usize, context: Context<'c>) -> Self {
        let value = Value { wire: values, given: Given::Null, writes_type: false, context };
        Self { fields: Fields(bytes), left: count, key: &[], value }
    }

    pub(super) fn next_name(&mut self) -> Result<Option<Cow<'de, str>>, Error> {
        let Some((_, payload)) = self.fields.next()? else { return Ok(None) };
        self.left = self.left.saturating_sub(1);
        let Payload::Data(entry) = payload else { return Err(wrong_layout()) };
        let (key, value) = entry_of(entry)?;
        self.key = key;
        self.value.given = value.map_or_else(|| Ok(empty(self.value.wire)), Given::of)?;
        Ok(Some(special::text(key)))
    }

    /// The value of the entry whose key was told last.
    pub(super) fn value(&self) -> &Value<'de, 'c> {
        &self.value
    }

    pub(super) fn name(&self) -> Cow<'de, str> {
        special::text(self.key)
    }

    /// How many entries are left.
    pub(super) fn left(&self) -> usize {
        self.left
    }
}

/// Key and value of an entry, the last of each.
pub(super) fn entry_of(entry: &[u8]) -> Result<(&[u8], Option<Payload<'_>>), Error> {
    let (mut key, mut value) = (&[][..], None);
    let mut fields = Fields(entry);
    while let Some((number, payload)) = fields.next()? {
        match (number, payload) {
            (1, Payload::Data(bytes)) => key = bytes,
            (1, _) => return Err(wrong_layout()),
            (2, payload) => value = Some(payload),
            _ => {}
        }
    }
    Ok((key, value))
}

/// A value that an entry leaves out.
fn empty(values: Wire) -> Given<'static> {
    match values {
        Wire::Boolean | Wire::Int32 | Wire::Int64 => Given::Varint(0),
        Wire::Double => Given::Fixed64(0),
        _ => Given::Data(&[]),
    }
}
