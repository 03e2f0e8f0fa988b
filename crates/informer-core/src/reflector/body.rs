//! The body of an answer, in whichever form its headers say it has.
//!
//! Each answer is taken as it comes: a server that answers protobuf now and JSON next time is read all the same. What is neither, or is
//! protobuf of a kind that has none here, is not read.

use super::config::Config;
use super::failure::{Form, ResponseHead};
use crate::wire::{
    Encoding, Frame, ListItem, ListReader, ProtobufListReader, ProtobufWatchReader, WatchReader, WireError,
    message_of,
};
use informer_schema::MessageId;

/// How the objects of an answer are written; none if they cannot be read.
fn encoding_of(head: &ResponseHead, config: &Config) -> Option<Encoding> {
    match head.form()? {
        Form::Json => Some(Encoding::Json),
        // A transform is a function from JSON to JSON.
        Form::Protobuf => {
            message_of(&config.types).filter(|_| config.transform.is_none()).map(Encoding::Protobuf)
        }
    }
}

/// The body of a list.
#[derive(Debug)]
pub(super) enum ListBody {
    Json(Box<ListReader>),
    Protobuf(MessageId, Box<ProtobufListReader>),
}

impl ListBody {
    /// None if it cannot be read.
    pub(super) fn new(head: &ResponseHead, config: &Config) -> Option<Self> {
        let (types, projection) = (config.types.clone(), config.projection.clone());
        Some(match encoding_of(head, config)? {
            Encoding::Json => {
                Self::Json(Box::new(ListReader::new(types, config.limits).projecting(projection)))
            }
            Encoding::Protobuf(of) => {
                let reader = ProtobufListReader::new(types, config.limits).projecting(projection);
                Self::Protobuf(of, Box::new(reader))
            }
        })
    }

    /// How its objects are written.
    pub(super) fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(of, _) => Encoding::Protobuf(*of),
        }
    }

    /// Reads the next chunk, handing what it completes to `on`.
    pub(super) fn read(&mut self, chunk: &[u8], on: impl FnMut(ListItem)) -> Result<(), WireError> {
        match self {
            Self::Json(reader) => reader.read(chunk, on),
            Self::Protobuf(_, reader) => reader.read(chunk, on),
        }
    }

    /// Says that the body is over.
    pub(super) fn finish(&self) -> Result<(), WireError> {
        match self {
            Self::Json(reader) => reader.finish(),
            Self::Protobuf(_, reader) => reader.finish(),
        }
    }
}

/// The body of a watch.
#[derive(Debug)]
pub(super) enum WatchBody {
    Json(Box<WatchReader>),
    Protobuf(MessageId, Box<ProtobufWatchReader>),
}

impl WatchBody {
    /// None if it cannot be read.
    pub(super) fn new(head: &ResponseHead, config: &Config) -> Option<Self> {
        let (types, projection) = (config.types.clone(), config.projection.clone());
        Some(match encoding_of(head, config)? {
            Encoding::Json => {
                Self::Json(Box::new(WatchReader::new(types, config.limits).projecting(projection)))
            }
            Encoding::Protobuf(of) => {
                let reader = ProtobufWatchReader::new(types, config.limits).projecting(projection);
                Self::Protobuf(of, Box::new(reader))
            }
        })
    }

    /// How its objects are written.
    pub(super) fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(of, _) => Encoding::Protobuf(*of),
        }
    }

    /// Reads the next chunk, handing each frame it completes to `on`.
    pub(super) fn read(&mut self, chunk: &[u8], on: impl FnMut(Frame)) -> Result<(), WireError> {
        match self {
            Self::Json(reader) => reader.read(chunk, on),
            Self::Protobuf(_, reader) => reader.read(chunk, on),
        }
    }

    /// Says that the stream is over.
    pub(super) fn finish(&self) -> Result<(), WireError> {
        match self {
            Self::Json(reader) => reader.finish(),
            Self::Protobuf(_, reader) => reader.finish(),
        }
    }
}
