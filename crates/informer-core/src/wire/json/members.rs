//! Walking the members of one JSON object as its bytes arrive.
//!
//! [`Members`] reads names and punctuation and stops in front of each value; what happens to the value is its
//! owner's choice (skip it, copy it, or go inside with another walker). It knows nothing about Kubernetes.

use super::skip::ValueSkipper;
use crate::wire::keep_beginning;
use crate::wire::problem::JsonSyntaxError;

/// What the walker met.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The bytes are used up.
    NeedMore,
    /// The next byte is the first of a value; [`Members::name`] is its name.
    Value,
    /// The object's closing bracket was read.
    End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Before the opening bracket.
    Open,
    /// Behind it: a name, or the end.
    FirstName,
    /// Behind a comma: a name.
    Name,
    InName,
    EscapeInName,
    Colon,
    /// Before a value's first byte.
    Value,
    /// Behind a value: a comma, or the end.
    AfterValue,
}

/// Walks one object, again and again.
#[derive(Debug)]
pub(crate) struct Members {
    at: At,
    /// The current name, between its quotes, escapes untouched; of a very long one, the beginning.
    name: Vec<u8>,
    /// How long the name is.
    length: usize,
}

/// The longest name that is held, as large as the largest object is by default.
const MAX_NAME_BYTES: usize = 8 << 20;

impl Members {
    pub(crate) fn new() -> Self {
        Self { at: At::Open, name: Vec::new(), length: 0 }
    }

    /// The name of the member whose value comes next, without quotes and with its escapes as they were sent.
    pub(crate) fn name(&self) -> &[u8] {
        &self.name
    }

    /// Whether [`Self::name`] is all of the name.
    pub(crate) fn name_is_whole(&self) -> bool {
        self.length == self.name.len()
    }

    /// Whether the walker stands before the object's first byte.
    pub(crate) fn is_fresh(&self) -> bool {
        self.at == At::Open
    }

    /// Goes on from `bytes[*at]`, moving `at` behind what was read. After [`Step::Value`] the caller takes the
    /// value away and calls again; after [`Step::End`] the walker is ready for another object.
    pub(crate) fn next(&mut self, bytes: &[u8], at: &mut usize) -> Result<Step, JsonSyntaxError> {
        while let Some(&byte) = bytes.get(*at) {
            match (self.at, byte) {
                (At::InName, _) => {
                    self.read_name(bytes, at);
                    continue;
                }
                (At::EscapeInName, _) => {
                    self.extend_name(&[byte]);
                    self.at = At::InName;
                }
                (_, b' ' | b'\n' | b'\r' | b'\t') => {}
                (At::Open, b'{') => self.at = At::FirstName,
                (At::FirstName | At::Name, b'"') => {
                    self.name.clear();
                    self.length = 0;
                    self.at = At::InName;
                }
                (At::FirstName | At::AfterValue, b'}') => {
                    self.at = At::Open;
                    *at += 1;
                    return Ok(Step::End);
                }
                (At::Colon, b':') => self.at = At::Value,
                (At::Value, b',' | b'}' | b']' | b':') => return Err(JsonSyntaxError::new("a value", byte)),
                (At::Value, _) => {
                    self.at = At::AfterValue;
                    return Ok(Step::Value);
                }
                (At::AfterValue, b',') => self.at = At::Name,
                (state, _) => return Err(JsonSyntaxError::new(state.expects(), byte)),
            }
            *at += 1;
        }
        Ok(Step::NeedMore)
    }

    /// Takes the part of a name that is here, up to its closing quote or the first escape.
    fn read_name(&mut self, bytes: &[u8], at: &mut usize) {
        let rest = &bytes[*at..];
        let end = rest.iter().position(|byte| matches!(byte, b'"' | b'\\'));
        self.extend_name(&rest[..end.unwrap_or(rest.len())]);
        *at += end.map_or(rest.len(), |end| end + 1);
        match end.map(|end| rest[end]) {
            Some(b'"') => self.at = At::Colon,
            Some(_) => {
                self.extend_name(b"\\");
                self.at = At::EscapeInName;
            }
            None => {}
        }
    }

    fn extend_name(&mut self, part: &[u8]) {
        self.length += part.len();
        keep_beginning(&mut self.name, part, MAX_NAME_BYTES);
    }
}

impl At {
    fn expects(self) -> &'static str {
        match self {
            At::Open => "`{`",
            At::FirstName => "a member or `}`",
            At::Name | At::InName | At::EscapeInName => "a member",
            At::Colon => "`:`",
            At::Value => "a value",
            At::AfterValue => "`,` or `}`",
        }
    }
}

/// Calls `visit` with the name and the bytes of each member of a complete object; stops at the first `false`.
/// `None` if `object` is not an object or is cut short.
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

/// Calls `visit` with each element of a complete array. `None` if `array` is not an array or is cut short.
pub(crate) fn each_element<'a>(array: &'a [u8], mut visit: impl FnMut(&'a [u8])) -> Option<()> {
    let mut rest = array.trim_ascii().strip_prefix(b"[")?.trim_ascii_start();
    while *rest.first()? != b']' {
        let (value, behind) = rest.split_at(ValueSkipper::new().feed(rest)?);
        if value.is_empty() {
            return None;
        }
        visit(value);
        let behind = behind.trim_ascii_start();
        rest = behind.strip_prefix(b",").unwrap_or(behind).trim_ascii_start();
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(text: &str) -> Option<Vec<String>> {
        let mut seen = Vec::new();
        let mut note = |name: &[u8], value: &[u8]| {
            seen.push(format!("{}={}", String::from_utf8_lossy(name), String::from_utf8_lossy(value)));
            true
        };
        each_member(text.as_bytes(), &mut note)?;
        Some(seen)
    }

    #[test]
    fn members_come_in_order_with_their_bytes() {
        let text = r#" { "a" : 1 , "b":{"c":[2]},"d\"e":"x" } "#;
        assert_eq!(walk(text).unwrap(), ["a=1", r#"b={"c":[2]}"#, r#"d\"e="x""#]);
        assert_eq!(walk("{}").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bad in ["[]", "{,}", r#"{"a"}"#, r#"{"a":}"#, r#"{"a":1,}"#, r#"{"a":1"#, r#"{"a":1 "b":2}"#, "x"]
        {
            assert_eq!(walk(bad), None, "{bad}");
        }
    }

    #[test]
    fn elements_come_in_order() {
        let mut seen = Vec::new();
        each_element(br#" [ 1, "a,b" ,{"c":2}] "#, |value| seen.push(String::from_utf8_lossy(value)))
            .unwrap();
        assert_eq!(seen, ["1", r#""a,b""#, r#"{"c":2}"#]);
        assert!(each_element(b"[1", |_| {}).is_none());
        assert!(each_element(b"[,]", |_| {}).is_none());
        assert!(each_element(b"{}", |_| {}).is_none());
    }
}
