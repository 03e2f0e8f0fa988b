//! Tokens: determines the user from the headers of a request.
//!
//! A bearer token is one that the server was configured with, or one of a service account. A request with
//! another bearer token is rejected. A request without a bearer token, with an empty one or
//! with other credentials is anonymous; it is rejected if anonymous requests are not allowed.

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use informer_objects::status::Status;

use super::{ANONYMOUS, AUTHENTICATED, AccessControl, UNAUTHENTICATED};
use crate::user::User;

/// The known tokens.
pub(crate) struct Tokens {
    users: BTreeMap<String, User>,
    /// The user of requests without a token; `None` if they are rejected.
    without_token: Option<User>,
}

impl Tokens {
    pub(crate) fn new(access: AccessControl) -> Self {
        let with_group = |(token, mut user): (String, User)| {
            user.join(AUTHENTICATED);
            (token, user)
        };
        let anonymous = || User::new(ANONYMOUS).group(UNAUTHENTICATED);
        Tokens {
            users: access.tokens.into_iter().map(with_group).collect(),
            without_token: access.anonymous.then(anonymous),
        }
    }

    /// Creates tokens in which all requests without a token are those of one authenticated user.
    pub(crate) fn of_user(mut user: User) -> Self {
        user.join(AUTHENTICATED);
        Tokens { users: BTreeMap::new(), without_token: Some(user) }
    }

    /// Returns the user of a token.
    pub(crate) fn user(&self, token: &str) -> Option<&User> {
        self.users.get(token)
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Tokens({} users)", self.users.len())
    }
}

/// Returns the user who sent a request. `account` returns the user of a service account's token.
pub(crate) fn authenticate(
    tokens: &Tokens,
    headers: &HeaderMap,
    account: impl FnOnce(&str) -> Option<User>,
) -> Result<User, Status> {
    match bearer(headers) {
        Some(token) => tokens.user(token).cloned().or_else(|| account(token)).ok_or_else(unauthorized),
        None => tokens.without_token.clone().ok_or_else(unauthorized),
    }
}

fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

/// Returns the bearer token, if there is one.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    // A header that is not text becomes an unknown token: the request is rejected instead of anonymous.
    let value = headers.get(header::AUTHORIZATION)?.to_str().unwrap_or("Bearer \u{fffd}").trim();
    let (scheme, credentials) = value.split_once(' ')?;
    let token = credentials.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
