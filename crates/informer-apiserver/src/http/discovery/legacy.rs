//! Unaggregated discovery: one document for the groups, and one for each group and version.
//!
//! The order of keys is that of kube-apiserver. The documents of the core group (its versions and its
//! resources) have no `apiVersion`.

use serde::Serialize;

use crate::model::{Registry, Resource, Subresource};

/// `/version`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct VersionInfo {
    major: &'static str,
    minor: &'static str,
    emulation_major: &'static str,
    emulation_minor: &'static str,
    min_compatibility_major: &'static str,
    min_compatibility_minor: &'static str,
    git_version: &'static str,
    git_commit: &'static str,
    git_tree_state: &'static str,
    build_date: &'static str,
    go_version: &'static str,
    compiler: &'static str,
    platform: &'static str,
}

/// The emulated version. There is no commit and no compiler to report.
pub(super) const VERSION: VersionInfo = VersionInfo {
    major: "1",
    minor: "36",
    emulation_major: "1",
    emulation_minor: "36",
    min_compatibility_major: "1",
    min_compatibility_minor: "35",
    git_version: "v1.36.4",
    git_commit: "",
    git_tree_state: "",
    build_date: "1970-01-01T00:00:00Z",
    go_version: "",
    compiler: "",
    platform: "embedded",
};

/// `/api`.
#[derive(Serialize)]
pub(super) struct CoreVersions {
    kind: &'static str,
    versions: [&'static str; 1],
    #[serde(rename = "serverAddressByClientCIDRs")]
    addresses: [Address; 1],
}

#[derive(Serialize)]
struct Address {
    #[serde(rename = "clientCIDR")]
    client: &'static str,
    #[serde(rename = "serverAddress")]
    server: &'static str,
}

/// `/apis`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupList {
    kind: &'static str,
    api_version: &'static str,
    groups: Vec<Group>,
}

/// `/apis/{group}`, and an entry of `/apis`, which has no kind and apiVersion.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Group {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    name: String,
    versions: Vec<GroupVersion>,
    #[serde(skip_serializing_if = "Option::is_none")]
    preferred_version: Option<GroupVersion>,
}

#[derive(Serialize, Clone)]
#[serde(rename_all = "camelCase")]
struct GroupVersion {
    group_version: String,
    version: String,
}

/// `/api/v1` and `/apis/{group}/{version}`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ResourceList {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_version: Option<&'static str>,
    group_version: String,
    resources: Vec<ResourceEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceEntry {
    name: String,
    singular_name: String,
    namespaced: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    group: &'static str,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'static str,
    kind: String,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    storage_version_hash: String,
}

pub(super) fn core_versions() -> CoreVersions {
    CoreVersions {
        kind: "APIVersions",
        versions: ["v1"],
        addresses: [Address { client: "0.0.0.0/0", server: "embedded:443" }],
    }
}

pub(super) fn groups(registry: &Registry) -> GroupList {
    let groups = registry.groups().into_iter().map(|(name, versions)| entry(name, versions));
    GroupList { kind: "APIGroupList", api_version: "v1", groups: groups.collect() }
}

/// Returns the document of a group, or `None` if it is not served.
pub(super) fn group(registry: &Registry, name: &str) -> Option<Group> {
    let (name, versions) = registry.groups().into_iter().find(|(group, _)| group == name)?;
    Some(Group { kind: Some("APIGroup"), api_version: Some("v1"), ..entry(name, versions) })
}

/// Returns the document of a group and version, or `None` if the group does not serve the version.
pub(super) fn resources(registry: &Registry, group: &str, version: &str) -> Option<ResourceList> {
    let mut entries = Vec::new();
    for (resource, at) in served(registry, group, version) {
        let version = resource.versions.get(at)?;
        entries.push(ResourceEntry {
            name: resource.plural.clone(),
            singular_name: resource.singular.clone(),
            namespaced: resource.namespaced,
            group: "",
            version: "",
            kind: resource.kind.clone(),
            verbs: version.verbs,
            short_names: resource.short_names.clone(),
            categories: resource.categories.clone(),
            storage_version_hash: version.storage_hash.clone(),
        });
        entries
            .extend(version.subresources.iter().map(|subresource| subresource_entry(resource, subresource)));
    }
    if entries.is_empty() {
        return None;
    }
    let core = group.is_empty();
    Some(ResourceList {
        kind: "APIResourceList",
        api_version: (!core).then_some("v1"),
        group_version: if core { version.to_owned() } else { format!("{group}/{version}") },
        resources: entries,
    })
}

/// Returns the resources of a group that are served in a version, sorted by plural, and the index of that
/// version in each resource.
pub(super) fn served<'a>(registry: &'a Registry, group: &str, version: &str) -> Vec<(&'a Resource, usize)> {
    let mut found: Vec<(&Resource, usize)> = registry
        .iter()
        .filter(|(_, resource)| resource.group == group)
        .filter_map(|(_, resource)| {
            let at = resource.versions.iter().position(|served| served.name == version)?;
            Some((resource, at))
        })
        .collect();
    found.sort_by_key(|(resource, _)| &resource.plural);
    found
}

fn subresource_entry(resource: &Resource, subresource: &Subresource) -> ResourceEntry {
    ResourceEntry {
        name: format!("{}/{}", resource.plural, subresource.name),
        singular_name: String::new(),
        namespaced: resource.namespaced,
        group: subresource.group,
        version: subresource.version,
        kind: subresource.kind.clone(),
        verbs: subresource.verbs,
        short_names: Vec::new(),
        categories: Vec::new(),
        storage_version_hash: String::new(),
    }
}

/// Returns a group as an entry of `/apis`.
fn entry(name: String, versions: Vec<String>) -> Group {
    let group_version =
        |version: String| GroupVersion { group_version: format!("{name}/{version}"), version };
    let versions: Vec<GroupVersion> = versions.into_iter().map(group_version).collect();
    let preferred_version = versions.first().cloned();
    Group { kind: None, api_version: None, name, versions, preferred_version }
}
