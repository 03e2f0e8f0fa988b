//! [`Measured`]: a value together with an estimate of its size in memory, counted while it is decoded.
//!
//! The size of a decoded value cannot be read from the value: serde does not describe what a type
//! allocates. What a deserializer passes to the type suffices for a limit: the bytes of each string, the
//! elements of each list, and the entries of each map. Fields of a struct are part of the struct and do not
//! count.

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use std::cell::Cell;
use std::fmt;

/// A value and its estimated size in bytes, without what it shares with other values.
pub(super) struct Measured<T> {
    pub(super) value: T,
    pub(super) size: usize,
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Measured<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let size = Cell::new(size_of::<T>());
        let value = T::deserialize(Counting { inner: deserializer, size: &size })?;
        Ok(Self { value, size: size.get() })
    }
}

/// A part of a deserialization that counts: a deserializer, visitor, seed or access of serde.
struct Counting<'s, T> {
    inner: T,
    size: &'s Cell<usize>,
}

impl<'s, T> Counting<'s, T> {
    fn add(&self, bytes: usize) {
        self.size.set(self.size.get().saturating_add(bytes));
    }

    fn wrap<U>(&self, inner: U) -> Counting<'s, U> {
        Counting { inner, size: self.size }
    }
}

/// Methods of a deserializer without arguments besides the visitor.
macro_rules! forward {
    ($($method:ident)+) => {
        $(#[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            let visitor = self.wrap(visitor);
            self.inner.$method(visitor)
        })+
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Counting<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize_any deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_option deserialize_unit deserialize_seq deserialize_map
    }

    #[inline]
    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_unit_struct(name, visitor)
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_newtype_struct(name, visitor)
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_tuple(len, visitor)
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_tuple_struct(name, len, visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = Fields(self.wrap(visitor));
        self.inner.deserialize_struct(name, fields, visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let visitor = self.wrap(visitor);
        self.inner.deserialize_enum(name, variants, visitor)
    }

    /// Names of fields and variants are not stored.
    #[inline]
    fn deserialize_identifier<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_identifier(visitor)
    }

    #[inline]
    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_ignored_any(visitor)
    }

    #[inline]
    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Methods of a visitor for values that are part of their parent.
macro_rules! visit {
    ($($method:ident: $type:ty),+ $(,)?) => {
        $(#[inline]
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.inner.$method(value)
        })+
    };
}

/// Methods of a visitor for values that are stored as a copy.
macro_rules! visit_text {
    ($($method:ident: $type:ty),+ $(,)?) => {
        $(#[inline]
        fn $method<E: Error>(self, value: $type) -> Result<V::Value, E> {
            self.add(value.len());
            self.inner.$method(value)
        })+
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Counting<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        visit_bool: bool, visit_i8: i8, visit_i16: i16, visit_i32: i32, visit_i64: i64, visit_i128: i128,
        visit_u8: u8, visit_u16: u16, visit_u32: u32, visit_u64: u64, visit_u128: u128, visit_f32: f32,
        visit_f64: f64, visit_char: char,
    }

    visit_text! {
        visit_str: &str, visit_borrowed_str: &'de str, visit_string: String, visit_bytes: &[u8],
        visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>,
    }

    #[inline]
    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.wrap(deserializer);
        self.inner.visit_some(deserializer)
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.wrap(deserializer);
        self.inner.visit_newtype_struct(deserializer)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = self.wrap(access);
        self.inner.visit_seq(access)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = self.wrap(access);
        self.inner.visit_map(access)
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = self.wrap(access);
        self.inner.visit_enum(access)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Counting<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = self.wrap(deserializer);
        self.inner.deserialize(deserializer)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Counting<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.wrap(seed);
        let element = self.inner.next_element_seed(seed)?;
        if element.is_some() {
            self.add(size_of::<S::Value>());
        }
        Ok(element)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// The entries of a map.
impl<'de, A: MapAccess<'de>> MapAccess<'de> for Counting<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        let seed = self.wrap(seed);
        let key = self.inner.next_key_seed(seed)?;
        if key.is_some() {
            self.add(size_of::<S::Value>());
        }
        Ok(key)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.wrap(seed);
        let value = self.inner.next_value_seed(seed)?;
        self.add(size_of::<S::Value>());
        Ok(value)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// The visitor or the members of a struct, whose fields count as part of the struct.
struct Fields<T>(T);

impl<'de, V: Visitor<'de>> Visitor<'de> for Fields<Counting<'_, V>> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.inner.expecting(f)
    }

    #[inline]
    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.inner.visit_unit()
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(access)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let access = Fields(self.0.wrap(access));
        self.0.inner.visit_map(access)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<Counting<'_, A>> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.inner.next_key_seed(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.0.wrap(seed);
        self.0.inner.next_value_seed(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        self.0.inner.size_hint()
    }
}

impl<'de, 's, A: EnumAccess<'de>> EnumAccess<'de> for Counting<'s, A> {
    type Error = A::Error;
    type Variant = Counting<'s, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let size = self.size;
        let (value, inner) = self.inner.variant_seed(seed)?;
        Ok((value, Counting { inner, size }))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Counting<'_, A> {
    type Error = A::Error;

    #[inline]
    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.wrap(seed);
        self.inner.newtype_variant_seed(seed)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.wrap(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = Fields(self.wrap(visitor));
        self.inner.struct_variant(fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize as Derive;
    use std::collections::BTreeMap;

    fn size<T: for<'de> Derive<'de>>(json: &str) -> usize {
        serde_json::from_str::<Measured<T>>(json).unwrap().size
    }

    #[derive(Derive)]
    #[expect(dead_code, reason = "only its size is read")]
    struct Pod {
        name: Option<String>,
        restarts: u32,
        images: Option<Vec<String>>,
        labels: Option<BTreeMap<String, String>>,
        node: Option<Node>,
    }

    #[derive(Derive)]
    #[expect(dead_code, reason = "only its size is read")]
    struct Node {
        name: String,
    }

    #[derive(Derive)]
    #[expect(dead_code, reason = "only its size is read")]
    enum Phase {
        Running,
        Failed { reason: String },
        Unknown(String),
    }

    #[test]
    fn strings_elements_and_entries_count_and_fields_do_not() {
        let (pod, text) = (size_of::<Pod>(), size_of::<String>());
        assert_eq!(size::<Pod>(r#"{"restarts": 3}"#), pod);
        assert_eq!(size::<Pod>(r#"{"restarts": 3, "unknown": {"long": ["text"]}}"#), pod);
        assert_eq!(size::<Node>(r#"{"name": "node-1"}"#), text + 6);
        assert_eq!(size::<Vec<u64>>("[1, 2, 3]"), text + 3 * 8);
        assert_eq!(size::<Vec<String>>(r#"["a", "bc"]"#), text + 2 * text + 3);
        assert_eq!(size::<BTreeMap<String, String>>(r#"{"a": "bc"}"#), text + 2 * text + 3);
        assert_eq!(size::<Phase>(r#"{"Failed": {"reason": "abc"}}"#), size_of::<Phase>() + 3);
        assert_eq!(size::<Phase>(r#"{"Unknown": "abc"}"#), size_of::<Phase>() + 3);
        assert_eq!(size::<Phase>(r#""Running""#), size_of::<Phase>());
    }
}
