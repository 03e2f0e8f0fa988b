//! Checks of single source files: their length, their first line, and paths that they must not use.
//!
//! Forbidden paths are searched in code only; comments and messages may contain them. Nothing is checked that
//! a lint of the compiler or of clippy finds.

use super::items::{expand_imports, names};
use super::modules::without_tests;
use super::{Problem, Source};

/// Upper bound on the lines of a file.
const MAX_LINES: usize = 500;
/// Upper bound on the lines of a test file, which is a list of cases and easier to read.
const MAX_TEST_LINES: usize = 800;

/// Paths that pure crates must not use, and the alternatives.
const IMPURE: &[(&str, &str)] = &[
    ("Instant::now", "time is a parameter: take `now` from the caller"),
    ("SystemTime::now", "time is a parameter: take `now` from the caller"),
    ("Timestamp::now", "time is a parameter: take `now` from the caller"),
    ("Zoned::now", "time is a parameter: take `now` from the caller"),
    (
        "std::thread",
        "a pure crate starts no threads: let the caller start them, and put tests with threads in tests/",
    ),
    (
        "thread::spawn",
        "a pure crate starts no threads: let the caller start them, and put tests with threads in tests/",
    ),
    ("TcpListener", "a pure crate has no I/O: let the caller do it"),
    ("TcpStream", "a pure crate has no I/O: let the caller do it"),
    ("UdpSocket", "a pure crate has no I/O: let the caller do it"),
    ("std::fs", "a pure crate has no I/O: let the caller do it"),
];

/// Sources of a pure crate whose tests are pure too.
const PURE_WITH_TESTS: &str = "crates/informer-core/src/";
/// Sources of a pure crate whose tests may use I/O.
const PURE_WITHOUT_TESTS: &str = "crates/informer-objects/src/";

/// The only exception from [`IMPURE`]: a file and the path that it may use.
const EXCEPTION: (&str, &str) = {
    // CEL rules are parsed recursively, on a thread with a large stack that ends with the call.
    ("crates/informer-objects/src/definition/rules/mod.rs", "std::thread")
};

/// Text that no file may contain.
const FORBIDDEN: &[(&str, &str)] =
    &[("#[ignore", "an ignored test checks nothing: assert the current behaviour, or remove it")];

/// Paths that integration tests must not use.
const SLEEPS: &[(&str, &str)] = &[
    ("thread::sleep", "a sleep is slow or flaky: wait for the condition, or pause time and advance it"),
    ("time::sleep", "a sleep is slow or flaky: wait for the condition, or pause time and advance it"),
];

/// The exceptions from [`SLEEPS`]: a test that a simulated thread does not sleep, and programs in simulations, which
/// sleep in virtual time.
const MAY_SLEEP: [&str; 2] = ["crates/informer-virtual/tests/sleep.rs", "crates/informer-testkit/tests/"];

/// Runs every check on one file.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    let mut problems = check_opening(source);
    problems.extend(check_length(source));
    problems.extend(check_paths(source));
    problems
}

/// Checks that library and program files start with a description of their contents.
fn check_opening(source: &Source) -> Vec<Problem> {
    let first = usize::from(source.is_generated());
    let has_header = source.text.lines().take(first + 1).any(|line| line.starts_with("//!"));
    if has_header || !is_library_file(&source.path) {
        return Vec::new();
    }
    vec![Problem::at(&source.path, 1, "start with `//!`: what the file contains, and what it must not know")]
}

fn is_library_file(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts[..],
        ["crates" | "bench", _, "src", ..] | ["bench", "peers", _, "src", ..] | ["xtask", "src", ..]
    )
}

fn check_length(source: &Source) -> Option<Problem> {
    let limit = if source.is_test() { MAX_TEST_LINES } else { MAX_LINES };
    let lines = source.text.lines().count();
    let what = || format!("the file has {lines} lines, at most {limit} are allowed (split it)");
    (lines > limit && !source.is_generated()).then(|| Problem::at(&source.path, 1, what()))
}

fn check_paths(source: &Source) -> Vec<Problem> {
    let code = expand_imports(&source.code);
    let mut problems = find_paths(source, &code, FORBIDDEN);
    if source.is_integration_test() && !MAY_SLEEP.iter().any(|path| source.path.starts_with(path)) {
        problems.extend(find_paths(source, &code, SLEEPS));
    }
    if source.path.starts_with(PURE_WITH_TESTS) {
        problems.extend(find_paths(source, &code, IMPURE));
    } else if source.path.starts_with(PURE_WITHOUT_TESTS) && !source.is_test() {
        let code = expand_imports(&without_tests(&source.code).0);
        let (file, path) = EXCEPTION;
        let code = if source.path == file { code.replace(path, "") } else { code };
        problems.extend(find_paths(source, &code, IMPURE));
    }
    problems
}

fn find_paths(source: &Source, code: &str, paths: &[(&str, &str)]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        // One finding per line: `std::thread::spawn` matches two paths.
        if let Some((path, reason)) = paths.iter().find(|(path, _)| names(text, path)) {
            problems.push(Problem::at(&source.path, line, format!("`{path}`: {reason}")));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::Source;

    const CORE: &str = "crates/informer-core/src/a.rs";
    const TEST: &str = "crates/informer/tests/a.rs";

    /// Compares the start of each problem.
    fn check(path: &str, text: &str, expected: &[&str]) {
        let problems: Vec<String> =
            super::check(&Source::new(path, text)).iter().map(ToString::to_string).collect();
        assert_eq!(problems.len(), expected.len(), "{text:?}: {problems:?}");
        for (problem, start) in problems.iter().zip(expected) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn library_file_without_header_fails() {
        check("crates/a/src/b/c.rs", "//! Contents.\n", &[]);
        check("crates/a/src/b/c.rs", "use d;\n", &["crates/a/src/b/c.rs:1: start with `//!`"]);
        check("xtask/src/a.rs", "\n//! Contents.\n", &["xtask/src/a.rs:1: start with `//!`"]);
        check("crates/a/tests/b.rs", "use c;\n", &[]);
    }

    #[test]
    fn generated_file_may_start_with_a_marker() {
        check("crates/a/src/b.rs", "// @generated by c\n//! Contents.\n", &[]);
        check("crates/a/src/b.rs", "// @generated by c\nuse d;\n", &["crates/a/src/b.rs:1: start with"]);
    }

    #[test]
    fn ignored_test_fails() {
        check(
            TEST,
            "#[test]\n#[ignore = \"slow\"]\nfn a() {}\n",
            &["crates/informer/tests/a.rs:2: `#[ignore`"],
        );
        check(TEST, "#[test]\nfn ignore() {}\n", &[]);
    }

    #[test]
    fn clock_and_io_in_core_fail() {
        let finding = |line: usize, path: &str| format!("{CORE}:{line}: `{path}`");
        let text = "//! A.\nuse std::{fs, io};\nlet now = Instant::now();\nstd::thread::spawn(a);\nuse std::net::{IpAddr, TcpStream};\n";
        let expected = [
            finding(2, "std::fs"),
            finding(3, "Instant::now"),
            finding(4, "std::thread"),
            finding(5, "TcpStream"),
        ];
        check(CORE, text, &expected.each_ref().map(String::as_str));
        check("crates/informer/src/a.rs", text, &[]);
    }

    #[test]
    fn forbidden_paths_in_comments_pass() {
        check(
            CORE,
            "//! No std::fs here.\nuse std::time::Instant; // not Instant::now\nuse std::net::IpAddr;\n",
            &[],
        );
    }

    #[test]
    fn io_in_tests_of_objects_passes() {
        let path = "crates/informer-objects/src/a.rs";
        let text = "//! A.\nstd::fs::read(b);\n#[cfg(test)]\nmod tests {\n    use std::fs;\n}\n";
        check(path, text, &["crates/informer-objects/src/a.rs:2: `std::fs`"]);
        check("crates/informer-objects/src/a/tests.rs", "//! A.\nuse std::fs;\n", &[]);
        let text = "//! A.\nstd::thread::scope(b);\n";
        check(path, text, &["crates/informer-objects/src/a.rs:2: `std::thread`"]);
        check(super::EXCEPTION.0, text, &[]);
    }

    #[test]
    fn too_long_file_fails() {
        let lines = |count| "//! A.\n".repeat(count);
        check("crates/a/src/b.rs", &lines(500), &[]);
        let expected = ["crates/a/src/b.rs:1: the file has 501 lines, at most 500"];
        check("crates/a/src/b.rs", &lines(501), &expected);
        check("crates/a/src/b/tests.rs", &lines(800), &[]);
        check("crates/a/src/b_tests.rs", &lines(800), &[]);
        let expected = ["crates/a/tests/b.rs:1: the file has 801 lines, at most 800"];
        check("crates/a/tests/b.rs", &lines(801), &expected);
        check("crates/a/src/b.rs", &format!("//! @generated by c.\n{}", lines(800)), &[]);
    }

    #[test]
    fn sleep_in_integration_test_fails() {
        let place = "crates/informer/tests/a.rs:1:";
        check(TEST, "std::thread::sleep(a);\n", &[&format!("{place} `thread::sleep`")]);
        check(TEST, "use tokio::time::{Duration, sleep};\n", &[&format!("{place} `time::sleep`")]);
        check(TEST, "tokio::time::sleep_until(a).await;\n", &[]);
        check("crates/informer/src/a.rs", "//! A.\ntokio::time::sleep(a).await;\n", &[]);
        check(super::MAY_SLEEP[0], "std::thread::sleep(a);\n", &[]);
    }
}
