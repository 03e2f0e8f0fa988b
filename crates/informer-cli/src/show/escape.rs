//! Escapes text from a cluster for the terminal: names and values must not control the reader's terminal.
//!
//! The result contains no control character and no character that changes the direction of text.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes every dangerous character: `\n`, `\u{1b}`. Backslashes stay unchanged, so the original cannot be recovered.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    push_escaped(text, |out, letter| {
        let _ = match letter {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            letter => write!(out, "\\u{{{:x}}}", u32::from(letter)),
        };
    })
}

/// Escapes dangerous characters in JSON text without changing its value: they occur only inside strings,
/// where JSON escapes are allowed.
pub(crate) fn escape_json(json: &str) -> Cow<'_, str> {
    push_escaped(json, |out, letter| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// Whether a terminal may interpret the character instead of showing it: control characters (Cc), invisible format
/// characters (Cf, including tags), and line and paragraph separators.
pub(crate) fn is_dangerous(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}')
        || matches!(letter, '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(letter, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}')
        || matches!(letter, '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

fn push_escaped(text: &str, write: impl Fn(&mut String, char)) -> Cow<'_, str> {
    if !text.contains(is_dangerous) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for letter in text.chars() {
        if is_dangerous(letter) {
            write(&mut out, letter);
        } else {
            out.push(letter);
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_controls_are_escaped() {
        for (text, expected) in [
            ("web-0", "web-0"),
            ("Grüße → 世界", "Grüße → 世界"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{1b}[2Jgone", "\\u{1b}[2Jgone"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{7f}", "\\u{7f}"),
            ("user\u{202e}nimda", "user\\u{202e}nimda"),
            ("a\u{ad}b\u{2060}c\u{e0041}d", "a\\u{ad}b\\u{2060}c\\u{e0041}d"),
        ] {
            assert_eq!(escape(text), expected);
        }
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({"a": "\u{1b}[0m \u{9b} \u{7f} \u{202e} \u{ad} \u{e0041} ok"});
        let text = value.to_string();
        let safe = escape_json(&text);
        assert!(!safe.contains(is_dangerous), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
