//! Searches in code: paths by name, expanded imports, and the end of an item.
//!
//! Works on the output of [`super::code::code_only`]. It knows tokens and not their meaning: a renamed import
//! (`use std::fs as disk`) is found where it is imported and not where it is used.

use super::code::is_word;

/// Returns whether `code` contains `path` as whole words: `operand::` does not contain `rand::`.
pub(super) fn names(code: &str, path: &str) -> bool {
    words(code, path).next().is_some()
}

/// Expands each braced import on its first line: `use a::{b, c};` becomes `use a::b; use a::c;`.
///
/// Without this, a search would not find `std::fs` in `use std::{fs, io}`.
pub(super) fn expand_imports(code: &str) -> String {
    let mut expanded = String::with_capacity(code.len());
    let mut done = 0;
    for at in words(code, "use") {
        let tree = &code[at + "use".len()..];
        // `use<'a>` is a bound.
        if at < done || !tree.starts_with(char::is_whitespace) {
            continue;
        }
        let Some(tree) = tree.split(';').next().filter(|tree| tree.contains('{')) else { continue };
        expanded.push_str(&code[done..at]);
        for path in leaves("", tree) {
            expanded.push_str("use ");
            expanded.push_str(&path);
            expanded.push_str("; ");
        }
        expanded.extend(tree.matches('\n'));
        done = (at + "use".len() + tree.len() + 1).min(code.len());
    }
    expanded.push_str(&code[done..]);
    expanded
}

/// Returns the paths of an import tree, each prefixed with `prefix`.
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

/// Returns the offsets of `word` in `code` where it is not part of a longer word.
pub(super) fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_joined =
        |outer: Option<char>, inner: Option<char>| outer.is_some_and(is_word) && inner.is_some_and(is_word);
    code.match_indices(word).map(|(at, _)| at).filter(move |at| {
        let before = code[..*at].chars().next_back();
        let after = code[at + word.len()..].chars().next();
        !is_joined(before, word.chars().next()) && !is_joined(after, word.chars().next_back())
    })
}

/// Keywords at the start of an item, after its attributes and visibility.
const ITEMS: &[&str] = &[
    "async", "const", "enum", "extern", "fn", "impl", "mod", "static", "struct", "trait", "type", "unsafe",
    "use",
];

/// Returns the end of the item at the start of `code`, including its last brace or semicolon; `None` if there
/// is no item.
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

/// Returns the offset of the first semicolon outside all brackets, or of the brace that closes the last open
/// bracket.
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
            // The semicolon of `[u8; 4]` in a signature is not the end.
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

    /// Compares the text after the first item.
    fn check_item(code: &str, rest: Option<&str>) {
        assert_eq!(item_end(code).map(|end| &code[end..]), rest, "{code:?}");
    }

    #[test]
    fn items_end_with_brace_or_semicolon() {
        check_item("mod a;\nb", Some("\nb"));
        check_item("\npub(crate) mod a { fn b() {} } c", Some(" c"));
        check_item("#[a(b)]\npub use c::{d, e};", Some(";"));
        check_item("fn a(b: [u8; 4], c: [u8; { N }]) -> D where E: F { g } h", Some(" h"));
    }

    #[test]
    fn other_code_has_no_item_end() {
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
    fn braced_imports_are_expanded_in_place() {
        let expanded = expand_imports("use a::{b, c::{d, e as f},};\nlet g;");
        assert_eq!(expanded, "use a::b; use a::c::d; use a::c::e as f; \nlet g;");
        assert_eq!(expand_imports("use a::{\n    b,\n};\nc"), "use a::b; \n\n\nc");
        assert_eq!(expand_imports("pub(crate) use {a::b, c};"), "pub(crate) use a::b; use c; ");
    }

    #[test]
    fn other_code_is_unchanged() {
        for code in ["use a::b;", "fn a() -> impl B + use<'_> { c }", "let used = { 1 };"] {
            assert_eq!(expand_imports(code), code);
        }
    }
}
