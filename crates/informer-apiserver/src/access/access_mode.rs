//! Authenticates and authorizes each request before its body is read.
//!
//! Keeps a snapshot of the roles and role bindings, and replaces it when one of them has changed.

use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use informer_objects::status::Status;
use serde_json::Value;

use super::account_tokens::ISSUER;
use super::authenticate::{Tokens, authenticate};
use super::caller::Caller;
use super::forbidden::authorize;
use super::impersonate::impersonate;
use super::rules::Rights;
use super::{AUTHENTICATED, AccessControl, Attributes, RBAC, Rules, accounts, bootstrap};
use crate::model::{Model, Objects, Paging, ReadVersion};
use crate::shared::Shared;
use crate::user::User;

/// Whether a service enforces access control.
#[derive(Debug, Clone)]
pub(crate) enum AccessMode {
    /// Every request is that of this user, who may do anything.
    Open(Arc<User>),
    /// Every request is authenticated and authorized.
    Enforced(Arc<AccessEnforcer>),
}

/// A rejected request.
#[derive(Debug)]
pub(crate) struct Refused {
    /// The name of the user; empty if the request could not be authenticated.
    pub(crate) user: String,
    pub(crate) status: Status,
}

impl AccessMode {
    /// Enables access control. The default roles and bindings are created if they are missing.
    pub(crate) fn enforced(shared: &Shared, access: AccessControl) -> Self {
        AccessMode::with_tokens(shared, Tokens::new(access))
    }

    /// Enables access control for requests that are all those of one user. The default roles and bindings are
    /// created if they are missing.
    pub(crate) fn of_user(shared: &Shared, user: User) -> Self {
        AccessMode::with_tokens(shared, Tokens::of_user(user))
    }

    fn with_tokens(shared: &Shared, tokens: Tokens) -> Self {
        let now = shared.clock.now();
        shared.model(|model| bootstrap::create_missing(model, now));
        AccessMode::Enforced(Arc::new(AccessEnforcer {
            tokens: Arc::new(tokens),
            snapshot: Mutex::default(),
        }))
    }

    /// Authenticates and authorizes a request, with impersonation. Returns its caller.
    pub(crate) fn admit(&self, shared: &Shared, parts: &Parts) -> Result<Caller, Refused> {
        let (user, rights, tokens) = match self {
            AccessMode::Open(user) => (User::clone(user).group(AUTHENTICATED), Rights::All, None),
            AccessMode::Enforced(enforcer) => {
                let user = authenticate(&enforcer.tokens, &parts.headers, |token| user_of(shared, token))
                    .map_err(|status| Refused { user: String::new(), status })?;
                (user, Rights::Rules(enforcer.rules(shared)), Some(enforcer.tokens.clone()))
            }
        };
        let attributes =
            Attributes::of(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
        let name = user.name.clone();
        let user = impersonate(&rights, user, &attributes, &parts.headers)
            .map_err(|status| Refused { user: name, status })?;
        authorize(&rights, &user, &attributes)
            .map_err(|status| Refused { user: user.name.clone(), status })?;
        Ok(Caller { user, rights, tokens })
    }
}

/// Returns the user of a service account's token that is meant for this server.
fn user_of(shared: &Shared, token: &str) -> Option<User> {
    let account = accounts::authenticate(shared, token, &[ISSUER.to_owned()])?;
    account.ok().map(|account| account.user)
}

/// The state of access control of one service.
#[derive(Debug)]
pub(crate) struct AccessEnforcer {
    tokens: Arc<Tokens>,
    snapshot: Mutex<Option<Snapshot>>,
}

/// A snapshot of the rules, and the collections that it was created from.
#[derive(Debug)]
struct Snapshot {
    sources: [Objects; 4],
    rules: Arc<Rules>,
}

/// Resources that rules are read from, in the order of the parameters of [`Rules::new`].
const SOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

impl AccessEnforcer {
    fn rules(&self, shared: &Shared) -> Arc<Rules> {
        let sources = shared.model(|model| SOURCES.map(|plural| objects(model, plural)));
        let mut snapshot = self.snapshot.lock().unwrap_or_else(PoisonError::into_inner);
        // Copies of a collection share structure, so the same root means that nothing was written in between.
        let same =
            |snapshot: &Snapshot| snapshot.sources.iter().zip(&sources).all(|(old, new)| old.ptr_eq(new));
        if let Some(snapshot) = snapshot.as_ref().filter(|snapshot| same(snapshot)) {
            return snapshot.rules.clone();
        }
        let rules = Arc::new(read_rules(&sources));
        *snapshot = Some(Snapshot { sources, rules: rules.clone() });
        rules
    }
}

fn objects(model: &mut Model, plural: &str) -> Objects {
    let gvr = model.registry().resource(RBAC, "v1", plural);
    let listing = gvr.and_then(|gvr| model.list(gvr, "", &ReadVersion::Newest, Paging::Unpaged).ok());
    listing.map(|listing| listing.objects).unwrap_or_default()
}

fn read_rules(sources: &[Objects; 4]) -> Rules {
    let [cluster_roles, roles, cluster_bindings, bindings] = sources;
    let values = |objects: &Objects| -> Vec<Value> { objects.values().map(|state| state.decode()).collect() };
    Rules::new(
        values(cluster_roles).into_iter(),
        values(roles).into_iter(),
        values(cluster_bindings).into_iter(),
        values(bindings).into_iter(),
    )
}
