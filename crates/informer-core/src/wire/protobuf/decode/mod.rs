//! Decoding of protobuf into typed objects: a serde `Deserializer` over a message's bytes, guided by the
//! table of `informer-schema`.
//!
//! A type is deserialized as from the server's JSON: with JSON names, quantities and times as strings,
//! absent members where kube-apiserver's Go encoder omits them, and `null` where that encoder writes it.
//! Strings are borrowed from the bytes. Fields that the table does not know are skipped.
//!
//! Servers write the fields of a message in the order of their numbers. [`Value`] decodes this order in one
//! pass, without allocations of its own. Any other order, which protobuf allows, is detected during
//! decoding; the bytes are then sorted by [`order`] and decoded again.

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

use context::TrackPath;
use informer_schema::{MessageId, Wire};
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::cell::Cell;
use value::Value;

/// Decodes a message. A message that is a kind has the members apiVersion and kind, although its bytes do not
/// contain them. Errors contain the field path.
pub(crate) fn decode<T: DeserializeOwned>(message_type: MessageId, bytes: &[u8]) -> Result<T, Error> {
    let (unordered, unused) = (Cell::new(false), Cell::new(false));
    let result = T::deserialize(&Value::whole(message_type, bytes, TrackPath::No, &unordered));
    if result.is_ok() && !unordered.get() {
        return result;
    }
    // Errors and unordered fields are rare, so decoding again is acceptable: with the field path, and after
    // sorting the fields if they are unordered. `unordered` counts even if decoding succeeded, because a type
    // may ignore the error that unordered fields cause.
    let is_ordered = !unordered.get();
    let bytes =
        if is_ordered { Cow::Borrowed(bytes) } else { Cow::Owned(order::ordered(message_type, bytes)?) };
    T::deserialize(&Value::whole(message_type, &bytes, TrackPath::Yes, &unused))
}

/// Parses a time in whole seconds; `None` for an empty message or Go's zero time.
pub(super) fn time_of(bytes: &[u8]) -> Result<Option<Time>, Error> {
    time::read(Wire::Time, bytes)
}
