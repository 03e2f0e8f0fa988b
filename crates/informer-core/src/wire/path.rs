//! Paths to fields: how they are written.
//!
//! [`super::values`] looks a path up in an object, and [`super::projection`] uses the same paths to cut things out. This file must not know how
//! an object is written.

use super::head::string;
use crate::error::{ParseError, ParseErrorKind};
use std::fmt;
use std::str::FromStr;

/// A path to a field: names joined by dots, as in `spec.nodeName`.
///
/// A name that has dots itself stands in brackets and quotes, as in `metadata.annotations['example.com/team']`. A list on the
/// way is gone into; who likes can say so, as in `spec.containers[*].image`.
///
/// ```
/// use informer_core::FieldPath;
///
/// let path: FieldPath = "spec.containers.image".parse()?;
/// let pod = br#"{"spec":{"containers":[{"image":"nginx"},{"image":"envoy"}]}}"#;
/// assert_eq!(path.values_in(pod), ["nginx", "envoy"]);
/// # Ok::<(), informer_core::error::ParseError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldPath(Box<[Box<str>]>);

impl FromStr for FieldPath {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let names = steps(text)?.into_iter().filter_map(|step| match step {
            PathStep::Name(name) => Some(name),
            // A list is gone into anyway.
            PathStep::Each => None,
        });
        Ok(Self(names.collect()))
    }
}

impl FieldPath {
    /// The names on the way, outermost first.
    pub(super) fn names(&self) -> &[Box<str>] {
        &self.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            match &**name {
                name if is_plain(name) => write!(f, "{}{name}", if index == 0 { "" } else { "." })?,
                name if name.contains('\'') => write!(f, "[\"{name}\"]")?,
                name => write!(f, "['{name}']")?,
            }
        }
        Ok(())
    }
}

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum PathStep {
    /// To the member of this name.
    Name(Box<str>),
    /// To each element of a list.
    Each,
}

/// The steps of a path as it is written. The first is always a name: objects are no lists.
pub(super) fn steps(text: &str) -> Result<Vec<PathStep>, ParseError> {
    let parsed = parse(text).filter(|steps| matches!(steps.first(), Some(PathStep::Name(_))));
    parsed.ok_or_else(|| {
        let expected = "names joined by dots, as in `spec.nodeName`, or in brackets and quotes";
        ParseError::new(ParseErrorKind::FieldPath, text, expected)
    })
}

fn parse(text: &str) -> Option<Vec<PathStep>> {
    // A leading dot is how kubectl's JSON paths begin.
    let mut rest = text.strip_prefix('.').unwrap_or(text);
    let mut steps = Vec::new();
    loop {
        let (step, behind) = if let Some(inner) = rest.strip_prefix('[') {
            bracket(inner)?
        } else {
            let (name, behind) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
            (PathStep::Name(Some(name).filter(|name| is_plain(name))?.into()), behind)
        };
        steps.push(step);
        rest = match behind.strip_prefix('.') {
            None if behind.is_empty() => return Some(steps),
            None if behind.starts_with('[') => behind,
            Some(name) if !name.starts_with('[') => name,
            Some(_) | None => return None,
        };
    }
}

/// What stands in brackets, and what follows them.
fn bracket(inner: &str) -> Option<(PathStep, &str)> {
    if let Some(behind) = inner.strip_prefix("*]") {
        return Some((PathStep::Each, behind));
    }
    let quote = inner.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let (name, behind) = inner[1..].split_once(quote)?;
    let behind = behind.strip_prefix(']').filter(|_| !name.is_empty())?;
    Some((PathStep::Name(name.into()), behind))
}

/// Whether a name needs no quotes in a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['[', ']', '"', '\\', ' ', '.'])
}

/// Whether a member's name, as it was sent, is `name`.
pub(super) fn is_named(sent: &[u8], name: &str) -> bool {
    let is_escaped = || sent.len() > name.len() && sent.contains(&b'\\');
    sent == name.as_bytes() || (is_escaped() && string(sent, false).as_deref() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_written_as_it_is_read() {
        for (path, written) in [
            ("spec.nodeName", "spec.nodeName"),
            (".a['b'].c[\"d.e\"].f", "a.b.c['d.e'].f"),
            ("a[*].b", "a.b"),
            (r#"['a.b']["it's."]"#, r#"['a.b']["it's."]"#),
        ] {
            let parsed: FieldPath = path.parse().unwrap();
            assert_eq!(parsed.to_string(), written);
            assert_eq!(written.parse(), Ok(parsed));
        }
    }

    #[test]
    fn odd_paths_are_refused() {
        let names = ["", ".", "a..b", "a.", "a b", "a\\.b", "..a"];
        let brackets =
            ["a[", "a[]", "a[0]", "a[b]", "a['']", "a['b", "a['b'", "a['b']c", "a.['b']", "a['b\"]"];
        for bad in names.into_iter().chain(brackets).chain(["[*]", "[*].a", "a]", "a[*", "a[*]b", "a['b'x]"])
        {
            assert!(bad.parse::<FieldPath>().is_err(), "{bad:?}");
        }
    }
}
