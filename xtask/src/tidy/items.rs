//! What the rules look for in code: paths by name, imports one by one, and where an item ends.
//!
//! Works on the text [`super::code::code_only`] leaves; it knows tokens, not meaning, so a renamed import
//! (`use std::fs as disk`) is seen where it is imported and not where it is used.

use super::code::is_word;

/// Whether `path` is named in `code`, as whole words: `rand::` is not in `operand::`.
pub(super) fn names(code: &str, path: &str) -> bool {
    words(code, path).next().is_some()
}

/// `code` with each braced import written out, on the line it begins: `use a::{b, c};` as `use a::b; use a::c;`.
///
/// Without this, `use std::{fs, io}` would hide `std::fs` from a search.
pub(super) fn spell_out_imports(code: &str) -> String {
    let mut spelt = String::with_capacity(code.len());
    let mut done = 0;
    for at in words(code, "use") {
        let tree = &code[at + "use".len()..];
        // Not `use<'a>`, the bound.
        if at < done || !tree.starts_with(char::is_whitespace) {
            continue;
        }
        let Some(tree) = tree.split(';').next().filter(|tree| tree.contains('{')) else { continue };
        spelt.push_str(&code[done..at]);
        for path in leaves("", tree) {
            spelt.push_str("use ");
            spelt.push_str(&path);
            spelt.push_str("; ");
        }
        spelt.extend(tree.matches('\n'));
        done = (at + "use".len() + tree.len() + 1).min(code.len());
    }
    spelt.push_str(&code[done..]);
    spelt
}

/// The paths of an import tree, each with `prefix` before it.
fn leaves(prefix: &str, tree: &str) -> Vec<String> {
    let tree = tree.trim();
    let Some((stem, branches)) = tree.split_once('{') else {
        return if tree.is_empty() { Vec::new() } else { vec![format!("{prefix}{tree}")] };
    };
    let prefix = format!("{prefix}{}", stem.trim());
    let branches = branches.rsplit_once('}').map_or(branches, |(inside, _)| inside);
    let mut depth = 0_usize;
    let at_top_comma = |c: char| {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    branches.split(at_top_comma).flat_map(|branch| leaves(&prefix, branch)).collect()
}

/// Where `word` stands in `code` without running into a longer word on either side.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let touches =
        |outer: Option<char>, inner: Option<char>| outer.is_some_and(is_word) && inner.is_some_and(is_word);
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !touches(before, word.chars().next()) && !touches(after, word.chars().next_back())
    })
}

/// Words that begin an item, after its attributes and visibility.
const ITEMS: &[&str] = &[
    "async", "const", "enum", "extern", "fn", "impl", "mod", "static", "struct", "trait", "type", "unsafe",
    "use",
];

/// Where the item ends that `code` begins with, its last brace or semicolon included; `None` if it begins with something else.
pub(super) fn item_end(code: &str) -> Option<usize> {
    let mut rest = code.trim_start();
    while let Some(attribute) = rest.strip_prefix("#[") {
        rest = attribute[attribute.find(']')? + 1..].trim_start();
    }
    if let Some(after) = rest.strip_prefix("pub") {
        let after = after.trim_start();
        let visibility = if after.starts_with('(') { after.find(')')? + 1 } else { 0 };
        rest = after[visibility..].trim_start();
    }
    let word = &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())];
    if !ITEMS.contains(&word) {
        return None;
    }
    let start = code.len() - rest.len();
    body_end(rest).map(|end| start + end + 1)
}

/// Where the first semicolon stands that is in no bracket, or the first brace that leaves nothing open.
fn body_end(code: &str) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            '{' => braces += 1,
            '}' => {
                braces -= 1;
                if braces == 0 && brackets == 0 {
                    return Some(at);
                }
            }
            // `[u8; 4]` in a signature is no end.
            ';' if braces == 0 && brackets == 0 => return Some(at),
            _ => {}
        }
        if braces < 0 || brackets < 0 {
            return None;
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left behind the first item.
    fn check_item(code: &str, rest: Option<&str>) {
        assert_eq!(item_end(code).map(|end| &code[end..]), rest, "{code:?}");
    }

    #[test]
    fn items_end_with_a_brace_or_a_semicolon() {
        check_item("mod a;\nb", Some("\nb"));
        check_item("\npub(crate) mod a { fn b() {} } c", Some(" c"));
        check_item("#[a(b)]\npub use c::{d, e};", Some(";"));
        check_item("fn a(b: [u8; 4], c: [u8; { N }]) -> D where E: F { g } h", Some(" h"));
    }

    #[test]
    fn what_is_no_item_has_no_end() {
        check_item("field: Type,\n}", None);
        check_item("a();", None);
        check_item("mod a {", None);
    }

    #[test]
    fn names_are_whole_words() {
        assert!(names("let a = rand::random();", "rand::"));
        assert!(names("use std::fs;", "std::fs"));
        assert!(names("todo!()", "todo!"));
        assert!(!names("operand::new()", "rand::"));
        assert!(!names("std::fs_like()", "std::fs"));
        assert!(!names("my_todo!()", "todo!"));
    }

    #[test]
    fn braced_imports_are_spelt_out_in_place() {
        let spelt = spell_out_imports("use a::{b, c::{d, e as f},};\nlet g;");
        assert_eq!(spelt, "use a::b; use a::c::d; use a::c::e as f; \nlet g;");
        assert_eq!(spell_out_imports("use a::{\n    b,\n};\nc"), "use a::b; \n\n\nc");
        assert_eq!(spell_out_imports("pub(crate) use {a::b, c};"), "pub(crate) use a::b; use c; ");
    }

    #[test]
    fn other_code_is_left_alone() {
        for code in ["use a::b;", "fn a() -> impl B + use<'_> { c }", "let used = { 1 };"] {
            assert_eq!(spell_out_imports(code), code);
        }
    }
}
