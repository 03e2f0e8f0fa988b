//! Discovery: which groups, versions and resources are served, in the plain form that every client understands.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::model::{Registry, priority};

/// What can be done with every resource.
const VERBS: &[&str] = &["create", "delete", "get", "list", "update", "watch"];

/// `/version`.
pub(crate) fn version() -> Value {
    json!({
        "major": "1",
        "minor": "36",
        "gitVersion": "v1.36.4",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "embedded",
    })
}

/// `/api`.
pub(crate) fn core_versions() -> Value {
    let address = json!({"clientCIDR": "0.0.0.0/0", "serverAddress": "embedded:443"});
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]})
}

/// `/apis`.
pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> =
        versions(registry).iter().map(|(name, versions)| group(name, versions)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// `/apis/{group}`; none if it is not served.
pub(crate) fn one_group(registry: &Registry, name: &str) -> Option<Value> {
    let versions = versions(registry);
    let mut found = group(name, versions.get(name)?);
    found["kind"] = json!("APIGroup");
    found["apiVersion"] = json!("v1");
    Some(found)
}

/// `/api/v1` and `/apis/{group}/{version}`; none if it is not served.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut found = Vec::new();
    for (_, resource) in registry.iter().filter(|(_, resource)| resource.group == group) {
        let Some(place) = resource.versions.iter().position(|served| served.name == version) else {
            continue;
        };
        let mut row = json!({
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": VERBS,
        });
        if !resource.short_names.is_empty() {
            row["shortNames"] = json!(resource.short_names);
        }
        found.push(row);
        if resource.has_status(place) {
            found.push(json!({
                "name": format!("{}/status", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": ["get", "update"],
            }));
        }
    }
    if found.is_empty() {
        return None;
    }
    found.sort_by(|a, b| a["name"].as_str().cmp(&b["name"].as_str()));
    let group_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let kind = "APIResourceList";
    Some(json!({"kind": kind, "apiVersion": "v1", "groupVersion": group_version, "resources": found}))
}

fn group(name: &str, versions: &[String]) -> Value {
    let row = |version: &String| json!({"groupVersion": format!("{name}/{version}"), "version": version});
    let rows: Vec<Value> = versions.iter().map(row).collect();
    json!({"name": name, "versions": rows, "preferredVersion": rows.first()})
}

/// The versions of each group but the core group, the preferred one first.
fn versions(registry: &Registry) -> BTreeMap<String, Vec<String>> {
    let mut groups: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (_, resource) in registry.iter().filter(|(_, resource)| !resource.group.is_empty()) {
        let group = groups.entry(resource.group.clone()).or_default();
        for version in &resource.versions {
            if !group.contains(&version.name) {
                group.push(version.name.clone());
            }
        }
    }
    for versions in groups.values_mut() {
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
    }
    groups
}
