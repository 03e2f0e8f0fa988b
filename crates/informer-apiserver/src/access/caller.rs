//! The caller of an accepted request, and what else it may do.

use std::sync::Arc;

use informer_objects::status::Status;
use serde_json::Value;

use super::authenticate::Tokens;
use super::forbidden::authorize;
use super::rules::Rights;
use super::{Attributes, escalation};
use crate::user::User;

/// The sender of a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) user: User,
    pub(crate) rights: Rights,
    /// `None` without access control.
    pub(crate) tokens: Option<Arc<Tokens>>,
}

impl Caller {
    /// Returns an error unless the caller may perform a request with these attributes.
    pub(crate) fn authorize(&self, attributes: &Attributes) -> Result<(), Status> {
        authorize(&self.rights, &self.user, attributes)
    }

    /// Rejects a role or a binding that grants more than the caller has. `old` is the replaced object, and
    /// `attributes` are those of the write. Other objects are accepted.
    pub(crate) fn check_escalation(
        &self,
        attributes: &Attributes,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        match &self.rights {
            Rights::All => Ok(()),
            Rights::Rules(rules) => escalation::check(rules, &self.user, attributes, object, old),
        }
    }
}
