//! The syntax of field paths.
//!
//! [`super::values`] looks up a path in an object, and [`super::field_filter`] uses the same paths to drop
//! or keep fields. This file does not know how an object is encoded.

use super::head::member_name;
use crate::error::{ParseError, ParseErrorKind};
use std::fmt;
use std::str::FromStr;

/// A path to a field: names joined by dots, as in `spec.nodeName`.
///
/// A name that contains dots is written in brackets and quotes, as in
/// `metadata.annotations['example.com/team']`. A list on the path stands for all of its elements; this may
/// be written as `spec.containers[*].image`.
///
/// ```
/// # mod informer { pub mod cache { pub use informer_core::FieldPath; } }
/// use informer::cache::FieldPath;
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
            // Lists are entered with and without `[*]`.
            PathStep::Each => None,
        });
        Ok(Self(names.collect()))
    }
}

impl FieldPath {
    /// The names on the path, outermost first.
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
    /// To the member with this name.
    Name(Box<str>),
    /// To each element of a list.
    Each,
}

/// Parses a path into its steps. The first is always a name, because objects are not lists.
pub(super) fn steps(text: &str) -> Result<Vec<PathStep>, ParseError> {
    let parsed = parse(text).filter(|steps| matches!(steps.first(), Some(PathStep::Name(_))));
    parsed.ok_or_else(|| {
        let expected = "names joined by dots, as in `spec.nodeName`, or in brackets and quotes";
        ParseError::new(ParseErrorKind::FieldPath, text, expected)
    })
}

fn parse(text: &str) -> Option<Vec<PathStep>> {
    // kubectl's JSON paths begin with a dot.
    let mut rest = text.strip_prefix('.').unwrap_or(text);
    let mut steps = Vec::new();
    loop {
        let (step, after) = if let Some(inner) = rest.strip_prefix('[') {
            bracket(inner)?
        } else {
            let (name, after) = rest.split_at(rest.find(['.', '[']).unwrap_or(rest.len()));
            (PathStep::Name(Some(name).filter(|name| is_plain(name))?.into()), after)
        };
        steps.push(step);
        rest = match after.strip_prefix('.') {
            None if after.is_empty() => return Some(steps),
            None if after.starts_with('[') => after,
            Some(name) if !name.starts_with('[') => name,
            Some(_) | None => return None,
        };
    }
}

/// Parses the part after `[`; returns the step and the text after `]`.
fn bracket(inner: &str) -> Option<(PathStep, &str)> {
    if let Some(after) = inner.strip_prefix("*]") {
        return Some((PathStep::Each, after));
    }
    let quote = inner.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let (name, after) = inner[1..].split_once(quote)?;
    let after = after.strip_prefix(']').filter(|_| !name.is_empty())?;
    Some((PathStep::Name(name.into()), after))
}

/// Whether a name needs no quotes in a path.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['[', ']', '"', '\\', ' ', '.'])
}

/// Whether a member's name, as it was sent, equals `name`.
pub(super) fn is_named(sent: &[u8], name: &str) -> bool {
    // An escape is longer than its character, so a name that is not longer than `name` need not be parsed.
    let has_escape = || sent.len() > name.len() && sent.contains(&b'\\');
    sent == name.as_bytes() || (has_escape() && member_name(sent).as_deref() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_path_parses_to_itself() {
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
    fn malformed_paths_are_rejected() {
        let names = ["", ".", "a..b", "a.", "a b", "a\\.b", "..a"];
        let brackets =
            ["a[", "a[]", "a[0]", "a[b]", "a['']", "a['b", "a['b'", "a['b']c", "a.['b']", "a['b\"]"];
        for bad in names.into_iter().chain(brackets).chain(["[*]", "[*].a", "a]", "a[*", "a[*]b", "a['b'x]"])
        {
            assert!(bad.parse::<FieldPath>().is_err(), "{bad:?}");
        }
    }
}
