//! The built-in resources: the table of `informer-schema`, completed by the facts about single kinds in
//! `facts.rs`.

use informer_objects::text::versions::priority;
use informer_schema::RESOURCES;

use super::facts;
use super::resource::{Field, Resource, Subresource, Version};

/// The versions to serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Versions {
    /// Those that are enabled by default.
    Stable,
    All,
}

/// Returns the built-in resources that have at least one of the selected versions.
pub(super) fn resources(versions: Versions) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    for row in RESOURCES.iter().filter(|row| versions == Versions::All || is_stable(row.version)) {
        let version = version(row);
        // The table is sorted by version before plural, so the rows of one resource are not adjacent.
        let known = resources.iter_mut().find(|known| known.group == row.group && known.plural == row.plural);
        if let Some(known) = known {
            known.versions.push(version);
            known.versions.sort_by_key(|version| std::cmp::Reverse(priority(&version.name)));
            continue;
        }
        resources.push(Resource {
            group: row.group.to_owned(),
            kind: row.kind.to_owned(),
            list_kind: format!("{}List", row.kind),
            plural: row.plural.to_owned(),
            singular: row.singular.to_owned(),
            short_names: owned(row.short_names),
            categories: owned(row.categories),
            namespaced: row.namespaced,
            custom: false,
            storage: None,
            generation: facts::has_generation(row.group, row.plural),
            fields: fields(row.group, row.plural),
            versions: vec![version],
        });
    }
    resources
}

/// Returns the fields that selectors support, besides name and namespace.
fn fields(group: &str, plural: &str) -> Vec<Field> {
    facts::selectable_fields(group, plural)
        .iter()
        .map(|(name, path, default)| Field::new(name, path, default))
        .collect()
}

fn version(row: &informer_schema::Resource) -> Version {
    let subresource = |subresource: &informer_schema::Subresource| {
        let own = (subresource.group, subresource.version) == (row.group, row.version);
        Subresource {
            name: subresource.name,
            group: if own { "" } else { subresource.group },
            version: if own { "" } else { subresource.version },
            kind: subresource.kind.to_owned(),
            verbs: subresource.verbs,
            type_id: subresource.type_id,
        }
    };
    Version {
        custom: None,
        name: row.version.to_owned(),
        status: row.subresources.iter().any(|subresource| subresource.name == "status"),
        type_id: row.type_id,
        verbs: row.verbs,
        subresources: row.subresources.iter().map(subresource).collect(),
        storage_hash: row.storage_hash.to_owned(),
    }
}

/// Returns whether a version is stable, and therefore enabled by default.
fn is_stable(version: &str) -> bool {
    !version.contains("alpha") && !version.contains("beta")
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
