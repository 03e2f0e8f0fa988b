//! Lookup of the values at a field path in a message, without decoding the rest.
//!
//! The values equal those that the path finds in the object's JSON, because they are decoded like those of
//! a typed object. Exceptions concern objects that no server writes: of a field that occurs twice, with other
//! fields in between, the first value may be found and not the last; and a malformed field after those on the
//! path may be overlooked.

use super::context::TrackPath;
use super::order;
use super::value::Value;
use crate::wire::protobuf::fields::{Fields, Payload};
use informer_schema::{MessageId, Part, Wire};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// Calls `visit` with the values at a path, in their order. There are none if a malformed field is found.
pub(in crate::wire) fn values_at(
    path: &[Box<str>],
    message_type: MessageId,
    bytes: &[u8],
    visit: &mut dyn FnMut(&str),
) {
    if let Ok(text) = text_at(path, message_type, bytes) {
        text.into_iter().for_each(visit);
        return;
    }
    let (unordered, unused) = (Cell::new(false), Cell::new(false));
    let values = seek(path, &Value::whole(message_type, bytes, TrackPath::No, &unordered));
    if !unordered.get() {
        values.iter().flatten().for_each(|value| visit(value));
    } else if let Ok(bytes) = order::ordered(message_type, bytes) {
        let values = seek(path, &Value::whole(message_type, &bytes, TrackPath::No, &unused));
        values.iter().flatten().for_each(|value| visit(value));
    }
}

/// The error of the functions for the simple case, when the path or the object needs the general decoder.
struct NotSimple;

/// Finds the string at a path in the simple case: messages on the way and a string at the end, each present
/// at most once.
///
/// Most indexes look up such paths, on every change. The insides of fields that are not on the path, and
/// fields with higher numbers, are not examined, so an object that is malformed there still has a value
/// here.
fn text_at<'a>(
    path: &[Box<str>],
    mut message_type: MessageId,
    mut bytes: &'a [u8],
) -> Result<Option<&'a str>, NotSimple> {
    let (last, parents) = path.split_last().ok_or(NotSimple)?;
    for name in parents {
        let part = part_named(message_type, name)?;
        let Wire::Message(inner) = part.wire else { return Err(NotSimple) };
        match only_data(bytes, part)? {
            Some(data) => (message_type, bytes) = (inner, data),
            None => return Ok(None),
        }
    }
    let part = part_named(message_type, last)?;
    if part.wire != Wire::String {
        return Err(NotSimple);
    }
    let text = only_data(bytes, part)?.map(std::str::from_utf8).transpose().map_err(|_| NotSimple)?;
    // JSON omits an empty string, unless the part is a pointer or always present.
    Ok(text.filter(|text| part.pointer || part.always || !text.is_empty()))
}

/// Finds the part with this name in a message without inline parts.
fn part_named(message_type: MessageId, name: &str) -> Result<&'static Part, NotSimple> {
    let parts = message_type.get().parts;
    let all_named = parts.iter().all(|part| !part.name.is_empty());
    parts.iter().find(|part| all_named && part.name == name).ok_or(NotSimple)
}

/// Returns the data of a part; `None` if it is absent, an error if it is repeated.
///
/// Servers write fields in the order of their numbers, so the fields after the part are not examined. This is
/// faster: the object was often parsed on another processor, and every access may be a cache miss.
fn only_data<'a>(message: &'a [u8], part: &Part) -> Result<Option<&'a [u8]>, NotSimple> {
    let (mut fields, mut found, mut last_number) = (Fields(message), None, 0);
    while let Some((number, payload)) = fields.next().map_err(|_| NotSimple)? {
        if found.is_some() && number > u32::from(part.number) {
            break;
        }
        if number < last_number || matches!(payload, Payload::Fixed32 | Payload::Group) {
            return Err(NotSimple);
        }
        last_number = number;
        if number == u32::from(part.number) {
            let Payload::Data(data) = payload else { return Err(NotSimple) };
            if found.replace(data).is_some() {
                return Err(NotSimple);
            }
        }
    }
    // JSON may have a value for a part that is absent in protobuf.
    if found.is_none() && part.always { Err(NotSimple) } else { Ok(found) }
}

/// Returns the values at a path by the general decoder; `None` if the object does not decode.
fn seek<'de>(path: &[Box<str>], value: &Value<'de, '_>) -> Option<Vec<Cow<'de, str>>> {
    let mut found = Vec::new();
    let seek = Seek { path, in_list: false, found: &mut found };
    seek.deserialize(value).ok().map(|()| found)
}

/// A visitor that follows the rest of the path and collects the values at its end.
struct Seek<'p, 'f, 'de> {
    path: &'p [Box<str>],
    /// Whether the value is an element of a list: lists directly inside lists are not entered.
    in_list: bool,
    found: &'f mut Vec<Cow<'de, str>>,
}

impl<'de> Seek<'_, '_, 'de> {
    fn take(self, value: impl Into<Cow<'de, str>>) {
        if self.path.is_empty() {
            self.found.push(value.into());
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seek<'_, '_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seek<'_, '_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.take(if value { "true" } else { "false" });
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        self.take(value.to_string());
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        self.take(value.to_string());
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        // The format of JSON.
        self.take(serde_json::Value::from(value).to_string());
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        self.take(value.to_owned());
        Ok(())
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<(), E> {
        self.take(value);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_none<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let Self { path, in_list, found } = self;
        if in_list {
            while elements.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        }
        while elements.next_element_seed(Seek { path, in_list: true, found: &mut *found })?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let Self { path, found, .. } = self;
        while let Some(Name(name)) = members.next_key()? {
            match path.split_first() {
                Some((first, rest)) if **first == *name => {
                    members.next_value_seed(Seek { path: rest, in_list: false, found: &mut *found })?;
                }
                _ => drop(members.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

/// The name of a member, borrowed if possible.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Name<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name")
            }

            fn visit_str<E>(self, name: &str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Owned(name.to_owned())))
            }

            fn visit_borrowed_str<E>(self, name: &'de str) -> Result<Name<'de>, E> {
                Ok(Name(Cow::Borrowed(name)))
            }
        }
        deserializer.deserialize_str(Text)
    }
}
