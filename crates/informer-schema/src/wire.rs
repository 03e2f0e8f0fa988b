//! How objects travel as protobuf: the words in which the generated table of messages speaks.
//!
//! The table is in `messages.rs`. Messages differ from the types of JSON in more than numbers: what is flat in JSON may be a message of its
//! own, and lists of objects are here too. Nothing here reads or writes bytes.

/// A message, `io.k8s.api.core.v1.Pod`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// The name under which the `OpenAPI` documents have it, or would.
    pub name: &'static str,
    /// Whether it travels on its own, with a kind and an apiVersion around it.
    pub is_kind: bool,
    /// What a kind says in `apiVersion`, `apps/v1`; empty for what is no kind. Those of every group (`Status`) say `v1`.
    pub api_version: &'static str,
    /// Sorted by number.
    pub parts: &'static [Part],
    /// Whether JSON says `null` for some part that is absent: one that JSON always has, and that is a pointer, a list, a map or bytes.
    pub has_nulls: bool,
}

/// A field of a [`Message`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// Its number.
    pub number: u16,
    /// The name in JSON. Empty where the message's fields are in JSON those of the object around it.
    pub name: &'static str,
    /// How it is written.
    pub wire: Wire,
    /// Whether it can be absent. What cannot is written even when it is empty; lists and maps are as long as they are.
    pub pointer: bool,
    /// Whether JSON has it even when it is empty or absent; otherwise an empty one is left out unless it could be absent.
    pub always: bool,
}

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Wire {
    /// `true` or `false`, as a number.
    Boolean,
    /// A whole number of 32 bits; a negative one takes as much room as one of 64.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number, in eight bytes.
    Double,
    /// Text.
    String,
    /// Bytes; base64 text in JSON.
    Bytes,
    /// A message of an amount's text (1).
    Quantity,
    /// A message of seconds (1) and nanoseconds (2, always zero); empty for no time.
    Time,
    /// Likewise, with nanoseconds in whole microseconds.
    MicroTime,
    /// A message that says which it is (1: zero for a number), of the number (2) and the text (3).
    IntOrString,
    /// A message of JSON text (1).
    Raw,
    /// Likewise; the JSON says which fields somebody owns.
    Fields,
    /// A message of texts (1); a list in JSON.
    Strings,
    /// A message of whether (1) and a message (2); in JSON a boolean or an object.
    OrBoolean(MessageId),
    /// A message of a message (1) and messages (2); in JSON an object or a list.
    OrList(MessageId),
    /// A message of a message (1) and texts (2); in JSON an object or a list of texts.
    OrStrings(MessageId),
    /// A message.
    Message(MessageId),
    /// As many as there are, each with the number.
    List(&'static Wire),
    /// Likewise, messages of a key (1), by which they are sorted, and a value (2).
    Map(&'static Wire),
}

/// What a message is where the table says nothing.
pub(crate) const MESSAGE: Message =
    Message { name: "", is_kind: false, api_version: "", parts: &[], has_nulls: false };

/// What a part is where the table says nothing.
pub(crate) const PART: Part = Part { number: 0, name: "", wire: Wire::String, pointer: false, always: false };

/// The place of a [`Message`] in [`MESSAGES`](crate::MESSAGES).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(pub(crate) u16);

impl Message {
    /// The last word of its name: of a kind, what it says in `kind`.
    pub fn kind(&self) -> &'static str {
        self.name.rsplit_once('.').map_or(self.name, |(_, kind)| kind)
    }

    /// The part with a number.
    pub fn part(&self, number: u64) -> Option<&'static Part> {
        let place = self.parts.binary_search_by(|part| u64::from(part.number).cmp(&number)).ok()?;
        self.parts.get(place)
    }
}
