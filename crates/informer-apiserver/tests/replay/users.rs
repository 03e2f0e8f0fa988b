//! The user of each step; the recordings contain no tokens.

use informer_apiserver::{AccessControl, User};

const ADMIN: &str = "admin-token";
const LIMITED: &str = "limited-token";

/// Steps of the limited user whose names do not say so.
const LIMITED_STEPS: &[&str] = &[
    "access-review-denied",
    "access-review-allowed",
    "access-review-nonresource",
    "access-review-empty",
    "rules-review",
    "whoami",
    "impersonate-by-limited",
    "role-gone-list",
];

/// The users of the recorded server.
pub(crate) fn access(file: &str) -> AccessControl {
    let limited = User::new("limited").uid("limited-user").group("");
    let access = AccessControl::new().token(ADMIN, User::admin("admin").uid("admin")).token(LIMITED, limited);
    access.anonymous(file != "auth_no_anonymous")
}

/// Returns the `Authorization` header of a step.
pub(crate) fn authorization(step: &str) -> Option<String> {
    let token = match step {
        "basic-auth" => return Some("Basic YTpi".to_owned()),
        "empty-bearer" => return Some("Bearer ".to_owned()),
        step if step.starts_with("no-token") => return None,
        step if step.starts_with("bad-token") => "not-a-token",
        step if step.starts_with("limited-") || step.starts_with("bound-") => LIMITED,
        step if LIMITED_STEPS.contains(&step) => LIMITED,
        _ => ADMIN,
    };
    Some(format!("Bearer {token}"))
}
