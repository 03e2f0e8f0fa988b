//! `cargo xtask tidy`: the house rules that a compiler does not know, checked by code.
//!
//! Each rule is a function from text to [`Problem`]s, in the file that names its subject; this file feeds them
//! and prints what they say. A rule does no I/O, so each has a test that it can fail and one that it passes.

mod code;
mod cycles;
mod graph;
mod items;
mod layers;
mod modules;
mod sources;
mod table;

use std::fmt;

use crate::failure::Failure;
use crate::repo::Repo;

/// Something to mend, and where.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// A path, `path:line`, or a crate.
    place: String,
    what: String,
}

impl Problem {
    fn new(place: impl Into<String>, what: impl Into<String>) -> Self {
        Self { place: place.into(), what: what.into() }
    }

    fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self::new(format!("{path}:{line}"), what)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
    }
}

/// A Rust file: what was written, and the code in it without comments and literals.
struct Source {
    path: String,
    text: String,
    code: String,
}

impl Source {
    fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let code = code::code_only(&text);
        Self { path, text, code }
    }

    /// Written by a program: its length is not chosen.
    fn is_generated(&self) -> bool {
        self.text.lines().next().is_some_and(|line| line.contains("@generated"))
    }

    /// Under a `tests/` folder, where integration tests live.
    fn is_integration_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests")
    }

    /// Tests only, wherever they live.
    fn is_test(&self) -> bool {
        self.is_integration_test() || self.path.ends_with("/tests.rs") || self.path.ends_with("_tests.rs")
    }
}

/// One of our crates.
#[derive(Debug, PartialEq, Eq)]
struct Crate {
    name: String,
    /// From the root of the repository.
    folder: String,
}

impl Crate {
    /// The folders in it that hold a program or a library, mostly `src`.
    fn trees(&self, sources: &[Source]) -> Vec<String> {
        let tree = |source: &Source| {
            let inside = source.path.strip_prefix(&self.folder)?.strip_prefix('/')?;
            let (tree, file) = inside.split_once('/')?;
            matches!(file, "lib.rs" | "main.rs").then(|| format!("{}/{tree}", self.folder))
        };
        let mut trees: Vec<String> = sources.iter().filter_map(tree).collect();
        trees.dedup();
        trees
    }
}

pub(crate) fn run(repo: &Repo, args: &[String]) -> Result<(), Failure> {
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    if !matches!(args[..], [] | ["--cycles"]) {
        return Err(Failure::Usage(format!("`tidy` does not take `{}`", args.join(" "))));
    }
    let files = repo.rust_files()?;
    let sources: Vec<Source> = files.into_iter().map(|file| Source::new(file.path, file.text)).collect();
    if args == ["--cycles"] {
        print!("{}", cycles(&metadata(repo)?, &sources));
        return Ok(());
    }
    let problems = check(repo, &sources)?;
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: {} files in order", sources.len());
            Ok(())
        }
        1 => Err(Failure::Failed("tidy found a problem".to_owned())),
        count => Err(Failure::Failed(format!("tidy found {count} problems"))),
    }
}

fn metadata(repo: &Repo) -> Result<String, Failure> {
    repo.cargo_output(&["metadata", "--format-version", "1", "--no-deps"])
}

fn check(repo: &Repo, sources: &[Source]) -> Result<Vec<Problem>, Failure> {
    let metadata = metadata(repo)?;
    let (rows, mut problems) = layers::parse(&repo.read(layers::FILE)?);
    problems.extend(graph::check_edges(&metadata, &rows));
    problems.extend(graph::check_lock(&repo.read("Cargo.lock")?));
    problems.extend(sources.iter().flat_map(sources::check));
    let crates = graph::crates(&metadata);
    let files = |one: &Crate| modules::files(sources, &format!("{}/src", one.folder));
    for one in &crates {
        if let Some(row) = rows.get(&one.name) {
            problems.extend(layers::check(&one.name, row, &files(one)));
        }
    }
    problems.extend(table::check(&repo.read(table::FILE)?, &rows));
    Ok(problems)
}

/// Every cycle between files and between modules, as text.
fn cycles(metadata: &str, sources: &[Source]) -> String {
    let mut report = cycles::Report::default();
    for one in graph::crates(metadata) {
        for tree in one.trees(sources) {
            let part = tree.strip_prefix(&one.folder).filter(|part| *part != "/src").unwrap_or_default();
            report.add(&format!("{}{part}", one.name), &tree, &modules::files(sources, &tree));
        }
    }
    report.finish()
}
