//! The resources of all Kubernetes versions as one table: what exists, and in which versions.
//!
//! The table is sorted by group, version and plural, and each of these triples is in it once. A version with suspiciously
//! few resources is an error, so that sources which changed their looks cannot empty the table unnoticed.

use std::collections::{BTreeMap, BTreeSet};

use super::names;
use super::parse::Resource;
use super::range::Range;

/// Less than any version of Kubernetes has: 1.33 has 81. A floor, not a count, as new versions also drop what was beta.
const FLOOR: usize = 75;

/// A resource and where it exists.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) resource: Resource,
    pub(super) range: Range,
    /// The name of its accessor.
    pub(super) method: String,
}

/// Unites what each minor version of Kubernetes has.
pub(super) fn unite(found: &BTreeMap<u8, Vec<Resource>>) -> Result<Vec<Kind>, String> {
    let mut versions: BTreeMap<&Resource, BTreeSet<u8>> = BTreeMap::new();
    for (&minor, resources) in found {
        if resources.len() < FLOOR {
            let count = resources.len();
            return Err(format!("only {count} resources in Kubernetes 1.{minor}, expected {FLOOR} at least"));
        }
        for resource in resources {
            if !versions.entry(resource).or_default().insert(minor) {
                return Err(format!("{} is twice in Kubernetes 1.{minor}", path(resource)));
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

/// Neighbours in the table must differ in what the table is for, not only in what is known about them.
fn check_unique(kinds: &[Kind]) -> Result<(), String> {
    for (one, next) in kinds.iter().zip(kinds.iter().skip(1)) {
        if path(&one.resource) == path(&next.resource) {
            return Err(format!(
                "{} is not the same in all versions: {:?}, {:?}",
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
            return Err(format!("the groups `{known}` and `{group}` would both be called `{method}`"));
        }
    }
    Ok(())
}

/// How one says which resource is meant: `apps/v1/deployments`.
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

    /// Enough for the floor in every version, and `extra` in those it names.
    fn unite_with(extra: &[(u8, Resource)]) -> Result<Vec<Kind>, String> {
        let common: Vec<Resource> = (0..FLOOR).map(|n| resource("apps", &format!("Kind{n:03}"))).collect();
        let mut found: BTreeMap<u8, Vec<Resource>> =
            ALL.versions().map(|minor| (minor, common.clone())).collect();
        for (minor, resource) in extra {
            found.get_mut(minor).unwrap().push(resource.clone());
        }
        unite(&found)
    }

    #[test]
    fn kinds_are_sorted_and_know_their_versions() {
        let pod = |minor| (minor, resource("", "Pod"));
        let kinds = unite_with(&[pod(34), pod(35)]).unwrap();
        assert_eq!(kinds.len(), FLOOR + 1);
        assert_eq!((kinds[0].method.as_str(), kinds[0].range), ("pods", Range { first: 34, last: 35 }));
        assert!(kinds[1..].iter().all(|kind| kind.range == ALL));
        assert!(kinds.is_sorted_by_key(|kind| &kind.resource));
    }

    #[test]
    fn too_few_are_an_error() {
        let found = BTreeMap::from([(33, vec![resource("", "Pod")])]);
        assert_eq!(unite(&found).unwrap_err(), "only 1 resources in Kubernetes 1.33, expected 75 at least");
    }

    #[test]
    fn a_kind_is_one_thing_in_all_versions() {
        let moved = Resource { module: "api::core::v1".to_owned(), ..resource("", "Pod") };
        let reason = unite_with(&[(34, resource("", "Pod")), (35, moved)]).unwrap_err();
        assert!(reason.starts_with("core/v1/pods is not the same in all versions"), "{reason}");
        let reason = unite_with(&[(34, resource("", "Pod")), (34, resource("", "Pod"))]).unwrap_err();
        assert_eq!(reason, "core/v1/pods is twice in Kubernetes 1.34");
        let reason = unite_with(&[(33, resource("", "Pod")), (35, resource("", "Pod"))]).unwrap_err();
        assert!(reason.starts_with("core/v1/pods comes and goes"), "{reason}");
    }

    #[test]
    fn groups_have_names_of_their_own() {
        let reason = unite_with(&[(33, resource("apps.example.com", "Pod"))]).unwrap_err();
        assert_eq!(reason, "the groups `apps` and `apps.example.com` would both be called `apps`");
    }
}
