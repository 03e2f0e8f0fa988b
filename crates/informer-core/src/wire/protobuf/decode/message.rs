//! A message as a map: its fields by their names in JSON.
//!
//! The parts of the table and the fields on the wire are both in the order of their numbers, so one pass
//! over both finds the present, unknown and missing ones.

use super::context::{Context, RawValue, wrong_wire_type};
use super::error::Error;
use super::special;
use super::value::Value;
use crate::wire::protobuf::fields::{Fields, Payload};
use informer_schema::{Message, Part, Wire};

/// The members of a message.
pub(super) struct Members<'de, 'c> {
    walk: Walk<'de>,
    /// The messages around this one, if it is inline.
    outer: [Option<Walk<'de>>; MAX_INLINE],
    /// The type members that were not produced yet.
    pending_type: PendingType,
    /// The name of the current member.
    name: &'static str,
    value: Value<'de, 'c>,
}

/// Maximum nesting of inline messages, whose fields are members of the object around them. An admission
/// policy's rule reaches it.
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
struct Walk<'de> {
    /// The parts after the last field.
    parts: &'static [Part],
    has_nulls: bool,
    fields: Fields<'de>,
    /// The number of the last field.
    last: u32,
}

impl<'de> Walk<'de> {
    #[inline]
    fn new(of: &'static Message, bytes: &'de [u8]) -> Self {
        Self { parts: of.parts, has_nulls: of.has_nulls, fields: Fields(bytes), last: 0 }
    }

    /// Finds the part with a number and advances past it.
    #[inline]
    fn find(&mut self, number: u32) -> Option<&'static Part> {
        // Numbers are ascending and mostly consecutive, so the part is at the guessed index or before it.
        let guess = number.checked_sub(u32::from(self.parts.first()?.number))? as usize;
        let is_it = |part: &Part| u32::from(part.number) == number;
        let index = if self.parts.get(guess).is_some_and(is_it) {
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

    /// Reads all consecutive fields with a number, of which the first starts at `start` and is already
    /// read. `None` if its tag is not minimal.
    #[inline]
    fn read_run(&mut self, number: u32, start: &'de [u8]) -> Result<Option<RawValue<'de>>, Error> {
        // Equal number and wire type have equal tags, of one or two bytes.
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

/// Whether JSON has `null` for a part that is absent on the wire. All other parts are always on the wire,
/// so an absent one is absent in JSON as well: it was omitted, or the server does not know the field.
fn can_be_null(part: &Part) -> bool {
    part.pointer || matches!(part.wire, Wire::List(_) | Wire::Map(_) | Wire::Bytes)
}

impl<'de, 'c> Members<'de, 'c> {
    #[inline]
    pub(super) fn new(
        of: &'static Message,
        bytes: &'de [u8],
        writes_type: bool,
        context: Context<'c>,
    ) -> Self {
        let pending_type = if writes_type && of.is_kind { PendingType::Both(of) } else { PendingType::Done };
        let value = Value { wire: Wire::String, raw: RawValue::Null, writes_type: false, context };
        Self { walk: Walk::new(of, bytes), outer: [None; MAX_INLINE], pending_type, name: "", value }
    }

    /// Returns the name of the next member that JSON would have.
    pub(super) fn next_name(&mut self) -> Result<Option<&'static str>, Error> {
        if !matches!(self.pending_type, PendingType::Done) {
            return Ok(Some(self.next_type_member()));
        }
        loop {
            let start = self.walk.fields.0;
            let field = self.walk.fields.next()?;
            if self.walk.has_nulls
                && let Some(part) = self.walk.next_null(field.map_or(u32::MAX, |(number, _)| number))
            {
                // The field is read again by the next call.
                self.walk.fields.0 = start;
                return Ok(Some(self.set_member(part, RawValue::Null)));
            }
            let Some((number, payload)) = field else {
                if self.leave() {
                    continue;
                }
                return Ok(None);
            };
            if number <= self.walk.last {
                return Err(self.unordered());
            }
            self.walk.last = number;
            // Unknown fields are skipped.
            let Some(part) = self.walk.find(number) else { continue };
            if let Some(raw) = self.take(part, payload, start)? {
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

    /// Returns the error for a field that is repeated or out of order.
    #[cold]
    fn unordered(&self) -> Error {
        self.value.context.unordered.set(true);
        Error::new("fields are not ordered by number")
    }

    /// Converts a field that starts at `start`. `None` if JSON omits it, or if it is an inline message,
    /// which is then entered.
    #[inline]
    fn take(
        &mut self,
        part: &'static Part,
        payload: Payload<'de>,
        start: &'de [u8],
    ) -> Result<Option<RawValue<'de>>, Error> {
        match part.wire {
            Wire::List(_) | Wire::Map(_) => {
                let run = self.walk.read_run(self.walk.last, start)?;
                run.map(Some).ok_or_else(|| self.unordered())
            }
            Wire::Message(of) if part.name.is_empty() => {
                let Payload::Data(bytes) = payload else { return Err(wrong_wire_type()) };
                let slot = self.outer.iter_mut().find(|slot| slot.is_none());
                // A test checks that the table does not exceed this depth.
                let slot = slot.ok_or_else(|| Error::new("inline messages are nested too deeply"))?;
                *slot = Some(std::mem::replace(&mut self.walk, Walk::new(of.get(), bytes)));
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
        outer.map(|outer| self.walk = outer).is_some()
    }

    fn next_type_member(&mut self) -> &'static str {
        let (name, text);
        (self.pending_type, name, text) = match self.pending_type {
            PendingType::Both(of) => (PendingType::Kind(of), "apiVersion", of.api_version),
            PendingType::Kind(of) => (PendingType::Done, "kind", of.kind()),
            PendingType::Done => (PendingType::Done, "", ""),
        };
        (self.value.wire, self.value.raw) = (Wire::String, RawValue::Data(text.as_bytes()));
        self.name = name;
        name
    }
}
