//! A resource as the server knows it: names, versions, subresources and selectable fields.
//!
//! Each object of a resource is stored once and served under one or more versions. This module knows neither
//! which resources exist nor their objects.

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
    /// Whether a `CustomResourceDefinition` defines the resource. Custom objects are written with sorted
    /// keys, and the items of their lists include kind and apiVersion.
    pub(crate) custom: bool,
    /// Whether objects have `metadata.generation`.
    pub(crate) generation: bool,
    /// How objects are stored according to their definition; `None` for built-in kinds.
    pub(crate) storage: Option<Arc<definition::Storage>>,
    /// Fields that selectors support, besides name and namespace.
    pub(crate) fields: Vec<Field>,
    /// Never empty; the preferred version is first.
    pub(crate) versions: Vec<Version>,
}

/// A version under which a resource is served.
#[derive(Debug, Clone, Default)]
pub(crate) struct Version {
    pub(crate) name: String,
    /// Whether there is a status subresource.
    pub(crate) status: bool,
    /// The schema and options from the definition; `None` for built-in kinds.
    pub(crate) custom: Option<Arc<definition::Version>>,
    /// The type of the objects; `None` for custom ones.
    pub(crate) type_id: Option<TypeId>,
    /// The verbs in the order of discovery.
    pub(crate) verbs: &'static [&'static str],
    pub(crate) subresources: Vec<Subresource>,
    /// The storage version hash in discovery. Empty for kinds that are never stored: bindings and reviews.
    pub(crate) storage_hash: String,
}

/// A subresource with its own path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Subresource {
    pub(crate) name: &'static str,
    /// Group, version and kind of the bodies. Group and version are empty if they are those of the resource.
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: String,
    pub(crate) verbs: &'static [&'static str],
    pub(crate) type_id: Option<TypeId>,
}

/// A field that selectors support, besides name and namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    /// Paths of the value; the first with a value that is not empty counts.
    paths: Vec<Vec<String>>,
    default: String,
}

impl Resource {
    /// Returns the apiVersion: for example `apps/v1`, or just `v1` in the core group.
    pub(crate) fn api_version(&self, version: usize) -> String {
        let name = self.versions.get(version).map_or("", |version| version.name.as_str());
        if self.group.is_empty() { name.to_owned() } else { format!("{}/{name}", self.group) }
    }

    pub(crate) fn has_status(&self, version: usize) -> bool {
        self.versions.get(version).is_some_and(|version| version.status)
    }

    /// Returns the schema and options of a version of a custom resource.
    pub(crate) fn custom_version(&self, version: usize) -> Option<&definition::Version> {
        self.versions.get(version)?.custom.as_deref()
    }

    /// Returns the table format of a version.
    pub(crate) fn table_format(&self, version: usize) -> tables::TableKind<'_> {
        tables::TableKind { group: &self.group, kind: &self.kind, custom: self.custom_version(version) }
    }

    /// Returns the verbs of the resource or of a subresource, or `None` if there is no such subresource.
    pub(crate) fn verbs(&self, version: usize, subresource: Option<&str>) -> Option<&'static [&'static str]> {
        let version = self.versions.get(version)?;
        match subresource {
            None => Some(version.verbs),
            Some(name) => {
                version.subresources.iter().find(|found| found.name == name).map(|found| found.verbs)
            }
        }
    }

    /// Returns whether objects of the resource can be stored.
    pub(crate) fn is_stored(&self) -> bool {
        self.versions.iter().any(|version| !version.storage_hash.is_empty())
    }

    /// Returns the error message for an unsupported field in a selector.
    pub(crate) fn unknown_field(&self, name: &str) -> String {
        if self.custom {
            return format!("field label not supported: {name}");
        }
        facts::unknown_field(&self.group, &self.plural, name)
    }

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    /// Returns whether the server has a watch cache for the resource, as kube-apiserver has for everything
    /// but events.
    pub(crate) fn is_cached(&self) -> bool {
        !self.is("", "events") && !self.is("events.k8s.io", "events")
    }

    pub(crate) fn is_definition(&self) -> bool {
        self.is(DEFINITIONS.0, DEFINITIONS.1)
    }

    /// Returns whether the status in the body of a create is stored.
    pub(crate) fn takes_status_at_create(&self, version: usize) -> bool {
        !self.has_status(version)
            || (!self.custom && facts::takes_status_at_create(&self.group, &self.plural))
    }

    /// Returns whether the response to a deletion is the object, even if the object was removed.
    pub(crate) fn delete_shows_object(&self) -> bool {
        !self.custom && facts::delete_shows_object(&self.group, &self.plural)
    }

    /// Returns whether PUT creates a missing object.
    pub(crate) fn put_creates(&self) -> bool {
        !self.custom && facts::put_creates(&self.group, &self.plural)
    }

    /// Returns whether an update must contain a resource version.
    pub(crate) fn update_needs_version(&self) -> bool {
        self.custom || facts::update_needs_version(&self.group, &self.plural)
    }

    /// Returns whether dependents are orphaned if a deletion has no propagation policy.
    pub(crate) fn orphans_by_default(&self) -> bool {
        !self.custom && facts::orphans_by_default(&self.group, &self.plural)
    }
}

impl Field {
    /// Creates a field. `paths` are separated by `|`; `default` is the value if no path has one.
    pub(crate) fn new(name: &str, paths: &str, default: &str) -> Self {
        let path =
            |text: &str| text.split('.').filter(|segment| !segment.is_empty()).map(str::to_owned).collect();
        Field {
            name: name.to_owned(),
            paths: paths.split('|').map(path).collect(),
            default: default.to_owned(),
        }
    }

    /// Returns the value of the field in an object, as selectors compare it.
    pub(crate) fn read(&self, object: &Value) -> String {
        let found = self.paths.iter().find_map(|path| {
            let found = path.iter().try_fold(object, |value, segment| value.get(segment.as_str()))?;
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
    fn missing_field_has_default_value() {
        let phase = Field::new("status.phase", "status.phase", "Pending");
        assert_eq!(phase.read(&serde_json::json!({})), "Pending");
        assert_eq!(phase.read(&serde_json::json!({"status": {"phase": "Running"}})), "Running");
    }

    #[test]
    fn first_path_with_a_value_counts() {
        let source = Field::new("source", "source.component|reportingComponent", "");
        let read = |object: Value| source.read(&object);
        assert_eq!(read(serde_json::json!({"source": {"component": "a"}, "reportingComponent": "b"})), "a");
        assert_eq!(read(serde_json::json!({"source": {}, "reportingComponent": "b"})), "b");
        assert_eq!(read(serde_json::json!({})), "");
    }
}
