//! One value as any type wants to see it.
//!
//! What a type asks for decides which code is made for it, and types are many and large. So what does not depend on the type is decided in
//! [`Value::shape`], once, and each way of asking is handed only what it can take.

use super::collections::{Elements, Entries};
use super::context::{Context, Given, wrong_layout};
use super::error::Error;
use super::map::Map;
use super::message::Members;
use super::{special, time};
use crate::wire::protobuf::fields::low;
use informer_schema::{MessageId, Wire};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error as _, IntoDeserializer as _, Unexpected, Visitor};
use serde_json::de::{Deserializer as Json, SliceRead};
use std::borrow::Cow;
use std::cell::Cell;

/// A value: how it is written, and its bytes.
#[derive(Clone, Copy)]
pub(super) struct Value<'de, 'c> {
    pub(super) wire: Wire,
    pub(super) given: Given<'de>,
    /// Whether a kind says apiVersion and kind: the object itself does, and so do the items of a list.
    pub(super) writes_type: bool,
    pub(super) context: Context<'c>,
}

/// What a value is in JSON. Large, so the usual ones are made where they are used and not here.
enum Shape<'de, 'c> {
    Null,
    Boolean(bool),
    Integer(i64),
    Double(f64),
    Text(Cow<'de, str>),
    Time(time::Text),
    Map(Map<'de, 'c>),
    List(Elements<'de, 'c>),
    /// JSON as it is.
    Json(&'de [u8]),
}

impl<'de, 'c> Value<'de, 'c> {
    /// A message as a whole.
    pub(super) fn whole(of: MessageId, bytes: &'de [u8], places: bool, disordered: &'c Cell<bool>) -> Self {
        let context = Context::new(places, disordered);
        Self { wire: Wire::Message(of), given: Given::Data(bytes), writes_type: true, context }
    }

    /// Whether JSON says `null`.
    fn is_null(&self) -> Result<bool, Error> {
        match (self.wire, self.given) {
            (_, Given::Null) => Ok(true),
            (Wire::Time | Wire::MicroTime, Given::Data(bytes)) => special::is_no_time(self.wire, bytes),
            (Wire::Raw | Wire::Fields, Given::Data(bytes)) => special::raw(bytes).map(|text| text == b"null"),
            (Wire::OrList(_) | Wire::OrStrings(_), Given::Data(bytes)) => special::is_no_choice(bytes),
            _ => Ok(false),
        }
    }

    #[inline]
    fn members(&self, of: MessageId, bytes: &'de [u8]) -> Result<Map<'de, 'c>, Error> {
        Ok(Map::Members(Members::new(of.get(), bytes, self.writes_type, self.context.deeper()?)))
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

    fn shape(&self) -> Result<Shape<'de, 'c>, Error> {
        Ok(match (self.wire, self.given) {
            (Wire::String, Given::Data(bytes)) => Shape::Text(special::text(bytes)),
            (Wire::Message(of), Given::Data(bytes)) => Shape::Map(self.members(of, bytes)?),
            (Wire::List(items), Given::Run(bytes, number, count)) => {
                Shape::List(self.elements(*items, bytes, number, Some(count))?)
            }
            (Wire::Map(values), Given::Run(bytes, _, count)) => {
                Shape::Map(Map::Entries(Entries::new(*values, bytes, count, self.context.deeper()?)))
            }
            (Wire::Boolean, Given::Varint(value)) => Shape::Boolean(value != 0),
            (Wire::Int32, Given::Varint(value)) => Shape::Integer(i64::from(low(value))),
            (Wire::Int64, Given::Varint(value)) => Shape::Integer(value.cast_signed()),
            (_, Given::Null) => Shape::Null,
            (_, Given::Data(bytes)) => self.special_shape(bytes)?,
            (Wire::Double, Given::Fixed64(bits)) => Shape::Double(f64::from_bits(bits)),
            _ => return Err(wrong_layout()),
        })
    }

    /// What is a message of its own in protobuf and something else in JSON.
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
            Wire::OrBoolean(of) => match special::last_data(bytes, 2)? {
                Some(message) => Shape::Map(self.members(of, message)?),
                None => Shape::Boolean(special::is_yes(bytes)?),
            },
            Wire::OrList(of) | Wire::OrStrings(of) => {
                let items =
                    if matches!(self.wire, Wire::OrList(_)) { Wire::Message(of) } else { Wire::String };
                match (special::last_data(bytes, 2)?, special::last_data(bytes, 1)?) {
                    (Some(_), _) => Shape::List(self.elements(items, bytes, 2, None)?),
                    (None, Some(message)) => Shape::Map(self.members(of, message)?),
                    (None, None) => Shape::Null,
                }
            }
            _ => return Err(wrong_layout()),
        })
    }
}

impl Shape<'_, '_> {
    /// What it is instead of what was asked for.
    #[cold]
    fn instead<'v, V: Visitor<'v>>(&self, visitor: &V) -> Error {
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

/// JSON in a message, read as it would be read in JSON.
fn json<'de, T>(
    text: &'de [u8],
    read: impl FnOnce(&mut Json<SliceRead<'de>>) -> serde_json::Result<T>,
) -> Result<T, Error> {
    let mut json = Json::from_slice(text);
    let value = read(&mut json)?;
    json.end()?;
    Ok(value)
}

/// Numbers that are not negative have no sign in JSON.
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

/// Ways of asking for numbers.
macro_rules! numbers {
    ($($method:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match (self.wire, self.given) {
                (Wire::Int32, Given::Varint(value)) => return integer(i64::from(low(value)), visitor),
                (Wire::Int64, Given::Varint(value)) => return integer(value.cast_signed(), visitor),
                _ => {}
            }
            match self.shape()? {
                Shape::Integer(value) => integer(value, visitor),
                Shape::Double(value) => special::double(value, visitor),
                Shape::Json(text) => json(text, |json| json.$method(visitor)),
                other => Err(other.instead(&visitor)),
            }
        })+
    };
}

/// Ways of asking for text.
macro_rules! texts {
    ($($method:ident)+) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            if let (Wire::String, Given::Data(bytes)) = (self.wire, self.given) {
                return text(special::text(bytes), visitor);
            }
            match self.shape()? {
                Shape::Text(found) => text(found, visitor),
                Shape::Time(found) => visitor.visit_str(found.as_str()),
                Shape::Json(text) => json(text, |json| json.$method(visitor)),
                other => Err(other.instead(&visitor)),
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
        if let (Wire::Boolean, Given::Varint(value)) = (self.wire, self.given) {
            return visitor.visit_bool(value != 0);
        }
        match self.shape()? {
            Shape::Boolean(value) => visitor.visit_bool(value),
            Shape::Json(text) => json(text, |json| json.deserialize_bool(visitor)),
            other => Err(other.instead(&visitor)),
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
            other => Err(other.instead(&visitor)),
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
        if let (Wire::List(items), Given::Run(bytes, number, count)) = (self.wire, self.given) {
            let mut list = Elements::new(*items, bytes, number, Some(count), self.context.deeper()?);
            return visitor.visit_seq(&mut list);
        }
        match self.shape()? {
            Shape::List(mut list) => visitor.visit_seq(&mut list),
            Shape::Json(text) => json(text, |json| json.deserialize_seq(visitor)),
            other => Err(other.instead(&visitor)),
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
        if let (Wire::Map(values), Given::Run(bytes, _, count)) = (self.wire, self.given) {
            let mut map = Map::Entries(Entries::new(*values, bytes, count, self.context.deeper()?));
            return visitor.visit_map(&mut map);
        }
        match self.shape()? {
            Shape::Map(mut map) => visitor.visit_map(&mut map),
            Shape::Json(text) => json(text, |json| json.deserialize_map(visitor)),
            other => Err(other.instead(&visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        // Most are this, and made where they are used: moving them would cost more than reading them.
        if let (Wire::Message(of), Given::Data(bytes)) = (self.wire, self.given) {
            let context = self.context.deeper()?;
            let mut map = Map::Members(Members::new(of.get(), bytes, self.writes_type, context));
            return visitor.visit_map(&mut map);
        }
        match self.shape()? {
            Shape::Map(mut map) => visitor.visit_map(&mut map),
            Shape::List(mut list) => visitor.visit_seq(&mut list),
            Shape::Json(text) => json(text, |json| json.deserialize_struct(name, fields, visitor)),
            other => Err(other.instead(&visitor)),
        }
    }

    /// A text is a variant without contents, a map of one entry a variant with contents, as in JSON.
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
            other => Err(other.instead(&visitor)),
        }
    }

    /// Nothing is read of what nobody wants.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }
}
