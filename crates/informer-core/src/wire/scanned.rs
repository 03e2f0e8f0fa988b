//! An object as produced by a reader. This file does not know how the object was parsed.

use super::EntryEncoding;
use super::head::Head;

/// One object: its head, and its bytes without the fields that a field filter leaves out; `managedFields` are left
/// out unless it keeps them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedObject {
    /// The metadata that is known without decoding the object.
    pub head: Head,
    /// The object as JSON, or as its protobuf message.
    pub bytes: Box<[u8]>,
    /// The encoding of the bytes.
    pub encoding: EntryEncoding,
}
