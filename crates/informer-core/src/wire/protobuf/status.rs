//! Reading a `Status` that is protobuf. What its fields mean is not known here.

use super::decode::decode;
use super::envelope::opened;
use crate::wire::status::{Status, Wire as StatusFields};
use informer_schema::Message;

impl Status {
    /// Reads a body of protobuf; anything else gives `None`.
    pub fn from_protobuf(bytes: &[u8]) -> Option<Self> {
        status_in(bytes).map(Self::of_fields)
    }
}

/// The fields of a `Status` in its envelope.
fn status_in(body: &[u8]) -> Option<StatusFields> {
    let (said, object) = opened(body)?;
    (said.kind == "Status").then(|| status_of(object)).flatten()
}

/// The fields of a `Status`, from its message.
pub(super) fn status_of(bytes: &[u8]) -> Option<StatusFields> {
    let of = Message::of_kind("v1", "Status")?;
    decode(of, bytes).ok()
}
