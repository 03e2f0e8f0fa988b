//! The envelope of a list, of the object in a watch frame, and of a `Status`; the items of a list have none.
//!
//! It consists of four magic bytes and a `runtime.Unknown` message with the type (field 1), the bytes of the
//! object or list (2), and their content encoding and content type (3 and 4), which servers leave empty.

use super::MAGIC;
use super::fields::{Fields, Payload};
use super::walk::{Shape, Step as WalkStep, Walk, take};
use crate::wire::error::ProtobufError;
use crate::wire::{MAX_KIND_BYTES, TypeMeta, append_up_to};

/// The result of one step of [`Envelope`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    NeedMore,
    /// The object starts, with this many bytes. The caller consumes all of them before the next step.
    Object(u64),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// In the magic number, after this many matching bytes.
    Magic(usize),
    Fields,
    Type,
    /// In the value of any other field.
    Skipped,
}

/// An incremental parser of an envelope.
#[derive(Debug)]
pub(super) struct Envelope {
    state: State,
    fields: Walk,
    /// Length of the envelope in bytes.
    length: u64,
    /// Bytes remaining of the current value.
    remaining: u64,
    /// Buffer of the type's message.
    value: Vec<u8>,
    /// The type that the envelope declares.
    pub(super) declared_type: EnvelopeType,
    has_object: bool,
}

/// The type that an envelope declares; empty where it declares none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EnvelopeType {
    pub(super) api_version: String,
    pub(super) kind: String,
}

impl EnvelopeType {
    /// Sets the fields that a `TypeMeta` message contains.
    fn read(&mut self, bytes: &[u8]) -> Result<(), ProtobufError> {
        let mut fields = Fields(bytes);
        while let Some((number, payload)) = fields.next()? {
            let (1 | 2, Payload::Data(bytes)) = (number, payload) else { continue };
            let text = if number == 1 { &mut self.api_version } else { &mut self.kind };
            text.clear();
            text.push_str(&String::from_utf8_lossy(bytes));
        }
        Ok(())
    }

    /// Whether kind and version each are undeclared or equal those of `expected`.
    pub(super) fn is_of(&self, expected: &TypeMeta) -> bool {
        let is = |declared: &str, expected: &str| declared.is_empty() || declared == expected;
        is(&self.kind, &expected.kind) && is(&self.api_version, &expected.api_version)
    }

    /// Whether this is a list of `items`.
    pub(super) fn is_list_of(&self, items: &TypeMeta) -> bool {
        self.kind.strip_suffix("List") == Some(&items.kind) && self.api_version == items.api_version
    }
}

impl Envelope {
    /// Creates a parser for an envelope of `length` bytes; [`u64::MAX`] if the envelope ends with the body.
    pub(super) fn new(length: u64) -> Self {
        let mut envelope = Self {
            state: State::Magic(0),
            fields: Walk::new(0),
            length: 0,
            remaining: 0,
            value: Vec::new(),
            declared_type: EnvelopeType::default(),
            has_object: false,
        };
        envelope.reset(length);
        envelope
    }

    /// Starts another envelope and reuses the buffers.
    pub(super) fn reset(&mut self, length: u64) {
        self.state = State::Magic(0);
        self.length = length;
        self.remaining = 0;
        self.declared_type.api_version.clear();
        self.declared_type.kind.clear();
        self.has_object = false;
    }

    /// Whether the bytes read so far are a complete envelope.
    pub(super) fn is_complete(&self) -> bool {
        self.has_object && self.state == State::Fields && self.fields.is_between_fields()
    }

    /// Continues at `bytes[*at]` and advances `at` past the bytes it read.
    pub(super) fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Step, ProtobufError> {
        loop {
            match self.state {
                State::Magic(matched) => match (MAGIC.get(matched), bytes.get(*at)) {
                    (None, _) => {
                        self.fields = Walk::new(self.length.saturating_sub(MAGIC.len() as u64));
                        self.state = State::Fields;
                    }
                    // The envelope is shorter than the magic number.
                    _ if self.length <= matched as u64 => return Err(ProtobufError::Magic),
                    (Some(_), None) => return Ok(Step::NeedMore),
                    (Some(expected), Some(found)) if expected == found => {
                        *at += 1;
                        self.state = State::Magic(matched + 1);
                    }
                    (Some(_), Some(_)) => return Err(ProtobufError::Magic),
                },
                State::Fields => match self.fields.next(bytes, at)? {
                    WalkStep::NeedMore => return Ok(Step::NeedMore),
                    WalkStep::End => return Ok(Step::End),
                    WalkStep::Field(number, shape) => {
                        if let Some(step) = self.enter(number, shape)? {
                            return Ok(step);
                        }
                    }
                },
                State::Type | State::Skipped => {
                    let part = take(&mut self.remaining, bytes, at);
                    if self.state == State::Type {
                        // The message contains a kind and an apiVersion.
                        append_up_to(&mut self.value, part, 2 * MAX_KIND_BYTES);
                    }
                    if self.remaining > 0 {
                        return Ok(Step::NeedMore);
                    }
                    if std::mem::replace(&mut self.state, State::Fields) == State::Type {
                        self.declared_type.read(&self.value)?;
                    }
                }
            }
        }
    }

    fn enter(&mut self, number: u32, shape: Shape) -> Result<Option<Step>, ProtobufError> {
        self.remaining = shape.length();
        self.state = match (number, shape) {
            (1, Shape::Data(_)) => {
                self.value.clear();
                State::Type
            }
            (2, Shape::Data(length)) => {
                if std::mem::replace(&mut self.has_object, true) {
                    return Err(ProtobufError::Twice);
                }
                return Ok(Some(Step::Object(length)));
            }
            // The content encoding and content type, which every server leaves empty.
            (3 | 4, Shape::Data(1..)) => return Err(ProtobufError::Encoded),
            _ => State::Skipped,
        };
        Ok(None)
    }
}

/// Returns the declared type and the object of a complete envelope; `None` if it is malformed or has no
/// object.
pub(super) fn open_envelope(body: &[u8]) -> Option<(EnvelopeType, &[u8])> {
    let (mut envelope, mut at, mut object) = (Envelope::new(body.len() as u64), 0, None);
    loop {
        match envelope.next(body, &mut at).ok()? {
            Step::NeedMore => return None,
            Step::End => return Some((envelope.declared_type, object?)),
            Step::Object(mut length) => object = Some(take(&mut length, body, &mut at)),
        }
    }
}
