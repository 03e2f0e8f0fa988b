//! Tokens: from the headers of a request to the user who sent it.
//!
//! No token, an empty one, or credentials of another kind are no lie: such a request is anonymous, where that is
//! allowed. Only a token that nobody knows is refused for its own sake.

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use informer_objects::status::Status;

use super::{ANONYMOUS, AUTHENTICATED, AccessControl, UNAUTHENTICATED};
use crate::user::User;

/// The tokens that are known.
pub(crate) struct Tokens {
    users: BTreeMap<String, User>,
    anonymous: bool,
}

impl Tokens {
    pub(crate) fn new(access: AccessControl) -> Self {
        let with_group = |(token, mut user): (String, User)| {
            user.join(AUTHENTICATED);
            (token, user)
        };
        Tokens { users: access.tokens.into_iter().map(with_group).collect(), anonymous: access.anonymous }
    }

    /// Whose token this is.
    pub(crate) fn user(&self, token: &str) -> Option<&User> {
        self.users.get(token)
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Tokens({} users)", self.users.len())
    }
}

/// Who sent a request.
pub(crate) fn authenticate(tokens: &Tokens, headers: &HeaderMap) -> Result<User, Status> {
    match bearer(headers) {
        Some(token) => tokens.user(token).cloned().ok_or_else(unauthorized),
        None if tokens.anonymous => Ok(User::new(ANONYMOUS).group(UNAUTHENTICATED)),
        None => Err(unauthorized()),
    }
}

fn unauthorized() -> Status {
    Status::new(401, "Unauthorized", "Unauthorized")
}

/// The token, unless there is none.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    // A token of other bytes than text is nobody's, but it is one.
    let value = headers.get(header::AUTHORIZATION)?.to_str().unwrap_or("Bearer \u{fffd}").trim();
    let (scheme, rest) = value.split_once(' ')?;
    let token = rest.split(' ').next().unwrap_or_default();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}
