//! Service accounts: issues tokens (`serviceaccounts/token`), and finds the user of a token.
//!
//! A token is valid as long as the account and the object that it is bound to exist: a new object with the
//! same name has another uid. Errors are those of kube-apiserver, which remembers valid tokens for some
//! seconds; here a deletion has an effect immediately.

use std::sync::Arc;

use informer_objects::builtin;
use informer_objects::field_management::{self, Manager};
use informer_objects::schema::Node;
use informer_objects::status::{Status, StatusCause};
use informer_objects::text::times;
use informer_objects::text::versions::split_api_version;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::account_tokens::{BoundClaims, Claims, ISSUER, LEEWAY_SECONDS, ObjectClaim};
use crate::model::{Model, State, WriteContext};
use crate::random::SecretKey;
use crate::shared::Shared;
use crate::user::User;

/// The group and version of [`KIND`].
pub(crate) const API_VERSION: &str = "authentication.k8s.io/v1";
/// The kind of a request for a token.
pub(crate) const KIND: &str = "TokenRequest";

/// The API group of [`KIND`].
const GROUP: &str = "authentication.k8s.io";

/// Validity of a token if the request does not name one.
const DEFAULT_SECONDS: i64 = 3_600;
/// Minimum validity of a token.
const MIN_SECONDS: i64 = 600;
/// Maximum validity of a token.
const MAX_SECONDS: i64 = 1 << 32;

/// A valid token of a service account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) user: User,
    /// Those of the requested audiences that the token is meant for.
    pub(super) audiences: Vec<String>,
}

/// Returns the account of a token that is meant for one of the audiences; `None` if it is not a token of this
/// server.
pub(super) fn authenticate(
    shared: &Shared,
    token: &str,
    audiences: &[String],
) -> Option<Result<Account, String>> {
    let claims = match Claims::verify(shared.signing_key()?, token)? {
        Ok(claims) => claims,
        Err(why) => return Some(Err(why)),
    };
    let now = shared.clock.now();
    let check = || {
        let audiences = claims.check_audiences(audiences)?;
        claims.check_time(now)?;
        shared.model(|model| check_objects(model, &claims.bound, now))?;
        Ok(Account { user: claims.user(), audiences })
    };
    Some(check())
}

/// Returns an error unless the account and the bound object of a token exist.
fn check_objects(model: &Model, bound: &BoundClaims, now: Timestamp) -> Result<(), String> {
    let BoundClaims { namespace, node, pod, secret, serviceaccount: account } = bound;
    let stored = get(model, "serviceaccounts", namespace, &account.name)
        .ok_or_else(|| format!("serviceaccounts \"{}\" not found", account.name))?;
    if is_deleted(&stored, now) {
        return Err(format!("service account {namespace}/{} has been deleted", account.name));
    }
    if stored.uid != account.uid {
        let claimed = &account.uid;
        return Err(format!("service account UID ({}) does not match claim ({claimed})", stored.uid));
    }
    // The node of a pod may be gone: the token is bound to the pod.
    let node = node.as_ref().filter(|_| pod.is_none());
    for (kind, object) in [("secret", secret.as_ref()), ("pod", pod.as_ref()), ("node", node)] {
        let Some(object) = object else { continue };
        let namespace = if kind == "node" { "" } else { namespace };
        let stored = get(model, &format!("{kind}s"), namespace, &object.name);
        let stored = stored.filter(|stored| !is_deleted(stored, now));
        let stored = stored.ok_or("service account token has been invalidated")?;
        if stored.uid != object.uid {
            let claimed = &object.uid;
            let uids = format!("{kind} UID ({}) does not match service account", stored.uid);
            return Err(format!("{uids} {kind} ref claim ({claimed})"));
        }
    }
    Ok(())
}

/// Returns whether the deletion of an object began longer ago than clocks may differ.
fn is_deleted(state: &State, now: Timestamp) -> bool {
    let deleted = || -> Option<Timestamp> {
        state.decode().pointer("/metadata/deletionTimestamp")?.as_str()?.parse().ok()
    };
    let leeway = SignedDuration::from_secs(LEEWAY_SECONDS);
    state.terminating && deleted().is_some_and(|deleted| now.duration_since(deleted) > leeway)
}

/// Returns the response to a request for a token of an account.
pub(crate) fn issue(
    model: &Model,
    key: &SecretKey,
    context: &WriteContext,
    (namespace, name): (&str, &str),
    token_id: String,
    mut request: Value,
) -> Result<Value, Status> {
    if get(model, "namespaces", "", namespace).is_none() {
        return Err(Status::not_found("", "namespaces", namespace));
    }
    let account = get(model, "serviceaccounts", namespace, name)
        .ok_or_else(|| Status::not_found("", "serviceaccounts", name))?;
    complete_request(&account, context, &mut request)?;
    let audiences = &request["spec"]["audiences"];
    let audiences: Vec<String> = serde_json::from_value(audiences.clone()).unwrap_or_default();
    let seconds = request["spec"]["expirationSeconds"].as_i64().unwrap_or(DEFAULT_SECONDS);
    check_validity(seconds)?;
    let bound = bound_claims(model, &account, &request["spec"]["boundObjectRef"])?;
    let issued = context.now.as_second();
    let expires = issued.saturating_add(seconds);
    let claims = Claims {
        audiences,
        expires,
        issued,
        issuer: ISSUER.to_owned(),
        id: token_id,
        bound,
        not_before: issued,
        subject: format!("system:serviceaccount:{namespace}:{name}"),
    };
    let expiration = Timestamp::from_second(expires).unwrap_or(Timestamp::MAX);
    request["status"] = json!({"token": claims.sign(key), "expirationTimestamp": times::written(expiration)});
    Ok(request)
}

/// Checks the metadata of a request against those of the account, and sets the fields that are missing.
fn complete_request(account: &State, context: &WriteContext, request: &mut Value) -> Result<(), Status> {
    let text = |field: &str| request["metadata"][field].as_str().unwrap_or_default().to_owned();
    let (name, uid) = (text("name"), text("uid"));
    if !name.is_empty() && name != account.name {
        let message = format!("Invalid value: \"{name}\": must match the service account name if specified");
        let cause = StatusCause::new("FieldValueInvalid", "metadata.name", message);
        return Err(Status::invalid(GROUP, KIND, &account.name, vec![cause]));
    }
    if !uid.is_empty() && uid != account.uid {
        let own = &account.uid;
        let why = format!(
            "the UID in the token request ({uid}) does not match the UID of the service account ({own})"
        );
        return Err(Status::conflict(GROUP, KIND, &account.name, &why));
    }
    let time = times::written(context.now);
    // The body may lack each of these objects, or contain null.
    for field in ["metadata", "spec"] {
        if !request[field].is_object() {
            request[field] = json!({});
        }
    }
    request["apiVersion"] = json!(API_VERSION);
    request["kind"] = json!(KIND);
    let metadata = &mut request["metadata"];
    metadata["name"] = json!(account.name);
    metadata["namespace"] = json!(account.namespace);
    metadata["uid"] = json!(account.uid);
    metadata["creationTimestamp"] = json!(time);
    if request["spec"]["expirationSeconds"].is_null() {
        request["spec"]["expirationSeconds"] = json!(DEFAULT_SECONDS);
    }
    let manager = Manager {
        name: &context.manager,
        subresource: "token",
        api_version: API_VERSION,
        kind: KIND,
        time: &time,
        reset: &[],
    };
    let schema = builtin::type_of(GROUP, "v1", KIND).map_or(Node::Unknown, Node::of);
    field_management::updated(schema, None, request, &manager);
    // What follows is set by the server, so nobody owns it.
    let spec = &mut request["spec"];
    if spec["audiences"].as_array().is_none_or(Vec::is_empty) {
        spec["audiences"] = json!([ISSUER]);
    }
    if spec["boundObjectRef"].is_null() {
        // Shown even if it is missing.
        spec["boundObjectRef"] = Value::Null;
    }
    Ok(())
}

fn check_validity(seconds: i64) -> Result<(), Status> {
    let why = match seconds {
        ..MIN_SECONDS => "may not specify a duration less than 10 minutes",
        MIN_SECONDS..=MAX_SECONDS => return Ok(()),
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let message = format!("Invalid value: {seconds}: {why}");
    let cause = StatusCause::new("FieldValueInvalid", "spec.expirationSeconds", message);
    Err(Status::invalid(GROUP, KIND, "", vec![cause]))
}

/// Returns the claims about the account and the object that a token is bound to.
fn bound_claims(model: &Model, account: &State, reference: &Value) -> Result<BoundClaims, Status> {
    let mut bound = BoundClaims {
        namespace: account.namespace.clone(),
        serviceaccount: claim(account),
        ..BoundClaims::default()
    };
    if reference.is_null() {
        return Ok(bound);
    }
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    let (group, version) = split_api_version(text("apiVersion"));
    let (kind, name, uid) = (text("kind"), text("name"), text("uid"));
    let plural = match (group, kind) {
        ("", "Pod") => "pods",
        ("", "Secret") => "secrets",
        ("", "Node") => "nodes",
        _ => {
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    if name.is_empty() {
        return Err(Status::bad_request("Name parameter required."));
    }
    let namespace = if kind == "Node" { "" } else { &account.namespace };
    let object = get(model, plural, namespace, name).ok_or_else(|| Status::not_found("", plural, name))?;
    if kind == "Pod" {
        bound.node = node_of_pod(model, account, &object.decode())?;
    }
    if !uid.is_empty() && uid != object.uid {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might \
             have been deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    let claim = Some(claim(&object));
    match kind {
        "Pod" => bound.pod = claim,
        "Secret" => bound.secret = claim,
        _ => bound.node = claim,
    }
    Ok(bound)
}

/// Returns the node of a pod, if the pod has one. Fails unless the pod runs as the account.
fn node_of_pod(model: &Model, account: &State, pod: &Value) -> Result<Option<ObjectClaim>, Status> {
    // In a cluster, admission sets the account `default` in pods that name none. This server does not.
    let runs_as = pod["spec"]["serviceAccountName"].as_str().unwrap_or("default");
    if runs_as != account.name {
        let why = "to pod running with different serviceaccount name.";
        return Err(Status::bad_request(format!(
            "cannot bind token for serviceaccount \"{}\" {why}",
            account.name
        )));
    }
    let Some(name) = pod["spec"]["nodeName"].as_str().filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    let without_uid = ObjectClaim { name: name.to_owned(), uid: String::new() };
    Ok(Some(get(model, "nodes", "", name).map_or(without_uid, |node| claim(&node))))
}

fn claim(state: &State) -> ObjectClaim {
    ObjectClaim { name: state.name.clone(), uid: state.uid.clone() }
}

/// Returns an object of the core group.
fn get(model: &Model, plural: &str, namespace: &str, name: &str) -> Option<Arc<State>> {
    model.get(model.registry().resource("", "v1", plural)?, namespace, name)
}
