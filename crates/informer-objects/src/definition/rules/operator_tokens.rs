//! The text of a rule before it is parsed: what is code in it and what is quoted, how deep it goes, and signs that stand twice.
//!
//! The parser walks what stands behind two signs in a row twice, so that a few of them, one inside the other, would keep it busy for ever.
//! Two of a kind cancel each other out, and are blanked; everything else keeps its place.

/// What stands for a whole quoted text among the letters of the code.
const QUOTED: char = '"';

/// The letters of a text that are not inside quotes, with their places; each quoted text is one letter.
fn code(text: &str) -> Vec<(usize, char)> {
    let letters: Vec<(usize, char)> = text.char_indices().collect();
    let mut code: Vec<(usize, char)> = Vec::new();
    let mut at = 0;
    while let Some(&(place, letter)) = letters.get(at) {
        at += 1;
        if !matches!(letter, '"' | '\'') {
            code.push((place, letter));
            continue;
        }
        // `r"…"`, `b'…'`, `rb"…"`: letters right before a quote, if they are no longer name.
        let prefix = code.iter().rev().take_while(|(_, letter)| letter.is_alphanumeric() || *letter == '_');
        let prefix: Vec<char> = prefix.map(|(_, letter)| *letter).collect();
        let raw = prefix.len() <= 2
            && prefix.iter().all(|letter| "rRbB".contains(*letter))
            && prefix.iter().any(|letter| "rR".contains(*letter));
        let is = |at: usize| letters.get(at).is_some_and(|(_, other)| *other == letter);
        let triple = is(at) && is(at + 1);
        if triple {
            at += 2;
        }
        while let Some(&(_, inside)) = letters.get(at) {
            at += 1;
            if inside == '\\' && !raw {
                at += 1;
            } else if inside == letter && (!triple || (is(at) && is(at + 1))) {
                at += if triple { 2 } else { 0 };
                break;
            }
        }
        code.push((place, QUOTED));
    }
    code
}

/// The most brackets open at once; conditions count as brackets that are never closed.
pub(super) fn max_bracket_depth(text: &str) -> usize {
    let (mut open, mut most, mut conditions) = (0_usize, 0, 0);
    let mut before = ' ';
    for (_, letter) in code(text) {
        match letter {
            '(' | '[' | '{' => open += 1,
            ')' | ']' | '}' => open = open.saturating_sub(1),
            // `a.?b`, `a[?b]`, `[?a, ?b]`, `{?a: b}` are optional, not conditions.
            '?' if !matches!(before, '.' | '[' | '{' | ',') => conditions += 1,
            _ => {}
        }
        most = most.max(open + conditions);
        if !letter.is_whitespace() {
            before = letter;
        }
    }
    most
}

/// The text with pairs of equal signs in front of something blanked.
pub(super) fn without_pairs(text: &str) -> String {
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
        if letter == '-' && is_operand(&code[..at]) {
            run.remove(0);
        }
        let pairs = run.len() / 2 * 2;
        blanked.extend(run[..pairs].iter().map(|place| code[*place].0));
        at = next;
    }
    let mut bytes = text.as_bytes().to_vec();
    for place in blanked {
        bytes[place] = b' ';
    }
    String::from_utf8(bytes).unwrap_or_else(|_| text.to_owned())
}

/// Whether what comes before is a value, so that a sign behind it stands between two.
fn is_operand(before: &[(usize, char)]) -> bool {
    let written = before.iter().rev().map(|(_, letter)| *letter).skip_while(|letter| letter.is_whitespace());
    let is_name = |letter: &char| letter.is_alphanumeric() || *letter == '_';
    match written.clone().next() {
        Some(letter) if is_name(&letter) => {
            // `in` is an operator; it is read backwards here.
            let name: String = written.take_while(is_name).take(3).collect();
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
    fn pairs_of_signs_are_blanked_and_nothing_else() {
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
            assert_eq!(without_pairs(text), expected, "{text}");
        }
    }

    /// A raw text that ends in a backslash hid everything behind it from whoever counted brackets.
    #[test]
    fn brackets_are_counted_outside_of_quotes_of_every_kind() {
        assert_eq!(max_bracket_depth("((a))"), 2);
        assert_eq!(max_bracket_depth("'((('"), 0);
        assert_eq!(max_bracket_depth(r#"r"\" == "" || (((1)))"#), 3);
        assert_eq!(max_bracket_depth("'''a'(''' + [1]"), 1);
        assert_eq!(max_bracket_depth("a ? b : c ? d : e"), 2);
        assert_eq!(max_bracket_depth("a.?b.?c[?d][ ?e] == [?f, ?g] + {?h: i}.j"), 1);
    }
}
