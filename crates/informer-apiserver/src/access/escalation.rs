//! Nobody gives what they do not have: roles and bindings may not go beyond the rights of who writes them.
//!
//! Who may `escalate` a role or `bind` one is excepted, and so is whoever is in `system:masters`.

use std::collections::{BTreeMap, BTreeSet};

use informer_objects::status::Status;
use informer_objects::text::quoted;
use serde::Deserialize;
use serde_json::Value;

use super::policy::{Piece, Rule, What, compact, or_empty};
use super::rules::{Decision, RoleRef, Rules};
use super::{Attributes, RBAC, quoted_list};
use crate::user::{MASTERS, User};

/// How many pieces of rules are compared. No role that anybody wrote has so many.
const MAX_ESCALATION_RULES: usize = 100_000;

/// Checks an object that is about to be written.
pub(crate) fn check(
    rules: &Rules,
    user: &User,
    place: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let bound = place.group == RBAC && place.subresource.is_empty();
    if !bound || user.is_in(MASTERS) || old.is_some_and(|old| only_owners_differ(object, old)) {
        return Ok(());
    }
    match place.resource.as_str() {
        "roles" | "clusterroles" => check_role(rules, user, place, object, old),
        "rolebindings" | "clusterrolebindings" => check_binding(rules, user, place, object),
        _ => Ok(()),
    }
}

fn check_role(
    rules: &Rules,
    user: &User,
    place: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let escalate = Attributes { verb: "escalate".to_owned(), ..place.clone() };
    if matches!(rules.decide(user, &escalate), Decision::Allowed(_)) {
        return Ok(());
    }
    let refuse = |why: &str| Status::forbidden(RBAC, &place.resource, name(object), why);
    // What is not shaped like rules is refused as such later, and grants nothing until then.
    let given = Given::deserialize(object).unwrap_or_default().rules;
    held(rules, user, &place.namespace, &given).map_err(|why| refuse(&why))?;
    let aggregates = |object: &Value| object.get("aggregationRule").is_some_and(Value::is_object);
    if aggregates(object) || old.is_some_and(aggregates) {
        let everything = [Rule::on(&["*"], &["*"], &["*"]), Rule::at(&["*"], &["*"])];
        held(rules, user, &place.namespace, &everything)
            .map_err(|_| refuse("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

fn check_binding(rules: &Rules, user: &User, place: &Attributes, object: &Value) -> Result<(), Status> {
    let role = object.get("roleRef").and_then(|role| RoleRef::deserialize(role).ok()).unwrap_or_default();
    let resource = match role.kind.as_str() {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        // Nothing that could be bound: validation says so.
        _ => return Ok(()),
    };
    let bind = Attributes {
        verb: "bind".to_owned(),
        resource: resource.to_owned(),
        name: role.name.clone(),
        ..place.clone()
    };
    if matches!(rules.decide(user, &bind), Decision::Allowed(_)) {
        return Ok(());
    }
    let given = rules.of_role(&role, &place.namespace)?;
    held(rules, user, &place.namespace, given)
        .map_err(|why| Status::forbidden(RBAC, &place.resource, name(object), &why))
}

/// Whether a user has all these rights, or which are missing.
fn held(rules: &Rules, user: &User, namespace: &str, given: &[Rule]) -> Result<(), String> {
    let (own, problems) = rules.of(user, namespace);
    let size = given.iter().fold(0_usize, |sum, rule| sum.saturating_add(rule.size()));
    if size > MAX_ESCALATION_RULES {
        return Err(format!("the rules have more than {MAX_ESCALATION_RULES} combinations"));
    }
    let mut missing: BTreeMap<What<'_>, Vec<String>> = BTreeMap::new();
    let is_held = |piece: &Piece<'_>| own.iter().any(|rule| rule.covers(piece));
    for piece in given.iter().flat_map(Rule::pieces).filter(|piece| !is_held(piece)) {
        missing.entry(piece.what).or_default().push(piece.verb.to_owned());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = missing
        .iter()
        .flat_map(|(what, verbs)| match what {
            // Paths are not put together.
            What::Path(_) => verbs.iter().map(|verb| compact(what, std::slice::from_ref(verb))).collect(),
            What::Resource { .. } => vec![compact(what, verbs)],
        })
        .collect();
    let lines: Vec<String> = lines.into_iter().collect();
    let problems = problems.map_or_else(String::new, |all| format!("; resolution errors: [{all}]"));
    Err(format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}{problems}",
        quoted(&user.name),
        quoted_list(&user.groups),
        lines.join("\n")
    ))
}

/// Whether an update changes nothing but what the garbage collector changes.
fn only_owners_differ(object: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut rest = object.clone();
        if let Some(metadata) = rest.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        rest
    };
    rest(object) == rest(old)
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Given {
    #[serde(deserialize_with = "or_empty")]
    rules: Vec<Rule>,
}
