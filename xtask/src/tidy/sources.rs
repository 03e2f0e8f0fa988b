//! Rules on single source files: how long they are, how they begin, and what is not allowed in them.
//!
//! Forbidden words are looked for in code only; comments and messages may have them. What a lint of the compiler or of clippy finds is not checked
//! here.

use super::items::{names, spell_out_imports};
use super::modules::without_tests;
use super::{Problem, Source};

const LIMIT: usize = 500;
/// Tests are lists of cases; length costs the reader less there.
const TEST_LIMIT: usize = 800;

/// What the pure crates must not name, and what to do instead.
const IMPURE: &[(&str, &str)] = &[
    ("Instant::now", "time is a parameter: take `now` from the caller"),
    ("SystemTime::now", "time is a parameter: take `now` from the caller"),
    ("Timestamp::now", "time is a parameter: take `now` from the caller"),
    ("Zoned::now", "time is a parameter: take `now` from the caller"),
    ("std::thread", "a pure crate starts no threads: its caller does, its threaded tests are in tests/"),
    ("thread::spawn", "a pure crate starts no threads: its caller does, its threaded tests are in tests/"),
    ("TcpListener", "a pure crate does no I/O: its caller does"),
    ("TcpStream", "a pure crate does no I/O: its caller does"),
    ("UdpSocket", "a pure crate does no I/O: its caller does"),
    ("std::fs", "a pure crate does no I/O: its caller does"),
];

/// Sources of pure crates. Those of the core are pure with their tests.
const PURE_WITH_TESTS: &str = "crates/informer-core/src/";
const PURE_WITHOUT_TESTS: &str = "crates/informer-objects/src/";

/// The word of [`IMPURE`] that one file may name.
const EXCEPTION: (&str, &str) = {
    // Rules in CEL are read by recursion, on a thread with a large stack that ends with the call.
    ("crates/informer-objects/src/definition/rules/mod.rs", "std::thread")
};

/// What no file may have.
const NOWHERE: &[(&str, &str)] =
    &[("#[ignore", "a test that does not run protects nothing: assert what holds today, or remove it")];

/// What integration tests must not do.
const SLEEPS: &[(&str, &str)] = &[
    ("thread::sleep", "a sleep is slow or flaky: wait for the condition, or pause time and advance it"),
    ("time::sleep", "a sleep is slow or flaky: wait for the condition, or pause time and advance it"),
];

/// Every rule on one file.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    let mut problems = check_opening(source);
    problems.extend(check_length(source));
    problems.extend(check_words(source));
    problems
}

/// Library and program files begin with what they contain.
fn check_opening(source: &Source) -> Vec<Problem> {
    let first = usize::from(source.is_generated());
    let opens = source.text.lines().take(first + 1).any(|line| line.starts_with("//!"));
    if opens || !is_library_file(&source.path) {
        return Vec::new();
    }
    vec![Problem::at(&source.path, 1, "begin with `//!`: what the file contains, and what it does not know")]
}

fn is_library_file(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts[..],
        ["crates" | "bench", _, "src", ..] | ["bench", "peers", _, "src", ..] | ["xtask", "src", ..]
    )
}

fn check_length(source: &Source) -> Option<Problem> {
    let limit = if source.is_test() { TEST_LIMIT } else { LIMIT };
    let lines = source.text.lines().count();
    let what = || format!("file of {lines} lines, at most {limit} are allowed: split it");
    (lines > limit && !source.is_generated()).then(|| Problem::at(&source.path, 1, what()))
}

fn check_words(source: &Source) -> Vec<Problem> {
    let code = spell_out_imports(&source.code);
    let mut problems = find_words(source, &code, NOWHERE);
    if source.is_integration_test() {
        problems.extend(find_words(source, &code, SLEEPS));
    }
    if source.path.starts_with(PURE_WITH_TESTS) {
        problems.extend(find_words(source, &code, IMPURE));
    } else if source.path.starts_with(PURE_WITHOUT_TESTS) && !source.is_test() {
        let code = spell_out_imports(&without_tests(&source.code).0);
        let (path, word) = EXCEPTION;
        let code = if source.path == path { code.replace(word, "") } else { code };
        problems.extend(find_words(source, &code, IMPURE));
    }
    problems
}

fn find_words(source: &Source, code: &str, words: &[(&str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        // One is enough: `std::thread::spawn` breaks the same rule twice.
        if let Some((word, why)) = words.iter().find(|(word, _)| names(text, word)) {
            problems.push(Problem::at(&source.path, line, format!("`{word}`: {why}")));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::Source;

    const CORE: &str = "crates/informer-core/src/a.rs";
    const TEST: &str = "crates/informer/tests/a.rs";

    /// `expected` is what each problem starts with, place first.
    fn check(path: &str, text: &str, expected: &[&str]) {
        let problems: Vec<String> =
            super::check(&Source::new(path, text)).iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), expected.len(), "{text:?}: {problems:?}");
        for (problem, start) in problems.iter().zip(expected) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn library_files_begin_with_what_they_contain() {
        check("crates/a/src/b/c.rs", "//! Says it.\n", &[]);
        check("crates/a/src/b/c.rs", "use d;\n", &["crates/a/src/b/c.rs:1: begin with `//!`"]);
        check("xtask/src/a.rs", "\n//! Late.\n", &["xtask/src/a.rs:1: begin with `//!`"]);
        check("crates/a/tests/b.rs", "use c;\n", &[]);
    }

    #[test]
    fn a_generated_file_may_say_so_first() {
        check("crates/a/src/b.rs", "// @generated by c\n//! Says it.\n", &[]);
        check("crates/a/src/b.rs", "// @generated by c\nuse d;\n", &["crates/a/src/b.rs:1: begin with"]);
    }

    #[test]
    fn no_test_is_ignored() {
        check(
            TEST,
            "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n",
            &["crates/informer/tests/a.rs:2: `#[ignore`"],
        );
        check(TEST, "#[test]\nfn ignore() {}\n", &[]);
    }

    #[test]
    fn the_core_has_no_clock_and_no_io() {
        let place = |line: usize, word: &str| format!("{CORE}:{line}: `{word}`");
        let text = "//! A.\nuse std::{fs, io};\nlet now = Instant::now();\nstd::thread::spawn(a);\nuse std::net::{IpAddr, TcpStream};\n";
        let expected =
            [place(2, "std::fs"), place(3, "Instant::now"), place(4, "std::thread"), place(5, "TcpStream")];
        check(CORE, text, &expected.each_ref().map(String::as_str));
        check("crates/informer/src/a.rs", text, &[]);
    }

    #[test]
    fn the_core_may_talk_about_what_it_must_not_do() {
        check(
            CORE,
            "//! No std::fs here.\nuse std::time::Instant; // not Instant::now\nuse std::net::IpAddr;\n",
            &[],
        );
    }

    #[test]
    fn objects_are_pure_apart_from_their_tests() {
        let path = "crates/informer-objects/src/a.rs";
        let text = "//! A.\nstd::fs::read(b);\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        check(path, text, &["crates/informer-objects/src/a.rs:2: `std::fs`"]);
        check("crates/informer-objects/src/a/tests.rs", "//! A.\nuse std::fs;\n", &[]);
        let text = "//! A.\nstd::thread::scope(b);\n";
        check(path, text, &["crates/informer-objects/src/a.rs:2: `std::thread`"]);
        check(super::EXCEPTION.0, text, &[]);
    }

    #[test]
    fn files_have_a_limit_and_tests_a_wider_one() {
        let lines = |count| "//! A.\n".repeat(count);
        check("crates/a/src/b.rs", &lines(500), &[]);
        let expected = ["crates/a/src/b.rs:1: file of 501 lines, at most 500"];
        check("crates/a/src/b.rs", &lines(501), &expected);
        check("crates/a/src/b/tests.rs", &lines(800), &[]);
        check("crates/a/src/b_tests.rs", &lines(800), &[]);
        let expected = ["crates/a/tests/b.rs:1: file of 801 lines, at most 800"];
        check("crates/a/tests/b.rs", &lines(801), &expected);
        check("crates/a/src/b.rs", &format!("//! @generated by c.\n{}", lines(800)), &[]);
    }

    #[test]
    fn integration_tests_do_not_sleep() {
        let place = "crates/informer/tests/a.rs:1:";
        check(TEST, "std::thread::sleep(a);\n", &[&format!("{place} `thread::sleep`")]);
        check(TEST, "use tokio::time::{Duration, sleep};\n", &[&format!("{place} `time::sleep`")]);
        check(TEST, "tokio::time::sleep_until(a).await;\n", &[]);
        check("crates/informer/src/a.rs", "//! A.\ntokio::time::sleep(a).await;\n", &[]);
    }
}
