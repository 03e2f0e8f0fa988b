//! The reader of a body, selected by the body's encoding.
//!
//! This is the only place that selects between the encodings while bytes are read. It does not know how an
//! encoding is recognized, nor how the output is used.

use super::error::WireError;
use super::field_filter::FieldFilter;
use super::frame::{Frame, ListItem};
use super::json::{ListReader, WatchReader};
use super::protobuf::{ProtobufListReader, ProtobufWatchReader};
use super::{Limits, TypeMeta};

/// The encoding of a response body or of a cached object, without the message type of protobuf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BodyEncoding {
    /// JSON.
    Json,
    /// The protobuf of the Kubernetes API.
    Protobuf,
}

macro_rules! body {
    ($(#[$about:meta])* $name:ident: $item:ident by $json:ident or $protobuf:ident) => {
        $(#[$about])*
        #[derive(Debug)]
        pub(crate) enum $name {
            Json(Box<$json>),
            Protobuf(Box<$protobuf>),
        }

        impl $name {
            /// Creates a reader for objects of this type; `None` for protobuf if the kind has none.
            pub(crate) fn new(
                encoding: BodyEncoding,
                type_meta: &TypeMeta,
                limits: Limits,
                field_filter: Option<&FieldFilter>,
            ) -> Option<Self> {
                let (type_meta, field_filter) = (type_meta.clone(), field_filter.cloned());
                Some(match encoding {
                    BodyEncoding::Json => Self::Json(Box::new($json::new(type_meta, limits).with_field_filter(field_filter))),
                    BodyEncoding::Protobuf => {
                        Self::Protobuf(Box::new($protobuf::new(type_meta, limits)?.with_field_filter(field_filter)))
                    }
                })
            }

            /// The encoding of this reader.
            pub(crate) fn encoding(&self) -> BodyEncoding {
                match self {
                    Self::Json(_) => BodyEncoding::Json,
                    Self::Protobuf(_) => BodyEncoding::Protobuf,
                }
            }

            /// Reads from the front of `chunk` up to the next item and returns it; `None` when the chunk is
            /// consumed.
            pub(crate) fn next(&mut self, chunk: &mut &[u8]) -> Result<Option<$item>, WireError> {
                match self {
                    Self::Json(reader) => reader.next(chunk),
                    Self::Protobuf(reader) => reader.next(chunk),
                }
            }

            /// Checks that the body may end here.
            pub(crate) fn finish(&self) -> Result<(), WireError> {
                match self {
                    Self::Json(reader) => reader.finish(),
                    Self::Protobuf(reader) => reader.finish(),
                }
            }
        }
    };
}

body! {
    /// A reader of a list's body.
    ListBody: ListItem by ListReader or ProtobufListReader
}

body! {
    /// A reader of a watch's body.
    WatchBody: Frame by WatchReader or ProtobufWatchReader
}
