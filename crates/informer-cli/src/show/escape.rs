//! Text from a cluster, made safe for a terminal: whoever may name an object must not move the reader's cursor.
//!
//! Nothing that leaves here holds a control character, nor one that turns the direction of text around. It does not know which
//! output the text is for.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with every dangerous character spelled out: `\n`, `\u{1b}`. A backslash stays what it is, so this is for reading, not for
/// getting the original back.
pub(crate) fn escape(text: &str) -> Cow<'_, str> {
    spell(text, |out, letter| {
        let _ = match letter {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            letter => write!(out, "\\u{{{:x}}}", u32::from(letter)),
        };
    })
}

/// The same for text that is JSON already: there such characters occur in strings alone, where JSON has its own way to spell them.
pub(crate) fn escape_json(json: &str) -> Cow<'_, str> {
    spell(json, |out, letter| {
        for unit in letter.encode_utf16(&mut [0; 2]) {
            let _ = write!(out, "\\u{unit:04x}");
        }
    })
}

/// Whether a terminal may do something else with it than show it: what controls (Cc), what formats and is not seen (Cf, the tags among
/// them), and the separators of lines and paragraphs.
pub(crate) fn is_dangerous(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{ad}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}' | '\u{890}'..='\u{891}' | '\u{8e2}')
        || matches!(letter, '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(letter, '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}')
        || matches!(letter, '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e007f}')
}

fn spell(text: &str, write: impl Fn(&mut String, char)) -> Cow<'_, str> {
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
    fn what_moves_the_cursor_is_spelled_out() {
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
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a": "\u{1b}[0m \u{9b} \u{7f} \u{202e} \u{ad} \u{e0041} ok"});
        let text = value.to_string();
        let safe = escape_json(&text);
        assert!(!safe.contains(is_dangerous), "{safe}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&safe).unwrap(), value);
    }
}
