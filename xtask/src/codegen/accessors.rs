//! Renders the accessors of the factory in `informer`: `factory.core().v1().pods()`.
//!
//! Each group and each version has a type with one method per version or kind. Items that do not exist in
//! every Kubernetes version are inside version macros of `k8s-openapi`, in an `impl` of their own. The text
//! is formatted like the output of rustfmt, also inside macros, which rustfmt does not format.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::names::{capitalised, group_method};
use super::range::{ALL, Range};
use super::union::Kind;
use super::{GENERATED, MAX_WIDTH};

const FACTORY: &str = "SharedInformerFactory";

/// An item or a method, and the Kubernetes versions in which it exists.
struct Code {
    range: Range,
    text: String,
}

pub(super) fn render(kinds: &[Kind]) -> Result<String, String> {
    let mut items = Vec::new();
    for group in kinds.chunk_by(|one, next| one.resource.group == next.resource.group) {
        items.extend(group_items(group)?);
    }
    let modules: BTreeSet<&str> =
        kinds.iter().filter_map(|kind| kind.resource.module.split("::").next()).collect();
    let modules: Vec<&str> = modules.into_iter().collect();
    let mut text = format!(
        "{GENERATED}\n\
         //! Accessors of every kind, by group and version: `factory.core().v1().pods()`.\n\
         //!\n\
         //! Kinds that exist only in some versions of Kubernetes {ALL} are available if the application selected\n\
         //! such a version. This file contains only names; the work is done by `Accessor`.\n\
         \n\
         use super::Accessor;\n\
         use crate::factory::{FACTORY};\n\
         use k8s_openapi::{{{}}};\n",
        modules.join(", ")
    );
    for same in items.chunk_by(|one, next| one.range == next.range) {
        text.push('\n');
        let body: Vec<&str> = same.iter().map(|item| item.text.as_str()).collect();
        text.push_str(&guarded(same[0].range, &body.join("\n")));
    }
    Ok(text)
}

/// Renders the items of one group; `kinds` are all its kinds.
fn group_items(kinds: &[Kind]) -> Result<Vec<Code>, String> {
    let group = &kinds[0].resource.group;
    let title = if group.is_empty() { "core API group".to_owned() } else { format!("API group `{group}`") };
    let (group_method, range) = (group_method(group), range_of(kinds, &title)?);
    let name = capitalised(group_method);
    let doc = format!("Accesses the {title}{}.", limit(range));
    let entry = method(&doc, range, group_method, &format!("{name}<'_>"), &format!("{name}(self)"));
    let mut items = impls("", FACTORY, &[entry]);
    items.push(handle(&name, &format!("Accessors of the {title}"), range));

    let (mut versions, mut below) = (Vec::new(), Vec::new());
    for kinds in kinds.chunk_by(|one, next| one.resource.version == next.resource.version) {
        let version = &kinds[0].resource.version;
        let version_name = format!("{name}{}", capitalised(version));
        let title = format!("version `{version}` of the {title}");
        let range = range_of(kinds, &title)?;
        let doc = format!("Accesses {title}{}.", limit(range));
        let (returns, body) = (format!("{version_name}<'a>"), format!("{version_name}(self.0)"));
        versions.push(method(&doc, range, version, &returns, &body));
        below.push(handle(&version_name, &format!("Accessors of {title}"), range));
        let methods: Vec<Code> = kinds.iter().map(kind_method).collect();
        below.extend(impls("<'a>", &format!("{version_name}<'a>"), &methods));
    }
    items.extend(impls("<'a>", &format!("{name}<'a>"), &versions));
    items.extend(below);
    Ok(items)
}

fn kind_method(kind: &Kind) -> Code {
    let Kind { resource, range, method: name } = kind;
    let scope = if resource.namespaced { "namespaced" } else { "cluster-scoped" };
    let doc = format!("Accesses the {scope} kind `{}`{}.", resource.kind, limit(*range));
    let returns = format!("Accessor<'a, {}::{}>", resource.module, resource.type_name);
    method(&doc, *range, name, &returns, "Accessor::new(self.0)")
}

/// Returns the versions in which at least one of these kinds exists.
fn range_of(kinds: &[Kind], what: &str) -> Result<Range, String> {
    let versions: BTreeSet<u8> = kinds.iter().flat_map(|kind| kind.range.versions()).collect();
    Range::of(&versions).map_err(|reason| format!("the {what} {reason}"))
}

/// Returns the versions for a doc line; empty if the item exists in all of them.
fn limit(range: Range) -> String {
    if range == ALL { String::new() } else { format!(", in Kubernetes {range}") }
}

fn method(doc: &str, range: Range, name: &str, returns: &str, body: &str) -> Code {
    let mut head = format!("    pub fn {name}(&self) -> {returns} {{");
    if head.len() > MAX_WIDTH {
        head = format!("    pub fn {name}(\n        &self,\n    ) -> {returns} {{");
    }
    Code { range, text: format!("    /// {doc}\n{head}\n        {body}\n    }}\n") }
}

/// Renders the type of a group or a version.
fn handle(name: &str, doc: &str, range: Range) -> Code {
    let text = format!(
        "/// {doc}{}.\n#[derive(Debug, Clone, Copy)]\npub struct {name}<'a>(&'a {FACTORY});\n",
        limit(range)
    );
    Code { range, text }
}

/// Renders one `impl` per range of versions; methods that exist in all versions come first.
fn impls(generics: &str, name: &str, methods: &[Code]) -> Vec<Code> {
    let mut ranges: Vec<Range> = methods.iter().map(|method| method.range).collect();
    ranges.sort_by_key(|range| (*range != ALL, *range));
    ranges.dedup();
    let item = |range: Range| {
        let same: Vec<&str> = methods
            .iter()
            .filter(|method| method.range == range)
            .map(|method| method.text.as_str())
            .collect();
        Code { range, text: format!("impl{generics} {name} {{\n{}}}\n", same.join("\n")) }
    };
    ranges.into_iter().map(item).collect()
}

/// Puts `body` inside the macros for its versions.
fn guarded(range: Range, body: &str) -> String {
    range.guards().iter().rev().fold(body.to_owned(), |inner, guard| {
        let mut text = format!("{guard} {{\n");
        for line in inner.lines() {
            let indent = if line.is_empty() { "" } else { "    " };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{indent}{line}");
        }
        text + "}\n"
    })
}

#[cfg(test)]
mod tests {
    use super::super::parse::Resource;
    use super::*;

    fn kind(group: &str, version: &str, kind: &str, range: Range) -> Kind {
        let (plural, method) =
            (format!("{}s", kind.to_ascii_lowercase()), format!("{}s", kind.to_ascii_lowercase()));
        let module = format!("api::{}::{version}", group_method(group));
        let (group, version, type_name) = (group.to_owned(), version.to_owned(), kind.to_owned());
        let resource =
            Resource { group, version, plural, kind: kind.to_owned(), namespaced: true, module, type_name };
        Kind { resource, range, method }
    }

    /// Renders the kinds and returns the text after the header of the file.
    fn render_items(kinds: &[Kind]) -> String {
        let text = render(kinds).unwrap();
        assert!(text.starts_with("// @generated by cargo xtask codegen\n//! "), "{text}");
        let (_, items) = text.split_once("use k8s_openapi::{api};\n\n").unwrap();
        items.to_owned()
    }

    #[test]
    fn group_version_and_kind_have_accessors() {
        let expected = "\
impl SharedInformerFactory {
    /// Accesses the core API group.
    pub fn core(&self) -> Core<'_> {
        Core(self)
    }
}

/// Accessors of the core API group.
#[derive(Debug, Clone, Copy)]
pub struct Core<'a>(&'a SharedInformerFactory);

impl<'a> Core<'a> {
    /// Accesses version `v1` of the core API group.
    pub fn v1(&self) -> CoreV1<'a> {
        CoreV1(self.0)
    }
}

/// Accessors of version `v1` of the core API group.
#[derive(Debug, Clone, Copy)]
pub struct CoreV1<'a>(&'a SharedInformerFactory);

impl<'a> CoreV1<'a> {
    /// Accesses the namespaced kind `Pod`.
    pub fn pods(&self) -> Accessor<'a, api::core::v1::Pod> {
        Accessor::new(self.0)
    }
}
";
        assert_eq!(render_items(&[kind("", "v1", "Pod", ALL)]), expected);
    }

    #[test]
    fn kind_of_some_versions_is_guarded() {
        let middle = Range { first: 34, last: 36 };
        let items = render_items(&[kind("", "v1", "Cow", middle), kind("", "v1", "Pod", ALL)]);
        let expected = "
k8s_openapi::k8s_if_ge_1_34! {
    k8s_openapi::k8s_if_le_1_36! {
        impl<'a> CoreV1<'a> {
            /// Accesses the namespaced kind `Cow`, in Kubernetes 1.34 to 1.36.
            pub fn cows(&self) -> Accessor<'a, api::core::v1::Cow> {
                Accessor::new(self.0)
            }
        }
    }
}
";
        assert!(items.ends_with(expected), "{items}");
        assert_eq!(items.matches("k8s_if").count(), 2, "{items}");
    }

    #[test]
    fn group_of_some_versions_is_in_one_guard() {
        let last = Range { first: 37, last: 37 };
        let items = render_items(&[kind("lifecycle.k8s.io", "v1", "Eviction", last)]);
        assert!(
            items.starts_with("k8s_openapi::k8s_if_1_37! {\n    impl SharedInformerFactory {\n"),
            "{items}"
        );
        assert_eq!(items.matches("k8s_if").count(), 1, "{items}");
        assert!(items.lines().all(|line| !line.ends_with(' ')));
    }

    #[test]
    fn version_exists_if_one_of_its_kinds_exists() {
        let (early, late) = (Range { first: 33, last: 35 }, Range { first: 36, last: 37 });
        let items = render_items(&[kind("apps", "v1", "Cow", early), kind("apps", "v1", "Pod", late)]);
        let (before, after) = items.split_once("k8s_if_le_1_35!").unwrap();
        assert!(before.contains("pub struct AppsV1<'a>") && !before.contains("k8s_if"), "{items}");
        assert!(after.contains("k8s_if_ge_1_36!"), "{items}");
    }

    #[test]
    fn group_with_a_version_gap_is_an_error() {
        let (early, late) = (Range { first: 33, last: 34 }, Range { first: 36, last: 37 });
        let kinds = [kind("apps", "v1", "Cow", early), kind("apps", "v1", "Pod", late)];
        let reason = render(&kinds).unwrap_err();
        assert!(reason.starts_with("the API group `apps` exists in the minor versions"), "{reason}");
    }
}
