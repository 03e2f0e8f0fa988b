//! The protobuf readers, [`ProtobufListReader`] and [`ProtobufWatchReader`], and the decoder of their
//! objects.
//!
//! The readers produce the same items and frames as the JSON readers, except for an object's bytes. These are
//! the object's message as the server sent it, without `metadata.managedFields` and without the envelope that
//! names the kind; [`EntryEncoding::Protobuf`](super::EntryEncoding) names the message type. An object that
//! cannot be read is produced as unreadable and parsing continues, since its length says where the next one
//! starts.
//!
//! The fields of a kind are known only from the table of `informer-schema`. A field in that table is called a
//! part, to distinguish it from a field in the bytes.

mod decode;
mod envelope;
mod fields;
mod head;
mod list;
mod object;
mod prune;
mod single_chunk;
mod status;
mod walk;
mod watch;

pub(super) use decode::values_at;
pub(crate) use decode::{Error as MessageError, decode};
pub use list::ProtobufListReader;
pub use watch::ProtobufWatchReader;

use super::TypeMeta;
use informer_schema::{Message, MessageId};

/// The magic number at the start of every envelope.
const MAGIC: &[u8; 4] = b"k8s\0";

/// The field number of `metadata` in every kind.
const METADATA: u32 = 1;

/// Returns the message type of a cache's objects; `None` for kinds without protobuf.
pub fn message_of(type_meta: &TypeMeta) -> Option<MessageId> {
    Message::of_kind(&type_meta.api_version, &type_meta.kind)
}

/// Returns the message type of an object's metadata.
pub(crate) fn metadata_message(message_type: MessageId) -> Option<MessageId> {
    match message_type.get().part(u64::from(METADATA))?.wire {
        informer_schema::Wire::Message(metadata) => Some(metadata),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
