//! Which forms answers are asked for in: protobuf too, until it is plain that something on the way breaks it.
//!
//! A single object that does not read is that object's trouble, and a body that ends early that of the connection. A body that is no protobuf
//! though it says so is what a proxy makes that takes every body for text, and it makes every one like that.

use super::machine::Reflector;
use super::server::MOST_BROKEN;
use super::state::Report;
use crate::wire::{BodyProblem, Form, WireError};

impl Reflector {
    /// Notes that something of a body in this form was read.
    pub(super) fn note_read(&mut self, form: Form) {
        if form == Form::Protobuf {
            self.server.forms.broken = 0;
        }
    }

    /// Notes a body that could not be read on.
    pub(super) fn note_broken(&mut self, error: &WireError) {
        if !matches!(error.problem, BodyProblem::Protobuf(_)) || self.server.forms.json_only {
            return;
        }
        self.server.forms.broken += 1;
        if self.server.forms.broken >= MOST_BROKEN {
            self.server.forms.json_only = true;
            self.report(Report::ProtobufAbandoned { because: error.to_string().into() });
        }
    }
}
