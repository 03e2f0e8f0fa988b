//! `cargo xtask tidy`: project rules that the compiler does not check.
//!
//! Each check is a function from text to [`Problem`]s, in the file named after its subject. Checks have no
//! I/O; this file reads their input and prints the problems. Each check has a test in which it fails and one
//! in which it passes.

mod code;
mod cycles;
mod examples;
mod graph;
mod items;
mod layers;
mod links;
mod lints;
mod modules;
mod programs;
mod sources;
mod table;
mod test_files;
mod translations;
mod words;

use std::fmt;

use crate::failure::Failure;
use crate::repo::{Repo, TextFile};

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// A path, `path:line`, or the name of a crate.
    location: String,
    message: String,
}

impl Problem {
    fn new(location: impl Into<String>, message: impl Into<String>) -> Self {
        Self { location: location.into(), message: message.into() }
    }

    fn at(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self::new(format!("{path}:{line}"), message)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.location, self.message)
    }
}

/// A Rust file: its text, and its code without comments and literals.
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

    /// Returns whether a program wrote the file.
    fn is_generated(&self) -> bool {
        self.text.lines().next().is_some_and(|line| line.contains("@generated"))
    }

    /// Returns whether the file is in a `tests/` folder, which contains integration tests.
    fn is_integration_test(&self) -> bool {
        self.path.split('/').any(|part| part == "tests")
    }

    /// Returns whether the file contains only tests.
    fn is_test(&self) -> bool {
        self.is_integration_test() || self.path.ends_with("/tests.rs") || self.path.ends_with("_tests.rs")
    }
}

/// A crate of the workspace.
#[derive(Debug, PartialEq, Eq)]
struct Crate {
    name: String,
    /// Path relative to the root of the repository.
    folder: String,
}

impl Crate {
    /// Returns its folders with a program or a library, usually only `src`.
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
        return Err(Failure::Usage(format!("`tidy` does not accept `{}`", args.join(" "))));
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
            println!("tidy: {} files checked, no problems", sources.len());
            Ok(())
        }
        1 => Err(Failure::Failed("tidy found 1 problem".to_owned())),
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
    problems.extend(graph::check_unused(&metadata, &rows));
    problems.extend(graph::check_lock(&repo.read("Cargo.lock")?));
    problems.extend(sources.iter().flat_map(sources::check));
    problems.extend(sources.iter().flat_map(examples::check));
    let crates = graph::crates(&metadata);
    let workspace = repo.read("Cargo.toml")?;
    for member in &crates {
        let manifest = repo.read(&format!("{}/Cargo.toml", member.folder))?;
        problems.extend(lints::check(member, &manifest, &workspace));
        problems.extend(test_files::check(&member.folder, &manifest, sources));
        if let Some(row) = rows.get(&member.name) {
            let files = modules::files(sources, &format!("{}/src", member.folder));
            problems.extend(layers::check(&member.name, row, &files));
        }
    }
    problems.extend(table::check(&repo.read(table::FILE)?, &rows));
    let documents = documents(repo)?;
    problems.extend(links::check(&documents, &|path| repo.read_if_exists(path)));
    let mut tested = String::new();
    for file in programs::TESTED_FILES {
        tested += &repo.read(file)?;
    }
    problems.extend(programs::check(&documents, &tested));
    problems.extend(translations::check(&documents));
    problems.extend(words::check(sources, &documents));
    Ok(problems)
}

/// Reads the Markdown and Go files of the repository.
fn documents(repo: &Repo) -> Result<Vec<TextFile>, Failure> {
    let mut files = repo.files_under("", "md")?;
    files.extend(repo.files_under("", "go")?);
    Ok(files)
}

/// Returns every cycle between files and between modules, as text.
fn cycles(metadata: &str, sources: &[Source]) -> String {
    let mut report = cycles::Report::default();
    for member in graph::crates(metadata) {
        for tree in member.trees(sources) {
            let part = tree.strip_prefix(&member.folder).filter(|part| *part != "/src").unwrap_or_default();
            report.add(&format!("{}{part}", member.name), &tree, &modules::files(sources, &tree));
        }
    }
    report.finish()
}
