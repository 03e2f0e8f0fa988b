//! Rules on single source files: how they open, what they must not say, and what the core must not do.
//!
//! Forbidden words are looked for in code only; in a comment or a message they are free.

use super::items::{names, spell_out_imports};
use super::{Problem, Source};

/// What the core must not name, and what to do instead.
const IMPURE: &[(&str, &str)] = &[
    ("tokio::", "the core knows no runtime: drive it from `informer`"),
    ("kube::", "the core knows no client: requests are outputs, responses are inputs"),
    ("Instant::now", "time is a parameter: take `now` from the caller"),
    ("SystemTime::now", "time is a parameter: take `now` from the caller"),
    ("Timestamp::now", "time is a parameter: take `now` from the caller"),
    ("Zoned::now", "time is a parameter: take `now` from the caller"),
    ("std::thread", "the core starts no threads: its driver does, its threaded tests live in tests/"),
    ("thread::spawn", "the core starts no threads: its driver does, its threaded tests live in tests/"),
    ("std::net", "the core does no I/O: its driver does"),
    ("std::fs", "the core does no I/O: its driver does, its tests that read files live in tests/"),
    ("rand::", "randomness is a seed: take it from the caller"),
];

/// What no file of ours may say.
const UNFINISHED: &[(&str, &str)] = &[
    ("todo!", "finish it, or return an error that says what is not supported"),
    ("unimplemented!", "finish it, or return an error that says what is not supported"),
    ("dbg!", "a leftover of debugging: remove it"),
    ("#[ignore", "a test that does not run protects nothing: assert what holds today, or remove it"),
];

/// What integration tests must not do.
const SLEEPS: &[(&str, &str)] = &[
    ("thread::sleep", "a sleep is slow or flaky: wait for the condition, or pause time and advance it"),
    ("time::sleep", "a sleep is slow or flaky: wait for the condition, or pause time and advance it"),
];

/// Every rule on one file.
pub(super) fn check(source: &Source) -> Vec<Problem> {
    let mut problems = check_opening(source);
    problems.extend(check_whitespace(source));
    problems.extend(check_words(source));
    problems
}

/// Library and program files say first what they hold.
fn check_opening(source: &Source) -> Vec<Problem> {
    let first = usize::from(source.is_generated());
    let opens = source.text.lines().take(first + 1).any(|line| line.starts_with("//!"));
    if opens || !is_library_file(&source.path) {
        return Vec::new();
    }
    vec![Problem::at(&source.path, 1, "open with `//!`: what the file holds, and what it does not know")]
}

fn is_library_file(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts[..], ["crates", _, "src", ..] | ["xtask", "src", ..])
}

fn check_whitespace(source: &Source) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(source.text.split('\n')) {
        if text.contains('\t') {
            problems.push(Problem::at(
                &source.path,
                line,
                "a tab: indent with blanks, write `\\t` in strings",
            ));
        } else if text.ends_with(char::is_whitespace) {
            problems.push(Problem::at(&source.path, line, "blanks at the end of the line"));
        }
    }
    if !source.text.ends_with('\n') {
        let last = source.text.lines().count().max(1);
        problems.push(Problem::at(&source.path, last, "no newline at the end of the file"));
    }
    problems
}

fn check_words(source: &Source) -> Vec<Problem> {
    let mut rules = vec![UNFINISHED];
    if source.path.starts_with("crates/informer-core/src/") {
        rules.push(IMPURE);
    }
    if source.is_integration_test() {
        rules.push(SLEEPS);
    }
    let code = spell_out_imports(&source.code);
    let mut problems = Vec::new();
    for (line, text) in (1..).zip(code.lines()) {
        for rule in &rules {
            // One is enough: `std::thread::spawn` breaks the same rule twice.
            if let Some((word, why)) = rule.iter().find(|(word, _)| names(text, word)) {
                problems.push(Problem::at(&source.path, line, format!("`{word}`: {why}")));
            }
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
    fn library_files_open_with_what_they_hold() {
        check("crates/a/src/b/c.rs", "//! Says it.\n", &[]);
        check("crates/a/src/b/c.rs", "use d;\n", &["crates/a/src/b/c.rs:1: open with `//!`"]);
        check("xtask/src/a.rs", "\n//! Late.\n", &["xtask/src/a.rs:1: open with `//!`"]);
        check("crates/a/tests/b.rs", "use c;\n", &[]);
    }

    #[test]
    fn a_generated_file_may_say_so_first() {
        check("crates/a/src/b.rs", "// @generated by c\n//! Says it.\n", &[]);
        check("crates/a/src/b.rs", "// @generated by c\nuse d;\n", &["crates/a/src/b.rs:1: open with"]);
    }

    #[test]
    fn whitespace_is_plain() {
        check("examples/a.rs", "a\n\n    b\n", &[]);
        check("examples/a.rs", "a \n\tb\n", &["examples/a.rs:1: blanks", "examples/a.rs:2: a tab"]);
        check("examples/a.rs", "a\r\n", &["examples/a.rs:1: blanks"]);
        check("examples/a.rs", "a\nb", &["examples/a.rs:2: no newline"]);
        check("examples/a.rs", "", &["examples/a.rs:1: no newline"]);
    }

    #[test]
    fn nothing_is_left_unfinished() {
        let text = "fn a() {\n    todo!()\n}\nfn b() {\n    dbg!(unimplemented!())\n}\n";
        check("examples/a.rs", text, &["examples/a.rs:2: `todo!`", "examples/a.rs:5: `unimplemented!`"]);
        check("examples/a.rs", "// todo! later\nfn a(b: &str) {\n    c(\"dbg!\")\n}\n", &[]);
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
    fn the_core_has_no_clock_io_or_chance() {
        let place = |line: usize, word: &str| format!("{CORE}:{line}: `{word}`");
        let text = "//! A.\nuse std::{fs, io};\nlet now = Instant::now();\nstd::thread::spawn(a);\nrand::random();\n";
        let expected =
            [place(2, "std::fs"), place(3, "Instant::now"), place(4, "std::thread"), place(5, "rand::")];
        check(CORE, text, &expected.each_ref().map(String::as_str));
        check("crates/informer/src/a.rs", text, &[]);
    }

    #[test]
    fn the_core_may_talk_about_what_it_must_not_do() {
        check(
            CORE,
            "//! No tokio::time here.\nuse std::time::Instant; // not Instant::now\noperand::new();\n",
            &[],
        );
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
