//! Words that the project does not use, because they have another meaning in Kubernetes or none at all.
//!
//! Three checks: banned words in Rust, Go and Markdown files, doc lines that refer to their neighbours
//! instead of describing the item, and names of constants without meaning or unit. Words are compared with
//! whole words of prose and with whole parts of identifiers: `was_told` and `toldTwice` contain `told`,
//! `untold` does not.

use super::code::is_word;
use super::{Problem, Source, items};
use crate::repo::TextFile;
use std::path::Path;

/// Words that must not occur, and what to write instead.
const BANNED: &[(&str, &str)] = &[
    ("bells", "`notifiers`"),
    ("lessons", "`samples` or `training set`"),
    ("plant", "`insert unchecked`"),
    ("planted", "`inserted unchecked`"),
    ("told", "`delivered`, `reported` or `announced`"),
    ("trouble", "`failure` or `error`"),
    ("troubles", "`failures` or `errors`"),
    ("unlearning", "`without training`"),
    ("whoever", "the caller, the handler or another subject"),
];

/// Beginnings of words that must not occur, and what to write instead.
const BANNED_PREFIXES: &[(&str, &str)] = &[("meddl", "`inject faults`"), ("spoil", "`corrupt`")];

/// Words that must not be the first or the last part of the name of a constant.
const VAGUE: &[&str] = &[
    "breath", "enough", "every", "fewest", "grace", "longest", "many", "moment", "most", "patience",
    "shortest", "soon", "usual",
];

/// Files and folders that are not checked.
const EXEMPT: &[&str] = &["CHANGELOG.md", "bench/results/", "testdata/", "xtask/src/tidy/"];

/// Upper bound on the findings that are returned.
const MAX_FINDINGS: usize = 50;

/// Checks all Rust sources, and Markdown and Go files.
///
/// Returns at most [`MAX_FINDINGS`] problems, and one with the number of the others.
pub(super) fn check(sources: &[Source], documents: &[TextFile]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for Source { path, text, code } in sources.iter().filter(|source| is_checked(&source.path)) {
        problems.extend(check_words(path, text));
        problems.extend(check_doc_lines(path, text));
        problems.extend(check_constants(path, &rust_constants(code)));
    }
    for TextFile { path, text } in documents.iter().filter(|file| is_checked(&file.path)) {
        problems.extend(check_words(path, text));
        if is_file_of(path, "go") {
            problems.extend(check_constants(path, &go_constants(text)));
        }
    }
    let hidden = problems.len().saturating_sub(MAX_FINDINGS);
    if hidden > 0 {
        problems.truncate(MAX_FINDINGS);
        problems.push(Problem::new("words", format!("{hidden} more findings")));
    }
    problems
}

fn is_checked(path: &str) -> bool {
    !EXEMPT.iter().any(|exempt| path.starts_with(exempt))
}

/// Finds the first banned word of each line.
fn check_words(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        if let Some((word, instead)) = parts(text).iter().find_map(|part| banned(part)) {
            problems.push(Problem::at(path, line, format!("banned word `{word}`: write {instead}")));
        }
    }
    problems
}

/// Returns the banned word that a part of a text is or starts with.
fn banned(part: &str) -> Option<&'static (&'static str, &'static str)> {
    let is_part = BANNED.iter().find(|(word, _)| part == *word);
    is_part.or_else(|| BANNED_PREFIXES.iter().find(|(prefix, _)| part.starts_with(prefix)))
}

/// Finds doc lines that start with "The same".
fn check_doc_lines(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(text.lines().map(str::trim_start)) {
        let doc = text.strip_prefix("///").or_else(|| text.strip_prefix("//!")).unwrap_or_default();
        if doc.trim_start().strip_prefix("The same").is_some_and(|rest| !rest.starts_with(is_word)) {
            problems.push(Problem::at(
                path,
                line,
                "a doc line must not start with `The same`: describe the item",
            ));
        }
    }
    problems
}

/// Finds constants whose names start or end with a vague word.
fn check_constants(path: &str, constants: &[(usize, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, name) in constants {
        let parts = parts(name);
        if [parts.first(), parts.last()].into_iter().flatten().any(|part| VAGUE.contains(&part.as_str())) {
            let message = format!(
                "constant `{name}`: name its meaning and unit, as in `MAX_…`, `…_BYTES`, `…_TIMEOUT`"
            );
            problems.push(Problem::at(path, *line, message));
        }
    }
    problems
}

/// Returns the names of the constants in Rust code, with their lines.
fn rust_constants(code: &str) -> Vec<(usize, &str)> {
    let constant = |at| {
        let line = code[..at].matches('\n').count() + 1;
        (line, first_word(code[at + "const".len()..].trim_start()))
    };
    items::words(code, "const").map(constant).collect()
}

/// Returns the names of the constants in a Go file, with their lines.
fn go_constants(text: &str) -> Vec<(usize, &str)> {
    let mut constants = Vec::new();
    let mut in_block = false;
    for (line, code) in (1..).zip(text.lines().map(str::trim_start)) {
        match code.trim_end() {
            "const (" => in_block = true,
            ")" => in_block = false,
            _ if in_block => constants.push((line, first_word(code))),
            _ => constants.extend(code.strip_prefix("const ").map(|code| (line, first_word(code)))),
        }
    }
    constants
}

fn first_word(code: &str) -> &str {
    &code[..code.find(|c| !is_word(c)).unwrap_or(code.len())]
}

/// Splits a text into words, and identifiers into their parts, in lower case: `oneTwo_THREE` is `one`, `two`,
/// `three`.
fn parts(text: &str) -> Vec<String> {
    let mut parts = Vec::new();
    let mut part = String::new();
    let mut previous = ' ';
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let ends_acronym = previous.is_uppercase() && chars.peek().is_some_and(|next| next.is_lowercase());
        let starts_part = c.is_uppercase() && (previous.is_lowercase() || ends_acronym);
        if (starts_part || !c.is_alphabetic()) && !part.is_empty() {
            parts.push(std::mem::take(&mut part));
        }
        if c.is_alphabetic() {
            part.extend(c.to_lowercase());
        }
        previous = c;
    }
    if !part.is_empty() {
        parts.push(part);
    }
    parts
}

fn is_file_of(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the problems of one file, each formatted as `line: start of the message`.
    fn check(path: &str, text: &str, expected: &[&str]) {
        let problems = if is_file_of(path, "rs") {
            super::check(&[Source::new(path, text)], &[])
        } else {
            super::check(&[], &[TextFile { path: path.to_owned(), text: text.to_owned() }])
        };
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), expected.len(), "{text:?}: {problems:?}");
        for (problem, start) in problems.iter().zip(expected) {
            assert!(problem.starts_with(&format!("{path}:{start}")), "{problem}");
        }
    }

    #[test]
    fn banned_word_fails_in_code_and_prose() {
        check("a.rs", "let told = 1;\n", &["1: banned word `told`: write `delivered`"]);
        check(
            "a.rs",
            "fn was_told() {}\nstruct ToldTwice;\n",
            &["1: banned word `told`", "2: banned word `told`"],
        );
        check(
            "a.rs",
            "// In trouble.\n\"Whoever asks\"\n",
            &["1: banned word `trouble`", "2: banned word `whoever`"],
        );
        check("a.md", "Planted, without lessons.\n", &["1: banned word `planted`"]);
        check(
            "a.go",
            "func plantPod() {}\nconst BELLS = 2\n",
            &["1: banned word `plant`", "2: banned word `bells`"],
        );
    }

    #[test]
    fn banned_prefix_fails() {
        check("a.rs", "// Spoilt frames, meddling\nfn unspoiled() {}\n", &["1: banned word `spoil`"]);
        check("a.md", "A meddler.\n", &["1: banned word `meddl`"]);
    }

    #[test]
    fn longer_words_pass() {
        check("a.rs", "// Untold transplants, plants, troubleshooting, bell, lesson.\n", &[]);
        check("a.rs", "let retold = planter;\n", &[]);
    }

    #[test]
    fn doc_line_that_starts_with_the_same_fails() {
        let expected = "a doc line must not start with `The same`";
        check("a.rs", "//! The same here.\n", &[&format!("1: {expected}")]);
        check("a.rs", "    /// The same, without a limit.\n", &[&format!("1: {expected}")]);
        check(
            "a.rs",
            "/// Returns the same.\n// The same words.\nlet a = \"The same\";\n/// The sameness.\n",
            &[],
        );
    }

    #[test]
    fn vague_constant_fails() {
        check("a.rs", "const MOST: usize = 1;\n", &["1: constant `MOST`"]);
        check("a.rs", "\npub(crate) const LONGEST_NAME: usize = 1;\n", &["2: constant `LONGEST_NAME`"]);
        check("a.rs", "impl A {\n    const TOO_MANY: usize = 1;\n}\n", &["2: constant `TOO_MANY`"]);
        check("a.go", "const patience = 1\n", &["1: constant `patience`"]);
        check("a.go", "const (\n\t// Comment.\n\tlongestName = 1\n)\n", &["3: constant `longestName`"]);
    }

    #[test]
    fn other_constants_and_names_pass() {
        check("a.rs", "const MAX_NAME_BYTES: usize = 1;\nconst ALMOST: usize = 2;\n", &[]);
        check(
            "a.rs",
            "const DELETION_GRACE_PERIOD: usize = 1;\nlet many = EVERY;\nconst fn most() {}\n",
            &[],
        );
        check("a.rs", "// const MOST: usize = 1;\n", &[]);
        check("a.go", "const (\n\tlimit = 1\n)\n\nvar many = 1\n", &[]);
        check("a.md", "const MOST: usize = 1;\n", &[]);
    }

    #[test]
    fn exempt_files_pass() {
        for path in ["CHANGELOG.md", "bench/results/a.md", "testdata/a.go", "xtask/src/tidy/a.rs"] {
            check(path, "told\n", &[]);
        }
    }

    #[test]
    fn findings_are_limited() {
        let text = "told\n".repeat(MAX_FINDINGS + 2);
        let problems = super::check(&[Source::new("a.rs", text)], &[]);
        assert_eq!(problems.len(), MAX_FINDINGS + 1);
        assert_eq!(problems[MAX_FINDINGS].to_string(), "words: 2 more findings");
    }
}
