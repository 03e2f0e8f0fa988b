//! `x-kubernetes-validations` without the feature `cel`: definitions with rules are rejected.
//!
//! It has the functions of the module `rules`.

use serde_json::Value;

use crate::schema::{Rule, Structural};
use crate::status::StatusCause;

const UNSUPPORTED: &str = "rules are not supported: informer-apiserver was built without its feature `cel`";

/// No compiled rules.
#[derive(Debug, Default)]
pub(crate) struct Programs;

impl Programs {
    pub(crate) fn of(_: &Structural) -> Programs {
        Programs
    }
}

/// Rejects a value whose schema has rules. Only definitions that were not checked have any.
pub(crate) fn check(
    schema: &Structural,
    _: &Programs,
    _: &Value,
    _: Option<&Value>,
    at: &str,
) -> Vec<StatusCause> {
    if schema.has_rules() { vec![StatusCause::new("InternalError", at, UNSUPPORTED)] } else { Vec::new() }
}

/// The result of checking a rule when its definition is stored.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RuleCheck {
    /// The error of the rule.
    pub rule: Option<String>,
    /// The error of its message expression.
    pub message: Option<String>,
    /// Whether the rule uses `oldSelf`.
    pub(crate) uses_old: bool,
}

/// Rejects every rule.
pub(crate) fn check_rules(rules: &[Rule], _: &Structural) -> Vec<RuleCheck> {
    rules.iter().map(|_| RuleCheck { rule: Some(UNSUPPORTED.to_owned()), ..RuleCheck::default() }).collect()
}
