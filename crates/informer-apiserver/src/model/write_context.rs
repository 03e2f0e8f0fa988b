//! How a write is asked for, and what comes of it.
//!
//! Who writes, when, and how strictly the body is read are parameters of every write, so that the model needs no clock and no
//! HTTP to know them.

use std::sync::Arc;

use informer_objects::body::{Body, FieldValidation};
use informer_objects::patch::PatchKind;
use jiff::Timestamp;

use super::state::State;
use crate::user::User;

/// The circumstances of a write.
#[derive(Debug, Clone)]
pub(crate) struct WriteContext {
    pub(crate) now: Timestamp,
    /// Who owns the fields that are written.
    pub(crate) manager: String,
    /// Everything is checked and nothing is stored.
    pub(crate) dry_run: bool,
    /// What happens to fields that nobody knows, and to fields that come twice.
    pub(crate) field_validation: FieldValidation,
    /// Who asks, where an object says so.
    pub(crate) user: User,
    /// An apply takes fields away from other managers.
    pub(crate) force: bool,
}

/// Where an object that is written comes from: what is wrong with it is worded by that.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteOrigin<'a> {
    /// From the server itself, or from the program it is embedded in.
    Internal,
    /// From the body of a create or an update.
    Body(&'a Body),
    /// From a patch.
    Patch(PatchKind, &'a [u8]),
    /// From an apply: it says who owns what already.
    Apply,
}

/// What came of a write.
#[derive(Debug, Clone)]
pub(crate) struct WriteResult {
    pub(crate) state: Arc<State>,
    pub(crate) created: bool,
    pub(crate) warnings: Vec<String>,
}

impl WriteContext {
    /// A plain write, right now.
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
