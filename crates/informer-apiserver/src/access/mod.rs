//! Authentication and authorization: tokens, users, service accounts, impersonation, RBAC and access reviews.
//!
//! All decisions are pure functions of headers, the known tokens, a snapshot of the stored roles and role
//! bindings ([`Rules`]) and the attributes of the request ([`Attributes`]). In this module, a binding is a
//! `RoleBinding` or a `ClusterRoleBinding`. [`AccessMode`] and `accounts` read the stored objects, and
//! `bootstrap` creates the default ones. A request is authorized before its body is read.

mod access_mode;
mod account_tokens;
pub(crate) mod accounts;
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
/// Group of all users with a valid token.
const AUTHENTICATED: &str = "system:authenticated";
/// Group of requests without a token.
const UNAUTHENTICATED: &str = "system:unauthenticated";
/// User of requests without a token.
const ANONYMOUS: &str = "system:anonymous";
/// The API group of roles and role bindings.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// Access control: the known tokens, and whether requests without a token are allowed.
///
/// The RBAC roles and bindings in the server determine what a user may do, as in a cluster. Use it with
/// [`ApiServer::service_with_access`](crate::ApiServer::service_with_access).
/// [`ListenOptions`](crate::ListenOptions) has the same settings for a server on a socket.
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
    /// Creates access control without tokens, in which requests without a token are accepted as
    /// `system:anonymous`.
    pub fn new() -> Self {
        AccessControl { tokens: BTreeMap::new(), anonymous: true }
    }

    /// Adds a token. Requests with it are those of this user, who also becomes a member of
    /// `system:authenticated`.
    pub fn token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.insert(token.into(), user);
        self
    }

    /// Sets whether requests without a token are accepted as user `system:anonymous`. Defaults to `true`.
    ///
    /// If they are not accepted, they get 401.
    pub fn anonymous(self, allowed: bool) -> Self {
        AccessControl { anonymous: allowed, ..self }
    }
}

impl std::fmt::Debug for AccessControl {
    /// Shows the names of the users but not the tokens.
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let users: Vec<&str> = self.tokens.values().map(User::name).collect();
        out.debug_struct("AccessControl").field("users", &users).field("anonymous", &self.anonymous).finish()
    }
}

/// Formats strings as Go's `%q` formats a list of them.
fn quoted_list(texts: &[String]) -> String {
    let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    format!("[{}]", texts.join(" "))
}
