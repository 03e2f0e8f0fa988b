//! The readers' protobuf half: [`ProtobufListReader`] and [`ProtobufWatchReader`], and typed views of what they hand out.
//!
//! They are the siblings of the JSON readers and hand out the same things. An object's bytes are its message as the server sent it, without the
//! envelope that names its kind and without `metadata.managedFields`; which message it is says [`Encoding::Protobuf`](super::Encoding).
//! An object that cannot be read is handed out as unreadable and reading goes on, since lengths say where the next one begins. What a kind
//! looks like inside is known from the table of `informer-schema` alone.

mod decode;
mod envelope;
mod fields;
mod head;
mod list;
mod object;
mod prune;
mod status;
mod walk;
mod watch;
mod whole;

pub(super) use decode::values_at;
pub(crate) use decode::{Error as MessageError, decode};
pub use list::ProtobufListReader;
pub use watch::ProtobufWatchReader;

use super::TypeMeta;
use informer_schema::{Message, MessageId};

/// What every body and every object begins with.
const MAGIC: &[u8; 4] = b"k8s\0";

/// Where every kind has its metadata.
const METADATA: u32 = 1;

/// The message of a cache's objects; none for kinds that have no protobuf.
pub fn message_of(types: &TypeMeta) -> Option<MessageId> {
    Message::of_kind(&types.api_version, &types.kind)
}

/// The message of every object's metadata.
pub(crate) fn metadata_message(of: MessageId) -> Option<MessageId> {
    match of.get().part(u64::from(METADATA))?.wire {
        informer_schema::Wire::Message(metadata) => Some(metadata),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
