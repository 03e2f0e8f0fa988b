//! The few fields of a pod's spec that an update may change, and the text that shows what else was changed.
//!
//! That text compares specs in the server's own form: every field of its internal types, set or not, in their order. `pod_fields.txt`
//! has them, a line per type (printed by `pod_fields.go`): `Hostname:hostname:s` is the field, where it stands in the API, and its shape:
//! `s`, `b`, `i` for text, flags and numbers, `*` for pointers, `[` for lists, `{` for maps, `=` for types with a form of their own, else
//! the name of a type.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::OnceLock;

use serde_json::{Map, Value};

use super::report::{Place, Report};

const ONLY: &str = "pod updates may not change fields other than \
                    `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,\
                    `spec.tolerations` (only additions to existing tolerations),\
                    `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Fields that stand in the spec in the API, and in the security context inside.
const MOVED: &[(&str, &str)] = &[
    ("HostNetwork", "hostNetwork"),
    ("HostPID", "hostPID"),
    ("HostIPC", "hostIPC"),
    ("ShareProcessNamespace", "shareProcessNamespace"),
    ("HostUsers", "hostUsers"),
];

pub(super) fn only_some_fields(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    let before = old.at("spec").value;
    let mut after = new.at("spec").value.clone();
    allow(before, &mut after);
    if *before == after {
        return;
    }
    let text = format!("{ONLY}\n{}", difference(before, &after));
    report.forbidden(&new.at("spec"), &text);
}

/// Puts back what may change.
fn allow(before: &Value, after: &mut Value) {
    for list in ["containers", "initContainers"] {
        let olds = before.get(list).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let news = after.get_mut(list).and_then(Value::as_array_mut);
        for (old, new) in olds.iter().zip(news.into_iter().flatten()) {
            put_back(old, new, "image");
        }
    }
    put_back(before, after, "activeDeadlineSeconds");
    put_back(before, after, "tolerations");
    let count = |spec: &Value| spec.get("schedulingGates").and_then(Value::as_array).map_or(0, Vec::len);
    if count(after) < count(before) {
        put_back(before, after, "schedulingGates");
    }
    if count(before) > 0 {
        put_back(before, after, "nodeSelector");
    }
    let grace = |spec: &Value| spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if grace(before).is_some_and(|seconds| seconds < 0) && grace(after) == Some(1) {
        put_back(before, after, "terminationGracePeriodSeconds");
    }
}

fn put_back(before: &Value, after: &mut Value, field: &str) {
    let Some(after) = after.as_object_mut() else { return };
    match before.get(field) {
        Some(value) => after.insert(field.to_owned(), value.clone()),
        None => after.remove(field),
    };
}

fn difference(before: &Value, after: &Value) -> String {
    let (before, after) = (internal(before), internal(after));
    let diff = similar::TextDiff::from_lines(&before, &after);
    diff.unified_diff().context_radius(3).to_string()
}

/// As [`difference`], of values of another type of `pod_fields.txt`.
pub(super) fn difference_of(shape: &str, before: &Value, after: &Value) -> String {
    let text = |value: &Value| {
        let mut text = String::new();
        write(&mut text, shape, Some(value), 0);
        text.push('\n');
        text
    };
    let (before, after) = (text(before), text(after));
    let diff = similar::TextDiff::from_lines(&before, &after);
    diff.unified_diff().context_radius(3).to_string()
}

/// The server's own form of a spec.
fn internal(spec: &Value) -> String {
    let mut spec = spec.clone();
    if let Some(fields) = spec.as_object_mut() {
        let moved: Vec<(String, Value)> = MOVED
            .iter()
            .filter_map(|(name, field)| Some(((*name).to_owned(), fields.remove(*field)?)))
            .collect();
        let context = fields.entry("securityContext").or_insert_with(|| Value::Object(Map::new()));
        if let Some(context) = context.as_object_mut() {
            context.extend(moved);
        }
    }
    let mut text = String::new();
    write(&mut text, "PodSpec", Some(&spec), 0);
    text.push('\n');
    text
}

/// Writes a value of a shape as Go writes it with an indent of one.
fn write(text: &mut String, shape: &str, value: Option<&Value>, depth: usize) {
    let value = value.filter(|value| !value.is_null());
    match (shape.as_bytes().first(), value) {
        (Some(b'*'), Some(_)) => write(text, &shape[1..], value, depth),
        (Some(b'*' | b'[' | b'{'), None) => text.push_str("null"),
        (Some(b'['), Some(value)) => {
            let items = value.as_array().map_or(&[][..], Vec::as_slice);
            let entries = items.iter().map(|item| (None, &shape[1..], Some(item)));
            write_block(text, ('[', ']'), entries, depth);
        }
        (Some(b'{'), Some(value)) => {
            let entries = value.as_object().into_iter().flatten();
            let entries = entries.map(|(key, value)| (Some(key.as_str()), &shape[1..], Some(value)));
            write_block(text, ('{', '}'), entries, depth);
        }
        (Some(b's'), value) if shape == "s" => {
            text.push_str(&quoted(value.and_then(Value::as_str).unwrap_or_default()));
        }
        (Some(b'b' | b'i' | b'='), Some(value)) => write_plain(text, value, depth),
        (Some(b'b'), None) => text.push_str("false"),
        (Some(b'i'), None) => text.push('0'),
        (Some(b'='), None) => text.push_str(match shape {
            "=Quantity" => "\"0\"",
            "=IntOrString" => "0",
            _ => "null",
        }),
        _ => match fields().get(shape) {
            Some(known) => {
                let entries = known.iter().map(|field| {
                    let place = if field.place == "?" { field.name } else { field.place };
                    (Some(field.name), field.shape, value.and_then(|value| value.get(place)))
                });
                write_block(text, ('{', '}'), entries, depth);
            }
            None => write_plain(text, value.unwrap_or(&Value::Null), depth),
        },
    }
}

type Entry<'a> = (Option<&'a str>, &'a str, Option<&'a Value>);

fn write_block<'a>(
    text: &mut String,
    (open, close): (char, char),
    entries: impl Iterator<Item = Entry<'a>>,
    depth: usize,
) {
    text.push(open);
    let mut some = false;
    for (key, shape, value) in entries {
        text.push_str(if some { ",\n" } else { "\n" });
        text.push_str(&" ".repeat(depth + 1));
        if let Some(key) = key {
            // Writing to a String cannot fail.
            let _ = write!(text, "{}: ", quoted(key));
        }
        write(text, shape, value, depth + 1);
        some = true;
    }
    if some {
        text.push('\n');
        text.push_str(&" ".repeat(depth));
    }
    text.push(close);
}

/// A value that looks inside as it does outside.
fn write_plain(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::String(plain) => text.push_str(&quoted(plain)),
        Value::Array(items) => {
            write_block(text, ('[', ']'), items.iter().map(|item| (None, "", Some(item))), depth);
        }
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| (Some(key.as_str()), "", Some(value)));
            write_block(text, ('{', '}'), entries, depth);
        }
        other => text.push_str(&other.to_string()),
    }
}

/// Go escapes what HTML would read.
fn quoted(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}

/// A field of one of the server's own types.
struct Field {
    name: &'static str,
    place: &'static str,
    shape: &'static str,
}

fn fields() -> &'static HashMap<&'static str, Vec<Field>> {
    static FIELDS: OnceLock<HashMap<&'static str, Vec<Field>>> = OnceLock::new();
    FIELDS.get_or_init(|| {
        let line = |line: &'static str| {
            let mut words = line.split(' ');
            let name = words.next()?;
            let field = |word: &'static str| {
                let mut parts = word.splitn(3, ':');
                Some(Field { name: parts.next()?, place: parts.next()?, shape: parts.next()? })
            };
            Some((name, words.filter_map(field).collect()))
        };
        // Sources of volumes that no pod has are written by hand, and those that nobody uses any more are left out.
        let files = [include_str!("pod_fields.txt"), include_str!("volume_fields.txt")];
        files.into_iter().flat_map(str::lines).filter_map(line).collect()
    })
}
