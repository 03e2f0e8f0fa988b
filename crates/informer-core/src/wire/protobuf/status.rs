//! Parsing of a `Status` in protobuf. This file does not know what its fields mean.

use super::decode::decode;
use super::envelope::open_envelope;
use crate::wire::status::{Status, StatusFields};
use informer_schema::Message;

impl Status {
    /// Parses a protobuf body; `None` if it is not a `Status`.
    pub fn from_protobuf(bytes: &[u8]) -> Option<Self> {
        enveloped_status_fields(bytes).map(Self::from_fields)
    }
}

/// Parses the fields of a `Status` in its envelope.
fn enveloped_status_fields(body: &[u8]) -> Option<StatusFields> {
    let (declared_type, object) = open_envelope(body)?;
    (declared_type.kind == "Status").then(|| status_fields(object)).flatten()
}

/// Parses the fields of a `Status` from its message.
pub(super) fn status_fields(bytes: &[u8]) -> Option<StatusFields> {
    let message_type = Message::of_kind("v1", "Status")?;
    decode(message_type, bytes).ok()
}
