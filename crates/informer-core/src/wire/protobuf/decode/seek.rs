//! The values at a field path, found in a message without decoding the rest.
//!
//! They are what the same path finds in the object's JSON, because they are asked for like everything else: names come from the table,
//! and what lies beside the path is passed over.

use super::order;
use super::value::Value;
use informer_schema::MessageId;
use serde::de::{Deserialize, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

/// The values at a path, in their order. What does not read has none.
pub(in crate::wire) fn values_at(
    path: &[Box<str>],
    of: MessageId,
    bytes: &[u8],
    visit: &mut dyn FnMut(&str),
) {
    let (disordered, ordered) = (Cell::new(false), Cell::new(false));
    let found = seek(path, &Value::whole(of, bytes, false, &disordered));
    if !disordered.get() {
        found.iter().flatten().for_each(|value| visit(value));
    } else if let Ok(bytes) = order::ordered(of, bytes) {
        let found = seek(path, &Value::whole(of, &bytes, false, &ordered));
        found.iter().flatten().for_each(|value| visit(value));
    }
}

fn seek<'de>(path: &[Box<str>], value: &Value<'de, '_>) -> Option<Vec<Cow<'de, str>>> {
    let mut found = Vec::new();
    let seek = Seek { path, in_list: false, found: &mut found };
    seek.deserialize(value).ok().map(|()| found)
}

/// What is left of the way, and what was found at its end.
struct Seek<'p, 'f, 'de> {
    path: &'p [Box<str>],
    /// Lists directly inside lists are not gone into.
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
        // As JSON writes it.
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

/// The name of a member, borrowed if that is possible.
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
