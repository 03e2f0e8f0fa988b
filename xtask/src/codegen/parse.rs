//! Parses a source file of `k8s-openapi` to the listable resource that it defines, if any.
//!
//! A text search is sufficient, because the files are generated and uniform. Unexpected text is an error, so
//! that no resource is skipped: a file that mentions the trait of listable resources yields a resource or an
//! error. This file does not know where the sources come from, nor their Kubernetes version.

/// A resource type in one version of Kubernetes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Resource {
    /// Empty for the core group.
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    /// Module of its type, relative to the root of `k8s-openapi`: `api::apps::v1`.
    pub(super) module: String,
    /// Name of its type.
    pub(super) type_name: String,
}

/// Start of the `impl` that every resource has that can be listed and therefore watched. Reviews, bindings,
/// evictions and list types do not have it.
const LISTABLE: &str = "impl crate::ListableResource for ";
/// Start of the `impl` with the names of a resource.
const RESOURCE: &str = "impl crate::Resource for ";

/// Parses the text of a file of the module `module`; `None` if it defines no listable resource.
pub(super) fn parse(module: &str, text: &str) -> Result<Option<Resource>, String> {
    let mut listables = headings(text, LISTABLE);
    let Some(listable) = listables.next() else {
        // Generic impls start with `impl<T>`; any other mention of the trait is unexpected.
        return match text.find("ListableResource for ") {
            None => Ok(None),
            Some(_) => Err(format!("mentions `ListableResource for`, but no line starts with `{LISTABLE}`")),
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

/// Returns the rest of each line that starts with `start`.
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

/// Returns the lines between `opening` and its closing brace, which is the first character of its line.
fn block<'a>(text: &'a str, opening: &str) -> Result<&'a str, String> {
    let (_, rest) = text.split_once(opening).ok_or_else(|| format!("no `{}`", opening.trim_end()))?;
    let (block, _) =
        rest.split_once("\n}").ok_or_else(|| format!("`{}` does not end", opening.trim_end()))?;
    Ok(block)
}

/// Returns the value of a string constant.
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
        Some(other) => Err(format!("unexpected scope `{other}` of a listable resource")),
        None => Err("no `type Scope`".to_owned()),
    }
}

/// Checks that the parts of a resource are consistent, and that they are safe to use in string literals and
/// names.
fn verify(resource: &Resource, api_version: &str) -> Result<(), String> {
    let Resource { group, version, plural, kind, .. } = resource;
    let expected = if group.is_empty() { version.clone() } else { format!("{group}/{version}") };
    if api_version != expected {
        return Err(format!("API_VERSION is `{api_version}`, but group and version give `{expected}`"));
    }
    let is_lower = |text: &str| text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if !group.split('.').all(is_lower) {
        return Err(format!("`{group}` is not a group"));
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

    /// Replaces a text in the deployment and returns the error.
    fn parse_error(old: &str, new: &str) -> String {
        assert!(DEPLOYMENT.contains(old));
        parse("api::apps::v1", &DEPLOYMENT.replace(old, new)).unwrap_err()
    }

    #[test]
    fn resource_is_parsed() {
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
    fn other_types_are_skipped() {
        let (only_resource, _) = DEPLOYMENT.split_once("impl crate::ListableResource").unwrap();
        assert_eq!(parse("api::apps::v1", only_resource), Ok(None));
        assert_eq!(parse("api::apps::v1", "pub mod v1;\n"), Ok(None));
    }

    #[test]
    fn unexpected_text_is_an_error() {
        let mention = parse_error("impl crate::ListableResource for", "impl k8s::ListableResource for");
        assert!(mention.starts_with("mentions `ListableResource for`"), "{mention}");
        assert_eq!(
            parse_error("impl crate::Resource for", "impl Resource for"),
            "no `impl crate::Resource for Deployment {`"
        );
        assert!(
            parse_error("for Deployment {\n    const LIST", "for List<T> {\n    const LIST")
                .starts_with("not a plain type")
        );
        assert_eq!(parse_error("const GROUP", "const OTHER"), "no string constant `GROUP`");
        assert_eq!(parse_error("= \"v1\";", "= V1;"), "no string constant `VERSION`");
        assert_eq!(parse_error("Scope = crate::N", "Scope = N"), "no `type Scope`");
        assert!(parse_error("NamespaceResourceScope", "SubResourceScope").contains("`SubResourceScope;`"));
    }

    #[test]
    fn inconsistent_resource_is_an_error() {
        assert!(parse_error("\"apps/v1\"", "\"apps/v2\"").starts_with("API_VERSION is `apps/v2`"));
        assert_eq!(parse_error("\"Deployment\"", "\"déploiement\""), "`déploiement` is not a kind");
        assert!(parse_error("\"deployments\"", "\"\"").starts_with("`` is not the plural"));
        assert!(
            parse_error("\"deployments\"", "\"Deployments\"").starts_with("`Deployments` is not the plural")
        );
    }

    #[test]
    fn two_resources_in_a_file_are_an_error() {
        let twice = format!("{DEPLOYMENT}{DEPLOYMENT}");
        assert!(parse("api::apps::v1", &twice).unwrap_err().starts_with("more than one"));
    }
}
