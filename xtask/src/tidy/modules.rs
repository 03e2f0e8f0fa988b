//! The files of one program or library as modules, and the paths that each of them uses.
//!
//! Paths are found in the text: `crate::…` and `super::…`, in imports and in code. Test code is ignored.
//! Works on sources in memory; it does not know which dependencies are allowed.

use super::Source;
use super::items::{expand_imports, item_end, words};

/// A file of a program or library without its tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Path relative to the root of the repository.
    pub(super) path: String,
    /// Module path below the crate; empty for `lib.rs` and `main.rs`.
    pub(super) module: Vec<String>,
    pub(super) dependencies: Vec<Dependency>,
}

/// A path that a file uses, relative to the crate root.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Dependency {
    pub(super) line: usize,
    pub(super) to: Vec<String>,
}

impl File {
    /// Returns the top-level module that the file belongs to; `None` for `lib.rs` and `main.rs`.
    pub(super) fn top(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }
}

/// Returns the files below `folder`, such as `crates/informer/src`, without test files and without modules
/// that are declared only for tests or doctests.
pub(super) fn files(sources: &[Source], folder: &str) -> Vec<File> {
    let mut files = Vec::new();
    let mut for_tests: Vec<Vec<String>> = Vec::new();
    for source in sources {
        let inside = source.path.strip_prefix(folder).and_then(|path| path.strip_prefix('/'));
        let Some(inside) = inside.filter(|_| !source.is_test()) else { continue };
        let module = module_of(inside);
        let (code, declared) = without_tests(&source.code);
        for_tests.extend(declared.into_iter().map(|name| [module.clone(), vec![name]].concat()));
        let dependencies = dependencies(&module, &expand_imports(&code));
        files.push(File { path: source.path.clone(), module, dependencies });
    }
    files.retain(|file| !for_tests.iter().any(|module| file.module.starts_with(module)));
    files
}

fn module_of(path: &str) -> Vec<String> {
    let path = path.strip_suffix(".rs").unwrap_or(path);
    let mut names: Vec<String> = path.split('/').map(str::to_owned).collect();
    let is_root = names.len() == 1 && matches!(names[0].as_str(), "lib" | "main");
    if is_root || names.last().is_some_and(|name| name == "mod") {
        names.pop();
    }
    names
}

/// Removes test items but keeps their line breaks; also returns the names of the modules among them.
pub(super) fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut remaining = String::with_capacity(code.len());
    let mut modules = Vec::new();
    let mut done = 0;
    for at in words(code, "cfg") {
        let Some(start) = code[..at].rfind("#[").filter(|start| *start >= done) else { continue };
        let Some(length) = code[at..].find(']').filter(|_| code[start + 2..at].trim().is_empty()) else {
            continue;
        };
        let condition = &code[at..at + length];
        let is_for_tests =
            ["cfg(test)", "cfg(doctest)", "cfg(all(test,"].iter().any(|start| condition.starts_with(start));
        let Some(end) = item_end(&code[at + length + 1..]).filter(|_| is_for_tests) else { continue };
        let end = at + length + 1 + end;
        remaining.push_str(&code[done..start]);
        remaining.extend(code[start..end].matches('\n'));
        let item = &code[at + length + 1..end];
        if let Some((_, name)) = item.split_once("mod ").filter(|_| item.ends_with(';')) {
            modules.push(name.trim_end_matches(';').trim().to_owned());
        }
        done = end;
    }
    remaining.push_str(&code[done..]);
    (remaining, modules)
}

/// Returns the paths that a file of `module` uses; the imports in `code` are expanded.
fn dependencies(module: &[String], code: &str) -> Vec<Dependency> {
    let inline: Vec<_> = inline_modules(code);
    let mut dependencies = Vec::new();
    for start in ["crate", "super"] {
        for at in words(code, start) {
            let before = code[..at].trim_end();
            let names = path_from(&code[at..]);
            // Not the middle of a path, `pub(super)` or `pub(in crate::model)`.
            if names.len() < 2 || before.ends_with("::") || before.ends_with("(in") {
                continue;
            }
            let nested = inline.iter().filter(|body| body.contains(&at)).count();
            let Some(to) = absolute(module, nested, &names) else { continue };
            let line = code[..at].matches('\n').count() + 1;
            dependencies.push(Dependency { line, to });
        }
    }
    dependencies.sort_by_key(|dependency| dependency.line);
    dependencies
}

/// Resolves a path to the crate root; `None` if it stays inside the inline modules of this file.
fn absolute(module: &[String], nested: usize, names: &[&str]) -> Option<Vec<String>> {
    let ups = names.iter().take_while(|name| **name == "super").count();
    let base = if names[0] == "crate" {
        &[][..]
    } else {
        &module[..module.len().checked_sub(ups.checked_sub(nested)?)?]
    };
    let below = names.iter().filter(|name| !matches!(**name, "crate" | "super" | "self"));
    let below = below.map(|name| name.trim_start_matches("r#").to_owned());
    Some(base.iter().cloned().chain(below).collect())
}

/// Returns the names of the path at the start of `code`.
fn path_from(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = code;
    loop {
        let length = rest.find(|c: char| !super::code::is_word(c) && c != '#').unwrap_or(rest.len());
        // `*`, a generic argument, or the end.
        if length == 0 {
            names.extend(rest.starts_with('*').then_some("*"));
            return names;
        }
        names.push(&rest[..length]);
        match rest[length..].trim_start().strip_prefix("::") {
            Some(after) => rest = after.trim_start(),
            None => return names,
        }
    }
}

/// Returns the ranges of inline modules.
fn inline_modules(code: &str) -> Vec<std::ops::Range<usize>> {
    let body = |at| {
        let end = at + item_end(&code[at..])?;
        code[at..end].ends_with('}').then_some(at..end)
    };
    words(code, "mod").filter_map(body).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the files, each formatted as `module: line>to line>to`.
    fn check(sources: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<Source> =
            sources.iter().map(|(path, text)| Source::new(format!("crates/a/src/{path}"), *text)).collect();
        let found: Vec<String> = files(&sources, "crates/a/src")
            .iter()
            .map(|file| {
                let used =
                    file.dependencies.iter().map(|path| format!(" {}>{}", path.line, path.to.join("::")));
                format!("{}:{}", file.module.join("::"), used.collect::<String>())
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn files_are_modules() {
        check(&[("lib.rs", ""), ("b.rs", ""), ("b/c.rs", ""), ("d/mod.rs", "")], &[":", "b:", "b::c:", "d:"]);
    }

    #[test]
    fn imports_and_paths_are_dependencies() {
        let code = "use crate::c::{D, e::F};\nuse super::g;\nfn h() {\n    crate::i::j::<crate::k::L>()\n}\nuse self::m::N;\n";
        check(&[("b.rs", code)], &["b: 1>c::D 1>c::e::F 2>g 4>i::j 4>k::L"]);
        check(
            &[("b/c.rs", "use super::d;\nuse super::super::e::f;\nuse super::*;\n")],
            &["b::c: 1>b::d 2>e::f 3>b::*"],
        );
        check(
            &[("b.rs", "macro_rules! a { () => { $crate::c::D } }\nuse crate::r#e::{self};\n")],
            &["b: 1>c::D 2>e"],
        );
    }

    #[test]
    fn visibility_is_no_dependency() {
        check(
            &[("b.rs", "pub(super) fn c() {}\npub(in crate::b) fn d() {}\npub(crate) use e::f;\n")],
            &["b:"],
        );
        check(&[("b.rs", "// crate::c::D\nlet e = \"super::f\";\n")], &["b:"]);
    }

    #[test]
    fn inline_module_adds_a_level() {
        let code = "mod c {\n    use super::D;\n    use super::super::e::F;\n    mod g {\n        use super::super::super::h;\n    }\n}\nuse super::i;\n";
        check(&[("b.rs", code)], &["b: 2>b::D 3>e::F 5>h 8>i"]);
    }

    #[test]
    fn tests_are_ignored() {
        let code = "use crate::c::D;\n#[cfg(test)]\nuse crate::e::F;\n#[cfg(test)]\nmod tests {\n    use crate::g::H;\n}\nuse crate::i::J;\n";
        check(&[("b.rs", code), ("b/tests.rs", "use crate::k;"), ("c_tests.rs", "")], &["b: 1>c::D 8>i::J"]);
        check(&[("b.rs", "#[cfg(all(test, unix))]\npub(crate) fn c() {\n    crate::d::e()\n}\n")], &["b:"]);
        check(&[("b.rs", "#[cfg(any(test, feature = \"c\"))]\nuse crate::d::e;\n")], &["b: 2>d::e"]);
    }

    #[test]
    fn test_modules_are_ignored() {
        let root = "#[cfg(test)]\nmod b;\n#[cfg(doctest)]\nmod c;\npub mod d;\n";
        check(&[("lib.rs", root), ("b/e.rs", ""), ("c.rs", ""), ("d.rs", "")], &[":", "d:"]);
    }
}
