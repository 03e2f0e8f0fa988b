//! The registry of resources: the built-in ones, and those that definitions add at run time.
//!
//! Group and plural identify a resource, which may be served under several versions. The registry does not
//! know which objects exist.

use std::collections::BTreeMap;
use std::sync::Arc;

use informer_objects::text::versions::{priority, split_api_version};

use super::resource::Resource;
use super::{builtin, facts};

/// A resource and the version under which it is accessed.
///
/// Locals of this type are called `gvr`, since it identifies what Kubernetes calls a `GroupVersionResource`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VersionedResource {
    pub(crate) id: ResourceId,
    /// Index into [`Resource::versions`].
    pub(crate) version: usize,
}

/// The id of a resource while it is served. If a definition is deleted and created again, its resource gets a
/// new id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceId(u32);

/// All served resources.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    next: u32,
    /// Changes with every modification. Caches of derived documents compare it.
    revision: u64,
    resources: BTreeMap<ResourceId, Arc<Resource>>,
    by_plural: BTreeMap<String, Vec<ResourceId>>,
}

impl Registry {
    /// Returns the built-in resources with the versions that are enabled by default.
    pub(crate) fn builtin() -> Self {
        Registry::of(builtin::resources(builtin::Versions::Stable))
    }

    /// Returns the built-in resources with all their versions.
    pub(crate) fn all_versions() -> Self {
        Registry::of(builtin::resources(builtin::Versions::All))
    }

    fn of(resources: Vec<Resource>) -> Self {
        let mut registry =
            Registry { next: 0, revision: 0, resources: BTreeMap::new(), by_plural: BTreeMap::new() };
        for resource in resources {
            registry.insert(resource);
        }
        registry
    }

    /// Returns a number that changes with every modification.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn insert(&mut self, resource: Resource) -> ResourceId {
        let id = ResourceId(self.next);
        self.next += 1;
        self.revision += 1;
        self.by_plural.entry(resource.plural.clone()).or_default().push(id);
        self.resources.insert(id, Arc::new(resource));
        id
    }

    pub(crate) fn replace(&mut self, id: ResourceId, resource: Resource) {
        self.revision += 1;
        self.resources.insert(id, Arc::new(resource));
    }

    pub(crate) fn remove(&mut self, id: ResourceId) -> Option<Arc<Resource>> {
        let resource = self.resources.remove(&id)?;
        self.revision += 1;
        if let Some(ids) = self.by_plural.get_mut(&resource.plural) {
            ids.retain(|other| *other != id);
        }
        Some(resource)
    }

    /// Ensures that new ids and the revision differ from all that `previous`, the registry which this one
    /// replaces, has had.
    pub(crate) fn skip_ids_of(&mut self, previous: &Registry) {
        self.next = self.next.max(previous.next);
        self.revision = self.revision.max(previous.revision) + 1;
    }

    pub(crate) fn get(&self, id: ResourceId) -> Option<&Arc<Resource>> {
        self.resources.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceId, &Resource)> {
        self.resources.iter().map(|(id, resource)| (*id, &**resource))
    }

    /// Looks up a resource by group and plural.
    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<ResourceId> {
        let ids = self.by_plural.get(plural)?;
        ids.iter().copied().find(|id| self.resources.get(id).is_some_and(|found| found.group == group))
    }

    /// Looks up a resource by group, version and plural.
    pub(crate) fn resource(&self, group: &str, version: &str, plural: &str) -> Option<VersionedResource> {
        let id = self.find(group, plural)?;
        let versions = &self.resources.get(&id)?.versions;
        let version = versions.iter().position(|served| served.name == version)?;
        Some(VersionedResource { id, version })
    }

    /// Looks up a resource by the apiVersion and kind of an object.
    pub(crate) fn resource_for_kind(&self, api_version: &str, kind: &str) -> Option<VersionedResource> {
        let (group, version) = split_api_version(api_version);
        self.resources.iter().find_map(|(id, resource)| {
            let fits = resource.group == group && resource.kind == kind;
            let version = resource.versions.iter().position(|served| served.name == version);
            version.filter(|_| fits).map(|version| VersionedResource { id: *id, version })
        })
    }

    /// Returns all groups but the core group, in the server's order of preference, each with its versions.
    pub(crate) fn groups(&self) -> Vec<(String, Vec<String>)> {
        let mut served: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for resource in self.resources.values().filter(|resource| !resource.group.is_empty()) {
            let versions = served.entry(&resource.group).or_default();
            for version in &resource.versions {
                if !versions.contains(&version.name.as_str()) {
                    versions.push(&version.name);
                }
            }
        }
        let mut groups: Vec<(&str, Vec<&str>)> = served.into_iter().collect();
        groups.sort_by_key(|(name, _)| facts::group_order(name));
        let owned = |(name, mut versions): (&str, Vec<&str>)| {
            versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
            (name.to_owned(), versions.into_iter().map(str::to_owned).collect())
        };
        groups.into_iter().map(owned).collect()
    }

    pub(crate) fn is_built_in(&self, group: &str) -> bool {
        self.group_kind(group) == Some(GroupKind::BuiltIn)
    }

    /// Returns the origin of a group's resources, or `None` if the group is not served. A group with
    /// resources of both origins is built in.
    pub(crate) fn group_kind(&self, group: &str) -> Option<GroupKind> {
        let mut of_group = self.resources.values().filter(|resource| resource.group == group).peekable();
        of_group.peek()?;
        Some(if of_group.any(|resource| !resource.custom) { GroupKind::BuiltIn } else { GroupKind::Custom })
    }
}

/// The origin of a group's resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupKind {
    BuiltIn,
    Custom,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_is_found_by_path_and_by_kind() {
        let registry = Registry::builtin();
        let by_path = registry.resource("apps", "v1", "deployments").unwrap();
        assert_eq!(registry.resource_for_kind("apps/v1", "Deployment"), Some(by_path));
        assert_eq!(registry.resource("apps", "v1beta1", "deployments"), None);
        assert_eq!(registry.group_kind("apps"), Some(GroupKind::BuiltIn));
        assert_eq!(registry.group_kind("nothing.example"), None);
    }

    #[test]
    fn unstable_versions_are_disabled_by_default() {
        let versions = |registry: &Registry, group: &str, plural: &str| {
            let resource = registry.find(group, plural).and_then(|id| registry.get(id)).cloned();
            let versions = resource.into_iter().flat_map(|resource| resource.versions.clone());
            versions.map(|version| version.name).collect::<Vec<_>>()
        };
        let (default, all) = (Registry::builtin(), Registry::all_versions());
        assert_eq!(versions(&default, "resource.k8s.io", "resourceclaims"), ["v1"]);
        assert_eq!(versions(&all, "resource.k8s.io", "resourceclaims"), ["v1", "v1beta2", "v1beta1"]);
        assert_eq!(versions(&default, "autoscaling", "horizontalpodautoscalers"), ["v2", "v1"]);
        assert!(versions(&default, "coordination.k8s.io", "leasecandidates").is_empty());
        assert!(default.iter().all(|(_, resource)| !resource.versions.is_empty()));
    }

    #[test]
    fn verbs_and_storage_of_builtin_resources() {
        let registry = Registry::builtin();
        let get = |group: &str, plural: &str| registry.get(registry.find(group, plural).unwrap()).unwrap();
        let pods = get("", "pods");
        assert_eq!(pods.verbs(0, Some("eviction")), Some(["create"].as_slice()));
        assert_eq!(pods.verbs(0, Some("nothing")), None);
        assert!(pods.is_stored() && pods.has_status(0));
        let namespaces = get("", "namespaces");
        assert!(!namespaces.verbs(0, None).unwrap().contains(&"deletecollection"));
        assert!(!get("authorization.k8s.io", "subjectaccessreviews").is_stored());
    }

    #[test]
    fn every_change_has_another_revision() {
        let mut registry = Registry::builtin();
        let before = registry.clone();
        let id = registry.insert(Resource { group: "a.b".to_owned(), ..Resource::default() });
        assert_ne!(registry.revision(), before.revision());
        let mut restored = before.clone();
        restored.skip_ids_of(&registry);
        assert!(![before.revision(), registry.revision()].contains(&restored.revision()));
        registry.remove(id);
        assert_ne!(registry.revision(), before.revision());
    }
}
