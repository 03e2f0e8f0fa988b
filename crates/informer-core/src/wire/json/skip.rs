//! Finding the end of a JSON value without reading it: the fast lane of every reader.
//!
//! Only strings and brackets are looked at, so what lies inside a value is not validated; whoever decodes it later will. Objects
//! and arrays go by in blocks of 64 bytes ([`super::block`]), what is left of a chunk and plain strings eight bytes at a time. The
//! state between two chunks is two small fields, so a chunk may be cut anywhere, inside an escape too. Depth is a counter, not
//! a stack: nesting cannot overflow anything.

use super::block::{Block, Carry, SIZE};

const LOW: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Where in a value the next byte stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Before the first byte.
    Start,
    /// Between the strings of an object or array.
    Structure,
    String,
    /// Behind a backslash in a string.
    Escape,
    /// Behind a backslash between strings. No JSON; the byte behind it counts for nothing, wherever a block or chunk is cut.
    Stray,
    /// In a number, `true`, `false` or `null`.
    Scalar,
}

/// Skips one JSON value whose bytes arrive in pieces.
#[derive(Debug)]
pub(crate) struct ValueSkipper {
    mode: Mode,
    /// Open brackets; no stream is long enough to overflow it.
    depth: u64,
}

impl ValueSkipper {
    /// Ready for the first byte of a value.
    pub(crate) fn new() -> Self {
        Self { mode: Mode::Start, depth: 0 }
    }

    /// Goes on through `bytes`. `Some(n)` says that the value ends before `bytes[n]`; afterwards the
    /// skimmer is ready for the next value. `None`: it goes on beyond these bytes.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            match self.mode {
                Mode::Start => {
                    let first = *bytes.get(at)?;
                    self.mode = match first {
                        b'"' => Mode::String,
                        b'{' | b'[' => {
                            self.depth = 1;
                            Mode::Structure
                        }
                        delimiter if ends_scalar(delimiter) => return Some(self.done(at)),
                        _ => Mode::Scalar,
                    };
                    at += 1;
                }
                Mode::Structure => {
                    match self.feed_blocks(bytes, &mut at) {
                        Some(end) => return Some(self.done(end)),
                        None if self.mode != Mode::Structure => continue,
                        None => at = next_structural(bytes, at)?,
                    }
                    match bytes[at] {
                        b'"' => self.mode = Mode::String,
                        b'\\' => self.mode = Mode::Stray,
                        b'{' | b'[' => self.depth += 1,
                        _ => {
                            self.depth -= 1;
                            if self.depth == 0 {
                                return Some(self.done(at + 1));
                            }
                        }
                    }
                    at += 1;
                }
                Mode::String => {
                    at = next_quote_or_escape(bytes, at)?;
                    if bytes[at] == b'\\' {
                        self.mode = Mode::Escape;
                    } else if self.depth == 0 {
                        return Some(self.done(at + 1));
                    } else {
                        self.mode = Mode::Structure;
                    }
                    at += 1;
                }
                Mode::Escape => {
                    bytes.get(at)?;
                    self.mode = Mode::String;
                    at += 1;
                }
                Mode::Stray => {
                    bytes.get(at)?;
                    self.mode = Mode::Structure;
                    at += 1;
                }
                Mode::Scalar => {
                    let rest = bytes.get(at..)?;
                    let end = rest.iter().position(|byte| ends_scalar(*byte))?;
                    return Some(self.done(at + end));
                }
            }
        }
    }

    /// Goes on through whole blocks as long as there are any; the value's end if it lies in one of them.
    #[inline]
    fn feed_blocks(&mut self, bytes: &[u8], at: &mut usize) -> Option<usize> {
        let mut carry = Carry::default();
        while let Some(block) = bytes.get(*at..).and_then(<[u8]>::first_chunk::<SIZE>) {
            if let Some(end) = Block::read(block, &mut carry).end(&mut self.depth) {
                return Some(*at + end);
            }
            *at += SIZE;
        }
        self.mode = match (carry.is_in_string(), carry.is_escaped()) {
            (false, false) => Mode::Structure,
            (false, true) => Mode::Stray,
            (true, false) => Mode::String,
            (true, true) => Mode::Escape,
        };
        None
    }

    /// Gets ready for the next value.
    fn done(&mut self, end: usize) -> usize {
        *self = Self::new();
        end
    }
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r' | b'\t')
}

/// The high bit of each byte of `word` that equals `byte`. Bits above the lowest hit may be wrong, so only
/// the lowest counts.
#[inline]
fn hits(word: u64, byte: u8) -> u64 {
    let zeroed = word ^ (LOW * u64::from(byte));
    zeroed.wrapping_sub(LOW) & !zeroed & HIGH
}

#[inline]
fn structural_hits(word: u64) -> u64 {
    // Bit 0x20 is what tells '[' from '{' and ']' from '}'.
    let folded = word | (LOW * 0x20);
    string_hits(word) | hits(folded, b'{') | hits(folded, b'}')
}

#[inline]
fn string_hits(word: u64) -> u64 {
    hits(word, b'"') | hits(word, b'\\')
}

/// The first quote, bracket or backslash at or behind `from`.
#[inline]
fn next_structural(bytes: &[u8], from: usize) -> Option<usize> {
    let is_hit = |byte: &u8| matches!(byte, b'"' | b'\\' | b'{' | b'}' | b'[' | b']');
    search(bytes, from, structural_hits, is_hit)
}

/// The first quote or backslash at or behind `from`.
#[inline]
fn next_quote_or_escape(bytes: &[u8], from: usize) -> Option<usize> {
    search(bytes, from, string_hits, |byte| matches!(byte, b'"' | b'\\'))
}

#[inline]
fn search(
    bytes: &[u8],
    mut at: usize,
    word_hits: impl Fn(u64) -> u64,
    is_hit: impl Fn(&u8) -> bool,
) -> Option<usize> {
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let found = word_hits(u64::from_le_bytes(*word));
        if found != 0 {
            return Some(at + (found.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    bytes.get(at..)?.iter().position(is_hit).map(|offset| at + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value's end when the text is fed whole, and with every possible single cut.
    #[track_caller]
    fn check(text: &str, expected: Option<usize>) {
        assert_eq!(ValueSkipper::new().feed(text.as_bytes()), expected, "whole: {text}");
        for cut in 0..text.len() {
            let (left, right) = text.as_bytes().split_at(cut);
            let mut skim = ValueSkipper::new();
            let end = skim.feed(left).or_else(|| skim.feed(right).map(|end| cut + end));
            assert_eq!(end, expected, "cut at {cut}: {text}");
        }
    }

    #[test]
    fn every_kind_of_value_ends_where_it_ends() {
        check(r#""text","more""#, Some(6));
        check(r#""a \" quote \\",1"#, Some(15));
        check(r#"{"a":[1,{"b":"}]"}],"c":"\\"} , "#, Some(29));
        check("[[[[]]]]]", Some(8));
        check("123,", Some(3));
        check("true}", Some(4));
        check("null\n", Some(4));
        check(",", Some(0)); // no value at all
    }

    #[test]
    fn a_value_that_is_not_over_is_not_over() {
        check(r#"{"a":"b""#, None);
        check(r#""text \""#, None);
        check("123", None);
        check("", None);
    }

    #[test]
    fn nesting_is_bounded_by_nothing_but_the_bytes() {
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        assert_eq!(ValueSkipper::new().feed(deep.as_bytes()), Some(deep.len()));
    }
}
