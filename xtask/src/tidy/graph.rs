//! Which crate may depend on which: our own doors, what the core must not know, and what must not be built at all.
//!
//! A new edge is an architectural decision, so it is made here, in sight, and not in passing in some `Cargo.toml`.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Problem;

/// What one of our crates may use of ours.
struct Door {
    from: &'static str,
    /// In the library and in build scripts.
    uses: &'static [&'static str],
    /// In tests and examples, besides.
    tests_use: &'static [&'static str],
}

const DOORS: &[Door] = &[
    Door { from: "informer-schema", uses: &[], tests_use: &[] },
    Door { from: "informer-core", uses: &["informer-schema"], tests_use: &[] },
    // The table, for objects that are made from it.
    Door {
        from: "informer",
        uses: &["informer-core"],
        tests_use: &["informer-apiserver", "informer-schema"],
    },
    // Not the core: a server that shared its selectors and versions would share its bugs.
    Door { from: "informer-apiserver", uses: &["informer-schema"], tests_use: &[] },
    Door { from: "informer-cli", uses: &["informer", "informer-apiserver"], tests_use: &[] },
    Door { from: "informer-examples", uses: &["informer"], tests_use: &["informer-apiserver"] },
    // Client programs of the benchmark. The peers know nothing of ours but what they speak with the harness, and in tests the server.
    Door { from: "peer-protocol", uses: &[], tests_use: &[] },
    Door { from: "peer-ours", uses: &["informer", "peer-protocol"], tests_use: &["informer-apiserver"] },
    Door { from: "peer-floor", uses: &["informer", "peer-protocol"], tests_use: &[] },
    Door { from: "peer-kube-rs", uses: &["peer-protocol"], tests_use: &["informer-apiserver"] },
    Door { from: "xtask", uses: &[], tests_use: &[] },
];

/// Crates the core may not depend on, not even in its tests.
const NOT_IN_CORE: &[&str] = &["futures", "hyper", "kube", "kube-client", "tokio"];

/// The one crate that may use kube's `runtime`: whoever adds ours has an informer, and not two of them.
const WITH_KUBE_RUNTIME: &str = "peer-kube-rs";

/// Crates that may not be in the build, by whichever way.
const NOT_IN_BUILD: &[&str] = &["aws-lc-rs", "aws-lc-sys", "native-tls", "openssl", "openssl-sys"];

/// A dependency as `cargo metadata` tells it.
struct Edge<'a> {
    from: &'a str,
    to: &'a str,
    kind: &'a str,
    features: Vec<&'a str>,
}

/// Checks the output of `cargo metadata --no-deps`.
pub(super) fn check_edges(metadata: &str) -> Vec<Problem> {
    let metadata: Value = match serde_json::from_str(metadata) {
        Ok(metadata) => metadata,
        Err(error) => return vec![Problem::new("cargo metadata", format!("not readable: {error}"))],
    };
    let members: BTreeSet<&str> =
        list(&metadata, "packages").iter().filter_map(|package| package["name"].as_str()).collect();
    let strangers = members.iter().filter(|name| door(name).is_none()).map(|name| {
        Problem::new(*name, "has no row in `DOORS` of xtask/src/tidy/graph.rs: say what it may depend on")
    });
    let bad_edges = edges(&metadata).into_iter().filter_map(|edge| {
        if members.contains(edge.to) {
            check_door(&edge)
        } else {
            check_core_purity(&edge).or_else(|| check_kube_runtime(&edge))
        }
    });
    strangers.chain(bad_edges).collect()
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

fn door(name: &str) -> Option<&'static Door> {
    DOORS.iter().find(|door| door.from == name)
}

fn check_door(edge: &Edge<'_>) -> Option<Problem> {
    let Edge { from, to, kind, .. } = edge;
    // A crate without a row has been reported already.
    let door = door(from)?;
    let open = door.uses.contains(to) || (*kind == "dev" && door.tests_use.contains(to));
    let what = || {
        format!(
            "must not depend on `{to}` ({kind}): no such door; `DOORS` in xtask/src/tidy/graph.rs lists them"
        )
    };
    (!open).then(|| Problem::new(*from, what()))
}

fn check_core_purity(edge: &Edge<'_>) -> Option<Problem> {
    let Edge { from, to, kind, .. } = edge;
    (*from == "informer-core" && NOT_IN_CORE.contains(to)).then(|| {
        let what = format!(
            "must not depend on `{to}` ({kind}): the core does no I/O; what needs it belongs in `informer`"
        );
        Problem::new(*from, what)
    })
}

/// A feature that one crate turns on is on for all that are built with it, so the compiler does not notice who uses it.
fn check_kube_runtime(edge: &Edge<'_>) -> Option<Problem> {
    let Edge { from, to, kind, features } = edge;
    let on = *to == "kube" && features.iter().any(|feature| feature.ends_with("runtime"));
    (on && *from != WITH_KUBE_RUNTIME).then(|| {
        let what = format!("must not turn on `runtime` of `{to}` ({kind}): only `{WITH_KUBE_RUNTIME}` may");
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
                "`{name}` is in the build: two TLS providers panic at run time, so rustls with ring only; \
                 `cargo tree -i {name} --target all` shows who brings it"
            );
            Problem::new("Cargo.lock", what)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata from lines `from: to to(dev) …`.
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

    fn check(lines: &str, expected: &[&str]) {
        let problems: Vec<String> = check_edges(&metadata(lines)).iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, start) in problems.iter().zip(expected) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn the_planned_doors_are_open() {
        check(
            "informer-schema:
             informer-core: informer-schema serde proptest(dev)
             informer: informer-core informer-core(dev) informer-apiserver(dev) informer-schema(dev) tokio kube
             informer-apiserver: informer-schema informer-schema(build) hyper
             informer-cli: informer informer-apiserver
             informer-examples: informer informer-apiserver(dev)
             xtask: serde_json",
            &[],
        );
    }

    #[test]
    fn a_new_edge_is_named_by_both_ends() {
        let both = "informer-core:\ninformer-apiserver: informer-core";
        check(both, &["informer-apiserver: must not depend on `informer-core` (normal)"]);
        let both = "informer-core: informer(dev)\ninformer:";
        check(both, &["informer-core: must not depend on `informer` (dev)"]);
    }

    #[test]
    fn a_door_for_tests_is_not_one_for_the_library() {
        let normal = "informer: informer-apiserver\ninformer-apiserver:";
        check(normal, &["informer: must not depend on `informer-apiserver` (normal)"]);
        let build = "informer: informer-apiserver(build)\ninformer-apiserver:";
        check(build, &["informer: must not depend on `informer-apiserver` (build)"]);
    }

    #[test]
    fn a_crate_without_a_row_is_a_problem() {
        check("informer-attic: informer\ninformer:", &["informer-attic: has no row"]);
    }

    #[test]
    fn the_core_knows_no_runtime() {
        let edges =
            ["informer-core: must not depend on `tokio` (dev)", "informer-core: must not depend on `kube`"];
        check("informer-core: tokio(dev) kube serde", &edges);
    }

    #[test]
    fn kube_runtime_is_for_the_peer_alone() {
        let kube = r#""dependencies":[{"name":"kube","kind":"dev","features":["client","runtime"]}]"#;
        let packages =
            format!(r#"{{"packages":[{{"name":"peer-kube-rs",{kube}}},{{"name":"informer",{kube}}}]}}"#);
        let problems = check_edges(&packages);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].to_string().starts_with("informer: must not turn on `runtime` of `kube` (dev)"));
    }

    #[test]
    fn metadata_that_cannot_be_read_is_not_a_pass() {
        assert_eq!(check_edges("{").len(), 1);
    }

    #[test]
    fn a_second_tls_provider_is_found_in_the_lock() {
        let lock = "[[package]]\nname = \"ring\"\n\n[[package]]\nname = \"aws-lc-rs\"\n";
        let problems = check_lock(lock);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].what.starts_with("`aws-lc-rs` is in the build"));
    }

    #[test]
    fn ring_and_lookalikes_pass() {
        assert_eq!(check_lock("[[package]]\nname = \"ring\"\n\n[[package]]\nname = \"openssl-probe\"\n"), []);
    }
}
