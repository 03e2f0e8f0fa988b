//! Aggregated discovery: one document with all groups and their resources.
//!
//! As in kube-apiserver, the response kind of a built-in resource has no group and version; the response kind
//! of a custom resource has both.

use serde::Serialize;

use super::legacy::served;
use crate::model::{Registry, Resource, Subresource};

/// `/api` and `/apis`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GroupList {
    kind: &'static str,
    api_version: &'static str,
    metadata: Metadata,
    items: Vec<Group>,
}

/// The part of a document that its entity tag is computed from.
#[derive(Serialize)]
pub(super) struct Tagged<'a> {
    metadata: &'a Metadata,
    items: &'a [Group],
}

#[derive(Serialize, Default)]
struct Metadata {
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
}

#[derive(Serialize)]
struct Group {
    metadata: Metadata,
    versions: Vec<ServedVersion>,
}

#[derive(Serialize)]
struct ServedVersion {
    version: String,
    resources: Vec<ResourceEntry>,
    freshness: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ResourceEntry {
    resource: String,
    response_kind: ResponseKind,
    scope: &'static str,
    singular_resource: String,
    verbs: &'static [&'static str],
    #[serde(skip_serializing_if = "Vec::is_empty")]
    short_names: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    categories: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subresources: Vec<SubresourceEntry>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubresourceEntry {
    subresource: &'static str,
    response_kind: ResponseKind,
    verbs: &'static [&'static str],
}

#[derive(Serialize)]
struct ResponseKind {
    group: String,
    version: String,
    kind: String,
}

impl GroupList {
    pub(super) fn tagged(&self) -> Tagged<'_> {
        Tagged { metadata: &self.metadata, items: &self.items }
    }
}

/// `/api`.
pub(super) fn core(registry: &Registry) -> GroupList {
    list(vec![group(registry, String::new(), vec!["v1".to_owned()])])
}

/// `/apis`.
pub(super) fn groups(registry: &Registry) -> GroupList {
    list(registry.groups().into_iter().map(|(name, versions)| group(registry, name, versions)).collect())
}

fn list(items: Vec<Group>) -> GroupList {
    let (kind, api_version) = ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2");
    GroupList { kind, api_version, metadata: Metadata::default(), items }
}

fn group(registry: &Registry, name: String, versions: Vec<String>) -> Group {
    let version = |version: String| {
        let resources = served(registry, &name, &version);
        let resources =
            resources.into_iter().filter_map(|(resource, at)| resource_entry(resource, at)).collect();
        ServedVersion { version, resources, freshness: "Current" }
    };
    let versions = versions.into_iter().map(version).collect();
    Group { metadata: Metadata { name }, versions }
}

fn resource_entry(resource: &Resource, at: usize) -> Option<ResourceEntry> {
    let version = resource.versions.get(at)?;
    let own_kind = |kind: &str| {
        let (group, version) =
            if resource.custom { (resource.group.clone(), version.name.clone()) } else { Default::default() };
        ResponseKind { group, version, kind: kind.to_owned() }
    };
    let subresource = |subresource: &Subresource| {
        let response_kind = if subresource.version.is_empty() {
            own_kind(&subresource.kind)
        } else {
            ResponseKind {
                group: subresource.group.to_owned(),
                version: subresource.version.to_owned(),
                kind: subresource.kind.clone(),
            }
        };
        SubresourceEntry { subresource: subresource.name, response_kind, verbs: subresource.verbs }
    };
    Some(ResourceEntry {
        resource: resource.plural.clone(),
        response_kind: own_kind(&resource.kind),
        scope: if resource.namespaced { "Namespaced" } else { "Cluster" },
        singular_resource: resource.singular.clone(),
        verbs: version.verbs,
        short_names: resource.short_names.clone(),
        categories: resource.categories.clone(),
        subresources: version.subresources.iter().map(subresource).collect(),
    })
}
