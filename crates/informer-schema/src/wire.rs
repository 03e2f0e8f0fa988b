//! The row types of the generated table of messages, which has the fields of each type in protobuf and in JSON.
//!
//! The table is in `messages.rs`. Its rows are protobuf messages: fields that are flat in JSON may form a message of
//! their own. `fields.rs` derives the types of JSON. Nothing here reads or writes bytes.

use crate::rules::{Rules, rules};

/// A protobuf message, for example `io.k8s.api.core.v1.Pod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The name in the `OpenAPI` documents, or the name that would be used there.
    pub name: &'static str,
    /// Whether the message can be a whole body, wrapped with its kind and `apiVersion`.
    pub is_kind: bool,
    /// The `apiVersion` of a kind, for example `apps/v1`; empty if the message is not a kind.
    ///
    /// Kinds that belong to every group, such as `Status`, have `v1`.
    pub api_version: &'static str,
    /// The fields, sorted by number.
    pub parts: &'static [Part],
    /// Whether the object is owned and replaced as a whole (`x-kubernetes-map-type: atomic`).
    pub atomic: bool,
    /// Whether JSON contains `null` for some absent field: one with `always` set that is a pointer, a list, a
    /// map or bytes.
    pub has_nulls: bool,
}

/// A field of a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// The protobuf field number.
    pub number: u16,
    /// The name in JSON; empty if the field is a message whose fields JSON inlines into the enclosing object.
    pub name: &'static str,
    /// The encoding of the value.
    pub wire: Wire,
    /// Whether the field can be absent: it is a pointer in Go, or has the wire type [`Wire::Strings`].
    ///
    /// In protobuf, Kubernetes writes other fields even if they are empty, except lists and maps, which have
    /// one field per entry.
    pub pointer: bool,
    /// Whether JSON contains the field even if it is empty or absent: it has no `omitzero` in Go, and no
    /// `omitempty` or is a struct, which `omitempty` never omits.
    ///
    /// If not, JSON omits the field if it is absent, or if it is empty and not a pointer.
    pub always: bool,
    /// Whether the `OpenAPI` documents mark the field as required.
    pub required: bool,
    /// The properties that only JSON has.
    pub rules: &'static Rules,
}

/// The protobuf encoding of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// `true` or `false`, as a varint.
    Boolean,
    /// A 32-bit integer; a negative one is written with 64 bits.
    Int32,
    /// A 64-bit integer.
    Int64,
    /// A floating-point number in eight bytes.
    Double,
    /// A string.
    String,
    /// Bytes; a base64 string in JSON.
    Bytes,
    /// A message with the text of a quantity (1).
    Quantity,
    /// A message with seconds (1) and nanoseconds (2, always zero); empty if no time is set.
    Time,
    /// A message with seconds (1) and nanoseconds (2, whole microseconds); empty if no time is set.
    MicroTime,
    /// A message with the type (1: zero for a number), the number (2) and the string (3).
    IntOrString,
    /// A message with JSON text (1).
    Raw,
    /// A message with JSON text (1) that lists the fields a manager owns (`fieldsV1`).
    Fields,
    /// A message with strings (1); a list in JSON.
    Strings,
    /// A message with a boolean (1) and a message (2); in JSON a boolean or an object.
    OrBoolean(MessageId),
    /// A message with one message (1) and a list of messages (2); in JSON an object or a list.
    OrList(MessageId),
    /// A message with one message (1) and a list of strings (2); in JSON an object or a list of strings.
    OrStrings(MessageId),
    /// A nested message.
    Message(MessageId),
    /// A list: one field with this number per entry.
    List(&'static Wire),
    /// A map: one message with key (1) and value (2) per entry, sorted by key.
    Map(&'static Wire),
}

/// The index of a [`Message`] in [`MESSAGES`](crate::MESSAGES).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(crate) u16);

impl Message {
    /// Returns the last segment of the name, which for a kind is the value of `kind`.
    pub fn kind(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(_, kind)| kind)
    }

    /// Returns the field with this number.
    pub fn part(&self, number: u64) -> Option<&'static Part> {
        let index = self.parts.binary_search_by(|part| u64::from(part.number).cmp(&number)).ok()?;
        self.parts.get(index)
    }
}

// The constructors of the generated table.

pub(crate) const fn message(name: &'static str, parts: &'static [Part]) -> Message {
    Message { name, is_kind: false, api_version: "", parts, atomic: false, has_nulls: false }
}

pub(crate) const fn kind(name: &'static str, api_version: &'static str, parts: &'static [Part]) -> Message {
    Message { is_kind: true, api_version, ..message(name, parts) }
}

pub(crate) const fn part(number: u16, name: &'static str, wire: Wire) -> Part {
    Part { number, name, wire, pointer: false, always: false, required: false, rules: const { &rules() } }
}

pub(crate) const fn of(message: u16) -> Wire {
    Wire::Message(MessageId(message))
}

pub(crate) const fn or_boolean(message: u16) -> Wire {
    Wire::OrBoolean(MessageId(message))
}

pub(crate) const fn or_list(message: u16) -> Wire {
    Wire::OrList(MessageId(message))
}

pub(crate) const fn or_strings(message: u16) -> Wire {
    Wire::OrStrings(MessageId(message))
}

impl Message {
    pub(crate) const fn nulls(self) -> Self {
        Self { has_nulls: true, ..self }
    }

    pub(crate) const fn atomic(self) -> Self {
        Self { atomic: true, ..self }
    }
}

impl Part {
    pub(crate) const fn pointer(self) -> Self {
        Self { pointer: true, ..self }
    }

    pub(crate) const fn always(self) -> Self {
        Self { always: true, ..self }
    }

    /// Marks a field as required. Nearly all of them are always written.
    pub(crate) const fn required(self) -> Self {
        Self { required: true, always: true, ..self }
    }

    /// Marks a required field as omitted if it is empty.
    pub(crate) const fn omitted(self) -> Self {
        Self { always: false, ..self }
    }

    pub(crate) const fn rules(self, rules: &'static Rules) -> Self {
        Self { rules, ..self }
    }
}
