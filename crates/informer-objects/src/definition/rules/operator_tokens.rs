//! Preprocessing of rules before they are parsed: bracket depth and pairs of unary operators.
//!
//! The parser visits the operand of two consecutive unary operators twice, so nested pairs would take
//! exponential time. Two equal operators cancel each other out and are replaced by blanks; all other text
//! keeps its position.

/// The character that represents a whole string in the code.
const QUOTED: char = '"';

/// Returns the characters outside strings with their offsets; each string is one character.
fn code(text: &str) -> Vec<(usize, char)> {
    let letters: Vec<(usize, char)> = text.char_indices().collect();
    let mut code: Vec<(usize, char)> = Vec::new();
    let mut at = 0;
    while let Some(&(offset, letter)) = letters.get(at) {
        at += 1;
        if !matches!(letter, '"' | '\'') {
            code.push((offset, letter));
            continue;
        }
        // `r"…"`, `b'…'`, `rb"…"`: letters immediately before a quote, unless they belong to a longer name.
        let prefix = code.iter().rev().take_while(|(_, letter)| letter.is_alphanumeric() || *letter == '_');
        let prefix: Vec<char> = prefix.map(|(_, letter)| *letter).collect();
        let raw = prefix.len() <= 2
            && prefix.iter().all(|letter| "rRbB".contains(*letter))
            && prefix.iter().any(|letter| "rR".contains(*letter));
        let is_quote = |at: usize| letters.get(at).is_some_and(|(_, other)| *other == letter);
        let triple = is_quote(at) && is_quote(at + 1);
        if triple {
            at += 2;
        }
        while let Some(&(_, inside)) = letters.get(at) {
            at += 1;
            if inside == '\\' && !raw {
                at += 1;
            } else if inside == letter && (!triple || (is_quote(at) && is_quote(at + 1))) {
                at += if triple { 2 } else { 0 };
                break;
            }
        }
        code.push((offset, QUOTED));
    }
    code
}

/// Returns the maximum number of brackets open at the same time; a condition counts as a bracket that is
/// never closed.
pub(super) fn max_bracket_depth(text: &str) -> usize {
    let (mut open, mut max, mut conditions) = (0_usize, 0, 0);
    let mut before = ' ';
    for (_, letter) in code(text) {
        match letter {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            // `a.?b`, `a[?b]`, `[?a, ?b]`, `{?a: b}` are optional, not conditions.
            '?' if !matches!(before, '.' | '[' | '{' | ',') => conditions += 1,
            _ => {}
        }
        max = max.max(open + conditions);
        if !letter.is_whitespace() {
            before = letter;
        }
    }
    max
}

/// Returns the text with pairs of equal unary operators replaced by blanks.
pub(super) fn without_operator_pairs(text: &str) -> String {
    let code = code(text);
    let mut blanked: Vec<usize> = Vec::new();
    let mut at = 0;
    while let Some(&(_, letter)) = code.get(at) {
        if !matches!(letter, '!' | '-') {
            at += 1;
            continue;
        }
        let mut run = vec![at];
        let mut next = at + 1;
        while let Some((_, other)) =
            code.get(next).filter(|(_, other)| *other == letter || other.is_whitespace())
        {
            if *other == letter {
                run.push(next);
            }
            next += 1;
        }
        // The last of `!!=` belongs to the comparison, and the first of `a - -b` is a subtraction.
        let last = run.last().copied().unwrap_or(at);
        if letter == '!' && code.get(last + 1).is_some_and(|(_, other)| *other == '=') {
            run.pop();
        }
        if letter == '-' && ends_in_operand(&code[..at]) {
            run.remove(0);
        }
        let pairs = run.len() / 2 * 2;
        blanked.extend(run[..pairs].iter().map(|index| code[*index].0));
        at = next;
    }
    let mut bytes = text.as_bytes().to_vec();
    for offset in blanked {
        bytes[offset] = b' ';
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Whether a text ends in an operand, so that an operator after it is binary.
fn ends_in_operand(before: &[(usize, char)]) -> bool {
    let reversed = before.iter().rev().map(|(_, letter)| *letter).skip_while(|letter| letter.is_whitespace());
    let is_name = |letter: &char| letter.is_alphanumeric() || *letter == '_';
    match reversed.clone().next() {
        Some(letter) if is_name(&letter) => {
            // `in` is an operator. The name is reversed, and three letters show whether it is longer.
            let name: String = reversed.take_while(is_name).take(3).collect();
            name != "ni"
        }
        Some(letter) => matches!(letter, ')' | ']' | '}' | QUOTED),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pairs_of_unary_operators_are_blanked() {
        for (text, expected) in [
            ("!!a", "  a"),
            ("!!!a", "  !a"),
            ("! ! (!!a)", "    (  a)"),
            ("a != b", "a != b"),
            ("a !!= b", "a !!= b"),
            ("--1", "  1"),
            ("a - -1", "a - -1"),
            ("a - --1", "a -   1"),
            ("a--1", "a--1"),
            ("(a)--1", "(a)--1"),
            ("x in --1", "x in   1"),
            (r#""!!" == '--' + "a""#, r#""!!" == '--' + "a""#),
            (r#"r"\" + !!a"#, r#"r"\" +   a"#),
            (r"'\'!!' + !!a", r"'\'!!' +   a"),
            (r#""""a"!!""" + !!a"#, r#""""a"!!""" +   a"#),
        ] {
            assert_eq!(without_operator_pairs(text), expected, "{text}");
        }
    }

    /// A raw string that ends in a backslash hid the rest of the text from the bracket count.
    #[test]
    fn brackets_are_counted_outside_strings() {
        assert_eq!(max_bracket_depth("((a))"), 2);
        assert_eq!(max_bracket_depth("'((('"), 0);
        assert_eq!(max_bracket_depth(r#"r"\" == "" || (((1)))"#), 3);
        assert_eq!(max_bracket_depth("'''a'(''' + [1]"), 1);
        assert_eq!(max_bracket_depth("a ? b : c ? d : e"), 2);
        assert_eq!(max_bracket_depth("a.?b.?c[?d][ ?e] == [?f, ?g] + {?h: i}.j"), 1);
    }
}
