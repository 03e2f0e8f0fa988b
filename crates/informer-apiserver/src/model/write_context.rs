//! The parameters and the result of a write.
//!
//! User, time and field validation are parameters of every write, so the model needs neither a clock nor
//! HTTP.

use std::sync::Arc;

use informer_objects::body::{Body, FieldValidation};
use informer_objects::patch::PatchKind;
use jiff::Timestamp;

use super::state::State;
use crate::user::User;

/// The parameters of a write.
#[derive(Debug, Clone)]
pub(crate) struct WriteContext {
    pub(crate) now: Timestamp,
    /// The field manager of the written fields.
    pub(crate) manager: String,
    /// Validates without storing anything.
    pub(crate) dry_run: bool,
    /// The handling of unknown and duplicate fields.
    pub(crate) field_validation: FieldValidation,
    /// The user who writes, for kinds that record the user.
    pub(crate) user: User,
    /// Lets an apply take fields from other managers.
    pub(crate) force: bool,
}

/// The source of a written object. Determines the wording of errors, and whether field owners must still be
/// recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteOrigin<'a> {
    /// The server itself, or the program in which it is embedded.
    Internal,
    /// The body of a create or an update.
    Body(&'a Body),
    /// A patch.
    Patch(PatchKind, &'a [u8]),
    /// An apply, or a write of a scale: its `managedFields` are already final.
    Apply,
}

/// The result of a write.
#[derive(Debug, Clone)]
pub(crate) struct WriteResult {
    pub(crate) state: Arc<State>,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

impl WriteContext {
    /// Returns the parameters of an ordinary write at a given time.
    pub(crate) fn at(now: Timestamp, manager: &str) -> Self {
        WriteContext {
            now,
            manager: manager.to_owned(),
            dry_run: false,
            field_validation: FieldValidation::Warn,
            user: User::default(),
            force: false,
        }
    }
}
