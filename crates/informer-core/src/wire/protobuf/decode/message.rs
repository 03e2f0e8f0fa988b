//! A message as a map: its fields by their names in JSON.
//!
//! The table's parts and the fields on the wire are both in the order of their numbers, so one walk over both finds what is there, what
//! is unknown and what is missing.

use super::context::{Context, Given, wrong_layout};
use super::error::Error;
use super::special;
use super::value::Value;
use crate::wire::protobuf::fields::{Fields, Payload};
use informer_schema::{Message, Part, Wire};

/// The members of a message.
pub(super) struct Members<'de, 'c> {
    walk: Walk<'de>,
    /// The messages around this one, if its fields are those of the object around it.
    outer: [Option<Walk<'de>>; MAX_INLINE],
    /// What of apiVersion and kind is still to be said.
    types: Types,
    /// What was told last.
    name: &'static str,
    value: Value<'de, 'c>,
}

/// How many messages may lie in each other whose fields are those of the object around them: as many as in a rule of an admission policy.
pub(in crate::wire::protobuf) const MAX_INLINE: usize = 2;

#[derive(Debug, Clone, Copy)]
enum Types {
    Both(&'static Message),
    Kind(&'static Message),
    Done,
}

/// Where the walk over one message is.
#[derive(Clone, Copy)]
struct Walk<'de> {
    /// Those that were not passed yet.
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

    /// The part with a number; those before it are passed.
    #[inline]
    fn find(&mut self, number: u32) -> Option<&'static Part> {
        // Numbers go up, mostly one by one, so it is there or before.
        let guess = number.checked_sub(u32::from(self.parts.first()?.number))? as usize;
        let is_it = |part: &Part| u32::from(part.number) == number;
        let place = if self.parts.get(guess).is_some_and(is_it) {
            guess
        } else {
            let until = self.parts.len().min(guess);
            self.parts[..until].binary_search_by_key(&number, |part| u32::from(part.number)).ok()?
        };
        let part = &self.parts[place];
        self.parts = &self.parts[place + 1..];
        Some(part)
    }

    /// The next part before a number that JSON has as `null`.
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

    /// All fields with a number, the first of which begins at `start` and was read; none if its tag is longer than it has to be.
    #[inline]
    fn read_run(&mut self, number: u32, start: &'de [u8]) -> Result<Option<Given<'de>>, Error> {
        // The same number and layout begin with the same bytes, one or two.
        let short = number < 16;
        let tag = &start[..if short { 1 } else { 2 }];
        if (tag[0] < 0x80) != short || (!short && tag[1] >= 0x80) {
            return Ok(None);
        }
        let mut count = 1;
        while self.fields.0.starts_with(tag) {
            self.fields.next()?;
            count += 1;
        }
        let run = &start[..start.len() - self.fields.0.len()];
        Ok(Some(Given::Run(run, number, count)))
    }
}

/// Whether JSON says `null` for what is not on the wire. Everything else is always on the wire, so what is not there is not in JSON
/// either: it was left out, or the server is older than the field.
fn can_be_null(part: &Part) -> bool {
    part.pointer || matches!(part.wire, Wire::List(_) | Wire::Map(_) | Wire::Bytes)
}

impl<'de, 'c> Members<'de, 'c> {
    #[inline]
    pub(super) fn new(of: &'static Message, bytes: &'de [u8], told: bool, context: Context<'c>) -> Self {
        let types = if told && of.is_kind { Types::Both(of) } else { Types::Done };
        let value = Value { wire: Wire::String, given: Given::Null, writes_type: false, context };
        Self { walk: Walk::new(of, bytes), outer: [None; MAX_INLINE], types, name: "", value }
    }

    /// The name of the next member that JSON would have.
    pub(super) fn next_name(&mut self) -> Result<Option<&'static str>, Error> {
        if !matches!(self.types, Types::Done) {
            return Ok(Some(self.next_of_types()));
        }
        loop {
            let start = self.walk.fields.0;
            let field = self.walk.fields.next()?;
            if self.walk.has_nulls
                && let Some(part) = self.walk.next_null(field.map_or(u32::MAX, |(number, _)| number))
            {
                // The field is for another time.
                self.walk.fields.0 = start;
                return Ok(Some(self.set_member(part, Given::Null)));
            }
            let Some((number, payload)) = field else {
                if self.leave() {
                    continue;
                }
                return Ok(None);
            };
            if number <= self.walk.last {
                return Err(self.disordered());
            }
            self.walk.last = number;
            // What the table does not know is passed over.
            let Some(part) = self.walk.find(number) else { continue };
            if let Some(given) = self.take(part, payload, start)? {
                return Ok(Some(self.set_member(part, given)));
            }
        }
    }

    /// The value of the member whose name was told last.
    #[inline]
    pub(super) fn value(&self) -> &Value<'de, 'c> {
        &self.value
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    #[inline]
    fn set_member(&mut self, part: &'static Part, given: Given<'de>) -> &'static str {
        (self.value.wire, self.value.given) = (part.wire, given);
        self.name = part.name;
        part.name
    }

    /// A field that comes again, or behind its place.
    #[cold]
    fn disordered(&self) -> Error {
        self.value.context.disordered.set(true);
        Error::new("fields are not in the order of their numbers")
    }

    /// Takes a field, which begins at `start`; none if JSON leaves it out, or has its fields instead.
    #[inline]
    fn take(
        &mut self,
        part: &'static Part,
        payload: Payload<'de>,
        start: &'de [u8],
    ) -> Result<Option<Given<'de>>, Error> {
        match part.wire {
            Wire::List(_) | Wire::Map(_) => {
                let run = self.walk.read_run(self.walk.last, start)?;
                run.map(Some).ok_or_else(|| self.disordered())
            }
            Wire::Message(of) if part.name.is_empty() => {
                let Payload::Data(bytes) = payload else { return Err(wrong_layout()) };
                let place = self.outer.iter_mut().find(|place| place.is_none());
                // A test holds the table to it.
                let place = place.ok_or_else(|| Error::new("messages lie too deep in each other"))?;
                *place = Some(std::mem::replace(&mut self.walk, Walk::new(of.get(), bytes)));
                Ok(None)
            }
            wire => {
                let left_out = !part.always && !part.pointer && special::is_empty(wire, payload)?;
                if left_out { Ok(None) } else { Given::of(payload).map(Some) }
            }
        }
    }

    /// Goes on in the message around this one; `false` if there is none.
    fn leave(&mut self) -> bool {
        let outer = self.outer.iter_mut().rev().find_map(Option::take);
        outer.map(|outer| self.walk = outer).is_some()
    }

    fn next_of_types(&mut self) -> &'static str {
        let (name, said);
        (self.types, name, said) = match self.types {
            Types::Both(of) => (Types::Kind(of), "apiVersion", of.api_version),
            Types::Kind(of) => (Types::Done, "kind", of.kind()),
            Types::Done => (Types::Done, "", ""),
        };
        (self.value.wire, self.value.given) = (Wire::String, Given::Data(said.as_bytes()));
        self.name = name;
        name
    }
}
