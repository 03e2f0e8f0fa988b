//! Programs in the pages of the book: each one is compiled, as a copy of a file or as a documentation test.

use super::Problem;
use crate::repo::TextFile;

const PAGES: &str = "docs/book/src/";
/// The file that makes pages documentation tests.
const TESTED: &str = "crates/informer/src/pages.rs";
/// The files that do so; the second one has the page about simulations.
pub(super) const TESTED_FILES: [&str; 2] = [TESTED, "crates/informer-testkit/src/lib.rs"];

/// Checks the Rust blocks of the pages among `files`. `tested` is the text of [`TESTED_FILES`].
pub(super) fn check(files: &[TextFile], tested: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for TextFile { path, text } in files.iter().filter(|file| file.path.starts_with(PAGES)) {
        let is_tested = tested.contains(&format!("/{path}\""));
        let (mut previous, mut is_inside) = ("", false);
        for (number, line) in (1..).zip(text.lines()) {
            if line.starts_with("```") {
                let is_copy = previous.starts_with("<!-- include ");
                let is_rust =
                    line.strip_prefix("```rust").is_some_and(|rest| !rest.starts_with(char::is_alphanumeric));
                if !is_inside && is_rust && line.contains("ignore") {
                    problems.push(Problem::at(path, number, "a program that is not compiled"));
                } else if !is_inside && is_rust && !is_copy && !is_tested {
                    let message = format!("a program that is not compiled (add the page to {TESTED})");
                    problems.push(Problem::at(path, number, message));
                }
                is_inside = !is_inside;
            }
            previous = line;
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, tested: &str, expected: &[&str]) {
        let file = TextFile { path: "docs/book/src/a.md".to_owned(), text: text.to_owned() };
        let problems: Vec<String> = super::check(&[file], tested).iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn copies_and_documentation_tests_pass() {
        check("<!-- include a.rs -->\n```rust\nfn a() {}\n```\n", "", &[]);
        check("```rust,no_run\nfn a() {}\n```\n", "include_str!(\"../../../docs/book/src/a.md\")", &[]);
        check("```rs\nother\n```\n```sh\n```\n", "", &[]);
    }

    #[test]
    fn programs_that_nothing_compiles_are_problems() {
        let page = "text\n```rust\nfn a() {}\n```\n";
        let expected = "docs/book/src/a.md:2: a program that is not compiled (add the page to crates/informer/src/pages.rs)";
        check(page, "", &[expected]);
        let tested = "include_str!(\"../../../docs/book/src/a.md\")";
        check("```rust,ignore\n```\n", tested, &["docs/book/src/a.md:1: a program that is not compiled"]);
    }
}
