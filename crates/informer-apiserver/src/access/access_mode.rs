//! The gate: who may come in, asked of each request before its body is read.
//!
//! The gate keeps a snapshot of the roles and bindings and makes a new one when one of them has changed. It is the
//! only part of access control that looks at the server.

use std::sync::{Arc, Mutex, PoisonError};

use http::request::Parts;
use informer_objects::status::Status;
use serde_json::Value;

use super::authenticate::{Tokens, authenticate};
use super::caller::Caller;
use super::forbidden::authorize;
use super::impersonate::impersonate;
use super::rules::Rights;
use super::{AUTHENTICATED, AccessControl, Attributes, RBAC, Rules, bootstrap};
use crate::model::{Model, Objects, ReadVersion};
use crate::shared::Shared;
use crate::user::User;

/// The way into a server.
#[derive(Debug, Clone)]
pub(crate) enum AccessMode {
    /// Everybody is an administrator.
    Open,
    /// Everybody is asked for a token.
    Enforced(Arc<AccessEnforcer>),
}

/// Somebody who is not let in.
#[derive(Debug)]
pub(crate) struct Refused {
    /// Empty if that is not known.
    pub(crate) user: String,
    pub(crate) status: Status,
}

impl AccessMode {
    /// Sets up access control: the roles and bindings that every server has are created if they are missing.
    pub(crate) fn enforced(shared: &Shared, access: AccessControl) -> Self {
        let now = shared.now();
        shared.model(|model| bootstrap::create_missing(model, now));
        AccessMode::Enforced(Arc::new(AccessEnforcer {
            tokens: Arc::new(Tokens::new(access)),
            known: Mutex::default(),
        }))
    }

    /// Lets a request in, or says why not.
    pub(crate) fn admit(&self, shared: &Shared, parts: &Parts) -> Result<Caller, Refused> {
        let (user, rights, tokens) = match self {
            AccessMode::Open => (User::admin("admin").group(AUTHENTICATED), Rights::All, None),
            AccessMode::Enforced(gate) => {
                let user = authenticate(&gate.tokens, &parts.headers)
                    .map_err(|status| Refused { user: String::new(), status })?;
                (user, Rights::Rules(gate.rules(shared)), Some(gate.tokens.clone()))
            }
        };
        let wanted = Attributes::of(&parts.method, parts.uri.path(), parts.uri.query().unwrap_or_default());
        let name = user.name.clone();
        let user = impersonate(&rights, user, &wanted, &parts.headers)
            .map_err(|status| Refused { user: name, status })?;
        authorize(&rights, &user, &wanted).map_err(|status| Refused { user: user.name.clone(), status })?;
        Ok(Caller { user, rights, tokens })
    }
}

/// A server's access control.
#[derive(Debug)]
pub(crate) struct AccessEnforcer {
    tokens: Arc<Tokens>,
    known: Mutex<Option<Known>>,
}

/// Rules, and what they were read from.
#[derive(Debug)]
struct Known {
    from: [Objects; 4],
    rules: Arc<Rules>,
}

/// Where rules come from, in the order in which [`Rules::new`] takes them.
const SOURCES: [&str; 4] = ["clusterroles", "roles", "clusterrolebindings", "rolebindings"];

impl AccessEnforcer {
    fn rules(&self, shared: &Shared) -> Arc<Rules> {
        let from = shared.model(|model| SOURCES.map(|plural| objects(model, plural)));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        // Copies of a collection share everything, so the same root means that nothing was written in between.
        let same = |known: &Known| known.from.iter().zip(&from).all(|(old, new)| old.ptr_eq(new));
        if let Some(known) = known.as_ref().filter(|known| same(known)) {
            return known.rules.clone();
        }
        let rules = Arc::new(read(&from));
        *known = Some(Known { from, rules: rules.clone() });
        rules
    }
}

fn objects(model: &mut Model, plural: &str) -> Objects {
    let place = model.registry().resource(RBAC, "v1", plural);
    let listing = place.and_then(|place| model.list(place, "", &ReadVersion::Newest, false).ok());
    listing.map(|listing| listing.objects).unwrap_or_default()
}

fn read(from: &[Objects; 4]) -> Rules {
    let [cluster_roles, roles, cluster_bindings, bindings] = from;
    let values = |objects: &Objects| -> Vec<Value> { objects.values().map(|state| state.decode()).collect() };
    Rules::new(
        values(cluster_roles).into_iter(),
        values(roles).into_iter(),
        values(cluster_bindings).into_iter(),
        values(bindings).into_iter(),
    )
}
