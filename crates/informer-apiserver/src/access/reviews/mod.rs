//! Reviews: questions about access, sent by creating an object that is never stored.
//!
//! The response is the object with its status. The request was authenticated and authorized before.

mod access;
mod wire;

use informer_objects::status::Status;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::account_tokens::ISSUER;
use super::accounts;
use super::caller::Caller;
use super::policy::Rule;
use crate::shared::Shared;
use crate::user::User;
use wire::{Metadata, RulesSpec, TokenSpec, UserInfo, encode, read};

pub(crate) const AUTHORIZATION: &str = "authorization.k8s.io";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// A kind of review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Review {
    SelfSubjectAccess,
    SubjectAccess,
    LocalSubjectAccess,
    SelfSubjectRules,
    SelfSubject,
    Token,
}

/// The parts of a request that a review depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReviewRequest<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) caller: &'a Caller,
    /// The namespace in the path; empty if there is none.
    pub(crate) namespace: &'a str,
    /// The `User-Agent` header.
    pub(crate) agent: &'a str,
    pub(crate) now: Timestamp,
}

impl Review {
    /// Returns the kind of review that is created through a resource; `None` if it is not a resource of
    /// reviews.
    pub(crate) fn for_resource(group: &str, version: &str, plural: &str) -> Option<Self> {
        let review = match (group, plural) {
            (AUTHORIZATION, "selfsubjectaccessreviews") => Review::SelfSubjectAccess,
            (AUTHORIZATION, "subjectaccessreviews") => Review::SubjectAccess,
            (AUTHORIZATION, "localsubjectaccessreviews") => Review::LocalSubjectAccess,
            (AUTHORIZATION, "selfsubjectrulesreviews") => Review::SelfSubjectRules,
            (AUTHENTICATION, "selfsubjectreviews") => Review::SelfSubject,
            (AUTHENTICATION, "tokenreviews") => Review::Token,
            _ => return None,
        };
        (version == "v1").then_some(review)
    }

    /// Returns whether the review is created in a namespace.
    pub(crate) fn is_namespaced(self) -> bool {
        self == Review::LocalSubjectAccess
    }

    /// Returns the response to a review, as JSON.
    pub(crate) fn respond(self, request: &ReviewRequest<'_>, object: Value) -> Result<Vec<u8>, Status> {
        match self {
            Review::SelfSubjectAccess | Review::SubjectAccess | Review::LocalSubjectAccess => {
                access::respond(self, request, object)
            }
            Review::SelfSubjectRules => rules(request, object),
            Review::SelfSubject => self_subject(request, object),
            Review::Token => token(request, object),
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Review::SelfSubjectAccess => "SelfSubjectAccessReview",
            Review::SubjectAccess => "SubjectAccessReview",
            Review::LocalSubjectAccess => "LocalSubjectAccessReview",
            Review::SelfSubjectRules => "SelfSubjectRulesReview",
            Review::SelfSubject => "SelfSubjectReview",
            Review::Token => "TokenReview",
        }
    }

    fn api_version(self) -> &'static str {
        match self {
            Review::SelfSubject | Review::Token => "authentication.k8s.io/v1",
            _ => "authorization.k8s.io/v1",
        }
    }
}

/// Handles a `SelfSubjectRulesReview`: what the caller may do in a namespace.
fn rules(request: &ReviewRequest<'_>, object: Value) -> Result<Vec<u8>, Status> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct RulesStatus {
        resource_rules: Vec<Rule>,
        non_resource_rules: Vec<Rule>,
        incomplete: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        evaluation_error: Option<String>,
    }
    let review = Review::SelfSubjectRules;
    let given = read::<RulesSpec>(review, object)?;
    if given.spec.namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let (held, problems) = request.caller.rights.rules_for(&request.caller.user, &given.spec.namespace);
    let on_resources = |rule: &Rule| Rule { non_resource_urls: Vec::new(), ..rule.clone() };
    let at_paths = |rule: &Rule| Rule {
        verbs: rule.verbs.clone(),
        non_resource_urls: rule.non_resource_urls.clone(),
        ..Rule::default()
    };
    let status = RulesStatus {
        resource_rules: held.iter().filter(|rule| !rule.resources.is_empty()).map(on_resources).collect(),
        non_resource_rules: held
            .iter()
            .filter(|rule| !rule.non_resource_urls.is_empty())
            .map(at_paths)
            .collect(),
        incomplete: false,
        evaluation_error: problems,
    };
    // kube-apiserver does not return the requested spec.
    Ok(encode(review, Metadata::default(), Some(RulesSpec::default()), status))
}

/// Handles a `SelfSubjectReview`: who the caller is.
fn self_subject(request: &ReviewRequest<'_>, object: Value) -> Result<Vec<u8>, Status> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Me {
        user_info: UserInfo,
    }
    let review = Review::SelfSubject;
    // A SelfSubjectReview has no spec. Parsing it with any spec only rejects a malformed body.
    read::<RulesSpec>(review, object)?;
    let status = Me { user_info: UserInfo::of(&request.caller.user) };
    Ok(encode(review, Metadata::created(request.now), None::<()>, status))
}

/// Handles a `TokenReview`: which user a token belongs to.
fn token(request: &ReviewRequest<'_>, object: Value) -> Result<Vec<u8>, Status> {
    #[derive(Default, Serialize)]
    struct TokenStatus {
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        authenticated: bool,
        user: UserInfo,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        audiences: Vec<String>,
        #[serde(skip_serializing_if = "str::is_empty")]
        error: String,
    }
    let review = Review::Token;
    let given = read::<TokenSpec>(review, object)?;
    if given.spec.token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let token = given.spec.token.as_str();
    let audiences = match given.spec.audiences.as_slice() {
        [] => vec![ISSUER.to_owned()],
        audiences => audiences.to_vec(),
    };
    let authenticated = |user: &User, audiences: Vec<String>| TokenStatus {
        authenticated: true,
        user: UserInfo::of(user),
        audiences,
        error: String::new(),
    };
    let refused = |error: String| TokenStatus { error, ..TokenStatus::default() };
    // Configured tokens are meant for this server only.
    let tokens = request.caller.tokens.as_ref().filter(|_| audiences.iter().any(|name| name == ISSUER));
    let status = match tokens.and_then(|tokens| tokens.user(token)) {
        Some(user) => authenticated(user, vec![ISSUER.to_owned()]),
        None => match accounts::authenticate(request.shared, token, &audiences) {
            Some(Ok(account)) => authenticated(&account.user, account.audiences),
            Some(Err(why)) => refused(format!("[invalid bearer token, {why}]")),
            // Without access control there are no other tokens.
            None if request.caller.tokens.is_none() => TokenStatus::default(),
            None => refused("invalid bearer token".to_owned()),
        },
    };
    let metadata = Metadata::managed(review, request, &given.spec);
    Ok(encode(review, metadata, Some(given.spec), status))
}

impl UserInfo {
    fn of(user: &User) -> Self {
        UserInfo {
            username: user.name.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
        }
    }
}
