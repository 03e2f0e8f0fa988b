//! The permissions that a program needs, and the RBAC manifests that grant them.
//!
//! [`Manager::required_access`](crate::manager::Manager::required_access) returns what informers, leader election
//! and event recorders request. What reconcile functions request is known only after they have run: a test
//! against the embedded API server can add its recorded requests.

use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A set of permissions on resources.
///
/// ```
/// use informer::access::RequiredAccess;
///
/// let mut access = RequiredAccess::default();
/// access.add(None, "apps", "deployments", "list"); // in all namespaces
/// access.add(None, "apps", "deployments", "watch");
/// access.add(Some("ops"), "", "configmaps", "get"); // in one namespace
///
/// let manifests = access.manifests("my-operator", "ops");
/// let kinds: Vec<_> = manifests.iter().map(|manifest| manifest["kind"].as_str().unwrap()).collect();
/// assert_eq!(kinds, ["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"]);
/// assert_eq!(manifests[0]["rules"], serde_json::json!([
///     {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["list", "watch"]},
/// ]));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequiredAccess {
    verbs: BTreeMap<Target, BTreeSet<String>>,
}

/// The resource that a permission applies to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    /// `None` for all namespaces, and for cluster-scoped resources.
    namespace: Option<String>,
    group: String,
    resource: String,
    /// `None` for all objects.
    name: Option<String>,
}

/// The rules of one role: the resources by API group, object name and verbs.
type Rules<'a> = BTreeMap<(&'a str, Option<&'a str>, Vec<&'a str>), Vec<&'a str>>;

impl RequiredAccess {
    /// Adds the permission to use a verb on a resource.
    ///
    /// `namespace` is `None` for all namespaces and for cluster-scoped resources. `group` is empty for the core
    /// group. `resource` is the plural name, with the subresource if there is one: `deployments/status`. `verb`
    /// is spelled as in RBAC rules: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`.
    pub fn add(&mut self, namespace: Option<&str>, group: &str, resource: &str, verb: &str) {
        self.add_verbs(namespace, group, resource, None, &[verb]);
    }

    /// Adds all permissions of `other`.
    pub fn merge(&mut self, other: Self) {
        for (target, verbs) in other.verbs {
            self.verbs.entry(target).or_default().extend(verbs);
        }
    }

    pub(crate) fn add_verbs(
        &mut self,
        namespace: Option<&str>,
        group: &str,
        resource: &str,
        name: Option<&str>,
        verbs: &[&str],
    ) {
        let target = Target {
            namespace: namespace.map(str::to_owned),
            group: group.to_owned(),
            resource: resource.to_owned(),
            name: name.map(str::to_owned),
        };
        self.verbs.entry(target).or_default().extend(verbs.iter().map(|verb| (*verb).to_owned()));
    }

    /// Returns the manifests that grant these permissions to the service account `name` in `namespace`: a
    /// `ClusterRole` for permissions in all namespaces, a `Role` in each of the other namespaces, and their
    /// bindings, all with the same name.
    ///
    /// A role does not repeat what the cluster role grants.
    pub fn manifests(&self, name: &str, namespace: &str) -> Vec<Value> {
        let namespaces: BTreeSet<Option<&str>> =
            self.verbs.keys().map(|target| target.namespace.as_deref()).collect();
        let mut manifests = Vec::new();
        for scope in namespaces {
            let rules = self.rules(scope);
            if !rules.is_empty() {
                manifests.extend(role(name, scope, &rules, namespace));
            }
        }
        manifests
    }

    /// Returns the rules of the role in a namespace, or of the cluster role.
    fn rules(&self, namespace: Option<&str>) -> Rules<'_> {
        let mut rules = Rules::new();
        for (target, verbs) in
            self.verbs.iter().filter(|(target, _)| target.namespace.as_deref() == namespace)
        {
            let needed: Vec<&str> =
                verbs.iter().map(String::as_str).filter(|verb| !self.is_implied(target, verb)).collect();
            if !needed.is_empty() {
                let rule = (target.group.as_str(), target.name.as_deref(), needed);
                rules.entry(rule).or_default().push(&target.resource);
            }
        }
        rules
    }

    /// Returns whether another permission includes this one: for all objects, or in all namespaces.
    fn is_implied(&self, target: &Target, verb: &str) -> bool {
        let wider = [
            Target { name: None, ..target.clone() },
            Target { namespace: None, ..target.clone() },
            Target { name: None, namespace: None, ..target.clone() },
        ];
        let grants = |wider: &Target| self.verbs.get(wider).is_some_and(|verbs| verbs.contains(verb));
        wider.iter().any(|wider| wider != target && grants(wider))
    }
}

/// Returns a role and its binding.
fn role(name: &str, scope: Option<&str>, rules: &Rules<'_>, account_namespace: &str) -> [Value; 2] {
    let mut list = Vec::new();
    for ((group, object, verbs), resources) in rules {
        let mut rule = json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        if let Some(object) = object {
            rule["resourceNames"] = json!([object]);
        }
        list.push(rule);
    }
    let prefix = if scope.is_some() { "" } else { "Cluster" };
    let mut metadata = json!({"name": name});
    if let Some(namespace) = scope {
        metadata["namespace"] = namespace.into();
    }
    let api_version = "rbac.authorization.k8s.io/v1";
    [
        json!({"apiVersion": api_version, "kind": format!("{prefix}Role"), "metadata": metadata, "rules": list}),
        json!({
            "apiVersion": api_version, "kind": format!("{prefix}RoleBinding"), "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": format!("{prefix}Role"), "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": account_namespace}],
        }),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the rules of each role, as `Role shop: verbs group/resources names`.
    fn describe(access: &RequiredAccess) -> Vec<String> {
        let text = |value: &Value| {
            let texts: Vec<&str> = value.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            texts.join(",")
        };
        let mut lines = Vec::new();
        for manifest in
            access.manifests("operator", "ops").iter().filter(|manifest| manifest["rules"].is_array())
        {
            for rule in manifest["rules"].as_array().unwrap() {
                let line = format!(
                    "{} {}: {} {}/{} {}",
                    manifest["kind"].as_str().unwrap(),
                    manifest["metadata"]["namespace"].as_str().unwrap_or("-"),
                    text(&rule["verbs"]),
                    text(&rule["apiGroups"]),
                    text(&rule["resources"]),
                    text(&rule["resourceNames"]),
                );
                lines.push(line.trim_end().to_owned());
            }
        }
        lines
    }

    #[test]
    fn resources_with_equal_verbs_share_a_rule() {
        let mut access = RequiredAccess::default();
        for (resource, verb) in [
            ("pods", "list"),
            ("pods", "watch"),
            ("nodes", "watch"),
            ("nodes", "list"),
            ("pods/binding", "create"),
        ] {
            access.add(None, "", resource, verb);
        }
        access.add(None, "apps", "deployments", "list");
        let expected = [
            "ClusterRole -: create /pods/binding",
            "ClusterRole -: list,watch /nodes,pods",
            "ClusterRole -: list apps/deployments",
        ];
        assert_eq!(describe(&access), expected);
    }

    #[test]
    fn role_does_not_repeat_what_a_wider_permission_includes() {
        let mut access = RequiredAccess::default();
        access.add(Some("shop"), "", "pods", "get");
        access.add(Some("shop"), "", "pods", "delete");
        access.add_verbs(Some("shop"), "", "pods", Some("a"), &["delete", "patch"]);
        access.add(None, "", "pods", "get");
        let expected = ["ClusterRole -: get /pods", "Role shop: delete /pods", "Role shop: patch /pods a"];
        assert_eq!(describe(&access), expected);
    }

    #[test]
    fn binding_names_the_service_account() {
        let mut access = RequiredAccess::default();
        access.add(Some("shop"), "", "pods", "get");
        let [role, binding] = access.manifests("operator", "ops").try_into().unwrap();
        assert_eq!(role["metadata"], json!({"name": "operator", "namespace": "shop"}));
        assert_eq!(binding["roleRef"]["kind"], "Role");
        let account = json!({"kind": "ServiceAccount", "name": "operator", "namespace": "ops"});
        assert_eq!(binding["subjects"], json!([account]));
    }

    #[test]
    fn merged_permissions_are_those_of_both() {
        let (mut left, mut right) = (RequiredAccess::default(), RequiredAccess::default());
        left.add(None, "", "pods", "get");
        right.add(None, "", "pods", "list");
        left.merge(right);
        assert_eq!(describe(&left), ["ClusterRole -: get,list /pods"]);
        assert!(RequiredAccess::default().manifests("operator", "ops").is_empty());
    }
}
