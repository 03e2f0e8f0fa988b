//! An object as a reader hands it out. It must not know how it was read.

use super::EntryEncoding;
use super::head::Head;

/// One object: its head, and its bytes without `managedFields` and what a projection left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScannedObject {
    /// What is known without decoding.
    pub head: Head,
    /// The object, as JSON or as its protobuf message.
    pub bytes: Box<[u8]>,
    /// How the bytes are written.
    pub encoding: EntryEncoding,
}
