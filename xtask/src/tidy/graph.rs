//! The allowed dependencies of crates: on crates of the workspace according to `layers.txt`, on external
//! crates according to the lists in this file, including crates that must not be built at all.
//!
//! A new dependency between crates of the workspace is an architectural decision, so it must be declared in
//! `layers.txt` and not only in a `Cargo.toml`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::layers::{FILE, Rows};
use super::{Crate, Problem};

/// Crates without I/O.
const PURE: &[&str] = &["informer-core", "informer-objects"];
/// Crates that [`PURE`] crates must not depend on, not even in their tests.
const NOT_IN_PURE: &[&str] = &["futures", "http", "hyper", "kube", "kube-client", "rand", "tokio"];

/// The only crate that may use kube's `runtime`: users of informer must not get a second implementation with
/// it.
const WITH_KUBE_RUNTIME: &str = "peer-kube-rs";

/// The only crate whose tests may use it: they simulate controllers of kube-rs.
const TESTS_WITH_KUBE_RUNTIME: &str = "informer-testkit";

/// Crates that must not be in the build, not even as indirect dependencies.
const NOT_IN_BUILD: &[&str] = &["aws-lc-rs", "aws-lc-sys", "native-tls", "openssl", "openssl-sys"];

/// A dependency in the output of `cargo metadata`.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    kind: &'a str,
    features: Vec<&'a str>,
}

/// Returns the crates of the workspace, from the output of `cargo metadata --no-deps`.
pub(super) fn crates(metadata: &str) -> Vec<Crate> {
    let metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
    let root = metadata["workspace_root"].as_str().unwrap_or_default();
    let to_crate = |package: &Value| {
        let manifest = package["manifest_path"].as_str()?.strip_prefix(root)?.trim_start_matches('/');
        let folder = manifest.strip_suffix("/Cargo.toml")?.to_owned();
        Some(Crate { name: package["name"].as_str()?.to_owned(), folder })
    };
    list(&metadata, "packages").iter().filter_map(to_crate).collect()
}

/// Checks all dependencies in the output of `cargo metadata --no-deps`.
pub(super) fn check_edges(metadata: &str, rows: &Rows) -> Vec<Problem> {
    let metadata: Value = match serde_json::from_str(metadata) {
        Ok(metadata) => metadata,
        Err(error) => {
            return vec![Problem::new("cargo metadata", format!("cannot parse the output: {error}"))];
        }
    };
    let members: BTreeSet<&str> =
        list(&metadata, "packages").iter().filter_map(|package| package["name"].as_str()).collect();
    let mut problems = Vec::new();
    for name in members.iter().filter(|name| !rows.contains_key(**name)) {
        problems.push(Problem::new(
            *name,
            format!("has no row in {FILE} (add one with the crates that it may use)"),
        ));
    }
    for name in rows.keys().filter(|name| !members.contains(name.as_str())) {
        problems.push(Problem::new(FILE, format!("no such crate: `{name}`")));
    }
    problems.extend(edges(&metadata).into_iter().filter_map(|edge| {
        if members.contains(edge.to) {
            check_row(&edge, rows)
        } else {
            check_purity(&edge).or_else(|| check_kube_runtime(&edge))
        }
    }));
    problems
}

/// Checks that crates use each dependency that `layers.txt` allows.
pub(super) fn check_unused(metadata: &str, rows: &Rows) -> Vec<Problem> {
    // Metadata that cannot be parsed has been reported already.
    let metadata: Value = serde_json::from_str(metadata).unwrap_or_default();
    let edges = edges(&metadata);
    let is_used = |from: &str, to: &str, in_tests: bool| {
        edges.iter().any(|edge| (edge.from, edge.to, edge.kind == "dev") == (from, to, in_tests))
    };
    let mut problems = Vec::new();
    for (from, row) in rows {
        let uses = row.uses.iter().map(|to| (to, false)).chain(row.tests_use.iter().map(|to| (to, true)));
        for (to, in_tests) in uses.filter(|(to, in_tests)| !is_used(from, to, *in_tests)) {
            let what = if in_tests { "test dependency" } else { "dependency" };
            problems.push(Problem::new(FILE, format!("`{from}` has no {what} on `{to}` (remove it)")));
        }
    }
    problems
}

fn edges(metadata: &Value) -> Vec<Edge<'_>> {
    let mut edges = Vec::new();
    for package in list(metadata, "packages") {
        let from = package["name"].as_str().unwrap_or_default();
        edges.extend(list(package, "dependencies").iter().map(|dependency| Edge {
            from,
            to: dependency["name"].as_str().unwrap_or_default(),
            kind: dependency["kind"].as_str().unwrap_or("normal"),
            features: list(dependency, "features").iter().filter_map(Value::as_str).collect(),
        }));
    }
    edges
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

fn check_row(edge: &Edge<'_>, rows: &Rows) -> Option<Problem> {
    let Edge { from, to, kind, .. } = edge;
    // A crate without a row has been reported already.
    let row = rows.get(*from)?;
    let has = |names: &[String]| names.iter().any(|name| name == to);
    let allowed = has(&row.uses) || (*kind == "dev" && has(&row.tests_use));
    let what = || format!("must not depend on `{to}` ({kind}): not in its row of {FILE}");
    (!allowed).then(|| Problem::new(*from, what()))
}

fn check_purity(edge: &Edge<'_>) -> Option<Problem> {
    let Edge { from, to, kind, .. } = edge;
    (PURE.contains(from) && NOT_IN_PURE.contains(to)).then(|| {
        let what = format!(
            "must not depend on `{to}` ({kind}): the crate has no I/O (move the code to the crate above)"
        );
        Problem::new(*from, what)
    })
}

/// Checks that no other crate enables kube's `runtime`. The compiler cannot: a feature that one crate enables
/// is enabled for all crates of the build.
fn check_kube_runtime(edge: &Edge<'_>) -> Option<Problem> {
    let Edge { from, to, kind, features } = edge;
    let is_enabled = *to == "kube" && features.iter().any(|feature| feature.ends_with("runtime"));
    let is_allowed = *from == WITH_KUBE_RUNTIME || (*from == TESTS_WITH_KUBE_RUNTIME && *kind == "dev");
    (is_enabled && !is_allowed).then(|| {
        let what = format!("must not enable `runtime` of `{to}` ({kind}): only `{WITH_KUBE_RUNTIME}` may");
        Problem::new(*from, what)
    })
}

/// Checks `Cargo.lock` for crates that must not be built.
pub(super) fn check_lock(lock: &str) -> Vec<Problem> {
    let locked: BTreeSet<&str> =
        lock.lines().filter_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"')).collect();
    let found = NOT_IN_BUILD.iter().filter(|name| locked.contains(**name));
    found
        .map(|name| {
            let what = format!(
                "`{name}` is in the build: two TLS providers panic at run time, so only rustls with ring is allowed \
                 (`cargo tree -i {name} --target all` shows which crate depends on it)"
            );
            Problem::new("Cargo.lock", what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::layers::parse;
    use super::*;

    /// Builds metadata from lines `from: to to(dev) …`.
    fn metadata(lines: &str) -> String {
        let packages: Vec<String> = lines
            .lines()
            .map(|line| {
                let (from, to) = line.trim().split_once(':').unwrap();
                let dependencies: Vec<String> = to
                    .split_whitespace()
                    .map(|to| match to.trim_end_matches(')').split_once('(') {
                        Some((name, kind)) => format!(r#"{{"name":"{name}","kind":"{kind}"}}"#),
                        None => format!(r#"{{"name":"{to}","kind":null}}"#),
                    })
                    .collect();
                format!(r#"{{"name":"{from}","dependencies":[{}]}}"#, dependencies.join(","))
            })
            .collect();
        format!(r#"{{"packages":[{}]}}"#, packages.join(","))
    }

    const ROWS: &str = "\
a:
core: a
main: core; tests: server
server: a
";

    fn check(lines: &str, expected: &[&str]) {
        let rows: String = ROWS
            .lines()
            .filter(|row| lines.contains(&row[..=row.find(':').unwrap()]))
            .fold(String::new(), |rows, row| rows + row + "\n");
        let problems = check_edges(&metadata(lines), &parse(&rows).0);
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, start) in problems.iter().zip(expected) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn allowed_dependencies_pass() {
        check(
            "a:
             core: a serde proptest(dev)
             main: core core(dev) server(dev) tokio kube
             server: a a(build) hyper",
            &[],
        );
    }

    #[test]
    fn undeclared_dependency_fails() {
        check("core:\nserver: core", &["server: must not depend on `core` (normal)"]);
        check("core: main(dev)\nmain:", &["core: must not depend on `main` (dev)"]);
    }

    #[test]
    fn test_dependency_of_library_fails() {
        check("main: server\nserver:", &["main: must not depend on `server` (normal)"]);
        check("main: server(build)\nserver:", &["main: must not depend on `server` (build)"]);
    }

    #[test]
    fn crates_and_rows_must_match() {
        check("attic: main\nmain:", &["attic: has no row in layers.txt"]);
        let problems = check_edges(&metadata("a:"), &parse(ROWS).0);
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert_eq!(problems[0].to_string(), "layers.txt: no such crate: `core`");
    }

    #[test]
    fn unused_permission_fails() {
        let unused = |lines: &str| -> Vec<String> {
            let problems = check_unused(&metadata(lines), &parse(ROWS).0);
            problems.iter().map(ToString::to_string).collect()
        };
        assert_eq!(unused("a:\ncore: a\nmain: core server(dev)\nserver: a"), Vec::<String>::new());
        let expected = [
            "layers.txt: `core` has no dependency on `a`",
            "layers.txt: `main` has no test dependency on `server`",
        ];
        let found = unused("a:\ncore: a(dev)\nmain: core server\nserver: a");
        assert!(found.iter().zip(expected).all(|(found, start)| found.starts_with(start)), "{found:?}");
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn crates_are_read_with_their_folders() {
        let packages = r#"[{"name":"a","manifest_path":"/root/crates/a/Cargo.toml"}]"#;
        let found = crates(&format!(r#"{{"workspace_root":"/root","packages":{packages}}}"#));
        assert_eq!(found, [Crate { name: "a".to_owned(), folder: "crates/a".to_owned() }]);
    }

    #[test]
    fn runtime_dependency_of_core_fails() {
        let problems =
            check_edges(&metadata("informer-core: tokio(dev) kube serde"), &parse("informer-core:").0);
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("informer-core: must not depend on `tokio` (dev)"), "{problems:?}");
        assert!(problems[1].starts_with("informer-core: must not depend on `kube` (normal)"), "{problems:?}");
    }

    #[test]
    fn kube_runtime_outside_the_peer_fails() {
        let kube = r#""dependencies":[{"name":"kube","kind":"dev","features":["client","runtime"]}]"#;
        let packages =
            format!(r#"{{"packages":[{{"name":"peer-kube-rs",{kube}}},{{"name":"informer",{kube}}}]}}"#);
        let problems = check_edges(&packages, &parse("peer-kube-rs:\ninformer:").0);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].to_string().starts_with("informer: must not enable `runtime` of `kube` (dev)"));
    }

    #[test]
    fn unreadable_metadata_fails() {
        assert_eq!(check_edges("{", &Rows::new()).len(), 1);
    }

    #[test]
    fn second_tls_provider_in_lock_fails() {
        let lock = "[[package]]\nname = \"ring\"\n\n[[package]]\nname = \"aws-lc-rs\"\n";
        let problems = check_lock(lock);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].message.starts_with("`aws-lc-rs` is in the build"));
    }

    #[test]
    fn ring_and_similar_names_pass() {
        assert_eq!(check_lock("[[package]]\nname = \"ring\"\n\n[[package]]\nname = \"openssl-probe\"\n"), []);
    }
}
