//! Which resources there are: the built-in ones, and those that definitions add at run time.
//!
//! A resource is stored once and may be served under several versions. Group and plural name it; there are never
//! two with the same. What objects of it exist is not known here.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::builtin;

/// Group and plural of definitions.
pub(crate) const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");

/// A resource as the server knows it.
#[derive(Debug, Clone)]
pub(crate) struct Resource {
    pub(crate) group: String,
    pub(crate) kind: String,
    pub(crate) list_kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether a definition brought it. Custom objects are written with sorted keys, and their list items say
    /// what they are.
    pub(crate) custom: bool,
    pub(crate) generation: bool,
    /// What a list can select on, besides name and namespace.
    pub(crate) fields: Vec<Field>,
    /// Never empty; the first is the preferred one.
    pub(crate) versions: Vec<Version>,
}

/// A version under which a resource is served.
#[derive(Debug, Clone)]
pub(crate) struct Version {
    pub(crate) name: String,
    pub(crate) status: bool,
}

/// A field that a list can select on, besides name and namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) name: String,
    path: Vec<String>,
    default: String,
}

/// A resource and the version through which somebody looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) id: ResourceId,
    pub(crate) version: usize,
}

/// Names a resource for as long as it is served; a definition that comes again gets another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ResourceId(u32);

/// All resources that are served.
#[derive(Debug, Clone)]
pub(crate) struct Registry {
    next: u32,
    resources: BTreeMap<ResourceId, Arc<Resource>>,
    by_plural: BTreeMap<String, Vec<ResourceId>>,
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

    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        self.group == group && self.plural == plural
    }

    pub(crate) fn is_definition(&self) -> bool {
        self.is(DEFINITIONS.0, DEFINITIONS.1)
    }

    pub(crate) fn takes_status_at_create(&self, version: usize) -> bool {
        !self.has_status(version)
            || (!self.custom && builtin::takes_status_at_create(&self.group, &self.plural))
    }

    pub(crate) fn delete_shows_object(&self) -> bool {
        !self.custom && builtin::delete_shows_object(&self.group, &self.plural)
    }

    pub(crate) fn put_creates(&self) -> bool {
        !self.custom && builtin::put_creates(&self.group, &self.plural)
    }
}

impl Field {
    pub(crate) fn new(name: &str, path: &str, default: &str) -> Self {
        Field {
            name: name.to_owned(),
            path: path.split('.').filter(|part| !part.is_empty()).map(str::to_owned).collect(),
            default: default.to_owned(),
        }
    }

    /// The field's value in an object, as a selector sees it.
    pub(crate) fn read(&self, object: &Value) -> String {
        let found = self.path.iter().try_fold(object, |value, part| value.get(part.as_str()));
        match found {
            Some(Value::String(text)) if !text.is_empty() => text.clone(),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => value.to_string(),
            _ => self.default.clone(),
        }
    }
}

impl Registry {
    /// The built-in resources.
    pub(crate) fn builtin() -> Self {
        let mut registry = Registry { next: 0, resources: BTreeMap::new(), by_plural: BTreeMap::new() };
        for kind in informer_schema::KINDS {
            let version = Version {
                name: kind.version.to_owned(),
                status: builtin::has_status(kind.group, kind.plural),
            };
            let known = registry.find(kind.group, kind.plural);
            if let Some(resource) = known.and_then(|id| registry.resources.get_mut(&id)) {
                let resource = Arc::make_mut(resource);
                resource.versions.push(version);
                resource.versions.sort_by_key(|version| std::cmp::Reverse(priority(&version.name)));
                continue;
            }
            registry.insert(Resource {
                group: kind.group.to_owned(),
                kind: kind.kind.to_owned(),
                list_kind: format!("{}List", kind.kind),
                plural: kind.plural.to_owned(),
                singular: kind.kind.to_lowercase(),
                short_names: Vec::new(),
                namespaced: kind.namespaced,
                custom: false,
                generation: builtin::has_generation(kind.group, kind.plural),
                fields: builtin::fields(kind.group, kind.plural),
                versions: vec![version],
            });
        }
        registry
    }

    pub(crate) fn insert(&mut self, resource: Resource) -> ResourceId {
        let id = ResourceId(self.next);
        self.next += 1;
        self.by_plural.entry(resource.plural.clone()).or_default().push(id);
        self.resources.insert(id, Arc::new(resource));
        id
    }

    pub(crate) fn replace(&mut self, id: ResourceId, resource: Resource) {
        self.resources.insert(id, Arc::new(resource));
    }

    pub(crate) fn remove(&mut self, id: ResourceId) -> Option<Arc<Resource>> {
        let resource = self.resources.remove(&id)?;
        if let Some(ids) = self.by_plural.get_mut(&resource.plural) {
            ids.retain(|other| *other != id);
        }
        Some(resource)
    }

    /// Ids given out from now on are none that `other` gave out.
    pub(crate) fn skip_ids_of(&mut self, other: &Registry) {
        self.next = self.next.max(other.next);
    }

    pub(crate) fn get(&self, id: ResourceId) -> Option<&Arc<Resource>> {
        self.resources.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ResourceId, &Resource)> {
        self.resources.iter().map(|(id, resource)| (*id, &**resource))
    }

    pub(crate) fn find(&self, group: &str, plural: &str) -> Option<ResourceId> {
        let ids = self.by_plural.get(plural)?;
        ids.iter().copied().find(|id| self.resources.get(id).is_some_and(|found| found.group == group))
    }

    pub(crate) fn place(&self, group: &str, version: &str, plural: &str) -> Option<Place> {
        let id = self.find(group, plural)?;
        let versions = &self.resources.get(&id)?.versions;
        let version = versions.iter().position(|served| served.name == version)?;
        Some(Place { id, version })
    }

    /// Looks a resource up by what an object says of itself.
    pub(crate) fn place_of(&self, api_version: &str, kind: &str) -> Option<Place> {
        let (group, version) = split_api_version(api_version);
        self.resources.iter().find_map(|(id, resource)| {
            let fits = resource.group == group && resource.kind == kind;
            let version = resource.versions.iter().position(|served| served.name == version);
            version.filter(|_| fits).map(|version| Place { id: *id, version })
        })
    }

    pub(crate) fn is_built_in(&self, group: &str) -> bool {
        self.group(group) == Some(GroupKind::BuiltIn)
    }

    /// Whether a group is served, and whether by built-in kinds.
    pub(crate) fn group(&self, group: &str) -> Option<GroupKind> {
        let mut of_group = self.resources.values().filter(|resource| resource.group == group).peekable();
        of_group.peek()?;
        Some(if of_group.any(|resource| !resource.custom) { GroupKind::BuiltIn } else { GroupKind::Custom })
    }
}

/// Where a group's resources come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GroupKind {
    BuiltIn,
    Custom,
}

/// `apps/v1` is group `apps`, version `v1`; `v1` is the core group.
pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Orders versions as Kubernetes prefers them: stable before beta before alpha, newer before older.
pub(crate) fn priority(version: &str) -> (u8, u32, u32) {
    let digits = |text: &str| -> Option<(u32, usize)> {
        let length = text.bytes().take_while(u8::is_ascii_digit).count();
        Some((text[..length].parse().ok()?, length))
    };
    let parsed = version.strip_prefix('v').and_then(|rest| {
        let (major, length) = digits(rest)?;
        let tail = &rest[length..];
        if tail.is_empty() {
            return Some((3, major, 0));
        }
        let (stage, minor) = match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
            (Some(minor), _) => (2, minor),
            (_, Some(minor)) => (1, minor),
            _ => return None,
        };
        Some((stage, major, minor.parse().ok()?))
    });
    parsed.unwrap_or((0, 0, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_found_by_path_and_by_kind() {
        let registry = Registry::builtin();
        let by_path = registry.place("apps", "v1", "deployments").unwrap();
        assert_eq!(registry.place_of("apps/v1", "Deployment"), Some(by_path));
        assert_eq!(registry.place("apps", "v1beta1", "deployments"), None);
        assert_eq!(registry.group("apps"), Some(GroupKind::BuiltIn));
        assert_eq!(registry.group("nothing.example"), None);
    }

    #[test]
    fn stable_versions_come_first() {
        let mut versions = ["v1alpha1", "v2", "v1beta2", "v10", "strange", "v1"];
        versions.sort_by_key(|version| std::cmp::Reverse(priority(version)));
        assert_eq!(versions, ["v10", "v2", "v1", "v1beta2", "v1alpha1", "strange"]);
    }

    #[test]
    fn a_field_has_a_default() {
        let phase = Field::new("status.phase", "status.phase", "Pending");
        assert_eq!(phase.read(&serde_json::json!({})), "Pending");
        assert_eq!(phase.read(&serde_json::json!({"status": {"phase": "Running"}})), "Running");
    }
}
