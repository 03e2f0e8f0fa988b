//! The files of one program or library as modules, and the modules that each of them names.
//!
//! Paths are read as text: `crate::…` and `super::…`, in imports and in code. Code for tests is left out. Works on sources in
//! memory; it does not know which dependencies are allowed.

use super::Source;
use super::items::{item_end, spell_out_imports, words};

/// A file of a program or library, without its tests.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct File {
    /// From the root of the repository.
    pub(super) path: String,
    /// The names of its module below the crate, none for `lib.rs` and `main.rs`.
    pub(super) module: Vec<String>,
    pub(super) arrows: Vec<Arrow>,
}

/// A path that a file names, from the crate's root on.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Arrow {
    pub(super) line: usize,
    pub(super) to: Vec<String>,
}

impl File {
    /// The module of the crate that it belongs to, none for `lib.rs` and `main.rs`.
    pub(super) fn top(&self) -> Option<&str> {
        self.module.first().map(String::as_str)
    }
}

/// The files below `folder`, such as `crates/informer/src`. Files of tests, and modules that are declared for tests or for
/// tests in documentation, are left out.
pub(super) fn files(sources: &[Source], folder: &str) -> Vec<File> {
    let mut files = Vec::new();
    let mut for_tests: Vec<Vec<String>> = Vec::new();
    for source in sources {
        let inside = source.path.strip_prefix(folder).and_then(|path| path.strip_prefix('/'));
        let Some(inside) = inside.filter(|_| !source.is_test()) else { continue };
        let module = module_of(inside);
        let (code, declared) = without_tests(&source.code);
        for_tests.extend(declared.into_iter().map(|name| [module.clone(), vec![name]].concat()));
        let arrows = arrows(&module, &spell_out_imports(&code));
        files.push(File { path: source.path.clone(), module, arrows });
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

/// The code with each item for tests turned into blanks, and the names of the modules among these items.
pub(super) fn without_tests(code: &str) -> (String, Vec<String>) {
    let mut kept = String::with_capacity(code.len());
    let mut modules = Vec::new();
    let mut done = 0;
    for at in words(code, "cfg") {
        let Some(start) = code[..at].rfind("#[").filter(|start| *start >= done) else { continue };
        let Some(length) = code[at..].find(']').filter(|_| code[start + 2..at].trim().is_empty()) else {
            continue;
        };
        let condition = &code[at..at + length];
        let is_for_tests =
            ["cfg(test)", "cfg(doctest)", "cfg(all(test,"].iter().any(|on| condition.starts_with(on));
        let Some(end) = item_end(&code[at + length + 1..]).filter(|_| is_for_tests) else { continue };
        let end = at + length + 1 + end;
        kept.push_str(&code[done..start]);
        kept.extend(code[start..end].matches('\n'));
        let item = &code[at + length + 1..end];
        if let Some((_, name)) = item.split_once("mod ").filter(|_| item.ends_with(';')) {
            modules.push(name.trim_end_matches(';').trim().to_owned());
        }
        done = end;
    }
    kept.push_str(&code[done..]);
    (kept, modules)
}

/// What a file of `module` names in `code`, whose imports are written out.
fn arrows(module: &[String], code: &str) -> Vec<Arrow> {
    let inline: Vec<_> = inline_modules(code);
    let mut arrows = Vec::new();
    for start in ["crate", "super"] {
        for at in words(code, start) {
            let before = code[..at].trim_end();
            let names = path_from(&code[at..]);
            // The middle of a path, or `pub(super)`, or `pub(in crate::model)`.
            if names.len() < 2 || before.ends_with("::") || before.ends_with("(in") {
                continue;
            }
            let nested = inline.iter().filter(|body| body.contains(&at)).count();
            let Some(to) = absolute(module, nested, &names) else { continue };
            let line = code[..at].matches('\n').count() + 1;
            arrows.push(Arrow { line, to });
        }
    }
    arrows.sort_by_key(|arrow| arrow.line);
    arrows
}

/// From the crate's root; `None` if it does not leave the modules that are written in this file.
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

/// The names of the path that `code` begins with.
fn path_from(code: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut rest = code;
    loop {
        let length = rest.find(|c: char| !super::code::is_word(c) && c != '#').unwrap_or(rest.len());
        // A star, a generic argument, or the end.
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

/// The bodies of modules that are written in place.
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

    /// Each file as `module: line>to line>to`.
    fn check(sources: &[(&str, &str)], expected: &[&str]) {
        let sources: Vec<Source> =
            sources.iter().map(|(path, text)| Source::new(format!("crates/a/src/{path}"), *text)).collect();
        let found: Vec<String> = files(&sources, "crates/a/src")
            .iter()
            .map(|file| {
                let arrows =
                    file.arrows.iter().map(|arrow| format!(" {}>{}", arrow.line, arrow.to.join("::")));
                format!("{}:{}", file.module.join("::"), arrows.collect::<String>())
            })
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn files_are_modules() {
        check(&[("lib.rs", ""), ("b.rs", ""), ("b/c.rs", ""), ("d/mod.rs", "")], &[":", "b:", "b::c:", "d:"]);
    }

    #[test]
    fn imports_and_paths_are_arrows() {
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
    fn visibility_is_no_arrow() {
        check(
            &[("b.rs", "pub(super) fn c() {}\npub(in crate::b) fn d() {}\npub(crate) use e::f;\n")],
            &["b:"],
        );
        check(&[("b.rs", "// crate::c::D\nlet e = \"super::f\";\n")], &["b:"]);
    }

    #[test]
    fn a_module_in_place_is_one_level_more() {
        let code = "mod c {\n    use super::D;\n    use super::super::e::F;\n    mod g {\n        use super::super::super::h;\n    }\n}\nuse super::i;\n";
        check(&[("b.rs", code)], &["b: 2>b::D 3>e::F 5>h 8>i"]);
    }

    #[test]
    fn tests_are_left_out() {
        let code = "use crate::c::D;\n#[cfg(test)]\nuse crate::e::F;\n#[cfg(test)]\nmod tests {\n    use crate::g::H;\n}\nuse crate::i::J;\n";
        check(&[("b.rs", code), ("b/tests.rs", "use crate::k;"), ("c_tests.rs", "")], &["b: 1>c::D 8>i::J"]);
        check(&[("b.rs", "#[cfg(all(test, unix))]\npub(crate) fn c() {\n    crate::d::e()\n}\n")], &["b:"]);
        check(&[("b.rs", "#[cfg(any(test, feature = \"c\"))]\nuse crate::d::e;\n")], &["b: 2>d::e"]);
    }

    #[test]
    fn modules_for_tests_are_left_out() {
        let root = "#[cfg(test)]\nmod b;\n#[cfg(doctest)]\nmod c;\npub mod d;\n";
        check(&[("lib.rs", root), ("b/e.rs", ""), ("c.rs", ""), ("d.rs", "")], &[":", "d:"]);
    }
}
