//! Dependency cycles between the files of a crate, and between its modules: groups whose members depend on
//! each other, directly or indirectly.
//!
//! Between files, dependencies of `a/mod.rs` on the files below it and back are ignored, because otherwise
//! almost every folder would be a cycle. `lib.rs` and `main.rs` are ignored for the same reason. A path
//! counts as a dependency on the file whose module it names; re-exports in that file are not followed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use super::modules::File;

/// The dependencies of each file or module.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// A report of the cycles of several crates.
#[derive(Default)]
pub(super) struct Report {
    text: String,
    files: usize,
    modules: usize,
}

impl Report {
    /// Adds the cycles of a program or library with its files below `folder`.
    pub(super) fn add(&mut self, name: &str, folder: &str, files: &[File]) {
        self.files += self.add_cycles(&format!("{name}, files"), &between_files(folder, files));
        self.modules += self.add_cycles(&format!("{name}, modules"), &between_modules(files));
    }

    /// Returns the cycles as text; the last line contains their number.
    pub(super) fn finish(self) -> String {
        let Self { text, files, modules } = self;
        format!("{text}cycles: {files} between files, {modules} between modules\n")
    }

    fn add_cycles(&mut self, title: &str, graph: &Graph<'_>) -> usize {
        let cycles = cycles(graph);
        if !cycles.is_empty() {
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "{title}: {}", cycles.len());
        }
        for cycle in &cycles {
            let members: Vec<&str> = cycle.iter().copied().collect();
            let _ = writeln!(self.text, "  {}", members.join(" "));
            let _ = writeln!(self.text, "    {}", round_trip(graph, members[0]).join(" -> "));
        }
        cycles.len()
    }
}

fn between_files<'a>(folder: &str, files: &'a [File]) -> Graph<'a> {
    let short = |file: &'a File| file.path.strip_prefix(folder).unwrap_or(&file.path).trim_start_matches('/');
    let by_module: BTreeMap<&[String], &File> = files.iter().map(|file| (&file.module[..], file)).collect();
    let mut graph = Graph::new();
    for file in files.iter().filter(|file| !file.module.is_empty()) {
        let edges = graph.entry(short(file)).or_default();
        for dependency in &file.dependencies {
            let named =
                (1..=dependency.to.len()).rev().find_map(|length| by_module.get(&dependency.to[..length]));
            let is_unrelated = |other: &&&File| {
                !other.module.starts_with(&file.module) && !file.module.starts_with(&other.module)
            };
            edges.extend(named.filter(is_unrelated).map(|other| short(other)));
        }
    }
    graph
}

fn between_modules(files: &[File]) -> Graph<'_> {
    let modules: BTreeSet<&str> = files.iter().filter_map(File::top).collect();
    let mut graph = Graph::new();
    for (file, from) in files.iter().filter_map(|file| Some((file, file.top()?))) {
        let named =
            file.dependencies.iter().filter_map(|dependency| dependency.to.first()).map(String::as_str);
        graph.entry(from).or_default().extend(named.filter(|to| *to != from && modules.contains(to)));
    }
    graph
}

/// Returns the groups of two or more members, sorted by their first members.
fn cycles<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let reachable_from: Graph<'a> = graph.keys().map(|from| (*from, reachable(graph, from))).collect();
    let mut cycles = Vec::new();
    let mut seen = BTreeSet::new();
    for (from, to) in &reachable_from {
        if to.contains(from) && !seen.contains(from) {
            let cycle: BTreeSet<&str> =
                to.iter().copied().filter(|other| reachable_from[other].contains(from)).collect();
            seen.extend(cycle.iter().copied());
            cycles.push(cycle);
        }
    }
    cycles
}

fn reachable<'a>(graph: &Graph<'a>, from: &str) -> BTreeSet<&'a str> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(at) = next.pop() {
        let new = graph.get(at).into_iter().flatten().filter(|to| found.insert(**to));
        next.extend(new.copied().collect::<Vec<_>>());
    }
    found
}

/// Returns a shortest path from a member of a cycle back to it, including both ends.
fn round_trip<'a>(graph: &Graph<'a>, start: &'a str) -> Vec<&'a str> {
    let mut previous = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for to in graph.get(at).into_iter().flatten() {
            if let std::collections::btree_map::Entry::Vacant(entry) = previous.entry(*to) {
                entry.insert(at);
                next.push_back(to);
            }
        }
    }
    let mut path = vec![start];
    while let Some(before) = previous.get(path[path.len() - 1]) {
        path.push(before);
        if *before == start {
            break;
        }
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::modules::files;
    use super::*;

    fn report(sources: &[(&str, &str)]) -> String {
        let sources: Vec<Source> =
            sources.iter().map(|(path, text)| Source::new(format!("a/src/{path}"), *text)).collect();
        let mut report = Report::default();
        report.add("a", "a/src", &files(&sources, "a/src"));
        report.finish()
    }

    #[test]
    fn cycles_are_printed_with_members_path_and_count() {
        let sources = [
            ("b/mod.rs", ""),
            ("b/one.rs", "use super::two::A;\n"),
            ("b/two.rs", "use crate::c::d::B;\n"),
            ("c/d.rs", "use crate::b::one::C;\nuse crate::e::F;\n"),
            ("e.rs", ""),
        ];
        let expected = "\
a, files: 1
  b/one.rs b/two.rs c/d.rs
    b/one.rs -> b/two.rs -> c/d.rs -> b/one.rs
a, modules: 1
  b c
    b -> c -> b
cycles: 1 between files, 1 between modules
";
        assert_eq!(report(&sources), expected);
    }

    #[test]
    fn folder_and_its_files_are_no_cycle() {
        let sources = [("b/mod.rs", "use self::c::D;\nuse crate::b::c::E;\n"), ("b/c.rs", "use super::F;\n")];
        assert_eq!(report(&sources), "cycles: 0 between files, 0 between modules\n");
        let sources = [("lib.rs", "use crate::b::C;\n"), ("b.rs", "use crate::D;\n")];
        assert_eq!(report(&sources), "cycles: 0 between files, 0 between modules\n");
    }
}
