//! Skipping JSON values: finds the end of a value without parsing it, the fast path of every reader.
//!
//! Only quotes and brackets are examined, so the inside of a value is not validated; decoding it later does
//! that. Objects and arrays are skipped in blocks of 64 bytes ([`super::block`]). The last bytes of a chunk,
//! and values that are strings, are skipped eight bytes at a time. The state between two chunks consists of
//! two small fields, so a chunk may be split anywhere, also inside an escape. The depth is a counter, not a
//! stack: nesting cannot overflow anything.

use super::block::{Block, Carry, SIZE};

/// The lowest bit of each byte of a word.
const LOW: u64 = 0x0101_0101_0101_0101;
/// The highest bit of each byte of a word.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// The position of the next byte in a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Before the first byte.
    Start,
    /// Inside an object or array, outside of strings.
    Structure,
    String,
    /// After a backslash in a string.
    Escape,
    /// After a backslash outside of strings, which is not JSON. The next byte is ignored, as in
    /// [`super::block`], so that the end of the value does not depend on block and chunk boundaries.
    Stray,
    /// In a number, `true`, `false` or `null`.
    Scalar,
}

/// Skips JSON values whose bytes arrive in chunks.
#[derive(Debug)]
pub(crate) struct ValueSkipper {
    mode: Mode,
    /// Number of open brackets; no stream is long enough to overflow it.
    depth: u64,
}

impl ValueSkipper {
    /// Creates a skipper that expects the first byte of a value.
    pub(crate) fn new() -> Self {
        Self { mode: Mode::Start, depth: 0 }
    }

    /// Continues with `bytes`. Returns `Some(n)` if the value ends before `bytes[n]`; the skipper then
    /// expects another value. Returns `None` if the value continues in the next chunk.
    ///
    /// A comma, colon, closing bracket or white space in the place of a value is a value of no bytes.
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

    /// Skips complete blocks and returns the end of the value if one of them contains it.
    #[inline]
    fn feed_blocks(&mut self, bytes: &[u8], at: &mut usize) -> Option<usize> {
        // The caller is outside of strings, as the default is.
        let mut carry = Carry::default();
        while let Some(block) = bytes.get(*at..).and_then(<[u8]>::first_chunk::<SIZE>) {
            if let Some(end) = Block::read(block, &mut carry).find_end(&mut self.depth) {
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

    /// Resets the state for the next value, and returns `end`.
    fn done(&mut self, end: usize) -> usize {
        *self = Self::new();
        end
    }
}

fn ends_scalar(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']' | b':' | b' ' | b'\n' | b'\r' | b'\t')
}

/// Returns a word with the high bit set in each byte that equals `byte`. Only the lowest hit is reliable:
/// borrows of the subtraction may set bits above it.
#[inline]
fn hits(word: u64, byte: u8) -> u64 {
    let zeroed = word ^ (LOW * u64::from(byte));
    zeroed.wrapping_sub(LOW) & !zeroed & HIGH
}

#[inline]
fn structural_hits(word: u64) -> u64 {
    // Bit 0x20 distinguishes '[' from '{' and ']' from '}'. With the bit set, both look like '{' or '}'.
    let folded = word | (LOW * 0x20);
    string_hits(word) | hits(folded, b'{') | hits(folded, b'}')
}

#[inline]
fn string_hits(word: u64) -> u64 {
    hits(word, b'"') | hits(word, b'\\')
}

/// Returns the position of the first quote, bracket or backslash from `from` on.
#[inline]
fn next_structural(bytes: &[u8], from: usize) -> Option<usize> {
    let is_hit = |byte: &u8| matches!(byte, b'"' | b'\\' | b'{' | b'}' | b'[' | b']');
    search(bytes, from, structural_hits, is_hit)
}

/// Returns the position of the first quote or backslash from `from` on.
#[inline]
fn next_quote_or_escape(bytes: &[u8], from: usize) -> Option<usize> {
    search(bytes, from, string_hits, |byte| matches!(byte, b'"' | b'\\'))
}

/// Returns the position of the first hit from `at` on: eight bytes at a time by `word_hits`, and the last
/// bytes one by one by `is_hit`.
#[inline]
fn search(
    bytes: &[u8],
    mut at: usize,
    word_hits: impl Fn(u64) -> u64,
    is_hit: impl Fn(&u8) -> bool,
) -> Option<usize> {
    while let Some(word) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let hits = word_hits(u64::from_le_bytes(*word));
        if hits != 0 {
            return Some(at + (hits.trailing_zeros() / 8) as usize);
        }
        at += 8;
    }
    bytes.get(at..)?.iter().position(is_hit).map(|offset| at + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the end of the value in the whole text, and with the text split at every byte.
    #[track_caller]
    fn check(text: &str, expected: Option<usize>) {
        assert_eq!(ValueSkipper::new().feed(text.as_bytes()), expected, "unsplit: {text}");
        for split in 0..text.len() {
            let (left, right) = text.as_bytes().split_at(split);
            let mut skipper = ValueSkipper::new();
            let end = skipper.feed(left).or_else(|| skipper.feed(right).map(|end| split + end));
            assert_eq!(end, expected, "split at {split}: {text}");
        }
    }

    #[test]
    fn end_is_found_for_every_type_of_value() {
        check(r#""text","more""#, Some(6));
        check(r#""a \" quote \\",1"#, Some(15));
        check(r#"{"a":[1,{"b":"}]"}],"c":"\\"} , "#, Some(29));
        check("[[[[]]]]]", Some(8));
        check("123,", Some(3));
        check("true}", Some(4));
        check("null\n", Some(4));
        check(",", Some(0)); // not a value
    }

    #[test]
    fn incomplete_value_has_no_end() {
        check(r#"{"a":"b""#, None);
        check(r#""text \""#, None);
        check("123", None);
        check("", None);
    }

    #[test]
    fn nesting_depth_is_not_limited() {
        let deep = "[".repeat(1_000_000) + &"]".repeat(1_000_000);
        assert_eq!(ValueSkipper::new().feed(deep.as_bytes()), Some(deep.len()));
    }
}
