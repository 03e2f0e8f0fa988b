//! Reading a `Status` that is JSON. What its fields mean is not known here.

use crate::wire::status::Status;

impl Status {
    /// Reads a body of JSON; anything else gives `None`.
    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().map(Self::of_fields)
    }
}
