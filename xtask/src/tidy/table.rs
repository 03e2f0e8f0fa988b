//! The module tables in `ARCHITECTURE.md`, compared with `layers.txt`.
//!
//! Each crate with layers has a section (### `crate`) with one row per module, and no other row. The texts of
//! the rows are not checked.

use std::collections::BTreeMap;

use super::Problem;
use super::layers::{self, Rows};

/// The document that holds the tables.
pub(super) const FILE: &str = "ARCHITECTURE.md";

/// Compares the tables with the modules of all crates that have layers.
pub(super) fn check(text: &str, rows: &Rows) -> Vec<Problem> {
    let tables = tables(text);
    let mut problems = Vec::new();
    for (name, row) in rows.iter().filter(|(_, row)| !row.layers.is_empty()) {
        let modules = row.layers.concat();
        let table = tables.get(name.as_str()).map_or(&[][..], Vec::as_slice);
        for module in &modules {
            let mut lines = table.iter().filter(|(_, entry)| entry == module).map(|(line, _)| *line);
            if lines.next().is_none() {
                problems.push(Problem::new(FILE, format!("no row for module `{module}` of {name}")));
            }
            let second =
                |line| Problem::at(FILE, line, format!("a second row for module `{module}` of {name}"));
            problems.extend(lines.map(second));
        }
        let unknown = table.iter().filter(|(_, entry)| !modules.iter().any(|module| module == entry));
        problems.extend(unknown.map(|(line, entry)| {
            Problem::at(FILE, *line, format!("{name} has no module `{entry}` in {}", layers::FILE))
        }));
    }
    problems
}

/// The first cells of the tables, with their lines, by the crate in the heading above.
fn tables(text: &str) -> BTreeMap<&str, Vec<(usize, &str)>> {
    let mut tables: BTreeMap<&str, Vec<(usize, &str)>> = BTreeMap::new();
    let mut current = None;
    for (line, row) in (1..).zip(text.lines()) {
        if row.starts_with('#') {
            current = row.strip_prefix("### `").and_then(|rest| rest.strip_suffix('`'));
        } else if let (Some(name), Some(rest)) = (current, row.strip_prefix("| `")) {
            let module = rest.split('`').next().unwrap_or_default();
            tables.entry(name).or_default().push((line, module));
        }
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::super::layers::parse;

    /// Problems of a crate with the modules `a`, `b` and `c`.
    fn check(table: &str, expected: &[&str]) {
        let text = format!(
            "# Title\n\n### `one`\n| module | contents |\n|---|---|\n{table}\n## Next\n| `z` | x |\n"
        );
        let rows = parse("other:\none:\n  a\n  b c\n").0;
        let problems: Vec<String> = super::check(&text, &rows).iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn one_row_for_each_module_passes() {
        check("| `a` | x, with `d` |\n| `b` | x |\n| `c` | x |", &[]);
    }

    #[test]
    fn module_without_a_row_fails() {
        check("| `a` | x |\n| `b` | x |", &["ARCHITECTURE.md: no row for module `c` of one"]);
    }

    #[test]
    fn second_row_fails() {
        let table = "| `a` | x |\n| `b` | x |\n| `c` | x |\n| `b` | x |";
        check(table, &["ARCHITECTURE.md:9: a second row for module `b` of one"]);
    }

    #[test]
    fn row_without_a_module_fails() {
        let table = "| `a` | x |\n| `b` | x |\n| `c` | x |\n| `d` | x |";
        check(table, &["ARCHITECTURE.md:9: one has no module `d` in layers.txt"]);
    }
}
