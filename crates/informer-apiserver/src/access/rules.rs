//! A snapshot of the stored roles and role bindings, and what they permit.
//!
//! Rules only add permissions: a user may do what any rule of any bound role permits. An object that is not a
//! valid role or role binding grants nothing. `access_mode` replaces an outdated snapshot.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer_objects::status::Status;
use informer_objects::text::quoted;
use serde::Deserialize;
use serde_json::Value;

use super::policy::{Rule, or_empty};
use super::{Attributes, RBAC};
use crate::user::{MASTERS, User};

/// All roles and bindings.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    cluster_roles: BTreeMap<String, Vec<Rule>>,
    /// By namespace and name.
    roles: BTreeMap<(String, String), Vec<Rule>>,
    cluster_bindings: Vec<Binding>,
    /// By namespace.
    bindings: BTreeMap<String, Vec<Binding>>,
}

/// The decision about a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Permitted. The reason names the binding that permits the request. It is empty if no binding was
    /// needed: for members of `system:masters`, and without access control.
    Allowed(String),
    /// Not permitted by any rule. The reason lists the roles that bindings refer to but that do not exist.
    NoOpinion(String),
}

/// The permissions of all users.
#[derive(Debug, Clone)]
pub(crate) enum Rights {
    /// Everything: there is no access control.
    All,
    /// The permissions in the roles and bindings.
    Rules(Arc<Rules>),
}

/// A binding that applies to a user.
pub(crate) struct Grant<'a> {
    binding: &'a Binding,
    subject: &'a Subject,
    pub(crate) rules: Result<&'a [Rule], Status>,
}

/// The reference of a binding to its role.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RoleRef {
    pub(crate) kind: String,
    pub(crate) name: String,
}

impl Rules {
    /// Reads the stored objects of each kind.
    pub(crate) fn new(
        cluster_roles: impl Iterator<Item = Value>,
        roles: impl Iterator<Item = Value>,
        cluster_bindings: impl Iterator<Item = Value>,
        bindings: impl Iterator<Item = Value>,
    ) -> Self {
        let role = |object: Value| serde_json::from_value::<Role>(object).ok();
        let binding = |object: Value| serde_json::from_value::<Binding>(object).ok();
        let mut by_namespace: BTreeMap<String, Vec<Binding>> = BTreeMap::new();
        for binding in bindings.filter_map(binding) {
            by_namespace.entry(binding.metadata.namespace.clone()).or_default().push(binding);
        }
        Rules {
            cluster_roles: cluster_roles
                .filter_map(role)
                .map(|role| (role.metadata.name, role.rules))
                .collect(),
            roles: roles
                .filter_map(role)
                .map(|role| ((role.metadata.namespace, role.metadata.name), role.rules))
                .collect(),
            cluster_bindings: cluster_bindings.filter_map(binding).collect(),
            bindings: by_namespace,
        }
    }

    /// Decides whether a user may perform a request.
    pub(crate) fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::Allowed(String::new());
        }
        let mut problems = Vec::new();
        for grant in self.grants(user, &attributes.namespace) {
            match &grant.rules {
                Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                    return Decision::Allowed(format!("RBAC: allowed by {}", grant.describe()));
                }
                Ok(_) => {}
                Err(problem) => problems.push(problem.message.clone()),
            }
        }
        Decision::NoOpinion(aggregate(problems).map_or_else(String::new, |all| format!("RBAC: {all}")))
    }

    /// Returns all rules for a user in a namespace, and errors of bindings whose role does not exist.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<&Rule>, Option<String>) {
        let (mut rules, mut problems) = (Vec::new(), Vec::new());
        for grant in self.grants(user, namespace) {
            match grant.rules {
                Ok(granted) => rules.extend(granted),
                Err(problem) => problems.push(problem.message),
            }
        }
        (rules, aggregate(problems))
    }

    /// Returns the rules of a referenced role.
    pub(crate) fn rules_of_role(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], Status> {
        let (rules, kind) = match role.kind.as_str() {
            "Role" => (self.roles.get(&(namespace.to_owned(), role.name.clone())), "role"),
            "ClusterRole" => (self.cluster_roles.get(&role.name), "clusterrole"),
            other => {
                return Err(Status::internal(format!("unsupported role reference kind: {}", quoted(other))));
            }
        };
        rules.map(Vec::as_slice).ok_or_else(|| Status::not_found(RBAC, kind, &role.name))
    }

    /// Returns the bindings that apply to a user: those for the whole cluster, then those in `namespace`.
    fn grants<'a, 'b>(&'a self, user: &'b User, namespace: &'b str) -> impl Iterator<Item = Grant<'a>> {
        let local = self.bindings.get(namespace).map_or(&[][..], Vec::as_slice);
        let local = local.iter().map(move |binding| (binding, namespace));
        let cluster_wide = self.cluster_bindings.iter().map(|binding| (binding, ""));
        cluster_wide.chain(local).filter_map(move |(binding, namespace)| {
            let subject = binding.subjects.iter().find(|subject| subject.matches(user, namespace))?;
            let rules = self.rules_of_role(&binding.role_ref, namespace);
            Some(Grant { binding, subject, rules })
        })
    }
}

impl Rights {
    pub(crate) fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        match self {
            Rights::All => Decision::Allowed(String::new()),
            Rights::Rules(rules) => rules.decide(user, attributes),
        }
    }

    /// Returns all rules for a user in a namespace, and errors of bindings whose role does not exist.
    pub(crate) fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Option<String>) {
        match self {
            Rights::All => {
                let full_access =
                    vec![Rule::for_resources(&["*"], &["*"], &["*"]), Rule::for_paths(&["*"], &["*"])];
                (full_access, None)
            }
            Rights::Rules(rules) => {
                let (held, problems) = rules.rules_for(user, namespace);
                (held.into_iter().cloned().collect(), problems)
            }
        }
    }
}

impl Grant<'_> {
    fn describe(&self) -> String {
        let Binding { metadata, role_ref, .. } = self.binding;
        let binding = if metadata.namespace.is_empty() {
            format!("ClusterRoleBinding {}", quoted(&metadata.name))
        } else {
            format!("RoleBinding {}", quoted(&format!("{}/{}", metadata.name, metadata.namespace)))
        };
        let Subject { kind, name, namespace } = self.subject;
        let subject = if kind == "ServiceAccount" {
            let namespace = if namespace.is_empty() { &metadata.namespace } else { namespace };
            quoted(&format!("{name}/{namespace}"))
        } else {
            quoted(name)
        };
        format!("{binding} of {} {} to {kind} {subject}", role_ref.kind, quoted(&role_ref.name))
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Role {
    metadata: Metadata,
    #[serde(deserialize_with = "or_empty")]
    rules: Vec<Rule>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Binding {
    metadata: Metadata,
    #[serde(deserialize_with = "or_empty")]
    subjects: Vec<Subject>,
    role_ref: RoleRef,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    name: String,
    namespace: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Subject {
    kind: String,
    name: String,
    namespace: String,
}

impl Subject {
    /// Returns whether the subject is `user` or a group of `user`. A service account without a namespace is
    /// in `namespace`, that of the binding.
    fn matches(&self, user: &User, namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.is_in(&self.name),
            "ServiceAccount" => {
                let namespace = if self.namespace.is_empty() { namespace } else { &self.namespace };
                let account = user.name.strip_prefix("system:serviceaccount:");
                let account = account.and_then(|account| account.split_once(':'));
                !namespace.is_empty() && account == Some((namespace, self.name.as_str()))
            }
            _ => false,
        }
    }
}

/// Joins distinct errors into one text.
fn aggregate(mut problems: Vec<String>) -> Option<String> {
    let mut seen = std::collections::BTreeSet::new();
    problems.retain(|problem| seen.insert(problem.clone()));
    match problems.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        all => Some(format!("[{}]", all.join(", "))),
    }
}
