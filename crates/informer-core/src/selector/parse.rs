//! The parser of label selectors.
//!
//! ```text
//! selector    = [ requirement { "," requirement } ]
//! requirement = "!" KEY
//!             | KEY
//!             | KEY ( "=" | "==" | "!=" ) [ VALUE ]
//!             | KEY ( "in" | "notin" ) "(" [ VALUE ] { "," [ VALUE ] } ")"
//!             | KEY ( ">" | "<" ) NUMBER
//! ```
//!
//! Words end at white space (blank, tab, CR, LF) and at `= ! ( ) , > <`. White space between tokens is
//! ignored. `in` and `notin` are operators only after a key. An absent value is the empty string, so
//! `a in ()` is `a in ("")`.
//!
//! Everything that Kubernetes accepts is accepted with the same meaning, except that a NUL byte does not
//! end the text (in Kubernetes `"\0a=b"` selects everything). This parser also accepts a value list that ends
//! with two commas, which Kubernetes rejects.
//!
//! Invariant: the cursor only moves forward, and only to character boundaries. This file knows text, not
//! matching.

use std::collections::BTreeSet;

use super::requirement::{Condition, Requirement};
use super::{Unexpected, rules};

/// Parses a label selector into its requirements, in the order written.
pub(super) fn label_requirements(text: &str) -> Result<Vec<Requirement>, Unexpected> {
    let mut cursor = Cursor { text, at: 0 };
    let mut requirements = Vec::new();
    cursor.skip_space();
    if cursor.is_at_end() {
        return Ok(requirements);
    }
    loop {
        requirements.push(cursor.requirement()?);
        if cursor.is_at_end() {
            return Ok(requirements);
        }
        cursor.expect(",", r#""," or the end"#)?;
    }
}

/// A position in the text. White space after a token is skipped with it, so `at` is the start of the next
/// token.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn requirement(&mut self) -> Result<Requirement, Unexpected> {
        let negated = self.eat("!");
        let (at, key) = self.word();
        rules::check_label_key(key).map_err(Unexpected::at(at))?;
        let condition = if negated {
            Condition::NotExists
        } else if self.is_at_requirement_end() {
            Condition::Exists
        } else {
            self.condition()?
        };
        Ok(Requirement::unchecked(key, condition))
    }

    fn condition(&mut self) -> Result<Condition, Unexpected> {
        if self.eat("==") || self.eat("=") {
            return Ok(Condition::Equals(self.value()?));
        }
        if self.eat("!=") {
            return Ok(Condition::NotEquals(self.value()?));
        }
        if self.eat(">") {
            return Ok(Condition::GreaterThan(self.number()?));
        }
        if self.eat("<") {
            return Ok(Condition::LessThan(self.number()?));
        }
        match self.word() {
            (_, "in") => Ok(Condition::In(self.values()?)),
            (_, "notin") => Ok(Condition::NotIn(self.values()?)),
            (at, _) => Err(Unexpected { at, expected: r#"an operator, "," or the end"# }),
        }
    }

    fn value(&mut self) -> Result<String, Unexpected> {
        let (at, value) = self.word();
        if value.is_empty() && !self.is_at_requirement_end() {
            return Err(Unexpected { at, expected: "a label value" });
        }
        rules::check_label_value(value).map_err(Unexpected::at(at))?;
        Ok(value.to_owned())
    }

    fn values(&mut self) -> Result<BTreeSet<String>, Unexpected> {
        let mut values = BTreeSet::new();
        self.expect("(", r#""(""#)?;
        loop {
            let (at, value) = self.word();
            rules::check_label_value(value).map_err(Unexpected::at(at))?;
            values.insert(value.to_owned());
            if self.eat(")") {
                return Ok(values);
            }
            self.expect(",", if value.is_empty() { r#"a value, "," or ")""# } else { r#""," or ")""# })?;
        }
    }

    fn number(&mut self) -> Result<i64, Unexpected> {
        let (at, text) = self.word();
        rules::number(text).map_err(Unexpected::at(at))
    }

    /// Reads the word at the cursor and returns it with its position; empty if the cursor is at another
    /// token.
    fn word(&mut self) -> (usize, &'a str) {
        let at = self.at;
        let rest = &self.text[at..];
        let word = rest.find(|c| is_space(c) || is_symbol(c)).map_or(rest, |end| &rest[..end]);
        self.advance(word.len());
        (at, word)
    }

    fn eat(&mut self, symbol: &str) -> bool {
        let found = self.text[self.at..].starts_with(symbol);
        if found {
            self.advance(symbol.len());
        }
        found
    }

    fn expect(&mut self, symbol: &str, expected: &'static str) -> Result<(), Unexpected> {
        let at = self.at;
        if self.eat(symbol) { Ok(()) } else { Err(Unexpected { at, expected }) }
    }

    fn advance(&mut self, bytes: usize) {
        self.at += bytes;
        self.skip_space();
    }

    fn skip_space(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches(is_space).len();
    }

    fn is_at_end(&self) -> bool {
        self.at == self.text.len()
    }

    fn is_at_requirement_end(&self) -> bool {
        self.is_at_end() || self.text[self.at..].starts_with(',')
    }
}

fn is_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n')
}

fn is_symbol(c: char) -> bool {
    matches!(c, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

#[cfg(test)]
mod tests {
    use crate::selector::LabelSelector;

    /// Compares the printed form of the parsed `text`, or the error message without its prefix.
    #[track_caller]
    fn check(text: &str, expected: &str) {
        let prefix = format!("label selector {text:?}: expected ");
        let outcome = match LabelSelector::parse(text) {
            Ok(selector) => selector.to_string(),
            Err(error) => error
                .to_string()
                .strip_prefix(&prefix)
                .expect("an error message with the usual prefix")
                .to_owned(),
        };
        assert_eq!(outcome, expected, "for {text:?}");
    }

    #[test]
    fn every_operator_is_parsed() {
        check("a", "a");
        check("!a", "!a");
        check("a=b", "a=b");
        check("a==b", "a=b");
        check("a!=b", "a!=b");
        check("a in (b)", "a in (b)");
        check("a in (b,c)", "a in (b,c)");
        check("a notin (b,c)", "a notin (b,c)");
        check("a>1", "a>1");
        check("a<1", "a<1");
        check("a>007", "a>7");
    }

    #[test]
    fn empty_text_selects_everything() {
        check("", "");
        check(" \t\r\n ", "");
    }

    #[test]
    fn white_space_between_tokens_is_ignored() {
        check("  a  ", "a");
        check(" ! a ", "!a");
        check(" a = b ", "a=b");
        check("a\t!=\nb", "a!=b");
        check("a in(b)", "a in (b)");
        check(" a  in  ( b , c ) , d ", "a in (b,c),d");
        check(" a > 1 , b < 2 ", "a>1,b<2");
    }

    #[test]
    fn absent_values_are_empty() {
        check("a=", "a=");
        check("a==", "a=");
        check("a!=", "a!=");
        check("a=,b", "a=,b");
        check("a in ()", "a in ()");
        check("a notin ()", "a notin ()");
        check("a in (,)", "a in ()");
        check("a in (b,)", "a in (,b)");
        check("a in (,b)", "a in (,b)");
        check("a in (b,,c)", "a in (,b,c)");
        check("a in (b,,)", "a in (,b)");
    }

    #[test]
    fn in_and_notin_are_also_keys_and_values() {
        check("in", "in");
        check("!notin", "!notin");
        check("in in (in,notin)", "in in (in,notin)");
        check("notin notin (in)", "notin notin (in)");
        check("a=in", "a=in");
        check("in=notin,notin!=in", "in=notin,notin!=in");
    }

    #[test]
    fn printing_sorts_and_removes_duplicates() {
        check("c,a,b", "a,b,c");
        check("a in (z,y,z,x)", "a in (x,y,z)");
        check("a,a", "a");
        check("b=1,a,b==1", "a,b=1");
        check("a!=b,a", "a,a!=b");
        check("b,B,a/b,0", "0,B,a/b,b");
    }

    #[test]
    fn prefixed_keys_are_parsed() {
        check("app.kubernetes.io/name=web", "app.kubernetes.io/name=web");
        check("!node-role.kubernetes.io/control-plane", "!node-role.kubernetes.io/control-plane");
    }

    #[test]
    fn misplaced_symbols_are_rejected_at_their_position() {
        check(",", "a label key at byte 0");
        check("a,", "a label key at byte 2");
        check("a, ", "a label key at byte 3");
        check("a,,b", "a label key at byte 2");
        check("!", "a label key at byte 1");
        check("!!a", "a label key at byte 1");
        check("!=a", "a label key at byte 1");
        check("=a", "a label key at byte 0");
        check("(a)", "a label key at byte 0");
        check("!a=b", r#""," or the end at byte 2"#);
        check("!a in (b)", r#""," or the end at byte 3"#);
        check("a=b c", r#""," or the end at byte 4"#);
        check("a in (b) c", r#""," or the end at byte 9"#);
        check("a b", r#"an operator, "," or the end at byte 2"#);
        check("a ! = b", r#"an operator, "," or the end at byte 2"#);
        check("a)", r#"an operator, "," or the end at byte 1"#);
        check("a===b", "a label value at byte 3");
        check("a=!b", "a label value at byte 2");
        check("a=(b)", "a label value at byte 2");
    }

    #[test]
    fn malformed_value_lists_are_rejected_at_their_position() {
        check("a in x", r#""(" at byte 5"#);
        check("a in", r#""(" at byte 4"#);
        check("a notin=b", r#""(" at byte 7"#);
        check("a in (", r#"a value, "," or ")" at byte 6"#);
        check("a in (b", r#""," or ")" at byte 7"#);
        check("a in (b,", r#"a value, "," or ")" at byte 8"#);
        check("a in (b c)", r#""," or ")" at byte 8"#);
        check("a in (b=c)", r#""," or ")" at byte 7"#);
        check("a in ((b))", r#"a value, "," or ")" at byte 6"#);
    }

    #[test]
    fn invalid_keys_and_values_are_rejected_at_their_position() {
        let key = r#"a label key of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#;
        let value =
            r#"a label value of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#;
        check("b,-a", &format!("{key} at byte 2"));
        check("b, é=x", &format!("{key} at byte 3"));
        check("\0a=b", &format!("{key} at byte 0"));
        check("/a", r#"a DNS name before "/" at byte 0"#);
        check("a=b/c", &format!("{value} at byte 2"));
        check("a in (b, c-)", &format!("{value} at byte 9"));
        check(&format!("a={}", "x".repeat(64)), "a label value of at most 63 bytes at byte 2");
    }

    #[test]
    fn spellings_of_other_languages_get_a_hint() {
        let key = r#"a label key of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#;
        let value =
            r#"a label value of letters, digits, "-", "_" and ".", with a letter or digit at both ends"#;
        check("app: web", &format!(r#"{key} at byte 0 (write "key=value")"#));
        check("app='web'", &format!("{value} at byte 4 (write values without quotes)"));
        check("app=\"web\"", &format!("{value} at byte 4 (write values without quotes)"));
        check("a=b && c=d", r#""," or the end at byte 4 (separate requirements with ",")"#);
        check("a=b;c=d", &format!(r#"{value} at byte 2 (separate requirements with ",")"#));
        check("a=b || a=c", r#""," or the end at byte 4 (for alternatives, write "key in (a,b)")"#);
        check("a=web-*", &format!("{value} at byte 2 (a key alone matches any value)"));
        let number = "a whole number from 0 to 9223372036854775807";
        check("a>=1", &format!("{number} at byte 2 (only > and < compare numbers)"));
        let operator = r#"an operator, "," or the end at byte 2"#;
        check("a not in (b)", &format!(r#"{operator} (write "key notin (a,b)")"#));
        check("a IN (b)", &format!(r#"{operator} (write "key in (a,b)")"#));
        check("a NOTIN (b)", &format!(r#"{operator} (write "key notin (a,b)")"#));
    }

    #[test]
    fn comparison_operands_are_unsigned_integers() {
        for text in ["a>", "a>b", "a>1.5", "a>9223372036854775808"] {
            check(text, "a whole number from 0 to 9223372036854775807 at byte 2");
        }
        assert!(LabelSelector::parse("a>-1").is_err()); // "-1" is not a label value
    }
}
