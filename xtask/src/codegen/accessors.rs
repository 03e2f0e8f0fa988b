//! Renders the accessors of the factory in `informer`, `factory.core().v1().pods()`, as rows that macros expand.
//!
//! Each group and each version has a type with one method per version or kind. Rows of items that do not exist in every
//! Kubernetes version are inside version macros of `k8s-openapi`.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{capitalised, group_method};
use super::range::{ALL, Range};
use super::union::Kind;
use super::{GENERATED, MAX_WIDTH};

pub(super) fn render(kinds: &[Kind]) -> Result<String, String> {
    let mut rows = Vec::new();
    for group in kinds.chunk_by(|one, next| one.resource.group == next.resource.group) {
        rows.extend(group_rows(group)?);
    }
    let modules: BTreeSet<&str> =
        kinds.iter().filter_map(|kind| kind.resource.module.split("::").next()).collect();
    let modules: Vec<&str> = modules.into_iter().collect();
    Ok(format!(
        "{GENERATED}\n\
         //! Accessors of every kind, by group and version: `factory.core().v1().pods()`.\n\
         //!\n\
         //! Kinds that exist only in some versions of Kubernetes {ALL} are available if the application selected\n\
         //! such a version. This file contains only names; the work is done by `Accessor`.\n\
         \n\
         use super::Accessor;\n\
         use crate::factory::SharedInformerFactory;\n\
         use k8s_openapi::{{{}}};\n\
         \n{}",
        modules.join(", "),
        rows.concat()
    ))
}

/// Renders the rows of one group; `kinds` are all its kinds.
fn group_rows(kinds: &[Kind]) -> Result<Vec<String>, String> {
    let group = &kinds[0].resource.group;
    let title = if group.is_empty() { "core API group".to_owned() } else { format!("API group `{group}`") };
    let (method, range) = (group_method(group), range_of(kinds, &title)?);
    let name = capitalised(method);
    let mut rows =
        vec![row(range, &format!("group! {{ \"{title}\", {:?}, {method}: {name} }}", limit(range)))];
    for kinds in kinds.chunk_by(|one, next| one.resource.version == next.resource.version) {
        let version = &kinds[0].resource.version;
        let type_name = format!("{name}{}", capitalised(version));
        let title = format!("version `{version}` of the {title}");
        let range = range_of(kinds, &title)?;
        let limit = limit(range);
        rows.push(row(
            range,
            &format!("version! {{ \"{title}\", {limit:?}, {name}.{version}: {type_name} }}"),
        ));
        rows.extend(kind_rows(&type_name, kinds)?);
    }
    Ok(rows)
}

/// Renders the rows of the kinds of one version: one per scope and range of Kubernetes versions.
fn kind_rows(type_name: &str, kinds: &[Kind]) -> Result<Vec<String>, String> {
    let mut rows: BTreeMap<(bool, Range, bool, &str), Vec<String>> = BTreeMap::new();
    for Kind { resource, range, method } in kinds {
        if resource.kind != resource.type_name {
            return Err(format!("{} has a type of another name, {}", resource.kind, resource.type_name));
        }
        // Methods that exist in all versions come first.
        let key = (*range != ALL, *range, resource.namespaced, resource.module.as_str());
        rows.entry(key).or_default().push(format!("{method}: {}", resource.kind));
    }
    let row = |((_, range, namespaced, module), kinds): ((bool, Range, bool, &str), Vec<String>)| {
        let scope = if namespaced { "namespaced" } else { "cluster-scoped" };
        let start = format!("kinds! {{ \"{scope}\", {:?}, {type_name}, ({module}),", limit(range));
        row(range, &format!("{}\n}}", wrapped(start, &kinds)))
    };
    Ok(rows.into_iter().map(row).collect())
}

/// Appends words, as many to a line as fit.
fn wrapped(mut text: String, words: &[String]) -> String {
    let mut line = MAX_WIDTH;
    for word in words {
        let added = word.len() + ", ".len();
        if line + added > MAX_WIDTH {
            text.push_str("\n   ");
            line = 3;
        }
        text.extend([" ", word, ","]);
        line += added;
    }
    text
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

/// Wraps a row with the macros that limit it to a range of versions.
fn row(range: Range, row: &str) -> String {
    range.guards().iter().rev().fold(row.to_owned(), |inner, guard| format!("{guard} {{ {inner} }}")) + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::parse::Resource;
    use super::*;

    fn kind(group: &str, version: &str, kind: &str, range: Range) -> Kind {
        let lower = kind.to_ascii_lowercase();
        let resource = Resource {
            group: group.to_owned(),
            version: version.to_owned(),
            plural: format!("{lower}s"),
            kind: kind.to_owned(),
            namespaced: true,
            module: format!("api::{}::{version}", group_method(group)),
            type_name: kind.to_owned(),
        };
        Kind { resource, range, method: format!("{lower}s") }
    }

    /// Renders the kinds and returns the text after the header of the file.
    fn check(kinds: &[Kind], expected: &str) {
        let text = render(kinds).unwrap();
        assert!(text.starts_with("// @generated by cargo xtask codegen\n//! "), "{text}");
        assert_eq!(text.split_once("use k8s_openapi::{api};\n\n").unwrap().1, expected);
    }

    #[test]
    fn group_version_and_kind_have_rows() {
        check(
            &[kind("", "v1", "Cow", Range { first: 34, last: 36 }), kind("", "v1", "Pod", ALL)],
            r#"group! { "core API group", "", core: Core }
version! { "version `v1` of the core API group", "", Core.v1: CoreV1 }
kinds! { "namespaced", "", CoreV1, (api::core::v1),
    pods: Pod,
}
k8s_openapi::k8s_if_ge_1_34! { k8s_openapi::k8s_if_le_1_36! { kinds! { "namespaced", ", in Kubernetes 1.34 to 1.36", CoreV1, (api::core::v1),
    cows: Cow,
} } }
"#,
        );
    }

    #[test]
    fn version_exists_if_one_of_its_kinds_exists() {
        let (early, late) = (Range { first: 33, last: 35 }, Range { first: 36, last: 37 });
        let text = render(&[kind("apps", "v1", "Cow", early), kind("apps", "v1", "Pod", late)]).unwrap();
        assert!(text.contains("\nversion! {"), "{text}");
        assert!(text.contains("\nk8s_openapi::k8s_if_le_1_35! { kinds! {"), "{text}");
    }

    #[test]
    fn group_with_a_version_gap_is_an_error() {
        let (early, late) = (Range { first: 33, last: 34 }, Range { first: 36, last: 37 });
        let reason =
            render(&[kind("apps", "v1", "Cow", early), kind("apps", "v1", "Pod", late)]).unwrap_err();
        assert!(reason.starts_with("the API group `apps` exists in the minor versions"), "{reason}");
    }

    #[test]
    fn long_rows_are_wrapped() {
        let words = vec!["x".repeat(50); 3];
        assert_eq!(wrapped(String::new(), &words).lines().map(str::len).max(), Some(107));
    }
}
