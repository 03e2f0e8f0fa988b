//! Encodes the model's responses as JSON: objects, lists, frames and statuses.

use super::server::{Event, EventKind, Obj, names};
use std::fmt::Write as _;

const MANAGED: &str = r#""managedFields":[{"manager":"kubectl","fieldsV1":{"f:spec":{"f:x\"}":{}}}}]"#;

/// Parts of the encoding that are not content.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decoration {
    /// Whether `kind` and `apiVersion` are present: in frames, not in list items.
    pub(crate) typed: bool,
    /// Whether `managedFields` are present: before the other members, after them, or not.
    pub(crate) managed: Option<bool>,
}

/// An object as the server sends it.
pub(crate) fn object(out: &mut String, object: &Obj, decoration: Decoration) {
    let kind = if decoration.typed { r#""kind":"Pod","apiVersion":"v1","# } else { "" };
    let (before, behind) = match decoration.managed {
        Some(true) => (MANAGED, ""),
        Some(false) => ("", MANAGED),
        None => ("", ""),
    };
    let comma = |part: &str| if part.is_empty() { "" } else { "," };
    let Obj { metadata, spec, .. } = object;
    let _ = write!(
        out,
        r#"{{{kind}"metadata":{{{before}{}{metadata}{}{behind}}},{spec}}}"#,
        comma(before),
        comma(behind)
    );
}

/// The frame of a change.
pub(crate) fn event(out: &mut String, event: &Event, decoration: Decoration) {
    let kind = match event.kind {
        EventKind::Added => "ADDED",
        EventKind::Modified => "MODIFIED",
        EventKind::Deleted => "DELETED",
    };
    let _ = write!(out, r#"{{"type":"{kind}","object":"#);
    object(out, &event.object, decoration);
    out.push_str("}\n");
}

/// A bookmark; `marker` marks the end of the initial events.
pub(crate) fn bookmark(out: &mut String, version: &str, marker: bool) {
    let annotation = if marker { r#","annotations":{"k8s.io/initial-events-end":"true"}"# } else { "" };
    let _ = writeln!(
        out,
        r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null{annotation}}},"spec":{{"containers":null}}}}}}"#
    );
}

/// A `Status`.
pub(crate) fn status(code: u16, reason: &str, details: &str) -> String {
    format!(
        r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},"status":"Failure","message":"no","reason":"{reason}","details":{{{details}}},"code":{code}}}"#
    )
}

/// The ERROR frame that ends a stream.
pub(crate) fn error(out: &mut String, status: &str) {
    let _ = writeln!(out, r#"{{"type":"ERROR","object":{status}}}"#);
}

/// The `Status` for a version ahead of the server, in the current and the old format.
pub(crate) fn too_large(old: bool) -> String {
    if old {
        status(504, "Timeout", "").replace("\"no\"", "\"Too large resource version: 9, current: 3\"")
    } else {
        status(504, "Timeout", r#""causes":[{"reason":"ResourceVersionTooLarge","message":"x"}]"#)
    }
}

/// A list of encoded items.
pub(crate) fn list(
    version: Option<&str>,
    token: Option<&str>,
    items: &[String],
    metadata_first: bool,
) -> String {
    let version = version.map_or(String::new(), |version| format!(r#""resourceVersion":"{version}""#));
    let token = token.map_or(String::new(), |token| {
        let comma = if version.is_empty() { "" } else { "," };
        format!(r#"{comma}"continue":"{token}","remainingItemCount":2"#)
    });
    let metadata = format!(r#""metadata":{{{version}{token}}}"#);
    let items = format!(r#""items":[{}]"#, items.join(","));
    let (first, second) = if metadata_first { (metadata, items) } else { (items, metadata) };
    format!(r#"{{"kind":"PodList","apiVersion":"v1",{first},{second}}}{}"#, "\n")
}

/// Invalid items of a list: without a name, of another kind, or no objects at all.
pub(crate) const JUNK_ITEMS: [&str; 5] = [
    "null",
    "7",
    r#"{"metadata":{"namespace":"a","resourceVersion":"91","uid":"u-0"},"spec":{}}"#,
    r#"{"kind":"Service","apiVersion":"v1","metadata":{"name":"x","namespace":"a","resourceVersion":"999999999","uid":"u-0"}}"#,
    r#"{"spec":{}}"#,
];

/// Invalid frames, which must neither break a stream nor advance its position.
pub(crate) fn junk_frame(number: usize, slot: usize) -> String {
    let (namespace, name) = names(slot);
    let kind = if number == 2 { "DELETED" } else { "ADDED" };
    match number {
        0 => "{\"type\":\"ADDED\"}\n".to_owned(),
        1 => "{\"type\":\"HELLO\",\"extra\":[1,{}]}\n".to_owned(),
        2 | 3 => format!(
            "{{\"type\":\"{kind}\",\"object\":{{\"kind\":\"Service\",\"apiVersion\":\"v1\",\"metadata\":{{\"name\":\"{name}\",\
             \"namespace\":\"{namespace}\",\"resourceVersion\":\"999999999\"}}}}}}\n"
        ),
        _ => "{\"type\":\"MODIFIED\",\"object\":{\"metadata\":{\"namespace\":\"a\"}}}\n".to_owned(),
    }
}

/// Inserts white space wherever JSON allows it.
pub(crate) fn spread(compact: &str) -> String {
    let mut out = String::with_capacity(compact.len() * 2);
    let (mut in_string, mut escaped) = (false, false);
    for letter in compact.chars() {
        out.push(letter);
        if in_string {
            in_string = escaped || letter != '"';
            escaped = !escaped && letter == '\\';
        } else {
            match letter {
                '"' => in_string = true,
                ',' | '{' | '[' => out.push_str("\n  "),
                ':' | '}' => out.push(' '),
                _ => {}
            }
        }
    }
    out
}

/// An object's bytes without white space. No text of the model contains any.
pub(crate) fn squeezed(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect()
}
