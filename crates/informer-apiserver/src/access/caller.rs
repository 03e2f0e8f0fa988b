//! The caller of an authorized request, and checks for the further permissions that some writes require.

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

    /// Rejects a role or a role binding that grants more than the caller has. Objects of other kinds are
    /// accepted. `attributes` are those of the write; `old` is the object that it replaces.
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
