//! What is built in: the resources of `informer-schema`, with what `facts.rs` says about single kinds.

use informer_objects::text::versions::priority;
use informer_schema::RESOURCES;

use super::facts;
use super::resource::{Field, Resource, Subresource, Version};

/// The resources, each under the versions that are on: all of them, or those that are by default.
pub(super) fn resources(all: bool) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    for row in RESOURCES.iter().filter(|row| all || is_stable(row.version)) {
        let version = version(row);
        // Rows are sorted by version before plural, so that those of one resource are apart.
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

/// The fields, besides name and namespace, that a list can select on.
fn fields(group: &str, plural: &str) -> Vec<Field> {
    facts::rows(group, plural).iter().map(|(name, path, default)| Field::new(name, path, default)).collect()
}

fn version(row: &informer_schema::Resource) -> Version {
    let part = |part: &informer_schema::Subresource| {
        let own = (part.group, part.version) == (row.group, row.version);
        Subresource {
            name: part.name,
            group: if own { "" } else { part.group },
            version: if own { "" } else { part.version },
            kind: part.kind.to_owned(),
            verbs: part.verbs,
            type_id: part.of,
        }
    };
    Version {
        custom: None,
        name: row.version.to_owned(),
        status: row.subresources.iter().any(|part| part.name == "status"),
        type_id: row.of,
        verbs: row.verbs,
        subresources: row.subresources.iter().map(part).collect(),
        storage_hash: row.storage_hash.to_owned(),
    }
}

/// Versions that are not stable are off by default.
fn is_stable(version: &str) -> bool {
    !version.contains("alpha") && !version.contains("beta")
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
