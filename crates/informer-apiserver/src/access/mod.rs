//! Who asks, and what they may: tokens, users, impersonation, RBAC, and the reviews that answer questions about it.
//!
//! Everything that decides is pure: it works on headers, on a snapshot of the stored roles and bindings ([`Rules`]),
//! and on what a request is about ([`Attributes`]). Only the gate looks at the server. Nobody here reads a request's
//! body before its sender is known to be allowed to send it, and nothing here knows how an answer is encoded.

mod access_mode;
mod attributes;
mod authenticate;
mod bootstrap;
mod caller;
mod escalation;
mod forbidden;
mod impersonate;
mod policy;
mod reviews;
mod rules;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use informer_objects::text::quoted;

pub(crate) use access_mode::{AccessMode, Refused};
pub(crate) use attributes::Attributes;
pub(crate) use caller::Caller;
pub(crate) use reviews::{Review, ReviewRequest};
pub(crate) use rules::Rules;

use crate::user::User;
/// The group of everybody with a valid token.
const AUTHENTICATED: &str = "system:authenticated";
/// The group of everybody without a token.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Who comes without a token.
const ANONYMOUS: &str = "system:anonymous";
/// The API group of roles and bindings.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// Access control: which tokens are known, and whether one is needed at all. What users may do then follows from the
/// roles and bindings in the server, as it does with RBAC in a cluster.
///
/// ```
/// use informer_apiserver::{AccessControl, ApiServer, User};
///
/// let server = ApiServer::new();
/// let access = AccessControl::new().token("s3cret", User::admin("admin")).token("other", User::new("limited"));
/// let service = server.service_with_access(access);
/// ```
#[derive(Clone)]
#[must_use]
pub struct AccessControl {
    tokens: BTreeMap<String, User>,
    anonymous: bool,
}

impl Default for AccessControl {
    fn default() -> Self {
        AccessControl::new()
    }
}

impl AccessControl {
    /// No token is known, and who has none is `system:anonymous`.
    pub fn new() -> Self {
        AccessControl { tokens: BTreeMap::new(), anonymous: true }
    }

    /// Whoever shows this token is this user.
    pub fn token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.insert(token.into(), user);
        self
    }

    /// Whether requests without a token are somebody's. If not, they get 401.
    pub fn anonymous(self, allowed: bool) -> Self {
        AccessControl { anonymous: allowed, ..self }
    }
}

impl std::fmt::Debug for AccessControl {
    /// Tokens are secrets, so only the users are shown.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users: Vec<&str> = self.tokens.values().map(User::name).collect();
        out.debug_struct("Access").field("users", &users).field("anonymous", &self.anonymous).finish()
    }
}

/// Texts as `%q` writes a list of them.
fn quoted_list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(" "))
}
