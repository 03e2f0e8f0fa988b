//! Merges the resources of all Kubernetes versions to one table with the versions in which each exists.
//!
//! The table is sorted by group, version and plural, without duplicates of these. A version with suspiciously
//! few resources is an error, so that a changed format of the sources is noticed.

use std::collections::{BTreeMap, BTreeSet};

use super::names;
use super::parse::Resource;
use super::range::Range;

/// Lower bound on the resources of every Kubernetes version: 1.33 has 81, and later versions may drop beta
/// resources.
const MIN_RESOURCES: usize = 75;

/// A resource and the versions in which it exists.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) resource: Resource,
    pub(super) range: Range,
    /// Name of its accessor.
    pub(super) method: String,
}

/// Merges the resources of each minor version of Kubernetes.
pub(super) fn merge(found: &BTreeMap<u8, Vec<Resource>>) -> Result<Vec<Kind>, String> {
    let mut versions: BTreeMap<&Resource, BTreeSet<u8>> = BTreeMap::new();
    for (&minor, resources) in found {
        if resources.len() < MIN_RESOURCES {
            let count = resources.len();
            return Err(format!(
                "only {count} resources in Kubernetes 1.{minor}, expected at least {MIN_RESOURCES}"
            ));
        }
        for resource in resources {
            if !versions.entry(resource).or_default().insert(minor) {
                return Err(format!("{} is defined twice in Kubernetes 1.{minor}", path(resource)));
            }
        }
    }
    let kinds: Vec<Kind> = versions.into_iter().map(kind).collect::<Result<_, _>>()?;
    check_unique(&kinds)?;
    Ok(kinds)
}

fn kind((resource, versions): (&Resource, BTreeSet<u8>)) -> Result<Kind, String> {
    let range = Range::of(&versions).map_err(|reason| format!("{} {reason}", path(resource)))?;
    let method = names::kind_method(&resource.kind, &resource.plural)?;
    Ok(Kind { resource: resource.clone(), range, method })
}

/// Checks that a resource is equal in all versions, and that no two groups have the same accessor name.
fn check_unique(kinds: &[Kind]) -> Result<(), String> {
    for (one, next) in kinds.iter().zip(kinds.iter().skip(1)) {
        if path(&one.resource) == path(&next.resource) {
            return Err(format!(
                "{} differs between versions: {:?}, {:?}",
                path(&one.resource),
                one.resource,
                next.resource
            ));
        }
    }
    let mut methods: BTreeMap<&str, &str> = BTreeMap::new();
    for group in kinds.iter().map(|kind| kind.resource.group.as_str()) {
        let method = names::group_method(group);
        let known = methods.entry(method).or_insert(group);
        if *known != group {
            return Err(format!("the groups `{known}` and `{group}` have the same accessor name `{method}`"));
        }
    }
    Ok(())
}

/// Formats a resource for messages: `apps/v1/deployments`.
fn path(resource: &Resource) -> String {
    format!("{}/{}/{}", names::group_method(&resource.group), resource.version, resource.plural)
}

#[cfg(test)]
mod tests {
    use super::super::range::ALL;
    use super::*;

    fn resource(group: &str, kind: &str) -> Resource {
        Resource {
            group: group.to_owned(),
            version: "v1".to_owned(),
            plural: format!("{}s", kind.to_ascii_lowercase()),
            kind: kind.to_owned(),
            namespaced: true,
            module: "api::apps::v1".to_owned(),
            type_name: kind.to_owned(),
        }
    }

    /// Merges the minimum number of resources in every version, and `extra` ones in the given versions.
    fn merge_with(extra: &[(u8, Resource)]) -> Result<Vec<Kind>, String> {
        let common: Vec<Resource> =
            (0..MIN_RESOURCES).map(|n| resource("apps", &format!("Kind{n:03}"))).collect();
        let mut found: BTreeMap<u8, Vec<Resource>> =
            ALL.versions().map(|minor| (minor, common.clone())).collect();
        for (minor, resource) in extra {
            found.get_mut(minor).unwrap().push(resource.clone());
        }
        merge(&found)
    }

    #[test]
    fn kinds_are_sorted_and_have_ranges() {
        let pod = |minor| (minor, resource("", "Pod"));
        let kinds = merge_with(&[pod(34), pod(35)]).unwrap();
        assert_eq!(kinds.len(), MIN_RESOURCES + 1);
        assert_eq!((kinds[0].method.as_str(), kinds[0].range), ("pods", Range { first: 34, last: 35 }));
        assert!(kinds[1..].iter().all(|kind| kind.range == ALL));
        assert!(kinds.is_sorted_by_key(|kind| &kind.resource));
    }

    #[test]
    fn too_few_resources_are_an_error() {
        let found = BTreeMap::from([(33, vec![resource("", "Pod")])]);
        assert_eq!(merge(&found).unwrap_err(), "only 1 resources in Kubernetes 1.33, expected at least 75");
    }

    #[test]
    fn resource_must_be_equal_in_all_versions() {
        let moved = Resource { module: "api::core::v1".to_owned(), ..resource("", "Pod") };
        let reason = merge_with(&[(34, resource("", "Pod")), (35, moved)]).unwrap_err();
        assert!(reason.starts_with("core/v1/pods differs between versions"), "{reason}");
        let reason = merge_with(&[(34, resource("", "Pod")), (34, resource("", "Pod"))]).unwrap_err();
        assert_eq!(reason, "core/v1/pods is defined twice in Kubernetes 1.34");
        let reason = merge_with(&[(33, resource("", "Pod")), (35, resource("", "Pod"))]).unwrap_err();
        assert!(reason.starts_with("core/v1/pods exists in the minor versions {33, 35}"), "{reason}");
    }

    #[test]
    fn groups_with_equal_accessor_names_are_an_error() {
        let reason = merge_with(&[(33, resource("apps.example.com", "Pod"))]).unwrap_err();
        assert_eq!(reason, "the groups `apps` and `apps.example.com` have the same accessor name `apps`");
    }
}
