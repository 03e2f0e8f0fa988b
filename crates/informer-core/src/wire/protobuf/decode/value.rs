//! One value as a serde `Deserializer`.
//!
//! serde generates code per target type, and these types are many and large. Everything that does not
//! depend on the target type is therefore decided once, in [`Value::shape`], and each `deserialize_…`
//! method handles only the shapes it accepts.

use super::collections::{Elements, Entries};
use super::context::{Context, RawValue, TrackPath, wrong_wire_type};
use super::error::Error;
use super::map::Map;
use super::message::Members;
use super::{special, time};
use crate::wire::protobuf::fields::low_32_bits;
use informer_schema::{MessageId, Wire};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, IntoDeserializer as _, Unexpected, Visitor};
use serde_json::de::{Deserializer as Json, SliceRead};
use std::borrow::Cow;
use std::cell::Cell;

/// A value: its type on the wire, and its encoded form.
#[derive(Clone, Copy)]
pub(super) struct Value<'de, 'c> {
    pub(super) wire: Wire,
    pub(super) raw: RawValue<'de>,
    /// Whether a message that is a kind has the members apiVersion and kind here. It does at the top level
    /// and as an element of a list, but not as the value of a field.
    pub(super) writes_type: bool,
    pub(super) context: Context<'c>,
}

/// The form of a value in JSON. It is large, so the common forms are handled before it is built.
enum Shape<'de, 'c> {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(Cow<'de, str>),
    Time(time::Text),
    Map(Map<'de, 'c>),
    List(Elements<'de, 'c>),
    /// JSON inside a message.
    Json(&'de [u8]),
}

impl<'de, 'c> Value<'de, 'c> {
    /// Creates the value of a top-level message.
    pub(super) fn whole(
        message_type: MessageId,
        bytes: &'de [u8],
        track_path: TrackPath,
        unordered: &'c Cell<bool>,
    ) -> Self {
        let context = Context::new(track_path, unordered);
        Self { wire: Wire::Message(message_type), raw: RawValue::Data(bytes), writes_type: true, context }
    }

    /// Whether the value is `null` in JSON.
    fn is_null(&self) -> Result<bool, Error> {
        match (self.wire, self.raw) {
            (_, RawValue::Null) => Ok(true),
            (Wire::Time | Wire::MicroTime, RawValue::Data(bytes)) => special::is_null_time(self.wire, bytes),
            (Wire::Raw | Wire::Fields, RawValue::Data(bytes)) => {
                special::raw(bytes).map(|text| text == b"null")
            }
            (Wire::OrList(_) | Wire::OrStrings(_), RawValue::Data(bytes)) => special::is_null_choice(bytes),
            _ => Ok(false),
        }
    }

    #[inline]
    fn members(&self, message_type: MessageId, bytes: &'de [u8]) -> Result<Map<'de, 'c>, Error> {
        Ok(Map::Members(Members::new(message_type.get(), bytes, self.writes_type, self.context.deeper()?)))
    }

    fn elements(
        &self,
        items: Wire,
        bytes: &'de [u8],
        number: u32,
        count: Option<usize>,
    ) -> Result<Elements<'de, 'c>, Error> {
        Ok(Elements::new(items, bytes, number, count, self.context.deeper()?))
    }

    /// Returns the shape of the value.
    fn shape(&self) -> Result<Shape<'de, 'c>, Error> {
        Ok(match (self.wire, self.raw) {
            (Wire::String, RawValue::Data(bytes)) => Shape::Text(special::text(bytes)),
            (Wire::Message(message_type), RawValue::Data(bytes)) => {
                Shape::Map(self.members(message_type, bytes)?)
            }
            (Wire::List(items), RawValue::Run(bytes, number, count)) => {
                Shape::List(self.elements(*items, bytes, number, Some(count))?)
            }
            (Wire::Map(values), RawValue::Run(bytes, _, count)) => {
                Shape::Map(Map::Entries(Entries::new(*values, bytes, count, self.context.deeper()?)))
            }
            (Wire::Boolean, RawValue::Varint(value)) => Shape::Boolean(value != 0),
            (Wire::Int32, RawValue::Varint(value)) => Shape::Integer(i64::from(low_32_bits(value))),
            (Wire::Int64, RawValue::Varint(value)) => Shape::Integer(value.cast_signed()),
            (_, RawValue::Null) => Shape::Null,
            (_, RawValue::Data(bytes)) => self.special_shape(bytes)?,
            (Wire::Double, RawValue::Fixed64(bits)) => Shape::Double(f64::from_bits(bits)),
            _ => return Err(wrong_wire_type()),
        })
    }

    /// Returns the shape of a value that is a message in protobuf and something else in JSON.
    fn special_shape(&self, bytes: &'de [u8]) -> Result<Shape<'de, 'c>, Error> {
        Ok(match self.wire {
            Wire::Quantity => Shape::Text(special::text(special::quantity(bytes)?)),
            Wire::Time | Wire::MicroTime => match time::read(self.wire, bytes)? {
                Some(read) => Shape::Time(time::Text::new(read, self.wire == Wire::MicroTime)?),
                None => Shape::Null,
            },
            Wire::IntOrString => match special::int_or_string(bytes)? {
                Ok(number) => Shape::Integer(i64::from(number)),
                Err(text) => Shape::Text(special::text(text)),
            },
            Wire::Bytes => Shape::Text(special::base64(bytes).into()),
            Wire::Raw | Wire::Fields => Shape::Json(special::raw(bytes)?),
            Wire::Strings => Shape::List(self.elements(Wire::String, bytes, 1, None)?),
            Wire::OrBoolean(message_type) => match special::last_data(bytes, 2)? {
                Some(message) => Shape::Map(self.members(message_type, message)?),
                None => Shape::Boolean(special::is_true(bytes)?),
            },
            Wire::OrList(message_type) | Wire::OrStrings(message_type) => {
                let items = if matches!(self.wire, Wire::OrList(_)) {
                    Wire::Message(message_type)
                } else {
                    Wire::String
                };
                match (special::last_data(bytes, 2)?, special::last_data(bytes, 1)?) {
                    (Some(_), _) => Shape::List(self.elements(items, bytes, 2, None)?),
                    (None, Some(message)) => Shape::Map(self.members(message_type, message)?),
                    (None, None) => Shape::Null,
                }
            }
            _ => return Err(wrong_wire_type()),
        })
    }
}

impl Shape<'_, '_> {
    /// Returns the error for a shape that the visitor does not accept.
    #[cold]
    fn mismatch<'v, V: Visitor<'v>>(&self, visitor: &V) -> Error {
        let found = match self {
            Self::Null => Unexpected::Unit,
            Self::Boolean(value) => Unexpected::Bool(*value),
            Self::Integer(value) => Unexpected::Signed(*value),
            Self::Double(value) => Unexpected::Float(*value),
            Self::Text(text) => Unexpected::Str(text),
            Self::Time(text) => Unexpected::Str(text.as_str()),
            Self::Map(_) => Unexpected::Map,
            Self::List(_) => Unexpected::Seq,
            Self::Json(_) => Unexpected::Other("JSON"),
        };
        Error::invalid_type(found, visitor)
    }
}

/// Deserializes JSON inside a message.
fn json<'de, T>(
    text: &'de [u8],
    read: impl FnOnce(&mut Json<SliceRead<'de>>) -> serde_json::Result<T>,
) -> Result<T, Error> {
    let mut json = Json::from_slice(text);
    let value = read(&mut json)?;
    json.end()?;
    Ok(value)
}

/// Passes an integer to the visitor, as `serde_json` does: unsigned unless it is negative.
#[inline]
fn integer<'de, V: Visitor<'de>>(value: i64, visitor: V) -> Result<V::Value, Error> {
    match u64::try_from(value) {
        Ok(value) => visitor.visit_u64(value),
        Err(_) => visitor.visit_i64(value),
    }
}

#[inline]
fn text<'de, V: Visitor<'de>>(text: Cow<'de, str>, visitor: V) -> Result<V::Value, Error> {
    match text {
        Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
        Cow::Owned(text) => visitor.visit_string(text),
    }
}

/// Methods that deserialize numbers.
macro_rules! numbers {
    ($($method:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match (self.wire, self.raw) {
                (Wire::Int32, RawValue::Varint(value)) => {
                    return integer(i64::from(low_32_bits(value)), visitor);
                }
                (Wire::Int64, RawValue::Varint(value)) => return integer(value.cast_signed(), visitor),
                _ => {}
            }
            match self.shape()? {
                Shape::Integer(value) => integer(value, visitor),
                Shape::Double(value) => special::double(value, visitor),
                Shape::Json(text) => json(text, |json| json.$method(visitor)),
                other => Err(other.mismatch(&visitor)),
            }
        })+
    };
}

/// Methods that deserialize strings.
macro_rules! texts {
    ($($method:ident)+) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            if let (Wire::String, RawValue::Data(bytes)) = (self.wire, self.raw) {
                return text(special::text(bytes), visitor);
            }
            match self.shape()? {
                Shape::Text(found) => text(found, visitor),
                Shape::Time(found) => visitor.visit_str(found.as_str()),
                Shape::Json(text) => json(text, |json| json.$method(visitor)),
                other => Err(other.mismatch(&visitor)),
            }
        })+
    };
}

impl<'de> Deserializer<'de> for &Value<'de, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.shape()? {
            Shape::Null => visitor.visit_unit(),
            Shape::Boolean(value) => visitor.visit_bool(value),
            Shape::Integer(value) => integer(value, visitor),
            Shape::Double(value) => special::double(value, visitor),
            Shape::Text(found) => text(found, visitor),
            Shape::Time(found) => visitor.visit_str(found.as_str()),
            Shape::Map(mut map) => visitor.visit_map(&mut map),
            Shape::List(mut list) => visitor.visit_seq(&mut list),
            Shape::Json(text) => json(text, |json| json.deserialize_any(visitor)),
        }
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.is_null()? { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let (Wire::Boolean, RawValue::Varint(value)) = (self.wire, self.raw) {
            return visitor.visit_bool(value != 0);
        }
        match self.shape()? {
            Shape::Boolean(value) => visitor.visit_bool(value),
            Shape::Json(text) => json(text, |json| json.deserialize_bool(visitor)),
            other => Err(other.mismatch(&visitor)),
        }
    }

    numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64
    }

    texts! { deserialize_char deserialize_str deserialize_string deserialize_identifier }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_any(visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.shape()? {
            Shape::Null => visitor.visit_unit(),
            Shape::Json(text) => json(text, |json| json.deserialize_unit(visitor)),
            other => Err(other.mismatch(&visitor)),
        }
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let (Wire::List(items), RawValue::Run(bytes, number, count)) = (self.wire, self.raw) {
            let mut list = Elements::new(*items, bytes, number, Some(count), self.context.deeper()?);
            return visitor.visit_seq(&mut list);
        }
        match self.shape()? {
            Shape::List(mut list) => visitor.visit_seq(&mut list),
            Shape::Json(text) => json(text, |json| json.deserialize_seq(visitor)),
            other => Err(other.mismatch(&visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _len: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if let (Wire::Map(values), RawValue::Run(bytes, _, count)) = (self.wire, self.raw) {
            let mut map = Map::Entries(Entries::new(*values, bytes, count, self.context.deeper()?));
            return visitor.visit_map(&mut map);
        }
        match self.shape()? {
            Shape::Map(mut map) => visitor.visit_map(&mut map),
            Shape::Json(text) => json(text, |json| json.deserialize_map(visitor)),
            other => Err(other.mismatch(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // The common case, built here: moving it out of a `Shape` would cost more than decoding it.
        if let (Wire::Message(message_type), RawValue::Data(bytes)) = (self.wire, self.raw) {
            let context = self.context.deeper()?;
            let mut map = Map::Members(Members::new(message_type.get(), bytes, self.writes_type, context));
            return visitor.visit_map(&mut map);
        }
        match self.shape()? {
            Shape::Map(mut map) => visitor.visit_map(&mut map),
            Shape::List(mut list) => visitor.visit_seq(&mut list),
            Shape::Json(text) => json(text, |json| json.deserialize_struct(name, fields, visitor)),
            other => Err(other.mismatch(&visitor)),
        }
    }

    /// As in JSON, a string is a variant without contents and a map of one entry a variant with contents.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        match self.shape()? {
            Shape::Text(text) => visitor.visit_enum(text.into_deserializer()),
            Shape::Map(map) => MapAccessDeserializer::new(map).deserialize_enum(name, variants, visitor),
            Shape::Json(text) => json(text, |json| json.deserialize_enum(name, variants, visitor)),
            other => Err(other.mismatch(&visitor)),
        }
    }

    /// An ignored value is not decoded.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}
