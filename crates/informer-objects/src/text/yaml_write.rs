//! Writes YAML as kube-apiserver does: keys in natural order, lists not indented, long lines folded after
//! column 80.
//!
//! The output reads back as the same value. The style of a string follows go-yaml. A string with several
//! lines becomes a block. A string that would resolve to another type gets double quotes. Any other string is
//! plain if that is unambiguous, and gets single quotes if not. Where a style cannot represent a string, it
//! gets double quotes.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::go::{float_g, number_json};
use super::scalar::{Scalar, is_base_60, resolve};

/// Returns a value as a YAML document.
pub fn to_yaml(value: &Value) -> String {
    let mut writer = Writer { out: String::new(), column: 0 };
    match value {
        Value::Object(fields) if !fields.is_empty() => writer.mapping(fields, 0, FirstEntry::OnNewLine),
        Value::Array(items) if !items.is_empty() => writer.sequence(items, 0, FirstEntry::OnNewLine),
        value => writer.leaf(value, 0),
    }
    if writer.column > 0 || writer.out.is_empty() {
        writer.line_break();
    }
    writer.out
}

/// Lines are folded at the first blank after this column.
const FOLD_COLUMN: usize = 80;

/// The maximum length of a key; a longer one is written on its own line after a question mark.
const MAX_SIMPLE_KEY_BYTES: usize = 128;

/// Where the first entry of a mapping or a sequence is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FirstEntry {
    OnNewLine,
    OnCurrentLine,
}

/// Whether a text is a key, which must fit on one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Key,
    Value,
}

struct Writer {
    out: String,
    column: usize,
}

impl Writer {
    /// Writes fields, one per line.
    fn mapping(&mut self, fields: &Map<String, Value>, indent: usize, first: FirstEntry) {
        let mut fields: Vec<(&String, &Value)> = fields.iter().collect();
        fields.sort_by(|left, right| natural(left.0, right.0));
        for (index, (name, value)) in fields.into_iter().enumerate() {
            if index > 0 || first == FirstEntry::OnNewLine {
                self.start_line(indent);
            }
            let simple = name.len() <= MAX_SIMPLE_KEY_BYTES && !name.contains(is_break);
            if simple {
                self.text(name, indent, Role::Key);
            } else {
                self.put("? ");
                self.text(name, indent + 2, Role::Value);
                self.start_line(indent);
            }
            self.put(":");
            match value {
                Value::Object(inner) if !inner.is_empty() => {
                    self.mapping(inner, indent + 2, FirstEntry::OnNewLine);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.sequence(items, indent, FirstEntry::OnNewLine);
                }
                value => {
                    self.put(" ");
                    self.leaf(value, indent + 2);
                }
            }
        }
    }

    fn sequence(&mut self, items: &[Value], indent: usize, first: FirstEntry) {
        for (index, item) in items.iter().enumerate() {
            if index > 0 || first == FirstEntry::OnNewLine {
                self.start_line(indent);
            }
            self.put("- ");
            match item {
                Value::Object(fields) if !fields.is_empty() => {
                    self.mapping(fields, indent + 2, FirstEntry::OnCurrentLine);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.sequence(items, indent + 2, FirstEntry::OnCurrentLine);
                }
                item => self.leaf(item, indent + 2),
            }
        }
    }

    fn leaf(&mut self, value: &Value, indent: usize) {
        match value {
            Value::String(text) => self.text(text, indent, Role::Value),
            Value::Number(number) => {
                let text = number_json(number);
                let whole = text.parse::<i64>().is_ok() || text.parse::<u64>().is_ok();
                match number.as_f64() {
                    Some(float) if !whole => self.put(&float_g(float)),
                    _ => self.put(&text),
                }
            }
            Value::Array(_) => self.put("[]"),
            Value::Object(_) => self.put("{}"),
            Value::Null | Value::Bool(_) => self.put(&value.to_string()),
        }
    }

    fn text(&mut self, text: &str, indent: usize, role: Role) {
        let style = style(text, role);
        match style {
            Style::Plain => self.folded(text, indent, role, style),
            Style::Single => {
                self.put("'");
                self.folded(text, indent, role, style);
                self.put("'");
            }
            Style::Double => self.double_quoted(text, indent, role),
            Style::Literal => self.literal(text, indent),
        }
    }

    /// Writes plain or single-quoted text: blanks after the fold column become line breaks.
    fn folded(&mut self, text: &str, indent: usize, role: Role, style: Style) {
        let quoted = style == Style::Single;
        let mut after_blank = false;
        let mut after_break = false;
        let mut characters = text.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            let next = characters.peek().map(|(_, next)| *next);
            if character == ' ' {
                let inside = !quoted || (at > 0 && next.is_some());
                if role == Role::Value
                    && !after_blank
                    && self.column > FOLD_COLUMN
                    && inside
                    && next != Some(' ')
                {
                    self.start_line(indent);
                } else {
                    self.put(" ");
                }
                after_blank = true;
            } else if is_break(character) {
                if !after_break && character == '\n' {
                    self.line_break();
                }
                self.put_break(character);
                after_break = true;
            } else {
                if after_break {
                    self.indent(indent);
                }
                if quoted && character == '\'' {
                    self.put("'");
                }
                self.put_char(character);
                after_blank = false;
                after_break = false;
            }
        }
    }

    fn double_quoted(&mut self, text: &str, indent: usize, role: Role) {
        self.put("\"");
        let mut after_blank = false;
        let mut characters = text.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            let next = characters.peek().map(|(_, next)| *next);
            if character == ' ' {
                if role == Role::Value
                    && !after_blank
                    && self.column > FOLD_COLUMN
                    && at > 0
                    && next.is_some()
                {
                    self.start_line(indent);
                    // Without the backslash, a reader would drop blanks at the start of a line.
                    if next == Some(' ') {
                        self.put("\\");
                    }
                } else {
                    self.put(" ");
                }
                after_blank = true;
                continue;
            }
            after_blank = false;
            match escape(character) {
                Some(escaped) => self.put(&escaped),
                None => self.put_char(character),
            }
        }
        self.put("\"");
    }

    fn literal(&mut self, text: &str, indent: usize) {
        self.put("|");
        // A leading blank or break would hide the indentation, so it is written explicitly.
        if text.starts_with([' ', '\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']) {
            self.put("2");
        }
        // How a reader treats the breaks at the end: `-` drops them, `+` keeps them all.
        let mut back = text.chars().rev();
        match (back.next().is_some_and(is_break), back.next().is_none_or(is_break)) {
            (false, _) => self.put("-"),
            (true, true) => self.put("+"),
            (true, false) => {}
        }
        self.line_break();
        let mut after_break = true;
        for character in text.chars() {
            if is_break(character) {
                self.put_break(character);
                after_break = true;
            } else {
                if after_break {
                    self.indent(indent);
                }
                self.put_char(character);
                after_break = false;
            }
        }
    }

    /// Starts a new line, unless the current one is empty.
    fn start_line(&mut self, indent: usize) {
        if self.column > 0 {
            self.line_break();
        }
        self.indent(indent);
    }

    fn indent(&mut self, indent: usize) {
        while self.column < indent {
            self.put(" ");
        }
    }

    fn line_break(&mut self) {
        self.out.push('\n');
        self.column = 0;
    }

    fn put_break(&mut self, character: char) {
        self.out.push(character);
        self.column = 0;
    }

    fn put_char(&mut self, character: char) {
        self.out.push(character);
        self.column += 1;
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Single,
    Double,
    Literal,
}

/// Properties of a text that exclude styles.
#[derive(Default)]
#[allow(clippy::struct_excessive_bools, reason = "the properties are independent")]
struct Traits {
    /// Contains characters that have a meaning in YAML where they are.
    indicators: bool,
    breaks: bool,
    /// Contains characters that must be escaped.
    special: bool,
    /// Starts or ends with a blank or a break.
    ragged: bool,
    trailing_blank: bool,
    /// Contains a break followed by a blank.
    break_blank: bool,
    /// Contains a blank followed by a break.
    blank_break: bool,
}

fn style(text: &str, role: Role) -> Style {
    let seen = traits(text);
    let preferred = if text.contains('\n') {
        Style::Literal
    } else if matches!(resolve(text), Scalar::Text | Scalar::Merge) && !is_base_60(text) {
        Style::Plain
    } else {
        Style::Double
    };
    let plain_fits = !(seen.ragged
        || seen.break_blank
        || seen.blank_break
        || seen.special
        || seen.breaks
        || seen.indicators);
    let single_fits = !(seen.break_blank || seen.blank_break || seen.special);
    let literal_fits = !(seen.trailing_blank || seen.blank_break || seen.special);
    if role == Role::Key && seen.breaks {
        return Style::Double;
    }
    match preferred {
        Style::Plain if plain_fits => Style::Plain,
        Style::Plain | Style::Single if single_fits => Style::Single,
        Style::Literal if literal_fits && role == Role::Value => Style::Literal,
        _ => Style::Double,
    }
}

fn traits(text: &str) -> Traits {
    let mut seen = Traits {
        indicators: text.starts_with("---") || text.starts_with("..."),
        ragged: text.starts_with(|first| first == ' ' || is_break(first))
            || text.ends_with(|last| last == ' ' || is_break(last)),
        trailing_blank: text.ends_with(' '),
        ..Traits::default()
    };
    let mut before: Option<char> = None;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let blank_follows = characters.peek().is_none_or(|next| matches!(next, ' ' | '\t'));
        let blank_before = before.is_none_or(|before| matches!(before, ' ' | '\t') || is_break(before));
        seen.indicators |= match (character, before) {
            (
                '#' | ',' | '[' | ']' | '{' | '}' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@'
                | '`',
                None,
            ) => true,
            ('?' | '-', None) | (':', _) => blank_follows,
            ('#', Some(_)) => blank_before,
            _ => false,
        };
        seen.special |= !is_printable(character);
        seen.breaks |= is_break(character);
        seen.break_blank |= character == ' ' && before.is_some_and(is_break);
        seen.blank_break |= is_break(character) && before == Some(' ');
        before = Some(character);
    }
    seen
}

fn is_break(character: char) -> bool {
    matches!(character, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Whether a character needs no escape.
///
/// As in go-yaml, characters beyond the basic multilingual plane need one.
fn is_printable(character: char) -> bool {
    matches!(character, '\n' | ' '..='~' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}')
        && character != '\u{feff}'
}

/// Returns the escape of a character in double-quoted text, if it needs one.
fn escape(character: char) -> Option<String> {
    if is_printable(character) && !is_break(character) && !matches!(character, '"' | '\\') {
        return None;
    }
    let code = u32::from(character);
    Some(match character {
        '\0' => "\\0".to_owned(),
        '\u{7}' => "\\a".to_owned(),
        '\u{8}' => "\\b".to_owned(),
        '\t' => "\\t".to_owned(),
        '\n' => "\\n".to_owned(),
        '\u{b}' => "\\v".to_owned(),
        '\u{c}' => "\\f".to_owned(),
        '\r' => "\\r".to_owned(),
        '\u{1b}' => "\\e".to_owned(),
        '"' => "\\\"".to_owned(),
        '\\' => "\\\\".to_owned(),
        '\u{85}' => "\\N".to_owned(),
        '\u{a0}' => "\\_".to_owned(),
        '\u{2028}' => "\\L".to_owned(),
        '\u{2029}' => "\\P".to_owned(),
        _ if code <= 0xff => format!("\\x{code:02X}"),
        _ if code <= 0xffff => format!("\\u{code:04X}"),
        _ => format!("\\U{code:08X}"),
    })
}

/// Compares keys in natural order: letters after everything else, numbers by value.
fn natural(left: &str, right: &str) -> Ordering {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    let Some(at) = left.iter().zip(&right).position(|(left, right)| left != right) else {
        return left.len().cmp(&right.len());
    };
    let (Some(&left_char), Some(&right_char)) = (left.get(at), right.get(at)) else { return Ordering::Equal };
    match (left_char.is_alphabetic(), right_char.is_alphabetic()) {
        (true, true) => return left_char.cmp(&right_char),
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    // Zeros are significant inside a number, not at its beginning. Inside, a digit 1 in front makes them
    // count.
    let common = left.get(..at).unwrap_or_default().iter().rev().take_while(|digit| digit.is_ascii_digit());
    let inside = (left_char == '0' || right_char == '0') && common.into_iter().any(|digit| *digit != '0');
    let number = |text: &[char]| {
        let digits = text.iter().skip(at).map_while(|digit| digit.to_digit(10));
        digits.fold((i64::from(inside), 0_usize), |(value, count), digit| {
            (value.wrapping_mul(10).wrapping_add(i64::from(digit)), count + 1)
        })
    };
    number(&left).cmp(&number(&right)).then(left_char.cmp(&right_char))
}
