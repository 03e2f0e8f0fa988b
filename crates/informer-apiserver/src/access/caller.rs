//! Somebody whose request was let in: the user, and what they may do besides.

use std::sync::Arc;

use serde_json::Value;

use super::authenticate::Tokens;
use super::forbidden::authorize;
use super::policy::Rule;
use super::rules::{Decision, Rules};
use super::{Attributes, User, escalation};
use crate::status::Status;

/// What anybody may do.
#[derive(Debug, Clone)]
pub(crate) enum Rights {
    /// Everything: there is no access control.
    All,
    /// What the roles say.
    Rules(Arc<Rules>),
}

/// Who sent a request.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    pub(crate) user: User,
    pub(crate) rights: Rights,
    /// None where no tokens are looked at.
    pub(crate) tokens: Option<Arc<Tokens>>,
}

impl Rights {
    pub(crate) fn decide(&self, user: &User, wanted: &Attributes) -> Decision {
        match self {
            Rights::All => Decision::Allowed(String::new()),
            Rights::Rules(rules) => rules.decide(user, wanted),
        }
    }

    /// All rules for a user in a namespace, and what went wrong while they were looked up.
    pub(crate) fn of(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
        match self {
            Rights::All => (vec![Rule::on(&["*"], &["*"], &["*"]), Rule::at(&["*"], &["*"])], None),
            Rights::Rules(rules) => {
                let (found, problems) = rules.of(user, namespace);
                (found.into_iter().cloned().collect(), problems)
            }
        }
    }
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
