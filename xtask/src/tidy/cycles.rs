//! Cycles between the files of a crate, and between its modules: groups in which each uses each, by whatever way.
//!
//! Between files, two kinds of arrows are not counted: from `a/mod.rs` to the files below it, which it puts together, and back to it. Otherwise
//! almost every folder would be a cycle. `lib.rs` and `main.rs` are left out for the same reason. A path leads to the file whose module it names;
//! names that this file only hands on are not followed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;

use super::modules::File;

/// Who uses whom.
type Graph<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// The cycles of some crates, as text.
#[derive(Default)]
pub(super) struct Report {
    text: String,
    files: usize,
    modules: usize,
}

impl Report {
    /// Adds the cycles of a program or library whose files are below `folder`.
    pub(super) fn add(&mut self, name: &str, folder: &str, files: &[File]) {
        self.files += self.put(&format!("{name}, files"), &between_files(folder, files));
        self.modules += self.put(&format!("{name}, modules"), &between_modules(files));
    }

    /// The cycles, and a last line with how many there are.
    pub(super) fn finish(self) -> String {
        let Self { text, files, modules } = self;
        format!("{text}cycles: {files} between files, {modules} between modules\n")
    }

    fn put(&mut self, title: &str, graph: &Graph<'_>) -> usize {
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
        for arrow in &file.arrows {
            let named = (1..=arrow.to.len()).rev().find_map(|length| by_module.get(&arrow.to[..length]));
            let apart = |other: &&&File| {
                !other.module.starts_with(&file.module) && !file.module.starts_with(&other.module)
            };
            edges.extend(named.filter(apart).map(|other| short(other)));
        }
    }
    graph
}

fn between_modules(files: &[File]) -> Graph<'_> {
    let modules: BTreeSet<&str> = files.iter().filter_map(File::top).collect();
    let mut graph = Graph::new();
    for (file, from) in files.iter().filter_map(|file| Some((file, file.top()?))) {
        let named = file.arrows.iter().filter_map(|arrow| arrow.to.first()).map(String::as_str);
        graph.entry(from).or_default().extend(named.filter(|to| *to != from && modules.contains(to)));
    }
    graph
}

/// The groups of two and more, in the order of their first members.
fn cycles<'a>(graph: &Graph<'a>) -> Vec<BTreeSet<&'a str>> {
    let reach: Graph<'a> = graph.keys().map(|from| (*from, reachable(graph, from))).collect();
    let mut cycles = Vec::new();
    let mut seen = BTreeSet::new();
    for (from, to) in &reach {
        if to.contains(from) && !seen.contains(from) {
            let cycle: BTreeSet<&str> =
                to.iter().copied().filter(|other| reach[other].contains(from)).collect();
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

/// A shortest way from a member of a cycle back to it, both ends included.
fn round_trip<'a>(graph: &Graph<'a>, start: &'a str) -> Vec<&'a str> {
    let mut came_from = BTreeMap::new();
    let mut next = VecDeque::from([start]);
    while let Some(at) = next.pop_front() {
        for to in graph.get(at).into_iter().flatten() {
            if let std::collections::btree_map::Entry::Vacant(entry) = came_from.entry(*to) {
                entry.insert(at);
                next.push_back(to);
            }
        }
    }
    let mut way = vec![start];
    while let Some(before) = came_from.get(way[way.len() - 1]) {
        way.push(before);
        if *before == start {
            break;
        }
    }
    way.reverse();
    way
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
    fn cycles_have_members_a_way_and_a_count() {
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
    fn a_folder_and_its_parts_are_no_cycle() {
        let sources = [("b/mod.rs", "use self::c::D;\nuse crate::b::c::E;\n"), ("b/c.rs", "use super::F;\n")];
        assert_eq!(report(&sources), "cycles: 0 between files, 0 between modules\n");
        let sources = [("lib.rs", "use crate::b::C;\n"), ("b.rs", "use crate::D;\n")];
        assert_eq!(report(&sources), "cycles: 0 between files, 0 between modules\n");
    }
}
