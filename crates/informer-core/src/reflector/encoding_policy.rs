//! Which forms answers are asked for in: protobuf too, until it is plain that something on the way breaks it.
//!
//! A single object that does not read is that object's trouble, and a body that ends early that of the connection. A body that is no protobuf
//! though it says so is what a proxy makes that takes every body for text, and it makes every one like that.

use super::machine::Reflector;
use super::server::MAX_MALFORMED_BODIES;
use super::state::Report;
use crate::wire::{BodyEncoding, BodyErrorKind, WireError};

impl Reflector {
    /// Notes that something of a body in this form was read.
    pub(super) fn record_readable_body(&mut self, form: BodyEncoding) {
        if form == BodyEncoding::Protobuf {
            self.server.encoding_policy.malformed = 0;
        }
    }

    /// Notes a body that could not be read on.
    pub(super) fn record_malformed_body(&mut self, error: &WireError) {
        if !matches!(error.kind, BodyErrorKind::Protobuf(_)) || self.server.encoding_policy.json_only {
            return;
        }
        self.server.encoding_policy.malformed += 1;
        if self.server.encoding_policy.malformed >= MAX_MALFORMED_BODIES {
            self.server.encoding_policy.json_only = true;
            self.report(Report::ProtobufAbandoned { because: error.to_string().into() });
        }
    }
}
