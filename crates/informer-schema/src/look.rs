//! Lookup of rows of [`MESSAGES`] by id, by name or by kind.
//!
//! Searches by name rely on the table being sorted by name. Nothing here knows how a row is used.

use crate::messages::MESSAGES;
use crate::wire::{Message, MessageId};

impl MessageId {
    /// Returns the message with this id.
    pub fn get(self) -> &'static Message {
        &MESSAGES[usize::from(self.0)]
    }
}

impl Message {
    /// Returns the id of the message with this name.
    pub fn named(name: &str) -> Option<MessageId> {
        let index = MESSAGES.binary_search_by(|message| message.name.cmp(name)).ok()?;
        u16::try_from(index).ok().map(MessageId)
    }

    /// Returns the id of the message of a kind, for example `apps/v1` and `Deployment`.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<MessageId> {
        let is_match = |message: &Message| {
            message.is_kind && message.api_version == api_version && message.kind() == kind
        };
        let index = MESSAGES.iter().position(is_match)?;
        u16::try_from(index).ok().map(MessageId)
    }
}
