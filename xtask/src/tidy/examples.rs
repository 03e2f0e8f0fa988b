//! Examples in the documentation of libraries: they use only paths that the reader has.
//!
//! Items of the internal crates are shown on the pages of `informer` and `informer-apiserver`, which re-export
//! them. An example that imports an internal crate does not compile in the reader's program. Tests of
//! documentation need such imports, so they are allowed in hidden lines:
//!
//! ```text
//! # extern crate informer_core as informer;
//! use informer::Key;
//! ```

use super::items::names;
use super::{Problem, Source};

/// Crates that no application depends on.
const INTERNAL_CRATES: &[&str] = &["informer_core", "informer_objects", "informer_schema"];

/// Checks the visible lines of all examples of a file.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    let is_library = source.path.starts_with("crates/") && source.path.contains("/src/");
    // No other crate re-exports items of the schema.
    if !is_library || source.path.starts_with("crates/informer-schema/") {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut is_example = false;
    for (line, text) in (1..).zip(source.text.lines().map(str::trim_start)) {
        let Some(text) = text.strip_prefix("///").or_else(|| text.strip_prefix("//!")) else {
            is_example = false;
            continue;
        };
        let text = text.trim();
        if text.starts_with("```") {
            is_example = !is_example;
        } else if is_example && !is_hidden(text) {
            let internal = INTERNAL_CRATES.iter().find(|name| names(text, name));
            problems.extend(internal.map(|name| {
                let message = format!(
                    "example with `{name}`: the reader has no such crate; import it in a hidden line, and show the path of its re-export"
                );
                Problem::at(&source.path, line, message)
            }));
        }
    }
    problems
}

/// Returns whether rustdoc leaves the line out; `#[…]` and `#!` are code.
fn is_hidden(text: &str) -> bool {
    text == "#" || text.starts_with("# ")
}

#[cfg(test)]
mod tests {
    use super::super::Source;

    const PATH: &str = "crates/informer-core/src/a.rs";

    /// Compares the lines of the problems.
    fn check(path: &str, text: &str, expected: &[usize]) {
        let problems = super::check(&Source::new(path, text));
        let places: Vec<String> = problems.into_iter().map(|problem| problem.location).collect();
        let expected: Vec<String> = expected.iter().map(|line| format!("{path}:{line}")).collect();
        assert_eq!(places, expected, "{text:?}");
    }

    #[test]
    fn visible_internal_path_fails() {
        check(PATH, "/// ```\n/// use informer_core::Key;\n/// ```\nstruct A;\n", &[2]);
        check(PATH, "//! ```no_run\n//! # use a;\n//! informer_objects::b();\n//! ```\n", &[3]);
        check(PATH, "    /// ```\n    /// #[cfg(informer_schema)]\n    /// ```\n", &[2]);
    }

    #[test]
    fn hidden_lines_and_prose_pass() {
        check(PATH, "/// [`informer_core::Key`]\n/// ```\n/// # use informer_core::Key;\n/// ```\n", &[]);
        check(
            PATH,
            "/// ```\n/// # extern crate informer_core as informer;\n/// use informer::Key;\n/// ```\n",
            &[],
        );
        check(PATH, "/// ```\n/// ```\n/// informer_core\n", &[]);
    }

    #[test]
    fn example_ends_with_its_comment() {
        check(PATH, "/// ```\nstruct A;\n/// informer_core\n", &[]);
    }

    #[test]
    fn other_files_pass() {
        check("crates/informer-core/tests/a.rs", "/// ```\n/// informer_core::a();\n", &[]);
        check("xtask/src/a.rs", "/// ```\n/// informer_core::a();\n", &[]);
        check("crates/informer-schema/src/a.rs", "/// ```\n/// informer_schema::a();\n", &[]);
    }
}
