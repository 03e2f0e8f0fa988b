//! Somebody whose request was let in: the user, and what they may do besides.

use std::sync::Arc;

use informer_objects::status::Status;
use serde_json::Value;

use super::authenticate::Tokens;
use super::forbidden::authorize;
use super::rules::Rights;
use super::{Attributes, escalation};
use crate::user::User;

/// Who sent a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) user: User,
    pub(crate) rights: Rights,
    /// None where no tokens are looked at.
    pub(crate) tokens: Option<Arc<Tokens>>,
}

impl Caller {
    /// Refuses what the caller may not do.
    pub(crate) fn authorize(&self, wanted: &Attributes) -> Result<(), Status> {
        authorize(&self.rights, &self.user, wanted)
    }

    /// Refuses a role or a binding that would give more rights than the caller has; `old` is what it replaces, and
    /// `place` says where the request would write it. Anything else passes.
    pub(crate) fn check_escalation(
        &self,
        place: &Attributes,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        match &self.rights {
            Rights::All => Ok(()),
            Rights::Rules(rules) => escalation::check(rules, &self.user, place, object, old),
        }
    }
}
