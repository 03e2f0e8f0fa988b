//! Translation of Go patterns for the `regex` crate.
//!
//! In Go, `\w`, `\d`, `\s` and `\b` match ASCII only, character classes cannot be nested or intersected, and
//! `\Q…\E` quotes.

use std::iter::Peekable;
use std::str::Chars;

/// Translates a pattern.
pub(super) fn translated(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => escape(&mut letters, &mut out),
            '[' => char_class(&mut letters, &mut out),
            letter => out.push(letter),
        }
    }
    out
}

/// Translates an escape after its backslash.
fn escape(letters: &mut Peekable<Chars<'_>>, out: &mut String) {
    match letters.next() {
        Some('b') => out.push_str(r"(?-u:\b)"),
        Some('B') => out.push_str(r"(?-u:\B)"),
        Some('Q') => {
            while let Some(letter) = letters.next() {
                if letter == '\\' && letters.next_if_eq(&'E').is_some() {
                    return;
                }
                out.push_str(&regex::escape(letter.encode_utf8(&mut [0; 4])));
            }
        }
        // In the `regex` crate, these escapes are word boundaries.
        Some(letter @ ('<' | '>')) => out.push(letter),
        Some(letter) => class_escape(letter, out),
        None => out.push('\\'),
    }
}

/// Translates an escape that is allowed inside and outside character classes.
fn class_escape(letter: char, out: &mut String) {
    match letter {
        'd' => out.push_str("[0-9]"),
        'D' => out.push_str("[^0-9]"),
        'w' => out.push_str("[0-9A-Za-z_]"),
        'W' => out.push_str("[^0-9A-Za-z_]"),
        's' => out.push_str(r"[\t\n\f\r ]"),
        'S' => out.push_str(r"[^\t\n\f\r ]"),
        letter => out.extend(['\\', letter]),
    }
}

/// Translates a character class up to its end.
fn char_class(letters: &mut Peekable<Chars<'_>>, out: &mut String) {
    out.push('[');
    if letters.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    let mut dash = false;
    while let Some(letter) = letters.next() {
        let after_dash = std::mem::replace(&mut dash, letter == '-');
        match letter {
            ']' if first => out.push_str(r"\]"),
            ']' => {
                out.push(']');
                return;
            }
            '[' => match posix_class(letters) {
                Some(name) => out.push_str(&name),
                None => out.push_str(r"\["),
            },
            '\\' => match letters.next() {
                Some(letter) => class_escape(letter, out),
                None => out.push('\\'),
            },
            '-' if after_dash => out.push_str(r"\-"),
            '&' | '~' => out.extend(['\\', letter]),
            letter => out.push(letter),
        }
        first = false;
    }
}

/// Reads the rest of `[:alpha:]` after its bracket; `None` if there is no such class.
fn posix_class(letters: &mut Peekable<Chars<'_>>) -> Option<String> {
    // No class is longer than 12 characters.
    let rest: String = letters.clone().take(12).collect();
    let (name, _) = rest.strip_prefix(':')?.split_once(":]")?;
    if !name.chars().all(|letter| letter.is_ascii_lowercase() || letter == '^') {
        return None;
    }
    letters.by_ref().take(name.len() + 3).for_each(drop);
    Some(format!("[:{name}:]"))
}
