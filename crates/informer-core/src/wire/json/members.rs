//! An incremental parser for the members of one JSON object.
//!
//! [`Members`] parses names and punctuation and stops before each value; the caller decides what to do with
//! the value (skip it, copy it, or parse it with another instance). It does not know Kubernetes.

use super::skip::ValueSkipper;
use crate::wire::append_up_to;
use crate::wire::error::JsonSyntaxError;

/// The result of one step of [`Members`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The chunk is consumed.
    NeedMore,
    /// The next byte is the first of a value; [`Members::name`] is its name.
    Value,
    /// The object's closing bracket was read.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Before the opening bracket.
    Open,
    /// After the opening bracket: a name, or the end.
    FirstName,
    /// After a comma: a name.
    Name,
    InName,
    EscapeInName,
    Colon,
    /// Before the first byte of a value.
    Value,
    /// After a value: a comma, or the end.
    AfterValue,
}

/// Parses the members of one object after another.
#[derive(Debug)]
pub(crate) struct Members {
    state: State,
    /// The current name without quotes, escapes as sent; truncated if it is very long.
    name: Vec<u8>,
    /// The full length of the name.
    length: usize,
}

/// Maximum length of a buffered name, equal to the default limit of an object. An object with a longer name
/// is reported as too large, whatever its limit is.
const MAX_NAME_BYTES: usize = 8 << 20;

impl Members {
    pub(crate) fn new() -> Self {
        Self { state: State::Open, name: Vec::new(), length: 0 }
    }

    /// The name of the member whose value is next, without quotes, escapes as sent.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether [`Self::name`] is complete, not truncated.
    pub(crate) fn name_is_complete(&self) -> bool {
        self.length == self.name.len()
    }

    /// Whether no byte of an object was read yet.
    pub(crate) fn is_at_start(&self) -> bool {
        self.state == State::Open
    }

    /// Continues at `bytes[*at]` and advances `at` past the bytes it read.
    ///
    /// After [`Step::Value`] the caller consumes the value before the next call; after [`Step::End`]
    /// another object can be parsed.
    pub(crate) fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Step, JsonSyntaxError> {
        while let Some(&byte) = bytes.get(*at) {
            match (self.state, byte) {
                (State::InName, _) => {
                    self.read_name(bytes, at);
                    continue;
                }
                (State::EscapeInName, _) => {
                    self.extend_name(&[byte]);
                    self.state = State::InName;
                }
                (_, b' ' | b'\n' | b'\r' | b'\t') => {}
                (State::Open, b'{') => self.state = State::FirstName,
                (State::FirstName | State::Name, b'"') => {
                    self.name.clear();
                    self.length = 0;
                    self.state = State::InName;
                }
                (State::FirstName | State::AfterValue, b'}') => {
                    self.state = State::Open;
                    *at += 1;
                    return Ok(Step::End);
                }
                (State::Colon, b':') => self.state = State::Value,
                (State::Value, b',' | b'}' | b']' | b':') => {
                    return Err(JsonSyntaxError::new("a value", byte));
                }
                (State::Value, _) => {
                    self.state = State::AfterValue;
                    return Ok(Step::Value);
                }
                (State::AfterValue, b',') => self.state = State::Name,
                (state, _) => return Err(JsonSyntaxError::new(state.expects(), byte)),
            }
            *at += 1;
        }
        Ok(Step::NeedMore)
    }

    /// Reads a name up to its closing quote, its first escape, or the end of the chunk.
    fn read_name(&mut self, bytes: &[u8], at: &mut usize) {
        let rest = &bytes[*at..];
        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        self.extend_name(&rest[..end.unwrap_or(rest.len())]);
        *at += end.map_or(rest.len(), |end| end + 1);
        match end.map(|end| rest[end]) {
            Some(b'"') => self.state = State::Colon,
            Some(_) => {
                self.extend_name(b"\\");
                self.state = State::EscapeInName;
            }
            None => {}
        }
    }

    fn extend_name(&mut self, part: &[u8]) {
        self.length += part.len();
        append_up_to(&mut self.name, part, MAX_NAME_BYTES);
    }
}

impl State {
    fn expects(self) -> &'static str {
        match self {
            State::Open => "`{`",
            State::FirstName => "a member or `}`",
            State::Name | State::InName | State::EscapeInName => "a member",
            State::Colon => "`:`",
            State::Value => "a value",
            State::AfterValue => "`,` or `}`",
        }
    }
}

/// Calls `visit` with the name and the bytes of each member of a complete object, until `visit` returns
/// `false`.
///
/// `None` if `object` is not an object, or is malformed or truncated.
pub(crate) fn each_member<'a>(
    object: &'a [u8],
    mut visit: impl FnMut(&[u8], &'a [u8]) -> bool,
) -> Option<()> {
    let (mut members, mut at) = (Members::new(), 0);
    loop {
        match members.next(object, &mut at).ok()? {
            Step::NeedMore => return None,
            Step::End => return Some(()),
            Step::Value => {
                let rest = &object[at..];
                let value = &rest[..ValueSkipper::new().feed(rest)?];
                if !visit(members.name(), value) {
                    return Some(());
                }
                at += value.len();
            }
        }
    }
}

/// Calls `visit` with each element of a complete array. `None` if `array` is not an array or is truncated.
///
/// Missing commas, and a comma after the last element, are accepted.
pub(crate) fn each_element<'a>(array: &'a [u8], mut visit: impl FnMut(&'a [u8])) -> Option<()> {
    let mut rest = array.trim_ascii().strip_prefix(b"[")?.trim_ascii_start();
    while *rest.first()? != b']' {
        let (value, after) = rest.split_at(ValueSkipper::new().feed(rest)?);
        if value.is_empty() {
            return None;
        }
        visit(value);
        let after = after.trim_ascii_start();
        rest = after.strip_prefix(b",").unwrap_or(after).trim_ascii_start();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(text: &str) -> Option<Vec<String>> {
        let mut seen = Vec::new();
        let mut record = |name: &[u8], value: &[u8]| {
            seen.push(format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
            true
        };
        each_member(text.as_bytes(), &mut record)?;
        Some(seen)
    }

    #[test]
    fn members_are_visited_in_order_with_their_bytes() {
        let text = r#" { "a" : 1 , "b":{"c":[2]},"d\"e":"x" } "#;
        assert_eq!(walk(text).unwrap(), ["a=1", r#"b={"c":[2]}"#, r#"d\"e="x""#]);
        assert_eq!(walk("{}").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn malformed_objects_are_rejected() {
        for bad in ["[]", "{,}", r#"{"a"}"#, r#"{"a":}"#, r#"{"a":1,}"#, r#"{"a":1"#, r#"{"a":1 "b":2}"#, "x"]
        {
            assert_eq!(walk(bad), None, "{bad}");
        }
    }

    #[test]
    fn elements_are_visited_in_order() {
        let mut seen = Vec::new();
        each_element(br#" [ 1, "a,b" ,{"c":2}] "#, |value| seen.push(String::from_utf8_lossy(value)))
            .unwrap();
        assert_eq!(seen, ["1", r#""a,b""#, r#"{"c":2}"#]);
        assert!(each_element(b"[1", |_| {}).is_none());
        assert!(each_element(b"[,]", |_| {}).is_none());
        assert!(each_element(b"{}", |_| {}).is_none());
    }
}
