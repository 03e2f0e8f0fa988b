//! A JSON reader with the error texts of Go that reports duplicate fields.
//!
//! Invalid UTF-8 and unpaired surrogates become U+FFFD, as in Go. Syntax errors take precedence: a number
//! that is too large is reported only if the whole text is well-formed. Nothing here knows which fields
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Map, Number, Value};

use super::MAX_DEPTH;
use super::go::quoted_char;
use super::number::number_of;

/// A decoded text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Read {
    pub(crate) value: Value,
    /// The paths of duplicate fields, each once, in the order of the text.
    pub(crate) duplicates: Vec<String>,
}

/// The treatment of duplicate fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duplicates {
    /// Objects are merged, other values are replaced: Go decoding into a struct.
    Merge,
    /// The last value is used: Go decoding into a map.
    Replace,
}

/// A field to report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedField {
    pub(crate) path: String,
    /// Whether the field is reported as a duplicate.
    pub(crate) duplicate: bool,
}

/// The maximum number of duplicate and unknown fields that Go reports.
const MAX_REPORTED_FIELDS: usize = 100;

/// Reads a text.
pub(crate) fn read(bytes: &[u8], duplicates: Duplicates) -> Result<Read, String> {
    let (mut reported, mut seen) = (Vec::new(), BTreeSet::new());
    let value = Reader::new(bytes, duplicates, |path, duplicate| {
        if duplicate && reported.len() < MAX_REPORTED_FIELDS && seen.insert(path.hash) {
            reported.push(path.text());
        }
    })
    .read()?;
    Ok(Read { value, duplicates: reported })
}

/// Returns the given fields and all duplicates in the order of the text; empty if the text is invalid. A
/// given field is not reported as a duplicate.
pub(crate) fn fields_in_order(bytes: &[u8], fields: &[String]) -> Vec<ReportedField> {
    let mut reported = Vec::new();
    // Given fields by the hash of their path; `true` until the field is reported.
    let mut pending: BTreeMap<u64, bool> =
        fields.iter().map(|field| (hashed(EMPTY_HASH, field), true)).collect();
    let mut duplicates = BTreeSet::new();
    let read = Reader::new(bytes, Duplicates::Replace, |path, duplicate| {
        if reported.len() >= MAX_REPORTED_FIELDS {
            return;
        }
        if let Some(is_pending) = pending.get_mut(&path.hash) {
            if std::mem::take(is_pending) {
                reported.push(ReportedField { path: path.text(), duplicate: false });
            }
        } else if duplicate && duplicates.insert(path.hash) {
            reported.push(ReportedField { path: path.text(), duplicate: true });
        }
    })
    .read();
    if read.is_err() {
        reported.clear();
    }
    reported
}

/// The path of a field.
///
/// Cheap to create while reading. Paths may be as long as the body, so the text is built only for reported
/// fields, and paths are compared by the hash of their text.
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
    /// The hash of the text, computed without building the text.
    hash: u64,
}

#[derive(Clone, Copy)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    fn root() -> Self {
        Path { parent: None, step: Step::Root, hash: EMPTY_HASH }
    }

    fn field(parent: &'a Path<'a>, name: &'a str) -> Self {
        let dot = if parent.hash == EMPTY_HASH { "" } else { "." };
        let hash = hashed(hashed(parent.hash, dot), name);
        Path { parent: Some(parent), step: Step::Field(name), hash }
    }

    fn index(parent: &'a Path<'a>, index: usize) -> Self {
        let hash = hashed(parent.hash, &format!("[{index}]"));
        Path { parent: Some(parent), step: Step::Index(index), hash }
    }

    /// Returns the text, `spec.containers[0].name`.
    fn text(&self) -> String {
        let mut text = self.parent.map(Path::text).unwrap_or_default();
        match self.step {
            Step::Root => {}
            Step::Field(name) => {
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(name);
            }
            Step::Index(index) => {
                let _ = write!(text, "[{index}]");
            }
        }
        text
    }
}

/// The FNV-1a hash of the empty text.
const EMPTY_HASH: u64 = 0xcbf2_9ce4_8422_2325;

/// Extends the hash of a text.
fn hashed(hash: u64, suffix: &str) -> u64 {
    suffix.bytes().fold(hash, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

struct Reader<'a, F> {
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    duplicates: Duplicates,
    /// Called for every field with its path and whether its object already had a field of that name.
    on_field: F,
    /// The first number that exceeds the range of floats.
    too_large: Option<String>,
}

impl<'a, F: FnMut(&Path<'_>, bool)> Reader<'a, F> {
    fn new(bytes: &'a [u8], duplicates: Duplicates, on_field: F) -> Self {
        Reader { bytes, at: 0, depth: 0, duplicates, on_field, too_large: None }
    }

    fn read(mut self) -> Result<Value, String> {
        let root = Path::root();
        let value = self.value(&root)?;
        self.skip_blanks();
        if self.peek().is_some() {
            return Err(self.unexpected("after top-level value"));
        }
        match self.too_large {
            None => Ok(value),
            Some(text) => Err(format!("json: cannot unmarshal number {text} into Go value of type float64")),
        }
    }

    fn value(&mut self, path: &Path<'_>) -> Result<Value, String> {
        self.skip_blanks();
        match self.peek() {
            Some(b'{') => self.nested(|reader| reader.object(path)),
            Some(b'[') => self.nested(|reader| reader.array(path)),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Value, String>) -> Result<Value, String> {
        if self.depth == MAX_DEPTH {
            return Err("exceeded max depth".to_owned());
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self, path: &Path<'_>) -> Result<Value, String> {
        let mut fields = Map::new();
        self.skip_blanks();
        if self.take(b'}') {
            return Ok(Value::Object(fields));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let name = self.string()?;
            self.skip_blanks();
            if !self.take(b':') {
                return Err(self.unexpected("after object key"));
            }
            let child = Path::field(path, &name);
            (self.on_field)(&child, fields.contains_key(&name));
            let value = self.value(&child)?;
            match fields.get_mut(&name) {
                Some(existing) if self.duplicates == Duplicates::Merge => merge_value(existing, value),
                _ => drop(fields.insert(name, value)),
            }
            self.skip_blanks();
            if self.take(b'}') {
                return Ok(Value::Object(fields));
            }
            if !self.take(b',') {
                return Err(self.unexpected("after object key:value pair"));
            }
        }
    }

    fn array(&mut self, path: &Path<'_>) -> Result<Value, String> {
        let mut items = Vec::new();
        self.skip_blanks();
        if self.take(b']') {
            return Ok(Value::Array(items));
        }
        loop {
            let child = Path::index(path, items.len());
            items.push(self.value(&child)?);
            self.skip_blanks();
            if self.take(b']') {
                return Ok(Value::Array(items));
            }
            if !self.take(b',') {
                return Err(self.unexpected("after array element"));
            }
        }
    }

    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut text: Vec<u8> = Vec::new();
        loop {
            match self.peek() {
                Some(b'"') => break,
                Some(b'\\') => {
                    self.at += 1;
                    let escaped = self.escape()?;
                    text.extend_from_slice(escaped.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(byte) if byte >= 0x20 => {
                    text.push(byte);
                    self.at += 1;
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
        self.at += 1;
        Ok(match String::from_utf8(text) {
            Ok(text) => text,
            Err(bad) => replaced(bad.as_bytes()),
        })
    }

    /// Reads an escape after its backslash.
    fn escape(&mut self) -> Result<char, String> {
        let plain = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.unicode();
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.unexpected_inside("in string escape code")),
        };
        self.at += 1;
        Ok(plain)
    }

    fn unicode(&mut self) -> Result<char, String> {
        let first = self.hex()?;
        if (0xD800..0xDC00).contains(&first) && self.bytes.get(self.at..self.at + 2) == Some(b"\\u") {
            let after_first = self.at;
            self.at += 2;
            let second = self.hex()?;
            if (0xDC00..0xE000).contains(&second) {
                let code = 0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = after_first;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self) -> Result<u32, String> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            let Some(digit) = digit else {
                return Err(self.unexpected_inside("in \\u hexadecimal character escape"));
            };
            code = code * 16 + digit;
            self.at += 1;
        }
        Ok(code)
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits("in numeric literal")?;
        }
        if self.take(b'.') {
            self.digits("after decimal point in numeric literal")?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _sign = self.take(b'+') || self.take(b'-');
            self.digits("in exponent of numeric literal")?;
        }
        let text = self.bytes.get(start..self.at).unwrap_or_default();
        let text = std::str::from_utf8(text).unwrap_or_default();
        Ok(Value::Number(number_of(text).unwrap_or_else(|| {
            self.too_large.get_or_insert_with(|| text.to_owned());
            Number::from(0)
        })))
    }

    fn digits(&mut self, context: &str) -> Result<(), String> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected_inside(context));
        }
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, String> {
        for expected in word.bytes() {
            if !self.take(expected) {
                let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                return Err(self.unexpected_inside(&context));
            }
        }
        Ok(value)
    }

    fn skip_blanks(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self, byte: u8) -> bool {
        let matches = self.peek() == Some(byte);
        self.at += usize::from(matches);
        matches
    }

    fn unexpected(&self, context: &str) -> String {
        match self.peek() {
            None => "unexpected end of JSON input".to_owned(),
            Some(byte) => format!("invalid character {} {context}", quoted_char(byte)),
        }
    }

    /// Returns the error for an unexpected byte inside a token, where Go treats the end of the text as a
    /// blank.
    fn unexpected_inside(&self, context: &str) -> String {
        format!("invalid character {} {context}", quoted_char(self.peek().unwrap_or(b' ')))
    }
}

/// Merges a second value of a field into the first, as Go does with structs and maps.
fn merge_value(existing: &mut Value, value: Value) {
    match (existing, value) {
        (Value::Object(fields), Value::Object(new)) => {
            for (name, value) in new {
                match fields.get_mut(&name) {
                    Some(existing) => merge_value(existing, value),
                    None => drop(fields.insert(name, value)),
                }
            }
        }
        (existing, value) => *existing = value,
    }
}

/// Replaces each invalid byte by a replacement character of its own, as Go does.
fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}
