//! Markdown files: linked files and sections exist, copies of programs are current, and the book is complete.

use std::collections::BTreeMap;

use super::Problem;
use crate::included;
use crate::repo::TextFile;

/// The folders of the book's pages, in two languages. Each contains a summary of its chapters.
const BOOKS: &[&str] = &["docs/book/src/", "docs/book/zh/src/"];
const SUMMARY: &str = "SUMMARY.md";

/// Checks the links of the Markdown files among `files`. `read` returns the text of any file or an empty text for a folder;
/// `None` if it does not exist.
pub(super) fn check(files: &[TextFile], read: &dyn Fn(&str) -> Option<String>) -> Vec<Problem> {
    let pages: BTreeMap<&str, &str> =
        files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let mut problems = Vec::new();
    let mut chapters = Vec::new();
    for file in files.iter().filter(|file| is_page(&file.path)) {
        for (line, link) in links(&file.text) {
            let mut report = |message| problems.push(Problem::at(&file.path, line, message));
            let (path, section) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { file.path.clone() } else { resolve(&file.path, path) };
            let book = book_of(&file.path);
            if let Some(book) = book.filter(|book| !target.starts_with(book)) {
                report(format!("link to `{link}`: the built book contains only files in {book}"));
            } else if let Some(page) = pages.get(target.as_str()) {
                if !section.is_empty() && !sections(page).any(|own| own == section) {
                    report(format!("link to `{link}`: no such section"));
                }
            } else if read(&target).is_none() {
                report(format!("link to `{link}`: no such file"));
            }
            if book.is_some_and(|book| file.path == format!("{book}{SUMMARY}")) {
                chapters.push(target);
            }
        }
        match included::renew(&file.text, read) {
            // A file may end without a line break.
            Ok(renewed) if renewed.trim_end() == file.text.trim_end() => {}
            Ok(_) => problems.push(Problem::new(
                &file.path,
                "the copy of a program is outdated (`cargo xtask book` renews it)",
            )),
            Err((line, mistake)) => problems.push(Problem::at(&file.path, line, mistake)),
        }
    }
    for (path, book) in pages.keys().filter_map(|path| Some((*path, book_of(path)?))) {
        let summary = format!("{book}{SUMMARY}");
        if path != summary && !chapters.iter().any(|chapter| chapter == path) {
            problems.push(Problem::new(path, format!("is not in {summary}")));
        }
    }
    problems
}

fn is_page(path: &str) -> bool {
    path.rsplit_once('.').is_some_and(|(_, extension)| extension == "md")
}

/// Returns the folder of the book that a page belongs to.
fn book_of(path: &str) -> Option<&'static str> {
    BOOKS.iter().copied().find(|book| path.starts_with(book))
}

/// Returns the relative links outside of code, with their lines.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        let mut rest = line;
        while let Some((before, after)) = rest.split_once("](") {
            let Some((target, remaining)) = after.split_once(')') else { break };
            rest = remaining;
            let is_inside_code = before.matches('`').count() % 2 == 1;
            let target = target.split_whitespace().next().unwrap_or_default();
            let is_external = target.contains("://") || target.starts_with("mailto:");
            if !is_inside_code && !is_external && !target.is_empty() {
                found.push((number, target));
            }
        }
    }
    found
}

/// Returns the path of a link, relative to the root.
fn resolve(file: &str, link: &str) -> String {
    let folder = file.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            name => parts.push(name),
        }
    }
    parts.join("/")
}

/// Returns the identifiers of the sections, as web pages of Markdown files have them: words in lower case,
/// separated by hyphens.
fn sections(text: &str) -> impl Iterator<Item = String> {
    let mut is_code = false;
    text.lines().filter_map(move |line| {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        let title = line.strip_prefix('#').filter(|_| !is_code)?.trim_start_matches('#').strip_prefix(' ')?;
        let kept = title.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        Some(kept.collect::<String>().to_lowercase().replace(' ', "-"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks files, given as path and text, and compares the problems.
    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let texts: Vec<TextFile> = files
            .iter()
            .filter(|(path, _)| is_page(path))
            .map(|(path, text)| TextFile { path: (*path).to_owned(), text: (*text).to_owned() })
            .collect();
        let read =
            |path: &str| files.iter().find(|(own, _)| *own == path).map(|(_, text)| (*text).to_owned());
        let problems: Vec<String> = super::check(&texts, &read).iter().map(ToString::to_string).collect();
        assert_eq!(problems, expected);
    }

    #[test]
    fn links_to_existing_files_and_sections_pass() {
        let page = "# A page\n\n## It's `here`, now\n";
        let links = "[a](docs/b.md) [`b`](docs/b.md#a-page), [c](docs/b.md#its-here-now)\n[d](https://x.example/a) [e](a.rs)";
        check(&[("README.md", links), ("docs/b.md", page), ("a.rs", "")], &[]);
        check(&[("docs/b.md", "[up](../README.md#top)\n"), ("README.md", "# Top\n")], &[]);
    }

    #[test]
    fn links_in_code_are_not_checked() {
        check(&[("a.md", "`x[0](y)` and\n```rust\nlist[0](x)\n# Title\n```\n")], &[]);
    }

    #[test]
    fn missing_file_is_a_problem() {
        check(&[("docs/a.md", "\n[b](b.md)")], &["docs/a.md:2: link to `b.md`: no such file"]);
        let image = "![b](images/b.svg)\n";
        check(&[("docs/a.md", image)], &["docs/a.md:1: link to `images/b.svg`: no such file"]);
        check(&[("docs/a.md", image), ("docs/images/b.svg", "<svg/>")], &[]);
    }

    #[test]
    fn missing_section_is_a_problem() {
        let code = "```sh\n# b\n```\n";
        check(&[("a.md", "[b](#b)"), ("b.md", code)], &["a.md:1: link to `#b`: no such section"]);
        check(&[("a.md", "[b](b.md#b)"), ("b.md", code)], &["a.md:1: link to `b.md#b`: no such section"]);
    }

    #[test]
    fn page_that_is_not_in_the_summary_is_a_problem() {
        let files = [
            ("docs/book/src/SUMMARY.md", "[a](a.md)"),
            ("docs/book/src/a.md", ""),
            ("docs/book/src/b/c.md", ""),
        ];
        check(&files, &["docs/book/src/b/c.md: is not in docs/book/src/SUMMARY.md"]);
    }

    #[test]
    fn link_out_of_the_book_is_a_problem() {
        let files = [
            ("docs/book/src/SUMMARY.md", "[a](a.md)"),
            ("docs/book/src/a.md", "[b](../../b.md)"),
            ("docs/b.md", ""),
        ];
        let problem = "docs/book/src/a.md:1: link to `../../b.md`: the built book contains only files in docs/book/src/";
        check(&files, &[problem]);
    }

    #[test]
    fn copies_of_programs_must_be_current() {
        let file = ("examples/a.rs", "fn main() {}\n");
        let page = |code: &str| format!("<!-- include examples/a.rs -->\n```rust\n{code}\n```\n");
        check(&[("a.md", &page("fn main() {}")), file], &[]);
        let outdated = "a.md: the copy of a program is outdated (`cargo xtask book` renews it)";
        check(&[("a.md", &page("fn old() {}")), file], &[outdated]);
        check(&[("a.md", &page("fn old() {}"))], &["a.md:1: no file `examples/a.rs`"]);
    }
}
