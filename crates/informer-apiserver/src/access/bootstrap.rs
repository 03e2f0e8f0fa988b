//! The default cluster roles and cluster role bindings, as far as clients use them.
//!
//! kube-apiserver has many more, for the components of a cluster. Its `admin`, `edit` and `view` are
//! aggregated by a controller; here they contain their rules from the start.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::policy::Rule;
use super::{AUTHENTICATED, RBAC, UNAUTHENTICATED};
use crate::model::{Model, WriteContext, WriteOrigin};
use crate::user::MASTERS;

/// Creates missing default roles and bindings. Existing objects stay unchanged.
pub(crate) fn create_missing(model: &mut Model, now: Timestamp) {
    for (plural, object) in cluster_roles().map(|role| ("clusterroles", role)).chain(bindings()) {
        let Some(gvr) = model.registry().resource(RBAC, "v1", plural) else { continue };
        let name = object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
        if model.get(gvr, "", name).is_none() {
            let created = model.create(
                &WriteContext::at(now, "kube-apiserver"),
                gvr,
                "",
                object,
                WriteOrigin::Internal,
            );
            debug_assert!(created.is_ok(), "{plural}: {created:?}");
        }
    }
}

const ALL: &[&str] = &["*"];
const READ: &[&str] = &["get", "list", "watch"];
const WRITE: &[&str] = &["create", "delete", "deletecollection", "patch", "update"];
const READ_AND_WRITE: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const CREATE: &[&str] = &["create"];

/// Paths that every client may read, with or without a token.
const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// Paths that every client with a token may read.
const DISCOVERY: &[&str] = &[
    "/api",
    "/api/*",
    "/apis",
    "/apis/*",
    "/healthz",
    "/livez",
    "/openapi",
    "/openapi/*",
    "/readyz",
    "/version",
    "/version/",
];

fn cluster_roles() -> impl Iterator<Item = Value> {
    let view = table(VIEW);
    let edit = [table(EDIT), view.clone()].concat();
    let admin = [edit.clone(), table(ADMIN)].concat();
    let full_access = vec![Rule::for_resources(ALL, ALL, ALL), Rule::for_paths(ALL, ALL)];
    let reviews = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];
    let basic = vec![
        Rule::for_resources(&["authorization.k8s.io"], &reviews, CREATE),
        Rule::for_resources(&["authentication.k8s.io"], &["selfsubjectreviews"], CREATE),
    ];
    let delegator = vec![
        Rule::for_resources(&["authentication.k8s.io"], &["tokenreviews"], CREATE),
        Rule::for_resources(&["authorization.k8s.io"], &["subjectaccessreviews"], CREATE),
    ];
    let plain = [
        ("cluster-admin", full_access),
        ("system:auth-delegator", delegator),
        ("system:basic-user", basic),
        ("system:discovery", vec![Rule::for_paths(DISCOVERY, &["get"])]),
        ("system:public-info-viewer", vec![Rule::for_paths(PUBLIC, &["get"])]),
    ]
    .into_iter()
    .map(|(name, rules)| role(name, &rules, None));
    // The roles that kube-apiserver's controller aggregates.
    let aggregated = [("admin", table(ADMIN)), ("edit", table(EDIT)), ("view", view.clone())]
        .into_iter()
        .map(|(name, rules)| role(&format!("system:aggregate-to-{name}"), &rules, Some(name)));
    let aggregating = [("admin", admin, None), ("edit", edit, Some("admin")), ("view", view, Some("edit"))]
        .into_iter()
        .map(|(name, rules, aggregated_to)| {
            let mut role = role(name, &rules, aggregated_to);
            let selector = json!({"matchLabels": {aggregation_label(name): "true"}});
            role["aggregationRule"] = json!({"clusterRoleSelectors": [selector]});
            role
        });
    plain.chain(aggregated).chain(aggregating)
}

fn bindings() -> impl Iterator<Item = (&'static str, Value)> {
    [
        ("cluster-admin", &[MASTERS][..]),
        ("system:basic-user", &[AUTHENTICATED]),
        ("system:discovery", &[AUTHENTICATED]),
        ("system:public-info-viewer", &[AUTHENTICATED, UNAUTHENTICATED]),
    ]
    .into_iter()
    .map(|(name, groups)| {
        let subject = |group: &&str| json!({"apiGroup": RBAC, "kind": "Group", "name": group});
        let binding = json!({
            "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRoleBinding", "metadata": metadata(name, None),
            "subjects": groups.iter().map(subject).collect::<Vec<_>>(),
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        });
        ("clusterrolebindings", binding)
    })
}

/// Returns a `ClusterRole`. Its label says to which role it is aggregated.
fn role(name: &str, rules: &[Rule], aggregated_to: Option<&str>) -> Value {
    let metadata = metadata(name, aggregated_to);
    json!({
        "apiVersion": format!("{RBAC}/v1"), "kind": "ClusterRole", "metadata": metadata, "rules": rules,
    })
}

fn metadata(name: &str, aggregated_to: Option<&str>) -> Value {
    let mut labels = json!({"kubernetes.io/bootstrapping": "rbac-defaults"});
    if let Some(role) = aggregated_to {
        labels[aggregation_label(role)] = json!("true");
    }
    json!({
        "name": name, "labels": labels,
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    })
}

fn aggregation_label(role: &str) -> String {
    format!("{RBAC}/aggregate-to-{role}")
}

/// Groups, resources and verbs of a rule. Names are separated by spaces, and `core` stands for the core
/// group.
type Row = (&'static str, &'static str, &'static [&'static str]);

fn table(rows: &[Row]) -> Vec<Rule> {
    let names = |text: &'static str| -> Vec<&'static str> { text.split_whitespace().collect() };
    let group = |name: &'static str| if name == "core" { "" } else { name };
    rows.iter()
        .map(|(groups, resources, verbs)| {
            let groups: Vec<&str> = names(groups).into_iter().map(group).collect();
            Rule::for_resources(&groups, &names(resources), verbs)
        })
        .collect()
}

const ADMIN: &[Row] = &[
    ("authorization.k8s.io", "localsubjectaccessreviews", CREATE),
    ("rbac.authorization.k8s.io", "rolebindings roles", READ_AND_WRITE),
];

const EDIT: &[Row] = &[
    ("core", "pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy", READ),
    ("core", "serviceaccounts", &["impersonate"]),
    ("core", "pods pods/attach pods/exec pods/portforward pods/proxy", WRITE),
    ("core", "pods/eviction", CREATE),
    (
        "core",
        "configmaps persistentvolumeclaims replicationcontrollers replicationcontrollers/scale secrets \
         serviceaccounts services services/proxy",
        WRITE,
    ),
    ("core", "serviceaccounts/token", CREATE),
    ("core events.k8s.io", "events", WRITE),
    (
        "apps",
        "daemonsets deployments deployments/rollback deployments/scale replicasets replicasets/scale statefulsets \
         statefulsets/scale",
        WRITE,
    ),
    ("autoscaling", "horizontalpodautoscalers", WRITE),
    ("batch", "cronjobs jobs", WRITE),
    (
        "extensions",
        "daemonsets deployments deployments/rollback deployments/scale ingresses networkpolicies replicasets \
         replicasets/scale replicationcontrollers/scale",
        WRITE,
    ),
    ("policy", "poddisruptionbudgets", WRITE),
    ("networking.k8s.io", "ingresses networkpolicies", WRITE),
    ("coordination.k8s.io", "leases", READ_AND_WRITE),
    ("resource.k8s.io", "resourceclaims resourceclaimtemplates", WRITE),
];

const VIEW: &[Row] = &[
    (
        "core",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods replicationcontrollers \
         replicationcontrollers/scale serviceaccounts services services/status",
        READ,
    ),
    (
        "core",
        "bindings limitranges namespaces/status pods/log pods/status replicationcontrollers/status resourcequotas \
         resourcequotas/status",
        READ,
    ),
    ("core", "namespaces", READ),
    ("core events.k8s.io", "events", READ),
    ("discovery.k8s.io", "endpointslices", READ),
    (
        "apps",
        "controllerrevisions daemonsets daemonsets/status deployments deployments/scale deployments/status replicasets \
         replicasets/scale replicasets/status statefulsets statefulsets/scale statefulsets/status",
        READ,
    ),
    ("autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status", READ),
    ("batch", "cronjobs cronjobs/status jobs jobs/status", READ),
    (
        "extensions",
        "daemonsets daemonsets/status deployments deployments/scale deployments/status ingresses ingresses/status \
         networkpolicies replicasets replicasets/scale replicasets/status replicationcontrollers/scale",
        READ,
    ),
    ("policy", "poddisruptionbudgets poddisruptionbudgets/status", READ),
    ("networking.k8s.io", "ingresses ingresses/status networkpolicies", READ),
    ("resource.k8s.io", "resourceclaims resourceclaims/status resourceclaimtemplates", READ),
];
