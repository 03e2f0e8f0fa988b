//! `layers.txt`: the allowed dependencies of each crate on other crates of the workspace, and the layers of
//! its modules. This file parses it and compares the layers with the modules.
//!
//! A module may use modules on lower layers only. `lib.rs` and `main.rs` are in no layer. Cycles inside one
//! module are not checked here; `cargo xtask tidy --cycles` prints them.

use std::collections::{BTreeMap, BTreeSet};

use super::Problem;
use super::modules::File;

/// The file with the rows.
pub(super) const FILE: &str = "layers.txt";

/// The entry of one crate in `layers.txt`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Crates of the workspace that its library and build scripts may use.
    pub(super) uses: Vec<String>,
    /// Crates of the workspace that only its tests and benchmarks may use.
    pub(super) tests_use: Vec<String>,
    /// Its modules by layer, the lowest layer first. If empty, modules are not checked.
    pub(super) layers: Vec<Vec<String>>,
}

/// Rows by crate name.
pub(super) type Rows = BTreeMap<String, Row>;

/// Parses the file; returns the rows, and a problem for each invalid line.
pub(super) fn parse(text: &str) -> (Rows, Vec<Problem>) {
    let mut rows = Rows::new();
    let mut problems = Vec::new();
    let mut current: Option<String> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.split('#').next().unwrap_or_default().trim_end();
        if line.is_empty() {
            continue;
        }
        if line.starts_with(' ') {
            match current.as_ref().and_then(|name| rows.get_mut(name)) {
                Some(row) => row.layers.push(names(line)),
                None => problems.push(Problem::at(FILE, number, "a layer outside of a crate")),
            }
            continue;
        }
        let Some((name, dependencies)) = line.split_once(':') else {
            problems.push(Problem::at(
                FILE,
                number,
                "invalid row (expected `crate: dependencies; tests: more dependencies`)",
            ));
            continue;
        };
        let (uses, tests_use) = dependencies.split_once("; tests:").unwrap_or((dependencies, ""));
        let row = Row { uses: names(uses), tests_use: names(tests_use), layers: Vec::new() };
        if rows.insert(name.to_owned(), row).is_some() {
            problems.push(Problem::at(FILE, number, format!("`{name}` has two rows")));
        }
        current = Some(name.to_owned());
    }
    (rows, problems)
}

fn names(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Compares the layers of a crate with its files. A crate without layers is not checked.
pub(super) fn check(name: &str, row: &Row, files: &[File]) -> Vec<Problem> {
    if row.layers.is_empty() {
        return Vec::new();
    }
    let modules: BTreeSet<&str> = files.iter().filter_map(File::top).collect();
    let mut problems = Vec::new();
    let mut layer_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (layer, module) in
        (1..).zip(&row.layers).flat_map(|(layer, row)| row.iter().map(move |module| (layer, module)))
    {
        if layer_of.insert(module, layer).is_some() {
            problems.push(Problem::new(FILE, format!("module `{module}` of {name} is in two layers")));
        } else if !modules.contains(module.as_str()) {
            problems.push(Problem::new(FILE, format!("{name} has no module `{module}`")));
        }
    }
    for module in modules.iter().filter(|module| !layer_of.contains_key(**module)) {
        problems
            .push(Problem::new(FILE, format!("module `{module}` of {name} has no layer (add it to one)")));
    }
    problems.extend(files.iter().flat_map(|file| check_file(file, &modules, &layer_of)));
    problems
}

fn check_file(file: &File, modules: &BTreeSet<&str>, layer_of: &BTreeMap<&str, usize>) -> Vec<Problem> {
    let Some(from) = file.top() else { return Vec::new() };
    let mut problems = Vec::new();
    for dependency in &file.dependencies {
        let Some(to) = dependency.to.first().map(String::as_str) else { continue };
        let what = if !modules.contains(to) {
            format!("`crate::{to}`: use the path of its module, so that the dependency is visible")
        } else if to == from {
            continue;
        } else {
            match (layer_of.get(from), layer_of.get(to)) {
                (Some(own), Some(other)) if other == own => {
                    format!("`{from}` uses `{to}`, which is on the same layer {own}")
                }
                (Some(own), Some(other)) if other > own => {
                    format!("`{from}` on layer {own} uses `{to}` on the higher layer {other}")
                }
                // A lower layer, or a module without a layer, which is reported above.
                _ => continue,
            }
        };
        problems.push(Problem::at(&file.path, dependency.line, what));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::modules::files;
    use super::*;

    const ROWS: &str = "a: # comment\n  low\n  left right\n  high\n";

    /// Checks a crate `a` with these rows and files.
    fn check(rows: &str, sources: &[(&str, &str)], expected: &[&str]) {
        let (rows, problems) = parse(rows);
        assert_eq!(problems, []);
        let sources: Vec<Source> =
            sources.iter().map(|(path, text)| Source::new(format!("crates/a/src/{path}"), *text)).collect();
        let problems = super::check("a", &rows["a"], &files(&sources, "crates/a/src"));
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    /// Checks a crate with the four modules of `ROWS`, one of which contains this code.
    fn check_code(module: &str, code: &str, expected: &[&str]) {
        let path = |name: &str| format!("{name}.rs");
        let names =
            ["low", "left", "right", "high"].map(|name| (path(name), if name == module { code } else { "" }));
        let sources: Vec<(&str, &str)> = names.iter().map(|(path, code)| (path.as_str(), *code)).collect();
        check(ROWS, &sources, expected);
    }

    #[test]
    fn dependencies_on_lower_layers_pass() {
        check_code("high", "use crate::{left::A, low};\nuse super::right::B;\n", &[]);
        check_code("left", "use crate::low::A;\nuse crate::left::B;\n", &[]);
    }

    #[test]
    fn dependency_on_higher_layer_fails() {
        let expected = ["crates/a/src/low.rs:2: `low` on layer 1 uses `high` on the higher layer 3"];
        check_code("low", "fn a() {\n    crate::high::b()\n}\n", &expected);
        check_code("low", "\nuse super::{high::B};\n", &expected);
    }

    #[test]
    fn dependency_on_same_layer_fails() {
        check_code(
            "left",
            "use crate::right::A;\n",
            &["crates/a/src/left.rs:1: `left` uses `right`, which is on the same layer 2"],
        );
    }

    #[test]
    fn name_of_root_file_fails() {
        let expected = [
            "crates/a/src/high.rs:1: `crate::Name`: use the path of its module, so that the dependency is visible",
        ];
        check_code("high", "use crate::Name;\n", &expected);
        check_code("high", "use super::Name;\n", &expected);
    }

    #[test]
    fn dependencies_in_tests_and_root_file_pass() {
        check_code(
            "low",
            "#[cfg(test)]\nmod tests {\n    use crate::high::A;\n    use crate::Name;\n}\n",
            &[],
        );
        check("a:\n  b\n", &[("b.rs", ""), ("lib.rs", "pub use crate::b::C;\nuse crate::D;\n")], &[]);
    }

    #[test]
    fn modules_and_layers_must_match() {
        check(
            "a:\n  b\n",
            &[("b.rs", ""), ("c/d.rs", "")],
            &["layers.txt: module `c` of a has no layer (add it to one)"],
        );
        check("a:\n  b\n  c\n", &[("b.rs", "")], &["layers.txt: a has no module `c`"]);
        check("a:\n  b\n  b\n", &[("b.rs", "")], &["layers.txt: module `b` of a is in two layers"]);
        check("a:\n  b\n", &[("b.rs", ""), ("c.rs", ""), ("lib.rs", "#[cfg(doctest)]\nmod c;\n")], &[]);
    }

    #[test]
    fn crate_without_layers_is_not_checked() {
        check("a: d\n", &[("b.rs", "use crate::c::D;\n"), ("c.rs", "use crate::b::E;\n")], &[]);
    }

    #[test]
    fn rows_are_parsed() {
        let (rows, problems) = parse("# Rows.\na: b c; tests: d\n  e f # lowest\n\n  g\nb:\n");
        assert_eq!(problems, []);
        let texts = |all: &[&str]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
        let row = Row {
            uses: texts(&["b", "c"]),
            tests_use: texts(&["d"]),
            layers: vec![texts(&["e", "f"]), texts(&["g"])],
        };
        assert_eq!(rows["a"], row);
        assert_eq!(rows["b"], Row::default());
    }

    #[test]
    fn invalid_lines_fail() {
        let places = |text| parse(text).1.into_iter().map(|problem| problem.to_string()).collect::<Vec<_>>();
        assert_eq!(places("  b\n"), ["layers.txt:1: a layer outside of a crate"]);
        assert_eq!(places("a:\na:\n"), ["layers.txt:2: `a` has two rows"]);
        assert!(places("a b\n")[0].starts_with("layers.txt:1: invalid row"));
    }
}
