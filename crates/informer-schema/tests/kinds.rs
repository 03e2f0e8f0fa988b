//! The table of kinds: what everybody knows is in it, and its order is the promised one.

use informer_schema::{KINDS, Kind};

fn find(group: &str, version: &str, plural: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| (kind.group, kind.version, kind.plural) == (group, version, plural))
}

#[test]
fn well_known_kinds_are_there() {
    let check = |group, version, plural, expected, namespaced| {
        let kind = find(group, version, plural).unwrap_or_else(|| panic!("no {group}/{version}/{plural}"));
        assert_eq!((kind.kind, kind.namespaced), (expected, namespaced));
    };
    check("", "v1", "pods", "Pod", true);
    check("", "v1", "nodes", "Node", false);
    check("", "v1", "namespaces", "Namespace", false);
    check("", "v1", "endpoints", "Endpoints", true);
    check("apps", "v1", "deployments", "Deployment", true);
    check("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy", true);
    check("rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false);
    check("coordination.k8s.io", "v1", "leases", "Lease", true);
    check("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false);
    check("apiregistration.k8s.io", "v1", "apiservices", "APIService", false);
}

#[test]
fn what_cannot_be_listed_is_not_there() {
    assert_eq!(find("", "v1", "bindings"), None);
    assert_eq!(find("authorization.k8s.io", "v1", "subjectaccessreviews"), None);
    assert!(KINDS.iter().all(|kind| !kind.kind.ends_with("List")));
}

#[test]
fn sorted_and_once_each() {
    let strictly = |one: &Kind, next: &Kind| {
        (one.group, one.version, one.plural) < (next.group, next.version, next.plural)
    };
    assert!(KINDS.is_sorted_by(strictly));
}

#[test]
fn a_kind_has_one_plural_per_version() {
    let mut names: Vec<_> = KINDS.iter().map(|kind| (kind.group, kind.version, kind.kind)).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), KINDS.len());
}
