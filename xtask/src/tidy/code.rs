//! The code of a Rust file without comments, strings and character literals.
//!
//! Checks search this text, so that a path in a comment or a message is not a finding and a brace in a string
//! does not end a function. Line numbers are preserved, columns are not. This is not a parser: it knows only
//! as much of Rust's lexical grammar as is needed to find the end of a literal or a comment.

/// Replaces every comment and literal by spaces; line breaks stay.
pub(super) fn code_only(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let length = if let Some(length) = opaque_len(rest) {
            code.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            length
        } else {
            let length = word_len(rest);
            code.push_str(&rest[..length]);
            length
        };
        rest = &rest[length..];
    }
    code
}

/// Returns whether a character can be part of an identifier or a number.
pub(super) fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns the length of the word at the start of `rest`, or of one character if there is none.
///
/// Whole words are consumed so that the `r` of `for` is not taken for the prefix of a raw string.
fn word_len(rest: &str) -> usize {
    let word = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
    if word > 0 { word } else { rest.chars().next().map_or(0, char::len_utf8) }
}

/// Returns the length of the comment or literal at the start of `rest`, if there is one.
fn opaque_len(rest: &str) -> Option<usize> {
    if rest.starts_with("//") {
        Some(rest.find('\n').unwrap_or(rest.len()))
    } else if rest.starts_with("/*") {
        Some(block_comment_len(rest))
    } else if rest.starts_with('"') {
        Some(string_len(rest))
    } else if rest.starts_with('\'') {
        char_len(rest)
    } else {
        raw_string_len(rest)
    }
}

/// Returns the length of a block comment, which may contain others.
fn block_comment_len(rest: &str) -> usize {
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(found) = rest[at..].find(['/', '*']) {
        at += found;
        if rest[at..].starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn string_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return at + 1,
            '\\' => drop(chars.next()),
            _ => {}
        }
    }
    rest.len()
}

/// Returns the length of a character literal; `None` for a lifetime or a label, which also start with `'`.
fn char_len(rest: &str) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    if chars.next()?.1 == '\\' {
        // The escaped character may be a quote, which is not the end.
        chars.next();
        return chars.find(|(_, c)| *c == '\'').map(|(at, _)| at + 1);
    }
    chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1)
}

/// Returns the length of a raw string; `None` also for a raw identifier such as `r#type`.
fn raw_string_len(rest: &str) -> Option<usize> {
    let after_prefix = ["r", "br", "cr"].iter().find_map(|prefix| {
        let tail = rest.strip_prefix(prefix)?;
        tail.starts_with(['#', '"']).then_some(tail)
    })?;
    let body = after_prefix.trim_start_matches('#');
    let hashes = &after_prefix[..after_prefix.len() - body.len()];
    let body = body.strip_prefix('"')?;
    let end = format!("\"{hashes}");
    let opening = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |at| opening + at + end.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the remaining code, with runs of whitespace collapsed.
    fn check(text: &str, expected: &str) {
        let code = code_only(text);
        assert_eq!(code.lines().count(), text.lines().count(), "number of lines of {text:?}");
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected, "{text:?}");
    }

    #[test]
    fn comments_are_removed() {
        check("a // b {\nc", "a c");
        check("/// doc \"\na /* b /* c */ d\n */ e", "a e");
        check("a / b * c /**/ d", "a / b * c d");
        check("//", "");
        check("a /* not closed", "a");
    }

    #[test]
    fn strings_are_removed() {
        check(r#"a("}", "\"}", "\\") b"#, "a( , , ) b");
        check("a(b\"}\", c\"}\", \"two\nlines\")", "a(b , c , )");
        check("a(\"// not a comment\") b", "a( ) b");
        check("a \"not closed", "a");
    }

    #[test]
    fn raw_strings_are_removed_and_raw_identifiers_stay() {
        check(r##"a(r"\", r#"}"}"#, br"{", cr#"{"#) b"##, "a( , , , ) b");
        check("let r#type = r#fn;", "let r#type = r#fn;");
        check("for br in hair {}", "for br in hair {}");
        check("a r#\"not closed\"", "a");
    }

    #[test]
    fn characters_are_removed_and_lifetimes_stay() {
        check(r"a('{', '\'', '\\', '\u{7d}', b'}', 'é') b", "a( , , , , b , ) b");
        check(
            "fn a<'a>(b: &'a str, c: &'_ str) { 'd: loop {} }",
            "fn a<'a>(b: &'a str, c: &'_ str) { 'd: loop {} }",
        );
        check("match c { '\"' => a, 'b'..='z' => d }", "match c { => a, ..= => d }");
    }

    #[test]
    fn non_ascii_text_is_supported() {
        check("let größe = \"Ω { Ω\"; // Ω", "let größe = ;");
    }
}
