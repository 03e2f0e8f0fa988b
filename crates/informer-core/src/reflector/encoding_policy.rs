//! Which forms answers are asked for in: protobuf too, until it is plain that something on the way breaks it.
//!
//! A single object that does not read is that object's trouble, and a body that ends early that of the connection. A body that is no protobuf
//! though it says so is what a proxy makes that takes every body for text, and it makes every one like that.

use super::diagnostic::ReflectorDiagnostic;
use super::failure::Failure;
use super::machine::Reflector;
use super::server::MAX_MALFORMED_BODIES;
use crate::wire::{BodyEncoding, BodyErrorKind, WireError};

impl Reflector {
    /// Records that part of a body in this encoding was read.
    pub(super) fn record_readable_body(&mut self, encoding: BodyEncoding) {
        if encoding == BodyEncoding::Protobuf {
            self.server.encoding_policy.malformed = 0;
        }
    }

    /// Records a malformed body; after [`MAX_MALFORMED_BODIES`] protobuf bodies, only JSON is requested.
    pub(super) fn record_malformed_body(&mut self, error: &WireError) {
        if !matches!(error.kind, BodyErrorKind::Protobuf(_)) || self.server.encoding_policy.json_only {
            return;
        }
        self.server.encoding_policy.malformed += 1;
        if self.server.encoding_policy.malformed >= MAX_MALFORMED_BODIES {
            self.server.encoding_policy.json_only = true;
            self.report(ReflectorDiagnostic::ProtobufDisabled { failure: Failure::from(error) });
        }
    }
}
