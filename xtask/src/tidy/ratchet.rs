//! The length ratchet: long files and functions fail, except those on record, whose numbers may only fall.
//!
//! The record is `xtask/ratchet.txt`. [`bless`] lowers and removes; nothing here raises or adds. An entry is added by
//! hand, and the commit says why the thing must be that long.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::items::functions;
use super::{Problem, Source};

/// Where the record is kept.
pub(super) const FILE: &str = "xtask/ratchet.txt";

const HEADER: &str = "\
# Files and functions longer than the house allows, with the length each may have at most.
# Numbers only fall: `cargo xtask tidy --bless` lowers and removes. A new line is added by hand, with the reason
# in the commit message.
";

const FILE_LIMIT: usize = 500;
/// Tests are lists of cases; length costs the reader less there.
const TEST_FILE_LIMIT: usize = 800;
const FUNCTION_LIMIT: usize = 70;

/// Lengths by `file <path>` or `fn <path>::<name>`, in the order the record has them.
type Record = BTreeMap<String, usize>;

/// Something longer than its limit.
struct Excess {
    key: String,
    path: String,
    line: usize,
    lines: usize,
    limit: usize,
}

/// Compares the sources with the record.
pub(super) fn check(sources: &[Source], recorded: &str) -> Vec<Problem> {
    let (record, mut problems) = parse(recorded);
    if problems.is_empty() && render(&record) != recorded {
        let what = "not sorted, or its comments changed: run `cargo xtask tidy --bless`";
        problems.push(Problem::new(FILE, what));
    }
    let excesses = measure(sources);
    for Excess { key, path, line, lines, limit } in excesses.values() {
        let subject = if key.starts_with("fn ") { "function" } else { "file" };
        let what = match record.get(key) {
            None => format!("{subject} of {lines} lines, at most {limit} are allowed: split it"),
            Some(allowed) if lines > allowed => {
                format!(
                    "{subject} grew from {allowed} to {lines} lines: numbers in {FILE} only fall, split it"
                )
            }
            Some(allowed) if lines < allowed => {
                format!(
                    "{subject} fell from {allowed} to {lines} lines: run `cargo xtask tidy --bless` to keep it so"
                )
            }
            Some(_) => continue,
        };
        problems.push(Problem::at(path, *line, what));
    }
    for key in record.keys().filter(|key| !excesses.contains_key(*key)) {
        let what = format!("`{key}` is no longer too long, or gone: run `cargo xtask tidy --bless`");
        problems.push(Problem::new(FILE, what));
    }
    problems
}

/// The record with each number lowered to what the sources need, and without what they no longer need.
///
/// A record that cannot be read is returned as it is, for [`check`] to complain about.
pub(super) fn bless(sources: &[Source], recorded: &str) -> String {
    let (mut record, problems) = parse(recorded);
    if !problems.is_empty() {
        return recorded.to_owned();
    }
    let excesses = measure(sources);
    record.retain(|key, _| excesses.contains_key(key));
    for (key, allowed) in &mut record {
        *allowed = excesses[key].lines.min(*allowed);
    }
    render(&record)
}

fn parse(recorded: &str) -> (Record, Vec<Problem>) {
    let mut record = Record::new();
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(recorded.lines()) {
        if line.starts_with('#') {
            continue;
        }
        let entry = line.rsplit_once(' ').and_then(|(key, lines)| Some((key, lines.parse().ok()?)));
        match entry.filter(|(key, _)| key.starts_with("file ") || key.starts_with("fn ")) {
            Some((key, lines)) if !record.contains_key(key) => drop(record.insert(key.to_owned(), lines)),
            Some((key, _)) => problems.push(Problem::at(FILE, number, format!("`{key}` is recorded twice"))),
            None => {
                let what = "not `file <path> <lines>` nor `fn <path>::<name> <lines>`";
                problems.push(Problem::at(FILE, number, what));
            }
        }
    }
    (record, problems)
}

fn render(record: &Record) -> String {
    let mut text = HEADER.to_owned();
    for (key, lines) in record {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{key} {lines}");
    }
    text
}

fn measure(sources: &[Source]) -> BTreeMap<String, Excess> {
    let mut excesses = BTreeMap::new();
    for source in sources.iter().filter(|source| !source.is_generated()) {
        for excess in measure_one(source) {
            let longest = excesses.get(&excess.key).is_none_or(|known: &Excess| known.lines < excess.lines);
            // Functions of one name in one file share an entry; the longest speaks for them.
            if longest {
                excesses.insert(excess.key.clone(), excess);
            }
        }
    }
    excesses
}

fn measure_one(source: &Source) -> Vec<Excess> {
    let path = &source.path;
    let limit = if source.is_test() { TEST_FILE_LIMIT } else { FILE_LIMIT };
    let lines = source.text.lines().count();
    let mut found = vec![Excess { key: format!("file {path}"), path: path.clone(), line: 1, lines, limit }];
    found.extend(functions(&source.code).into_iter().map(|function| Excess {
        key: format!("fn {path}::{}", function.name),
        path: path.clone(),
        line: function.line,
        lines: function.lines,
        limit: FUNCTION_LIMIT,
    }));
    found.retain(|excess| excess.lines > excess.limit);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function_of(name: &str, lines: usize) -> String {
        format!("fn {name}() {{\n{}}}\n", "    a();\n".repeat(lines - 2))
    }

    fn file_of(path: &str, lines: usize) -> Source {
        Source::new(path, "//! A.\n".repeat(lines))
    }

    fn recorded(entries: &str) -> String {
        format!("{HEADER}{entries}")
    }

    fn check(source: Source, entries: &str, expected: &[&str]) {
        let problems: Vec<String> =
            super::check(&[source], &recorded(entries)).iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), expected.len(), "{problems:?}");
        for (problem, start) in problems.iter().zip(expected) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn files_have_a_limit_and_tests_a_wider_one() {
        check(file_of("crates/a/src/b.rs", 500), "", &[]);
        check(
            file_of("crates/a/src/b.rs", 501),
            "",
            &["crates/a/src/b.rs:1: file of 501 lines, at most 500"],
        );
        check(file_of("crates/a/tests/b.rs", 800), "", &[]);
        check(file_of("crates/a/src/b/tests.rs", 800), "", &[]);
        check(
            file_of("crates/a/tests/b.rs", 801),
            "",
            &["crates/a/tests/b.rs:1: file of 801 lines, at most 800"],
        );
    }

    #[test]
    fn functions_have_a_limit() {
        check(Source::new("a.rs", function_of("b", 70)), "", &[]);
        let text = format!("\n{}", function_of("b", 71));
        check(Source::new("a.rs", text), "", &["a.rs:2: function of 71 lines, at most 70"]);
    }

    #[test]
    fn generated_files_are_as_long_as_they_are() {
        let text = format!("//! @generated by a.\n{}{}", function_of("b", 99), "// c\n".repeat(500));
        check(Source::new("a.rs", text), "", &[]);
    }

    #[test]
    fn what_is_recorded_may_stay_but_not_grow() {
        let entries = "file a.rs 600\nfn a.rs::b 90\n";
        let source = |lines| {
            Source::new("a.rs", format!("{}{}", function_of("b", lines), "// c\n".repeat(600 - lines)))
        };
        check(source(90), entries, &[]);
        check(source(91), entries, &["a.rs:1: function grew from 90 to 91 lines"]);
    }

    #[test]
    fn what_got_shorter_must_be_blessed() {
        let source = || Source::new("a.rs", function_of("b", 80));
        check(source(), "fn a.rs::b 90\n", &["a.rs:1: function fell from 90 to 80 lines"]);
        let gone =
            ["a.rs:1: function of 80 lines", "xtask/ratchet.txt: `fn a.rs::gone` is no longer too long"];
        check(source(), "fn a.rs::gone 90\n", &gone);
    }

    #[test]
    fn bless_lowers_and_removes_only() {
        let text =
            format!("{}{}{}", function_of("fell", 80), function_of("grew", 95), function_of("new", 99));
        let sources = [Source::new("a.rs", text)];
        let before = recorded("fn a.rs::fell 90\nfn a.rs::gone 90\nfn a.rs::grew 90\n");
        assert_eq!(bless(&sources, &before), recorded("fn a.rs::fell 80\nfn a.rs::grew 90\n"));
    }

    #[test]
    fn bless_leaves_a_tidy_record() {
        let sources = [file_of("a.rs", 600), file_of("b.rs", 600)];
        let messy = "# mine\nfile b.rs 600\nfile a.rs 600\n";
        assert_eq!(super::check(&sources, messy).len(), 1);
        let blessed = bless(&sources, messy);
        assert_eq!(super::check(&sources, &blessed), []);
        assert_eq!(bless(&sources, &blessed), blessed);
    }

    #[test]
    fn functions_of_one_name_share_the_longest() {
        let text = format!("{}{}", function_of("b", 75), function_of("b", 72));
        check(Source::new("a.rs", text), "fn a.rs::b 75\n", &[]);
    }

    #[test]
    fn a_record_that_cannot_be_read_is_a_problem() {
        let twice = ["xtask/ratchet.txt:5: `file a.rs` is recorded twice"];
        check(file_of("a.rs", 600), "file a.rs 600\nfile a.rs 700\n", &twice);
        let broken = recorded("file a.rs many\n");
        let problems = super::check(&[], &broken);
        assert!(problems[0].to_string().starts_with("xtask/ratchet.txt:4: not `file <path> <lines>`"));
        assert_eq!(bless(&[], &broken), broken);
    }
}
