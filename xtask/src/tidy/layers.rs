//! `layers.txt`: which of our crates a crate may use, and the layers of its modules. The file is read here, and checked against the modules.
//!
//! A module uses modules on lower layers, never one on its own layer or above. `lib.rs` and `main.rs` are in no layer. Cycles inside one
//! module are not checked here; `cargo xtask tidy --cycles` prints them.

use std::collections::{BTreeMap, BTreeSet};

use super::Problem;
use super::modules::File;

/// Where the rows are kept.
pub(super) const FILE: &str = "layers.txt";

/// What `layers.txt` has on one crate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Row {
    /// Our crates that it may use, in the library and in build scripts.
    pub(super) uses: Vec<String>,
    /// Our crates that its tests and benchmarks may use besides.
    pub(super) tests_use: Vec<String>,
    /// Its modules layer by layer, the lowest first. None: not checked.
    pub(super) layers: Vec<Vec<String>>,
}

/// Rows by the names of crates.
pub(super) type Rows = BTreeMap<String, Row>;

/// Reads the file; with the problems of lines that are not read.
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
                None => problems.push(Problem::at(FILE, number, "a layer that belongs to no crate")),
            }
            continue;
        }
        let Some((name, dependencies)) = line.split_once(':') else {
            problems.push(Problem::at(
                FILE,
                number,
                "not `crate: what it uses; tests: what its tests use besides`",
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

/// Compares the layers of a crate with its files. A crate without layers has no problems.
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
            problems.push(Problem::new(FILE, format!("module `{module}` of {name} is in two rows")));
        } else if !modules.contains(module.as_str()) {
            problems.push(Problem::new(FILE, format!("{name} has no module `{module}`")));
        }
    }
    for module in modules.iter().filter(|module| !layer_of.contains_key(**module)) {
        problems
            .push(Problem::new(FILE, format!("module `{module}` of {name} is in no row: choose its layer")));
    }
    problems.extend(files.iter().flat_map(|file| check_file(file, &modules, &layer_of)));
    problems
}

fn check_file(file: &File, modules: &BTreeSet<&str>, layer_of: &BTreeMap<&str, usize>) -> Vec<Problem> {
    let Some(from) = file.top() else { return Vec::new() };
    let mut problems = Vec::new();
    for arrow in &file.arrows {
        let Some(to) = arrow.to.first().map(String::as_str) else { continue };
        let what = if !modules.contains(to) {
            format!("`crate::{to}`: name its module, so that the dependency is visible")
        } else if to == from {
            continue;
        } else {
            match (layer_of.get(from), layer_of.get(to)) {
                (Some(own), Some(other)) if other == own => {
                    format!("`{from}` uses `{to}`, which is on its own layer {own}")
                }
                (Some(own), Some(other)) if other > own => {
                    format!("`{from}` on layer {own} uses `{to}` on layer {other} above it")
                }
                // Lower, or reported as a module in no row.
                _ => continue,
            }
        };
        problems.push(Problem::at(&file.path, arrow.line, what));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::modules::files;
    use super::*;

    const ROWS: &str = "a: # nothing\n  low\n  left right\n  high\n";

    /// Problems of a crate `a` with these rows and files.
    fn check(rows: &str, sources: &[(&str, &str)], expected: &[&str]) {
        let (rows, problems) = parse(rows);
        assert_eq!(problems, []);
        let sources: Vec<Source> =
            sources.iter().map(|(path, text)| Source::new(format!("crates/a/src/{path}"), *text)).collect();
        let problems = super::check("a", &rows["a"], &files(&sources, "crates/a/src"));
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    /// The four modules of `ROWS`, one of them with this code.
    fn check_code(module: &str, code: &str, expected: &[&str]) {
        let path = |name: &str| format!("{name}.rs");
        let names =
            ["low", "left", "right", "high"].map(|name| (path(name), if name == module { code } else { "" }));
        let sources: Vec<(&str, &str)> = names.iter().map(|(path, code)| (path.as_str(), *code)).collect();
        check(ROWS, &sources, expected);
    }

    #[test]
    fn arrows_down_pass() {
        check_code("high", "use crate::{left::A, low};\nuse super::right::B;\n", &[]);
        check_code("left", "use crate::low::A;\nuse crate::left::B;\n", &[]);
    }

    #[test]
    fn an_arrow_up_fails() {
        let expected = ["crates/a/src/low.rs:2: `low` on layer 1 uses `high` on layer 3 above it"];
        check_code("low", "fn a() {\n    crate::high::b()\n}\n", &expected);
        check_code("low", "\nuse super::{high::B};\n", &expected);
    }

    #[test]
    fn an_arrow_to_the_same_layer_fails() {
        check_code(
            "left",
            "use crate::right::A;\n",
            &["crates/a/src/left.rs:1: `left` uses `right`, which is on its own layer 2"],
        );
    }

    #[test]
    fn a_name_of_the_root_file_fails() {
        let expected =
            ["crates/a/src/high.rs:1: `crate::Name`: name its module, so that the dependency is visible"];
        check_code("high", "use crate::Name;\n", &expected);
        check_code("high", "use super::Name;\n", &expected);
    }

    #[test]
    fn arrows_in_tests_and_in_the_root_file_pass() {
        check_code(
            "low",
            "#[cfg(test)]\nmod tests {\n    use crate::high::A;\n    use crate::Name;\n}\n",
            &[],
        );
        check("a:\n  b\n", &[("b.rs", ""), ("lib.rs", "pub use crate::b::C;\nuse crate::D;\n")], &[]);
    }

    #[test]
    fn modules_and_rows_are_the_same() {
        check(
            "a:\n  b\n",
            &[("b.rs", ""), ("c/d.rs", "")],
            &["layers.txt: module `c` of a is in no row: choose its layer"],
        );
        check("a:\n  b\n  c\n", &[("b.rs", "")], &["layers.txt: a has no module `c`"]);
        check("a:\n  b\n  b\n", &[("b.rs", "")], &["layers.txt: module `b` of a is in two rows"]);
        check("a:\n  b\n", &[("b.rs", ""), ("c.rs", ""), ("lib.rs", "#[cfg(doctest)]\nmod c;\n")], &[]);
    }

    #[test]
    fn a_crate_without_layers_is_not_checked() {
        check("a: d\n", &[("b.rs", "use crate::c::D;\n"), ("c.rs", "use crate::b::E;\n")], &[]);
    }

    #[test]
    fn rows_are_read() {
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
    fn lines_that_are_not_rows_fail() {
        let places = |text| parse(text).1.into_iter().map(|problem| problem.to_string()).collect::<Vec<_>>();
        assert_eq!(places("  b\n"), ["layers.txt:1: a layer that belongs to no crate"]);
        assert_eq!(places("a:\na:\n"), ["layers.txt:2: `a` has two rows"]);
        assert!(places("a b\n")[0].starts_with("layers.txt:1: not `crate:"));
    }
}
