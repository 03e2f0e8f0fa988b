//! Finding a row of `TYPES` or `MESSAGES`: by its id, by its name, or by the kind it belongs to.
//!
//! The tables are sorted by name, which the searches here rely on. Nothing here knows what a row is used for.

use crate::fields::{Type, TypeId};
use crate::messages::MESSAGES;
use crate::types::TYPES;
use crate::wire::{Message, MessageId};

impl TypeId {
    /// The type.
    pub fn get(self) -> &'static Type {
        &TYPES[usize::from(self.0)]
    }
}

impl Type {
    /// The type with a name.
    pub fn named(name: &str) -> Option<TypeId> {
        let place = TYPES.binary_search_by(|known| known.name.cmp(name)).ok()?;
        u16::try_from(place).ok().map(TypeId)
    }
}

impl MessageId {
    /// The message.
    pub fn get(self) -> &'static Message {
        &MESSAGES[usize::from(self.0)]
    }
}

impl Message {
    /// The message with a name.
    pub fn named(name: &str) -> Option<MessageId> {
        let place = MESSAGES.binary_search_by(|known| known.name.cmp(name)).ok()?;
        u16::try_from(place).ok().map(MessageId)
    }

    /// The message of a kind.
    pub fn of_kind(api_version: &str, kind: &str) -> Option<MessageId> {
        let is_it = |message: &Message| {
            message.is_kind && message.api_version == api_version && message.kind() == kind
        };
        let place = MESSAGES.iter().position(is_it)?;
        u16::try_from(place).ok().map(MessageId)
    }
}
