//! What is around every object and every list: four bytes, then a message (`runtime.Unknown`) with the type, the object's bytes, and how those
//! are encoded, which is always the same.

use super::MAGIC;
use super::fields::{Fields, Payload};
use super::walk::{Shape, Step as Met, Walk, take};
use crate::wire::problem::ProtobufError;
use crate::wire::{MAX_KIND_BYTES, TypeMeta, keep_beginning};

/// What comes out of an envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    NeedMore,
    /// The object: as many bytes, which come next. The owner takes all of them before it goes on.
    Object(u64),
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// So many bytes were as they have to be.
    Magic(usize),
    Fields,
    Type,
    Other,
}

/// Reads one envelope as it arrives.
#[derive(Debug)]
pub(super) struct Envelope {
    at: At,
    fields: Walk,
    /// How long it is.
    length: u64,
    /// What is left of the value that is being read.
    left: u64,
    value: Vec<u8>,
    /// What it says the object is.
    pub(super) declared_type: EnvelopeType,
    saw_object: bool,
}

/// What an envelope says an object is; empty where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct EnvelopeType {
    pub(super) api_version: String,
    pub(super) kind: String,
}

impl EnvelopeType {
    /// Reads a `TypeMeta`.
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

    /// Whether an object of this type is one of `types`. What says nothing may be anything.
    pub(super) fn is_of(&self, types: &TypeMeta) -> bool {
        let is = |said: &str, own: &str| said.is_empty() || said == own;
        is(&self.kind, &types.kind) && is(&self.api_version, &types.api_version)
    }

    /// Whether it is a list of `types`.
    pub(super) fn is_list_of(&self, types: &TypeMeta) -> bool {
        self.kind.strip_suffix("List") == Some(&types.kind) && self.api_version == types.api_version
    }
}

impl Envelope {
    /// An envelope of so many bytes; one that ends with its body has [`u64::MAX`].
    pub(super) fn new(length: u64) -> Self {
        let mut envelope = Self {
            at: At::Magic(0),
            fields: Walk::new(0),
            length: 0,
            left: 0,
            value: Vec::new(),
            declared_type: EnvelopeType::default(),
            saw_object: false,
        };
        envelope.reset(length);
        envelope
    }

    /// Begins another one; the buffers are used again.
    pub(super) fn reset(&mut self, length: u64) {
        self.at = At::Magic(0);
        self.length = length;
        self.left = 0;
        self.declared_type.api_version.clear();
        self.declared_type.kind.clear();
        self.saw_object = false;
    }

    /// Whether all that was read so far is an envelope, if nothing follows.
    pub(super) fn is_complete(&self) -> bool {
        self.saw_object && self.at == At::Fields && self.fields.is_between_fields()
    }

    /// Goes on from `bytes[*at]`, moving `at` behind what was read.
    pub(super) fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Step, ProtobufError> {
        loop {
            match self.at {
                At::Magic(matched) => match (MAGIC.get(matched), bytes.get(*at)) {
                    (None, _) => {
                        self.fields = Walk::new(self.length.saturating_sub(MAGIC.len() as u64));
                        self.at = At::Fields;
                    }
                    _ if self.length <= matched as u64 => return Err(ProtobufError::Magic),
                    (Some(_), None) => return Ok(Step::NeedMore),
                    (Some(expected), Some(found)) if expected == found => {
                        *at += 1;
                        self.at = At::Magic(matched + 1);
                    }
                    (Some(_), Some(_)) => return Err(ProtobufError::Magic),
                },
                At::Fields => match self.fields.next(bytes, at)? {
                    Met::NeedMore => return Ok(Step::NeedMore),
                    Met::End => return Ok(Step::End),
                    Met::Field(number, shape) => {
                        if let Some(step) = self.enter(number, shape)? {
                            return Ok(step);
                        }
                    }
                },
                At::Type | At::Other => {
                    let part = take(&mut self.left, bytes, at);
                    if self.at == At::Type {
                        keep_beginning(&mut self.value, part, 2 * MAX_KIND_BYTES);
                    }
                    if self.left > 0 {
                        return Ok(Step::NeedMore);
                    }
                    if std::mem::replace(&mut self.at, At::Fields) == At::Type {
                        self.declared_type.read(&self.value)?;
                    }
                }
            }
        }
    }

    fn enter(&mut self, number: u32, shape: Shape) -> Result<Option<Step>, ProtobufError> {
        self.left = shape.length();
        self.at = match (number, shape) {
            (1, Shape::Data(_)) => {
                self.value.clear();
                At::Type
            }
            (2, Shape::Data(length)) => {
                if std::mem::replace(&mut self.saw_object, true) {
                    return Err(ProtobufError::Twice);
                }
                return Ok(Some(Step::Object(length)));
            }
            // How the object is encoded: in no other way, says every server.
            (3 | 4, Shape::Data(1..)) => return Err(ProtobufError::Encoded),
            _ => At::Other,
        };
        Ok(None)
    }
}

/// The object in an envelope that is all there.
pub(super) fn opened(body: &[u8]) -> Option<(EnvelopeType, &[u8])> {
    let (mut envelope, mut at, mut object) = (Envelope::new(body.len() as u64), 0, None);
    loop {
        match envelope.next(body, &mut at).ok()? {
            Step::NeedMore => return None,
            Step::End => return Some((envelope.declared_type, object?)),
            Step::Object(mut length) => object = Some(take(&mut length, body, &mut at)),
        }
    }
}
