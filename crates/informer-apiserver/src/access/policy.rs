//! One rule of a role: what it permits, and whether it covers another rule.

use serde::{Deserialize, Deserializer, Serialize};

use super::{Attributes, quoted_list};

/// A rule of a role. `*` stands for everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Rule {
    #[serde(deserialize_with = "or_empty")]
    pub(crate) verbs: Vec<String>,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) api_groups: Vec<String>,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resources: Vec<String>,
    #[serde(deserialize_with = "or_empty", skip_serializing_if = "Vec::is_empty")]
    pub(crate) resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "or_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(crate) non_resource_urls: Vec<String>,
}

impl Rule {
    /// Creates a rule for resources.
    pub(crate) fn for_resources(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Self {
        Rule {
            api_groups: owned(groups),
            resources: owned(resources),
            verbs: owned(verbs),
            ..Rule::default()
        }
    }

    /// Creates a rule for paths.
    pub(crate) fn for_paths(paths: &[&str], verbs: &[&str]) -> Self {
        Rule { non_resource_urls: owned(paths), verbs: owned(verbs), ..Rule::default() }
    }

    /// Returns whether the rule permits a request.
    pub(crate) fn allows(&self, attributes: &Attributes) -> bool {
        if !has_or_all(&self.verbs, &attributes.verb) {
            return false;
        }
        if let Some(path) = &attributes.path {
            return self.non_resource_urls.iter().any(|url| covers_path(url, path));
        }
        has_or_all(&self.api_groups, &attributes.group)
            && covers_resource(&self.resources, &attributes.resource, &attributes.subresource)
            && (self.resource_names.is_empty() || self.resource_names.contains(&attributes.name))
    }

    /// Returns whether the rule permits everything that a piece of another rule permits.
    pub(crate) fn covers(&self, piece: &Piece<'_>) -> bool {
        let Piece { verb, target } = *piece;
        let has_verb = has_or_all(&self.verbs, verb);
        match target {
            // As in kube-apiserver, a rule with resource names covers no path.
            RuleTarget::Path(path) => {
                has_verb
                    && self.resource_names.is_empty()
                    && self.non_resource_urls.iter().any(|url| covers_path(url, path))
            }
            RuleTarget::Resource { group, resource, name } => {
                let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                let names = &self.resource_names;
                has_verb
                    && has_or_all(&self.api_groups, group)
                    && covers_resource(&self.resources, resource, subresource)
                    && (names.is_empty() || name.is_some_and(|name| names.iter().any(|known| known == name)))
            }
        }
    }

    /// Returns the number of pieces.
    pub(crate) fn size(&self) -> usize {
        let names = self.resource_names.len().max(1);
        let resources = self.api_groups.len().saturating_mul(self.resources.len()).saturating_mul(names);
        resources.saturating_add(self.non_resource_urls.len()).saturating_mul(self.verbs.len())
    }

    /// Splits the rule into pieces: one verb on one resource, one named object or one path each.
    pub(crate) fn pieces(&self) -> Vec<Piece<'_>> {
        let names: Vec<Option<&str>> = if self.resource_names.is_empty() {
            vec![None]
        } else {
            self.resource_names.iter().map(|name| Some(name.as_str())).collect()
        };
        let mut pieces = Vec::with_capacity(self.size());
        for verb in &self.verbs {
            for group in &self.api_groups {
                for resource in &self.resources {
                    let target =
                        names.iter().map(|name| RuleTarget::Resource { group, resource, name: *name });
                    pieces.extend(target.map(|target| Piece { verb, target }));
                }
            }
            let paths = self.non_resource_urls.iter();
            pieces.extend(paths.map(|path| Piece { verb, target: RuleTarget::Path(path) }));
        }
        pieces
    }
}

/// The smallest part of a rule, which another rule covers completely or not at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece<'a> {
    pub(crate) verb: &'a str,
    pub(crate) target: RuleTarget<'a>,
}

/// The target of a piece of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RuleTarget<'a> {
    Path(&'a str),
    Resource { group: &'a str, resource: &'a str, name: Option<&'a str> },
}

/// Formats a rule in one line, as in error messages.
pub(crate) fn compact(target: &RuleTarget<'_>, verbs: &[String]) -> String {
    let list = |text: &str| quoted_list(&[text.to_owned()]);
    let verbs = quoted_list(verbs);
    match target {
        RuleTarget::Path(path) => format!("{{NonResourceURLs:{}, Verbs:{verbs}}}", list(path)),
        RuleTarget::Resource { group, resource, name } => {
            let names = name.map_or_else(String::new, |name| format!("ResourceNames:{}, ", list(name)));
            format!("{{APIGroups:{}, Resources:{}, {names}Verbs:{verbs}}}", list(group), list(resource))
        }
    }
}

fn has_or_all(set: &[String], value: &str) -> bool {
    set.iter().any(|known| known == "*" || known == value)
}

fn covers_resource(set: &[String], resource: &str, subresource: &str) -> bool {
    set.iter().any(|known| match (known.split_once('/'), subresource) {
        (None, "") => known == "*" || known == resource,
        (None, _) => known == "*",
        (Some((parent, sub)), subresource) => {
            !subresource.is_empty() && sub == subresource && (parent == "*" || parent == resource)
        }
    })
}

fn covers_path(url: &str, path: &str) -> bool {
    url == path || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

/// Deserializes a list that may be `null`.
pub(super) fn or_empty<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
