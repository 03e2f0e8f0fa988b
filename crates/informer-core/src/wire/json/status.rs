//! Parsing of a `Status` in JSON. This file does not know what its fields mean.

use crate::wire::status::Status;

impl Status {
    /// Parses a JSON body; `None` if it is not a JSON object of that form.
    pub fn from_json(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok().map(Self::from_fields)
    }
}
