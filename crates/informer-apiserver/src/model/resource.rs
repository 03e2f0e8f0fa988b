//! One resource as the server knows it: names, versions, parts, selectable fields.
//!
//! A resource is stored once and may be served under several versions, at least one. Which resources there are, and which objects, is
//! not known here.

use std::sync::Arc;

use informer_objects::{definition, tables};
use informer_schema::TypeId;
use serde_json::Value;

use super::facts;

/// Group and plural of definitions.
pub(crate) const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// A resource as the server knows it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether a definition brought it. Custom objects are written with sorted keys, and their list items say
    /// what they are.
    pub(crate) custom: bool,
    pub(crate) generation: bool,
    /// How a definition has its objects stored; none for built-in kinds.
    pub(crate) storage: Option<Arc<definition::Storage>>,
    /// What a list can select on, besides name and namespace.
    pub(crate) fields: Vec<Field>,
    /// Never empty; the first is the preferred one.
    pub(crate) versions: Vec<Version>,
}

/// A version under which a resource is served.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) status: bool,
    /// What a definition says about its objects; none for built-in kinds.
    pub(crate) custom: Option<Arc<definition::Version>>,
    /// How objects are built; none for custom ones.
    pub(crate) type_id: Option<TypeId>,
    /// As discovery has them.
    pub(crate) verbs: &'static [&'static str],
    pub(crate) subresources: Vec<Subresource>,
    /// What discovery calls it; empty for what is answered and never stored: bindings, reviews.
    pub(crate) storage_hash: String,
}

/// A part of a resource with a path of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// What is read and written there; group and version are empty where they are those of the resource.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: String,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) type_id: Option<TypeId>,
}

/// A field that a list can select on, besides name and namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// Where the value is; the first that is there counts.
    paths: Vec<Vec<String>>,
    default: String,
}

impl Resource {
    /// `apps/v1`, and plain `v1` in the core group.
    pub(crate) fn api_version(&self, version: usize) -> String {
        let name = self.versions.get(version).map_or("", |version| version.name.as_str());
        if self.group.is_empty() { name.to_owned() } else { format!("{}/{name}", self.group) }
    }

    pub(crate) fn has_status(&self, version: usize) -> bool {
        self.versions.get(version).is_some_and(|version| version.status)
    }

    /// What its definition says about the objects of a version.
    pub(crate) fn custom(&self, version: usize) -> Option<&definition::Version> {
        self.versions.get(version)?.custom.as_deref()
    }

    /// What a table shows of the objects of a version.
    pub(crate) fn shown_as(&self, version: usize) -> tables::Of<'_> {
        tables::Of { group: &self.group, kind: &self.kind, custom: self.custom(version) }
    }

    /// What can be done with it, or with a part of it; none if there is no such part.
    pub(crate) fn verbs(&self, version: usize, subresource: Option<&str>) -> Option<&'static [&'static str]> {
        let version = self.versions.get(version)?;
        match subresource {
            None => Some(version.verbs),
            Some(name) => version.subresources.iter().find(|part| part.name == name).map(|part| part.verbs),
        }
    }

    /// Whether there can be objects of it.
    pub(crate) fn is_stored(&self) -> bool {
        self.versions.iter().any(|version| !version.storage_hash.is_empty())
    }

    /// What is said about a field that no list can select on.
    pub(crate) fn unknown_field(&self, name: &str) -> String {
        if self.custom {
            return format!("field label not supported: {name}");
        }
        facts::unknown_field(&self.group, &self.plural, name)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Whether the server keeps a cache of it, as a real one does of everything but events.
    pub(crate) fn is_cached(&self) -> bool {
        !self.is("", "events") && !self.is("events.k8s.io", "events")
    }

    pub(crate) fn is_definition(&self) -> bool {
        self.is(DEFINITIONS.0, DEFINITIONS.1)
    }

    pub(crate) fn takes_status_at_create(&self, version: usize) -> bool {
        !self.has_status(version)
            || (!self.custom && facts::takes_status_at_create(&self.group, &self.plural))
    }

    pub(crate) fn delete_shows_object(&self) -> bool {
        !self.custom && facts::delete_shows_object(&self.group, &self.plural)
    }

    pub(crate) fn put_creates(&self) -> bool {
        !self.custom && facts::put_creates(&self.group, &self.plural)
    }

    /// Whether an update has to name the version that it is about.
    pub(crate) fn update_needs_version(&self) -> bool {
        self.custom || facts::update_needs_version(&self.group, &self.plural)
    }

    /// Whether dependents stay when nobody says what is to become of them.
    pub(crate) fn orphans(&self) -> bool {
        !self.custom && facts::orphans(&self.group, &self.plural)
    }
}

impl Field {
    /// Several paths are separated by `|`.
    pub(crate) fn new(name: &str, paths: &str, default: &str) -> Self {
        let path = |text: &str| text.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        Field {
            name: name.to_owned(),
            paths: paths.split('|').map(path).collect(),
            default: default.to_owned(),
        }
    }

    /// The field's value in an object, as a selector sees it.
    pub(crate) fn read(&self, object: &Value) -> String {
        let found = self.paths.iter().find_map(|path| {
            let found = path.iter().try_fold(object, |value, part| value.get(part.as_str()))?;
            match found {
                Value::String(text) if !text.is_empty() => Some(text.clone()),
                Value::Bool(_) | Value::Number(_) => Some(found.to_string()),
                _ => None,
            }
        });
        found.unwrap_or_else(|| self.default.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_has_a_default() {
        let phase = Field::new("status.phase", "status.phase", "Pending");
        assert_eq!(phase.read(&serde_json::json!({})), "Pending");
        assert_eq!(phase.read(&serde_json::json!({"status": {"phase": "Running"}})), "Running");
    }

    #[test]
    fn a_field_may_be_in_several_places() {
        let source = Field::new("source", "source.component|reportingComponent", "");
        let read = |object: Value| source.read(&object);
        assert_eq!(read(serde_json::json!({"source": {"component": "a"}, "reportingComponent": "b"})), "a");
        assert_eq!(read(serde_json::json!({"source": {}, "reportingComponent": "b"})), "b");
        assert_eq!(read(serde_json::json!({})), "");
    }
}
