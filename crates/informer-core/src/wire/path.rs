//! Looking up a field by its path in an object's bytes, without decoding the object.
//!
//! Only what lies on the path is read; everything beside it is skimmed. A path that meets a list goes into each of
//! its elements.

use super::members::{each_element, each_member};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// A dotted path to a field, as in `spec.nodeName`.
///
/// ```
/// use informer_core::FieldPath;
///
/// let path: FieldPath = "spec.containers.image".parse()?;
/// let pod = br#"{"spec":{"containers":[{"image":"nginx"},{"image":"envoy"}]}}"#;
/// assert_eq!(path.values_in(pod), ["nginx", "envoy"]);
/// # Ok::<(), informer_core::FieldPathError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FieldPath(Box<[Box<str>]>);

/// A text that is no field path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no field path: expected names joined by dots, as in `spec.nodeName`")]
pub struct FieldPathError {
    text: String,
}

impl FromStr for FieldPath {
    type Err = FieldPathError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A leading dot is how kubectl's JSON paths begin.
        let names: Box<[Box<str>]> =
            text.strip_prefix('.').unwrap_or(text).split('.').map(Into::into).collect();
        let plain = |name: &str| !name.is_empty() && !name.contains(['[', ']', '"', '\\', ' ']);
        if names.iter().all(|name| plain(name)) {
            Ok(Self(names))
        } else {
            Err(FieldPathError { text: text.to_owned() })
        }
    }
}

impl FieldPath {
    /// The values at this path in an object's JSON: strings as they are, numbers and booleans as written. Nothing for
    /// what is absent, null, an object, or not readable.
    pub fn values_in(&self, object: &[u8]) -> Vec<String> {
        let mut values = Vec::new();
        self.each_value(object, |value| values.push(value.into_owned()));
        values
    }

    /// Calls `visit` with each of these values.
    pub(crate) fn each_value<'a>(&self, object: &'a [u8], mut visit: impl FnMut(Cow<'a, str>)) {
        walk(&self.0, object, &mut visit);
    }
}

fn walk<'a>(path: &[Box<str>], value: &'a [u8], visit: &mut dyn FnMut(Cow<'a, str>)) {
    if value.first() == Some(&b'[') {
        // Lists directly inside lists do not occur in Kubernetes; not going deeper keeps this bounded.
        let _ = each_element(value, |element| {
            if element.first() != Some(&b'[') {
                walk(path, element, visit);
            }
        });
        return;
    }
    let Some((name, rest)) = path.split_first() else {
        scalar(value).into_iter().for_each(visit);
        return;
    };
    let _ = each_member(value, |known, value| {
        let found = known == name.as_bytes();
        if found {
            walk(rest, value, visit);
        }
        !found
    });
}

fn scalar(value: &[u8]) -> Option<Cow<'_, str>> {
    match value.first()? {
        b'"' => super::head::string(value, true),
        b'{' | b'n' => None,
        _ => std::str::from_utf8(value).ok().map(Cow::Borrowed),
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, object: &str, expected: &[&str]) {
        assert_eq!(path.parse::<FieldPath>().unwrap().values_in(object.as_bytes()), expected, "{path}");
    }

    #[test]
    fn values_are_found_where_they_are() {
        let pod = r#"{"metadata":{"name":"a"},"spec":{"nodeName":"n-1","hostNetwork":true,"priority":7,
            "containers":[{"image":"x","ports":[{"port":1},{"port":2}]},{"image":"y"}]},"status":null}"#;
        check("spec.nodeName", pod, &["n-1"]);
        check(".spec.nodeName", pod, &["n-1"]);
        check("spec.hostNetwork", pod, &["true"]);
        check("spec.priority", pod, &["7"]);
        check("spec.containers.image", pod, &["x", "y"]);
        check("spec.containers.ports.port", pod, &["1", "2"]);
        check("metadata.name", pod, &["a"]);
    }

    #[test]
    fn what_is_not_there_gives_nothing() {
        check("status.phase", r#"{"status":null}"#, &[]);
        check("spec", r#"{"spec":{"a":1}}"#, &[]);
        check("spec.a.b", r#"{"spec":{"a":"text"}}"#, &[]);
        check("spec.a", r#"{"spec":{"a":"#, &[]);
        check("a", "", &[]);
    }

    #[test]
    fn escapes_are_undone() {
        check("a", r#"{"a":"x\u0026y"}"#, &["x&y"]);
    }

    #[test]
    fn odd_paths_are_refused() {
        for bad in ["", ".", "a..b", "a.", "metadata.labels['x']", "a b"] {
            assert!(bad.parse::<FieldPath>().is_err(), "{bad:?}");
        }
    }
}
