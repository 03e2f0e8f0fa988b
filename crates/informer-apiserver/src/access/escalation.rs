//! Prevents privilege escalation: roles and role bindings must not grant more than their writer has.
//!
//! Exempt are users who may `escalate` the written role or `bind` the referenced one, members of
//! `system:masters`, and updates that change only fields that the garbage collector changes.

use std::collections::{BTreeMap, BTreeSet};

use informer_objects::status::Status;
use informer_objects::text::quoted;
use serde::Deserialize;
use serde_json::Value;

use super::policy::{Piece, Rule, RuleTarget, compact, or_empty};
use super::rules::{Decision, RoleRef, Rules};
use super::{Attributes, RBAC, quoted_list};
use crate::user::{MASTERS, User};

/// Upper bound on the pieces (see [`Rule::pieces`]) of the granted rules; real roles have far fewer.
const MAX_ESCALATION_RULES: usize = 100_000;

/// Checks an object before it is written. `old` is the object that it replaces.
pub(crate) fn check(
    rules: &Rules,
    user: &User,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let is_rbac_object = attributes.group == RBAC && attributes.subresource.is_empty();
    if !is_rbac_object || user.is_in(MASTERS) || old.is_some_and(|old| only_owners_differ(object, old)) {
        return Ok(());
    }
    match attributes.resource.as_str() {
        "roles" | "clusterroles" => check_role(rules, user, attributes, object, old),
        "rolebindings" | "clusterrolebindings" => check_binding(rules, user, attributes, object),
        _ => Ok(()),
    }
}

fn check_role(
    rules: &Rules,
    user: &User,
    attributes: &Attributes,
    object: &Value,
    old: Option<&Value>,
) -> Result<(), Status> {
    let escalate = Attributes { verb: "escalate".to_owned(), ..attributes.clone() };
    if matches!(rules.decide(user, &escalate), Decision::Allowed(_)) {
        return Ok(());
    }
    let refuse = |why: &str| Status::forbidden(RBAC, &attributes.resource, name(object), why);
    // Malformed rules grant nothing here; validation rejects them later.
    let granted = RoleRules::deserialize(object).unwrap_or_default().rules;
    check_held(rules, user, &attributes.namespace, &granted).map_err(|why| refuse(&why))?;
    let aggregates = |object: &Value| object.get("aggregationRule").is_some_and(Value::is_object);
    if aggregates(object) || old.is_some_and(aggregates) {
        let full_access = [Rule::for_resources(&["*"], &["*"], &["*"]), Rule::for_paths(&["*"], &["*"])];
        check_held(rules, user, &attributes.namespace, &full_access)
            .map_err(|_| refuse("must have cluster-admin privileges to use the aggregationRule"))?;
    }
    Ok(())
}

fn check_binding(rules: &Rules, user: &User, attributes: &Attributes, object: &Value) -> Result<(), Status> {
    let role = object.get("roleRef").and_then(|role| RoleRef::deserialize(role).ok()).unwrap_or_default();
    let resource = match role.kind.as_str() {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        // Another kind cannot be bound: validation rejects it.
        _ => return Ok(()),
    };
    let bind = Attributes {
        verb: "bind".to_owned(),
        resource: resource.to_owned(),
        name: role.name.clone(),
        ..attributes.clone()
    };
    if matches!(rules.decide(user, &bind), Decision::Allowed(_)) {
        return Ok(());
    }
    let granted = rules.rules_of_role(&role, &attributes.namespace)?;
    check_held(rules, user, &attributes.namespace, granted)
        .map_err(|why| Status::forbidden(RBAC, &attributes.resource, name(object), &why))
}

/// Returns an error that lists the missing permissions, unless the user has all permissions in `granted`.
fn check_held(rules: &Rules, user: &User, namespace: &str, granted: &[Rule]) -> Result<(), String> {
    let (held, problems) = rules.rules_for(user, namespace);
    let size = granted.iter().fold(0_usize, |sum, rule| sum.saturating_add(rule.size()));
    if size > MAX_ESCALATION_RULES {
        return Err(format!("the rules have more than {MAX_ESCALATION_RULES} combinations"));
    }
    let mut missing: BTreeMap<RuleTarget<'_>, Vec<String>> = BTreeMap::new();
    let is_held = |piece: &Piece<'_>| held.iter().any(|rule| rule.covers(piece));
    for piece in granted.iter().flat_map(Rule::pieces).filter(|piece| !is_held(piece)) {
        missing.entry(piece.target).or_default().push(piece.verb.to_owned());
    }
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = missing
        .iter()
        .flat_map(|(target, verbs)| match target {
            // kube-apiserver reports each verb of a path separately.
            RuleTarget::Path(_) => {
                verbs.iter().map(|verb| compact(target, std::slice::from_ref(verb))).collect()
            }
            RuleTarget::Resource { .. } => vec![compact(target, verbs)],
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

/// Returns whether an update changes only fields that the garbage collector changes, and their managers.
fn only_owners_differ(object: &Value, old: &Value) -> bool {
    let without_gc_fields = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "selfLink", "managedFields"] {
                metadata.remove(field);
            }
        }
        object
    };
    without_gc_fields(object) == without_gc_fields(old)
}

fn name(object: &Value) -> &str {
    object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RoleRules {
    #[serde(deserialize_with = "or_empty")]
    rules: Vec<Rule>,
}
