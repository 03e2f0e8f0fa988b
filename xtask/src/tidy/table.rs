//! The table of modules in `ARCHITECTURE.md`, compared with `layers.txt`: each module is in one row, and each row has a module.
//!
//! A row may have several modules of a crate, and a row may be on a part of a module, such as `wire/protobuf`. What a row says is not checked.

use std::collections::BTreeMap;

use super::layers::{self, Rows};
use super::modules::File;
use super::{Crate, Problem};

/// Where the table is.
pub(super) const FILE: &str = "ARCHITECTURE.md";

/// The crates whose modules are all in the table.
const CRATES: &[&str] = &["informer-cli", "xtask"];

/// A path in the table, from the source folder of its crate.
struct Entry<'a> {
    line: usize,
    path: &'a str,
}

/// Compares the table with the modules of the crates that are to be in it. `files` are those of a crate.
pub(super) fn check(
    text: &str,
    rows: &Rows,
    crates: &[Crate],
    files: impl Fn(&Crate) -> Vec<File>,
) -> Vec<Problem> {
    let table = entries(text, crates);
    let in_table = crates.iter().filter(|one| CRATES.contains(&one.name.as_str()));
    let mut problems = Vec::new();
    for one in in_table {
        let modules = rows.get(&one.name).map(|row| row.layers.concat()).unwrap_or_default();
        let entries = table.get(one.name.as_str()).map_or(&[][..], Vec::as_slice);
        problems.extend(check_crate(&one.name, &modules, entries, &files(one)));
    }
    problems
}

fn check_crate(name: &str, modules: &[String], entries: &[Entry<'_>], files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for module in modules {
        let mut places = entries.iter().filter(|entry| entry.path == module).map(|entry| entry.line);
        match (places.next(), places.next()) {
            (None, _) => problems.push(Problem::new(FILE, format!("no row for module `{module}` of {name}"))),
            (_, Some(second)) => {
                problems.push(Problem::at(
                    FILE,
                    second,
                    format!("a second row for module `{module}` of {name}"),
                ));
            }
            (Some(_), None) => {}
        }
    }
    for Entry { line, path } in
        entries.iter().filter(|entry| !modules.iter().any(|module| module == entry.path))
    {
        let parts: Vec<String> = path.split('/').map(str::to_owned).collect();
        let exists = parts.len() > 1 && files.iter().any(|file| file.module.starts_with(&parts));
        if !exists {
            let what = format!("{name} has no module `{path}` in {}", layers::FILE);
            problems.push(Problem::at(FILE, *line, what));
        }
    }
    problems
}

/// The rows below that of each crate: `…/path`, and names beside it.
fn entries<'a>(text: &'a str, crates: &'a [Crate]) -> BTreeMap<&'a str, Vec<Entry<'a>>> {
    let mut entries: BTreeMap<&str, Vec<Entry<'_>>> = BTreeMap::new();
    let mut current = None;
    for (line, row) in (1..).zip(text.lines()) {
        let Some(cell) = row.strip_prefix("| `").and_then(|rest| rest.split('|').next()) else { continue };
        let names = cell.split('`').step_by(2).map(|name| name.trim_start_matches("…/"));
        if !cell.starts_with('…') {
            let folder = cell.split('`').next();
            current =
                crates.iter().find(|one| Some(one.folder.as_str()) == folder).map(|one| one.name.as_str());
        } else if let Some(name) = current {
            let names = names.filter(|name| !name.trim().is_empty());
            entries.entry(name).or_default().extend(names.map(|path| Entry { line, path }));
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::layers::parse;
    use super::super::modules;
    use super::*;

    /// Problems of xtask with the modules `a` (and a file `a/part.rs`), `b` and `c`.
    fn check(table: &str, expected: &[&str]) {
        let text =
            format!("# Title\n\n| where | what |\n|---|---|\n| `crates/other` | x |\n| `…/z` | x |\n{table}");
        let crates = [("other", "crates/other"), ("xtask", "xtask")];
        let crates = crates.map(|(name, folder)| Crate { name: name.to_owned(), folder: folder.to_owned() });
        let sources = [Source::new("xtask/src/a/part.rs", "")];
        let rows = parse("other:\n  y\nxtask:\n  a\n  b c\n").0;
        let problems = super::check(&text, &rows, &crates, |_| modules::files(&sources, "xtask/src"));
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn one_row_for_each_module_passes() {
        check("| `xtask` | x |\n| `…/a`, `b` | x, with `d` |\n| `…/c` | x |\n", &[]);
        check("| `xtask` | x |\n| `…/a`, `b`, `c` | x |\n| `…/a/part` | x |\n", &[]);
    }

    #[test]
    fn a_module_without_a_row_fails() {
        check("| `xtask` | x |\n| `…/a`, `b` | x |\n", &["ARCHITECTURE.md: no row for module `c` of xtask"]);
        check(
            "| `crates/xtask` | x |\n| `…/a`, `b`, `c` | x |\n",
            &[
                "ARCHITECTURE.md: no row for module `a` of xtask",
                "ARCHITECTURE.md: no row for module `b` of xtask",
                "ARCHITECTURE.md: no row for module `c` of xtask",
            ],
        );
    }

    #[test]
    fn a_second_row_fails() {
        let table = "| `xtask` | x |\n| `…/a`, `b`, `c` | x |\n| `…/b` | x |\n";
        check(table, &["ARCHITECTURE.md:9: a second row for module `b` of xtask"]);
    }

    #[test]
    fn a_row_without_a_module_fails() {
        let table = "| `xtask` | x |\n| `…/a`, `b`, `c`, `d` | x |\n| `…/a/gone` | x |\n";
        check(
            table,
            &[
                "ARCHITECTURE.md:8: xtask has no module `d` in layers.txt",
                "ARCHITECTURE.md:9: xtask has no module `a/gone` in layers.txt",
            ],
        );
    }
}
