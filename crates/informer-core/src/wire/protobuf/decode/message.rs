//! A message as a map: its fields by their names in JSON.
//!
//! A part is a field in the table of `informer-schema`. The parts and the fields on the wire are both in the
//! order of their numbers, so one pass over both finds the fields that are present, unknown and missing.

use super::context::{Context, RawValue, wrong_wire_type};
use super::error::Error;
use super::special;
use super::value::Value;
use crate::wire::protobuf::fields::{Fields, Payload};
use informer_schema::{Message, Part, Wire};

/// The members of a message.
pub(super) struct Members<'de, 'c> {
    cursor: Cursor<'de>,
    /// The positions in the messages around the current one, if that is inline.
    outer: [Option<Cursor<'de>>; MAX_INLINE],
    /// The type members that were not produced yet.
    pending_type: PendingType,
    /// The name of the current member.
    name: &'static str,
    /// The value of the current member.
    value: Value<'de, 'c>,
}

/// Maximum nesting of inline messages. In JSON, the fields of an inline message are members of the object
/// around it. The rule of an admission policy has this nesting.
pub(in crate::wire::protobuf) const MAX_INLINE: usize = 2;

/// The type members, apiVersion and kind, that are still to be produced.
#[derive(Debug, Clone, Copy)]
enum PendingType {
    Both(&'static Message),
    Kind(&'static Message),
    Done,
}

/// The position in one message.
#[derive(Clone, Copy)]
struct Cursor<'de> {
    /// The parts after that of the last field.
    parts: &'static [Part],
    /// See [`Message::has_nulls`].
    has_nulls: bool,
    /// The unread fields.
    fields: Fields<'de>,
    /// The number of the last field.
    last_number: u32,
}

impl<'de> Cursor<'de> {
    #[inline]
    fn new(message_type: &'static Message, bytes: &'de [u8]) -> Self {
        Self {
            parts: message_type.parts,
            has_nulls: message_type.has_nulls,
            fields: Fields(bytes),
            last_number: 0,
        }
    }

    /// Returns the part with a number, and advances past it; `None`, without advancing, if there is none.
    #[inline]
    fn take_part(&mut self, number: u32) -> Option<&'static Part> {
        // Numbers are ascending and mostly consecutive, so the part is at the guessed index or before it.
        let guess = number.checked_sub(u32::from(self.parts.first()?.number))? as usize;
        let has_number = |part: &Part| u32::from(part.number) == number;
        let index = if self.parts.get(guess).is_some_and(has_number) {
            guess
        } else {
            let end = self.parts.len().min(guess);
            self.parts[..end].binary_search_by_key(&number, |part| u32::from(part.number)).ok()?
        };
        let part = &self.parts[index];
        self.parts = &self.parts[index + 1..];
        Some(part)
    }

    /// Returns the next part before `number` that JSON writes as `null`, and advances past it.
    fn next_null(&mut self, number: u32) -> Option<&'static Part> {
        while let Some((part, rest)) = self.parts.split_first() {
            if u32::from(part.number) >= number {
                return None;
            }
            self.parts = rest;
            if part.always && can_be_null(part) {
                return Some(part);
            }
        }
        None
    }

    /// Reads all consecutive fields with a number. The first of them is already read and starts at `start`.
    /// `None` if the tag of the first is not minimal.
    #[inline]
    fn read_run(&mut self, number: u32, start: &'de [u8]) -> Result<Option<RawValue<'de>>, Error> {
        // Fields with equal number and wire type have equal tags. A minimal tag has one byte for a number
        // below 16, otherwise two: a test checks that the table has no larger numbers.
        let is_short = number < 16;
        let tag = &start[..if is_short { 1 } else { 2 }];
        if (tag[0] < 0x80) != is_short || (!is_short && tag[1] >= 0x80) {
            return Ok(None);
        }
        let mut count = 1;
        while self.fields.0.starts_with(tag) {
            self.fields.next()?;
            count += 1;
        }
        let run = &start[..start.len() - self.fields.0.len()];
        Ok(Some(RawValue::Run(run, number, count)))
    }
}

/// Whether JSON has `null` for a part that is absent on the wire, provided that JSON always has the part.
///
/// Servers write every other part to the wire, even if it is empty. If one is absent, JSON does not have it
/// either: a field filter dropped it, or the server does not know it.
fn can_be_null(part: &Part) -> bool {
    part.pointer || matches!(part.wire, Wire::List(_) | Wire::Map(_) | Wire::Bytes)
}

impl<'de, 'c> Members<'de, 'c> {
    #[inline]
    pub(super) fn new(
        message_type: &'static Message,
        bytes: &'de [u8],
        writes_type: bool,
        context: Context<'c>,
    ) -> Self {
        let pending_type = if writes_type && message_type.is_kind {
            PendingType::Both(message_type)
        } else {
            PendingType::Done
        };
        let value = Value { wire: Wire::String, raw: RawValue::Null, writes_type: false, context };
        Self {
            cursor: Cursor::new(message_type, bytes),
            outer: [None; MAX_INLINE],
            pending_type,
            name: "",
            value,
        }
    }

    /// Advances to the next member that JSON would have, and returns its name.
    pub(super) fn next_name(&mut self) -> Result<Option<&'static str>, Error> {
        if !matches!(self.pending_type, PendingType::Done) {
            return Ok(Some(self.next_type_member()));
        }
        loop {
            let start = self.cursor.fields.0;
            let field = self.cursor.fields.next()?;
            if self.cursor.has_nulls
                && let Some(part) = self.cursor.next_null(field.map_or(u32::MAX, |(number, _)| number))
            {
                // The field is read again by the next call.
                self.cursor.fields.0 = start;
                return Ok(Some(self.set_member(part, RawValue::Null)));
            }
            let Some((number, payload)) = field else {
                if self.leave() {
                    continue;
                }
                return Ok(None);
            };
            if number <= self.cursor.last_number {
                return Err(self.report_unordered());
            }
            self.cursor.last_number = number;
            // Unknown fields are skipped.
            let Some(part) = self.cursor.take_part(number) else { continue };
            if let Some(raw) = self.convert_field(part, payload, start)? {
                return Ok(Some(self.set_member(part, raw)));
            }
        }
    }

    /// The value of the current member.
    #[inline]
    pub(super) fn value(&self) -> &Value<'de, 'c> {
        &self.value
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    fn set_member(&mut self, part: &'static Part, raw: RawValue<'de>) -> &'static str {
        (self.value.wire, self.value.raw) = (part.wire, raw);
        self.name = part.name;
        part.name
    }

    /// Records that a field is repeated or out of order, and returns the error.
    #[cold]
    fn report_unordered(&self) -> Error {
        self.value.context.unordered.set(true);
        Error::new("fields are not ordered by number")
    }

    /// Returns the value of a field that starts at `start`. `None` if JSON omits the field, or if the field
    /// is an inline message: then the cursor has entered this message.
    #[inline]
    fn convert_field(
        &mut self,
        part: &'static Part,
        payload: Payload<'de>,
        start: &'de [u8],
    ) -> Result<Option<RawValue<'de>>, Error> {
        match part.wire {
            Wire::List(_) | Wire::Map(_) => {
                let run = self.cursor.read_run(self.cursor.last_number, start)?;
                run.map(Some).ok_or_else(|| self.report_unordered())
            }
            Wire::Message(message_type) if part.name.is_empty() => {
                let Payload::Data(bytes) = payload else { return Err(wrong_wire_type()) };
                let free = self.outer.iter_mut().find(|outer| outer.is_none());
                // A test checks that the table does not exceed this depth.
                let free = free.ok_or_else(|| Error::new("inline messages are nested too deeply"))?;
                *free = Some(std::mem::replace(&mut self.cursor, Cursor::new(message_type.get(), bytes)));
                Ok(None)
            }
            wire => {
                let is_omitted = !part.always && !part.pointer && special::is_empty(wire, payload)?;
                if is_omitted { Ok(None) } else { RawValue::of(payload).map(Some) }
            }
        }
    }

    /// Continues with the message around this one; `false` if there is none.
    fn leave(&mut self) -> bool {
        let outer = self.outer.iter_mut().rev().find_map(Option::take);
        outer.map(|outer| self.cursor = outer).is_some()
    }

    /// Advances to the next type member, and returns its name.
    fn next_type_member(&mut self) -> &'static str {
        let (name, text);
        (self.pending_type, name, text) = match self.pending_type {
            PendingType::Both(message_type) => {
                (PendingType::Kind(message_type), "apiVersion", message_type.api_version)
            }
            PendingType::Kind(message_type) => (PendingType::Done, "kind", message_type.kind()),
            PendingType::Done => (PendingType::Done, "", ""),
        };
        (self.value.wire, self.value.raw) = (Wire::String, RawValue::Data(text.as_bytes()));
        self.name = name;
        name
    }
}
