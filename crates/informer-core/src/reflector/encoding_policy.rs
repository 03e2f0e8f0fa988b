//! Which encodings requests accept: protobuf and JSON, until protobuf bodies turn out to be corrupted on the
//! way.
//!
//! An object that cannot be read is no reason to give up protobuf, nor is a body that ends too early. But a
//! body that is declared as protobuf and does not parse as such is typical of a proxy that treats bodies as
//! text, and such a proxy corrupts all of them.

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

    /// Records a malformed body. After [`MAX_MALFORMED_BODIES`] consecutive malformed protobuf bodies, the
    /// reflector requests only JSON.
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
