//! The accessors of the factory in `informer`, as text: `factory.core().v1().pods()`.
//!
//! A type per group and one per version of it, each with a method for what is in it. What does not exist in every
//! Kubernetes version stands inside the guards of `k8s-openapi`, in an `impl` of its own. The text is in rustfmt's form,
//! also inside guards, where rustfmt does not look.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::names::{capitalised, group_method};
use super::range::{ALL, Range};
use super::union::Kind;
use super::{GENERATED, MAX_WIDTH};

const FACTORY: &str = "SharedInformerFactory";

/// An item or a method, and the versions of Kubernetes it is for.
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
         //! A way from the factory to every kind: group, version, plural. Kinds that only some of Kubernetes {ALL} have\n\
         //! are there if the application chose such a version. Knows names only; the work is the accessor's.\n\
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

/// `kinds` are all those of one group.
fn group_items(kinds: &[Kind]) -> Result<Vec<Code>, String> {
    let group = &kinds[0].resource.group;
    let title = if group.is_empty() { "core API group".to_owned() } else { format!("API group `{group}`") };
    let (method, range) = (group_method(group), range_of(kinds, &title)?);
    let name = capitalised(method);
    let doc = format!("The {title}{}.", limit(range));
    let way_in = step(&doc, range, method, &format!("{name}<'_>"), &format!("{name}(self)"));
    let mut items = impls("", FACTORY, &[way_in]);
    items.push(handle(&name, &format!("What the {title} has"), range));

    let (mut versions, mut below) = (Vec::new(), Vec::new());
    for kinds in kinds.chunk_by(|one, next| one.resource.version == next.resource.version) {
        let version = &kinds[0].resource.version;
        let version_name = format!("{name}{}", capitalised(version));
        let title = format!("version `{version}` of the {title}");
        let range = range_of(kinds, &title)?;
        let doc = format!("{}{}.", capitalised(&title), limit(range));
        let (returns, body) = (format!("{version_name}<'a>"), format!("{version_name}(self.0)"));
        versions.push(step(&doc, range, version, &returns, &body));
        below.push(handle(&version_name, &format!("What {title} has"), range));
        let steps: Vec<Code> = kinds.iter().map(kind_step).collect();
        below.extend(impls("<'a>", &format!("{version_name}<'a>"), &steps));
    }
    items.extend(impls("<'a>", &format!("{name}<'a>"), &versions));
    items.extend(below);
    Ok(items)
}

fn kind_step(kind: &Kind) -> Code {
    let Kind { resource, range, method } = kind;
    let scope = if resource.namespaced { "namespaced" } else { "cluster-scoped" };
    let doc = format!("The {scope} kind `{}`{}.", resource.kind, limit(*range));
    let returns = format!("Accessor<'a, {}::{}>", resource.module, resource.type_name);
    step(&doc, *range, method, &returns, "Accessor::new(self.0)")
}

/// The versions in which any of these kinds exists.
fn range_of(kinds: &[Kind], what: &str) -> Result<Range, String> {
    let versions: BTreeSet<u8> = kinds.iter().flat_map(|kind| kind.range.versions()).collect();
    Range::of(&versions).map_err(|reason| format!("the {what} {reason}"))
}

/// For documentation: nothing for what is everywhere.
fn limit(range: Range) -> String {
    if range == ALL { String::new() } else { format!(", in Kubernetes {range}") }
}

fn step(doc: &str, range: Range, method: &str, returns: &str, body: &str) -> Code {
    let mut head = format!("    pub fn {method}(&self) -> {returns} {{");
    if head.len() > MAX_WIDTH {
        head = format!("    pub fn {method}(\n        &self,\n    ) -> {returns} {{");
    }
    Code { range, text: format!("    /// {doc}\n{head}\n        {body}\n    }}\n") }
}

/// The type that stands for a group or a version.
fn handle(name: &str, doc: &str, range: Range) -> Code {
    let text = format!(
        "/// {doc}{}.\n#[derive(Debug, Clone, Copy)]\npub struct {name}<'a>(&'a {FACTORY});\n",
        limit(range)
    );
    Code { range, text }
}

/// An `impl` per range of versions; what is everywhere comes first.
fn impls(generics: &str, name: &str, steps: &[Code]) -> Vec<Code> {
    let mut ranges: Vec<Range> = steps.iter().map(|step| step.range).collect();
    ranges.sort_by_key(|range| (*range != ALL, *range));
    ranges.dedup();
    let item = |range: Range| {
        let same: Vec<&str> =
            steps.iter().filter(|step| step.range == range).map(|step| step.text.as_str()).collect();
        Code { range, text: format!("impl{generics} {name} {{\n{}}}\n", same.join("\n")) }
    };
    ranges.into_iter().map(item).collect()
}

/// `body` inside the guards that its versions need.
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

    /// What is rendered, after the opening of the file.
    fn render_items(kinds: &[Kind]) -> String {
        let text = render(kinds).unwrap();
        assert!(text.starts_with("// @generated by cargo xtask codegen\n//! "), "{text}");
        let (_, items) = text.split_once("use k8s_openapi::{api};\n\n").unwrap();
        items.to_owned()
    }

    #[test]
    fn a_path_leads_from_the_factory_to_the_kind() {
        let expected = "\
impl SharedInformerFactory {
    /// The core API group.
    pub fn core(&self) -> Core<'_> {
        Core(self)
    }
}

/// What the core API group has.
#[derive(Debug, Clone, Copy)]
pub struct Core<'a>(&'a SharedInformerFactory);

impl<'a> Core<'a> {
    /// Version `v1` of the core API group.
    pub fn v1(&self) -> CoreV1<'a> {
        CoreV1(self.0)
    }
}

/// What version `v1` of the core API group has.
#[derive(Debug, Clone, Copy)]
pub struct CoreV1<'a>(&'a SharedInformerFactory);

impl<'a> CoreV1<'a> {
    /// The namespaced kind `Pod`.
    pub fn pods(&self) -> Accessor<'a, api::core::v1::Pod> {
        Accessor::new(self.0)
    }
}
";
        assert_eq!(render_items(&[kind("", "v1", "Pod", ALL)]), expected);
    }

    #[test]
    fn what_is_not_everywhere_is_guarded() {
        let middle = Range { first: 34, last: 36 };
        let items = render_items(&[kind("", "v1", "Cow", middle), kind("", "v1", "Pod", ALL)]);
        let expected = "
k8s_openapi::k8s_if_ge_1_34! {
    k8s_openapi::k8s_if_le_1_36! {
        impl<'a> CoreV1<'a> {
            /// The namespaced kind `Cow`, in Kubernetes 1.34 to 1.36.
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
    fn a_group_that_is_not_everywhere_stands_in_one_guard() {
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
    fn a_version_is_there_as_soon_as_one_of_its_kinds_is() {
        let (early, late) = (Range { first: 33, last: 35 }, Range { first: 36, last: 37 });
        let items = render_items(&[kind("apps", "v1", "Cow", early), kind("apps", "v1", "Pod", late)]);
        let (before, after) = items.split_once("k8s_if_le_1_35!").unwrap();
        assert!(before.contains("pub struct AppsV1<'a>") && !before.contains("k8s_if"), "{items}");
        assert!(after.contains("k8s_if_ge_1_36!"), "{items}");
    }

    #[test]
    fn a_version_that_comes_and_goes_is_an_error() {
        let (early, late) = (Range { first: 33, last: 34 }, Range { first: 36, last: 37 });
        let kinds = [kind("apps", "v1", "Cow", early), kind("apps", "v1", "Pod", late)];
        let reason = render(&kinds).unwrap_err();
        assert!(reason.starts_with("the API group `apps` comes and goes"), "{reason}");
    }
}
