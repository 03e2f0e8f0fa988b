//! Typed views of protobuf: a serde `Deserializer` over a message's bytes, guided by the table of `informer-schema`.
//!
//! Whatever type is asked for sees what it would see in the server's JSON: names, quantities and times as text, what Go leaves out left
//! out, `null` where Go writes that. Text is borrowed from the bytes. What the table does not know is passed over.
//!
//! A server writes the fields of a message in the order of their numbers. That is what [`Value`] reads, in one pass and without any
//! memory of its own; bytes in another order, which protobuf allows, are noticed on the way, put in [`order`], and read again.

mod collections;
mod context;
mod error;
mod map;
mod message;
mod order;
mod seek;
mod special;
mod time;
mod value;

pub(crate) use error::Error;
#[cfg(test)]
pub(super) use message::MAX_INLINE;
pub(in crate::wire) use seek::values_at;
pub(super) use time::Time;

use informer_schema::{MessageId, Wire};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::cell::Cell;
use value::Value;

/// Decodes a message. A kind says its apiVersion and kind. An error says where it is.
pub(crate) fn decode<T: DeserializeOwned>(of: MessageId, bytes: &[u8]) -> Result<T, Error> {
    let (disordered, ordered) = (Cell::new(false), Cell::new(false));
    let result = T::deserialize(&Value::whole(of, bytes, false, &disordered));
    if result.is_ok() && !disordered.get() {
        return result;
    }
    // Rare enough not to mind how often the bytes are read. (A type may have taken the disorder for an error that it can live with.)
    let is_ordered = !disordered.get();
    let bytes = if is_ordered { Cow::Borrowed(bytes) } else { Cow::Owned(order::ordered(of, bytes)?) };
    T::deserialize(&Value::whole(of, &bytes, true, &ordered))
}

/// A time in whole seconds; none is an empty message.
pub(super) fn time_of(bytes: &[u8]) -> Result<Option<Time>, Error> {
    time::read(Wire::Time, bytes)
}
