//! The reader of a body, picked by the encoding in which the body comes.
//!
//! This is the only place that chooses between the forms while bytes are read. It must not know how a encoding is recognized, nor what becomes of
//! what is read.

use super::field_filter::FieldFilter;
use super::frame::{Frame, ListItem};
use super::json::{ListReader, WatchReader};
use super::problem::WireError;
use super::protobuf::{ProtobufListReader, ProtobufWatchReader};
use super::{Limits, TypeMeta};

/// The forms in which a body may come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    Json,
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
            /// A reader for objects of this type; `None` if the kind does not come in this encoding.
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

            /// The encoding that it reads.
            pub(crate) fn encoding(&self) -> BodyEncoding {
                match self {
                    Self::Json(_) => BodyEncoding::Json,
                    Self::Protobuf(_) => BodyEncoding::Protobuf,
                }
            }

            /// Reads the next chunk and calls `on` with each value that it completes.
            pub(crate) fn read(&mut self, chunk: &[u8], on: impl FnMut($item)) -> Result<(), WireError> {
                match self {
                    Self::Json(reader) => reader.read(chunk, on),
                    Self::Protobuf(reader) => reader.read(chunk, on),
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
    /// The body of a list.
    ListBody: ListItem by ListReader or ProtobufListReader
}

body! {
    /// The body of a watch.
    WatchBody: Frame by WatchReader or ProtobufWatchReader
}
