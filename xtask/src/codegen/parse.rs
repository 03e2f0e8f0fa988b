//! One source file of `k8s-openapi` → the resource it defines, if what it defines can be listed.
//!
//! Plain text search, as those files are written by a program and all look alike. Whatever does not look as expected is an
//! error, never a resource less: a file that mentions the marker of a listable resource gives a resource or a reason.
//! This file does not know where sources come from, nor for which Kubernetes version they are.

/// A resource type as one version of Kubernetes has it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    /// Empty for the core group.
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    /// The module its type is in, from the root of `k8s-openapi`: `api::apps::v1`.
    pub(super) module: String,
    /// The name of its type.
    pub(super) type_name: String,
}

/// What every resource has that can be listed, and with that watched. Reviews, bindings, evictions and list types do not.
const LISTABLE: &str = "impl crate::ListableResource for ";
const RESOURCE: &str = "impl crate::Resource for ";

/// Reads the text of a file of the module `module`; the error says what was not as expected.
pub(super) fn parse(module: &str, text: &str) -> Result<Option<Resource>, String> {
    let mut listables = headings(text, LISTABLE);
    let Some(listable) = listables.next() else {
        // Generic impls begin with `impl<T>`; whatever else mentions the trait is news to us.
        return match text.find("ListableResource for ") {
            None => Ok(None),
            Some(_) => Err(format!("mentions `ListableResource for`, but no line begins with `{LISTABLE}`")),
        };
    };
    if listables.next().is_some() {
        return Err("more than one listable resource in one file".to_owned());
    }
    let type_name = type_name(listable)?;
    let block = block(text, &format!("{RESOURCE}{type_name} {{\n"))?;
    let resource = Resource {
        group: constant(block, "GROUP")?,
        version: constant(block, "VERSION")?,
        plural: constant(block, "URL_PATH_SEGMENT")?,
        kind: constant(block, "KIND")?,
        namespaced: is_namespaced(block)?,
        module: module.to_owned(),
        type_name: type_name.to_owned(),
    };
    verify(&resource, &constant(block, "API_VERSION")?)?;
    Ok(Some(resource))
}

/// What follows `start` in the lines that begin with it.
fn headings<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(start))
}

fn type_name(heading: &str) -> Result<&str, String> {
    let name = heading.strip_suffix(" {").unwrap_or_default();
    if is_camel(name) { Ok(name) } else { Err(format!("not a plain type: `{LISTABLE}{heading}`")) }
}

fn is_camel(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_uppercase()) && name.chars().all(|c| c.is_ascii_alphanumeric())
}

/// The lines between `opening` and the brace that closes it, which stands first in its line.
fn block<'a>(text: &'a str, opening: &str) -> Result<&'a str, String> {
    let (_, rest) = text.split_once(opening).ok_or_else(|| format!("no `{}`", opening.trim_end()))?;
    let (block, _) =
        rest.split_once("\n}").ok_or_else(|| format!("`{}` does not end", opening.trim_end()))?;
    Ok(block)
}

/// The value of a string constant.
fn constant(block: &str, name: &str) -> Result<String, String> {
    let start = format!("const {name}: &'static str = \"");
    block
        .lines()
        .find_map(|line| line.trim_start().strip_prefix(&start)?.strip_suffix("\";"))
        .map(str::to_owned)
        .ok_or_else(|| format!("no string constant `{name}`"))
}

fn is_namespaced(block: &str) -> Result<bool, String> {
    let scope = block.lines().find_map(|line| line.trim_start().strip_prefix("type Scope = crate::"));
    match scope {
        Some("NamespaceResourceScope;") => Ok(true),
        Some("ClusterResourceScope;") => Ok(false),
        Some(other) => Err(format!("a listable resource with the scope `{other}`")),
        None => Err("no `type Scope`".to_owned()),
    }
}

/// What is generated from a resource goes between quotes and into names, so it must be plain.
fn verify(resource: &Resource, api_version: &str) -> Result<(), String> {
    let Resource { group, version, plural, kind, .. } = resource;
    let expected = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
    if api_version != expected {
        return Err(format!("API_VERSION `{api_version}`, but group and version make `{expected}`"));
    }
    let is_lower = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !group.split('.').all(is_lower) {
        return Err(format!("the group `{group}` is not made of labels"));
    }
    if !version.starts_with('v') || !is_lower(version) {
        return Err(format!("`{version}` is not a version"));
    }
    if !is_camel(kind) {
        return Err(format!("`{kind}` is not a kind"));
    }
    if plural.is_empty() || !is_lower(plural) {
        return Err(format!("`{plural}` is not the plural of `{kind}`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEPLOYMENT: &str = "\
/// A deployment.
pub struct Deployment {
    pub metadata: Meta,
}

impl crate::Resource for Deployment {
    const API_VERSION: &'static str = \"apps/v1\";
    const GROUP: &'static str = \"apps\";
    const KIND: &'static str = \"Deployment\";
    const VERSION: &'static str = \"v1\";
    const URL_PATH_SEGMENT: &'static str = \"deployments\";
    type Scope = crate::NamespaceResourceScope;
}

impl crate::ListableResource for Deployment {
    const LIST_KIND: &'static str = \"DeploymentList\";
}
";

    /// The deployment with one text in place of another, and what that is an error for.
    fn refused(old: &str, new: &str) -> String {
        assert!(DEPLOYMENT.contains(old));
        parse("api::apps::v1", &DEPLOYMENT.replace(old, new)).unwrap_err()
    }

    #[test]
    fn a_resource_is_read() {
        let expected = Resource {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            plural: "deployments".to_owned(),
            kind: "Deployment".to_owned(),
            namespaced: true,
            module: "api::apps::v1".to_owned(),
            type_name: "Deployment".to_owned(),
        };
        assert_eq!(parse("api::apps::v1", DEPLOYMENT), Ok(Some(expected)));
        let cluster = DEPLOYMENT.replace("NamespaceResourceScope", "ClusterResourceScope");
        assert!(!parse("api::apps::v1", &cluster).unwrap().unwrap().namespaced);
    }

    #[test]
    fn what_cannot_be_listed_is_passed_over() {
        let (only_resource, _) = DEPLOYMENT.split_once("impl crate::ListableResource").unwrap();
        assert_eq!(parse("api::apps::v1", only_resource), Ok(None));
        assert_eq!(parse("api::apps::v1", "pub mod v1;\n"), Ok(None));
    }

    #[test]
    fn what_looks_otherwise_is_an_error() {
        let mention = refused("impl crate::ListableResource for", "impl k8s::ListableResource for");
        assert!(mention.starts_with("mentions `ListableResource for`"), "{mention}");
        assert_eq!(
            refused("impl crate::Resource for", "impl Resource for"),
            "no `impl crate::Resource for Deployment {`"
        );
        assert!(
            refused("for Deployment {\n    const LIST", "for List<T> {\n    const LIST")
                .starts_with("not a plain type")
        );
        assert_eq!(refused("const GROUP", "const GRUPPE"), "no string constant `GROUP`");
        assert_eq!(refused("= \"v1\";", "= V1;"), "no string constant `VERSION`");
        assert_eq!(refused("Scope = crate::N", "Scope = N"), "no `type Scope`");
        assert!(refused("NamespaceResourceScope", "SubResourceScope").contains("`SubResourceScope;`"));
    }

    #[test]
    fn what_contradicts_itself_is_an_error() {
        assert!(refused("\"apps/v1\"", "\"apps/v2\"").starts_with("API_VERSION `apps/v2`"));
        assert_eq!(refused("\"Deployment\"", "\"déploiement\""), "`déploiement` is not a kind");
        assert!(refused("\"deployments\"", "\"\"").starts_with("`` is not the plural"));
        assert!(refused("\"deployments\"", "\"Deployments\"").starts_with("`Deployments` is not the plural"));
    }

    #[test]
    fn two_in_a_file_are_an_error() {
        let twice = format!("{DEPLOYMENT}{DEPLOYMENT}");
        assert!(parse("api::apps::v1", &twice).unwrap_err().starts_with("more than one"));
    }
}
