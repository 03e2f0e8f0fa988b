//! Messages and maps, which are both objects in JSON: names and values.

use super::collections::Entries;
use super::context::TrackPath;
use super::error::{Error, Step};
use super::message::Members;
use super::value::Value;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;
use std::borrow::Cow;

/// A value that is an object in JSON.
pub(super) enum Map<'de, 'c> {
    Members(Members<'de, 'c>),
    Entries(Entries<'de, 'c>),
}

impl<'de, 'c> Map<'de, 'c> {
    fn next_name(&mut self) -> Result<Option<Cow<'de, str>>, Error> {
        match self {
            Self::Members(members) => members.next_name().map(|name| name.map(Cow::Borrowed)),
            Self::Entries(entries) => entries.next_name(),
        }
    }

    #[inline]
    fn value(&self) -> &Value<'de, 'c> {
        match self {
            Self::Members(members) => members.value(),
            Self::Entries(entries) => entries.value(),
        }
    }

    /// Adds the name of the current member to an error's path.
    #[cold]
    fn locate(&self, error: Error) -> Error {
        error.inside(Step::Member(match self {
            Self::Members(members) => members.name().into(),
            Self::Entries(entries) => entries.name().into(),
        }))
    }
}

impl<'de> MapAccess<'de> for Map<'de, '_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        match self.next_name()? {
            Some(name) => seed.deserialize(Name(name)).map(Some),
            None => Ok(None),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let value = self.value();
        if value.context.track_path == TrackPath::No {
            return seed.deserialize(value);
        }
        seed.deserialize(value).map_err(|error| self.locate(error))
    }

    fn size_hint(&self) -> Option<usize> {
        match self {
            Self::Members(_) => None,
            Self::Entries(entries) => Some(entries.remaining()),
        }
    }
}

/// The name of a member or the key of an entry, as a deserializer.
struct Name<'de>(Cow<'de, str>);

impl<'de> Deserializer<'de> for Name<'de> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Cow::Borrowed(name) => visitor.visit_borrowed_str(name),
            Cow::Owned(name) => visitor.visit_string(name),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(serde::de::value::CowStrDeserializer::new(self.0))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq
        tuple tuple_struct map struct identifier ignored_any
    }
}
