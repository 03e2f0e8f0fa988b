//! Lookup of a field path in an object's bytes, without decoding the object, in both encodings.
//!
//! Only the members on the path are parsed; all others are skipped. A path that meets a list leads into
//! each of its elements, except those that are lists themselves.

use super::EntryEncoding;
use super::head::string;
use super::json::members::{each_element, each_member};
use super::path::{FieldPath, is_named};
use std::borrow::Cow;

impl FieldPath {
    /// Returns the scalar values at this path in an object's JSON.
    ///
    /// Strings are returned without quotes and escapes, numbers and booleans as written. Values that are
    /// absent, null, objects or unreadable yield nothing.
    pub fn values_in(&self, object: &[u8]) -> Vec<String> {
        let mut values = Vec::new();
        walk(self.names(), object, &mut |value| values.push(value.into_owned()));
        values
    }

    /// Calls `visit` with each scalar value at this path. The values do not depend on the encoding in which
    /// a server sends the object.
    pub(crate) fn each_value(&self, encoding: EntryEncoding, object: &[u8], visit: &mut dyn FnMut(&str)) {
        match encoding {
            EntryEncoding::Json => walk(self.names(), object, &mut |value| visit(&value)),
            EntryEncoding::Protobuf(message_type) => {
                super::protobuf::values_at(self.names(), message_type, object, visit);
            }
        }
    }
}

fn walk<'a>(path: &[Box<str>], value: &'a [u8], visit: &mut dyn FnMut(Cow<'a, str>)) {
    if value.first() == Some(&b'[') {
        // Lists directly inside lists do not occur in Kubernetes; ignoring them bounds the recursion.
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
    let _ = each_member(value, |sent, value| {
        let is_on_path = is_named(sent, name);
        if is_on_path {
            walk(rest, value, visit);
        }
        // The first match ends the search.
        !is_on_path
    });
}

fn scalar(value: &[u8]) -> Option<Cow<'_, str>> {
    match value.first()? {
        b'"' => string(value),
        // An object or `null`.
        b'{' | b'n' => None,
        _ => std::str::from_utf8(value).ok().map(Cow::Borrowed),
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
    fn values_at_existing_paths_are_found() {
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
    fn missing_or_unreadable_values_yield_nothing() {
        check("status.phase", r#"{"status":null}"#, &[]);
        check("spec", r#"{"spec":{"a":1}}"#, &[]);
        check("spec.a.b", r#"{"spec":{"a":"text"}}"#, &[]);
        check("spec.a", r#"{"spec":{"a":"#, &[]);
        check("a", "", &[]);
    }

    #[test]
    fn escapes_in_names_and_values_are_decoded() {
        check("a", r#"{"a":"x\u0026y"}"#, &["x&y"]);
        check("status.phase", r#"{"sta\u0074us":{"ph\u0061se":"x"}}"#, &["x"]);
        check("a", r#"{"\ud800":"no","\u0061":"yes"}"#, &["yes"]);
    }

    #[test]
    fn quoted_names_may_contain_dots() {
        let object = r#"{"metadata":{"annotations":{"a.b/c":"x","it's":"y"}}}"#;
        check("metadata.annotations['a.b/c']", object, &["x"]);
        check(r#".metadata["annotations"]["it's"]"#, object, &["y"]);
        check("['metadata'].annotations['a.b/c']", object, &["x"]);
    }

    #[test]
    fn list_may_be_written_with_brackets() {
        check("a[*].b", r#"{"a":[{"b":1},{"b":2}]}"#, &["1", "2"]);
        check("a[*]", r#"{"a":["x","y"]}"#, &["x", "y"]);
    }
}
