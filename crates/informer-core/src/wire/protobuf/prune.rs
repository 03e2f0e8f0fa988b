//! Pruning of one field of a message: removes the values that paths name, or everything else.
//!
//! The rules are those of JSON, with one difference: a list or map of which nothing is left is removed,
//! since protobuf has no empty lists and maps. The table of `informer-schema` gives the names of fields.
//! Fields that no path names or enters are copied or left out without parsing them. The recursion is as
//! deep as the longest path.

use super::fields::{Fields, Payload, put_data};
use crate::wire::json::prune as json;
use crate::wire::path::PathStep;
use crate::wire::paths::{Mode, Parent, Paths, enter_element, enter_member};
use informer_schema::{Message, MessageId, Part, Wire};

/// Appends the pruned bytes of a field to `out`. Returns `false` if the field is removed as a whole; the
/// caller then discards what was appended.
///
/// In a list or a map, a field is one element or entry. None of `paths` is empty.
pub(super) fn prune(mode: Mode, paths: &Paths<'_>, wire: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    match wire {
        Wire::List(items) => prune_element(mode, paths, *items, bytes, out),
        Wire::Map(values) => prune_entry(mode, paths, *values, bytes, out),
        wire => prune_value(mode, paths, wire, bytes, out),
    }
}

/// Prunes a value, given the paths that lead into it.
fn prune_value(mode: Mode, paths: &Paths<'_>, wire: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let pruned = match wire {
        Wire::Message(message_type) => prune_message(mode, paths, message_type.get(), bytes, out),
        Wire::Raw => prune_raw(mode, paths, bytes, out),
        Wire::Strings => prune_choice(mode, paths, [Some(Wire::List(&Wire::String)), None], bytes, out),
        Wire::OrBoolean(message_type) => {
            prune_choice(mode, paths, [None, Some(Wire::Message(message_type))], bytes, out)
        }
        Wire::OrStrings(message_type) => prune_choice(
            mode,
            paths,
            [Some(Wire::Message(message_type)), Some(Wire::List(&Wire::String))],
            bytes,
            out,
        ),
        Wire::OrList(message_type) => prune_messages(mode, paths, message_type, bytes, out),
        _ => None,
    };
    if pruned.is_some() {
        return true;
    }
    // No path can enter the value, or it is malformed: it is kept or dropped as a whole.
    out.truncate(start);
    if mode == Mode::Drop {
        out.extend_from_slice(bytes);
    }
    mode == Mode::Drop
}

/// Prunes a field, an element or the value of a map's entry, given the rest of each path that leads to it. An
/// empty rest names it.
fn prune_child(mode: Mode, paths: &Paths<'_>, wire: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let is_named = paths.iter().any(|path| path.is_empty());
    if !is_named && !paths.is_empty() {
        return prune(mode, paths, wire, bytes, out);
    }
    // A path names the value, or no path leads to it.
    let is_kept = is_named == (mode == Mode::Keep);
    if is_kept {
        out.extend_from_slice(bytes);
    }
    is_kept
}

fn prune_element(mode: Mode, paths: &Paths<'_>, items: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let inner: Vec<_> = paths.iter().filter_map(|path| enter_element(path, Parent::Object)).collect();
    let is_named = inner.iter().any(|path| path.is_empty());
    if is_named {
        prune_child(mode, &inner, items, bytes, out)
    } else {
        // Elements are neither lists nor maps.
        prune_value(mode, &inner, items, bytes, out)
    }
}

fn prune_entry(mode: Mode, paths: &Paths<'_>, values: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let (mut key, mut value) = (&[][..], &[][..]);
    let mut fields = Fields(bytes);
    while let Ok(Some((number, payload))) = fields.next() {
        match (number, payload) {
            (1, Payload::Data(bytes)) => key = bytes,
            (2, Payload::Data(bytes)) => value = bytes,
            _ => {}
        }
    }
    let inner: Vec<_> = paths.iter().filter_map(|path| enter_member(path, key)).collect();
    let mut pruned = Vec::new();
    let is_kept = prune_child(mode, &inner, values, value, &mut pruned);
    if is_kept && pruned == value {
        out.extend_from_slice(bytes);
    } else if is_kept {
        put_data(out, 1, key);
        put_data(out, 2, &pruned);
    }
    is_kept
}

/// Prunes a message. `None` if no path leads into it, or if it is malformed.
fn prune_message(
    mode: Mode,
    paths: &Paths<'_>,
    message_type: &'static Message,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    paths.iter().any(|path| matches!(path.first(), Some(PathStep::Name(_)))).then_some(())?;
    each_field(bytes, |number, field, payload| {
        let part = message_type.part(u64::from(number));
        let (Some(part), Payload::Data(value)) = (part, payload) else {
            // A number, or a field that the table does not know.
            if is_number_named(paths, part) == (mode == Mode::Keep) {
                out.extend_from_slice(field);
            }
            return;
        };
        let mut pruned = Vec::new();
        let is_kept = match part.wire {
            // An inline message: in JSON, its fields are members of the object around it.
            Wire::Message(message_type) if part.name.is_empty() => {
                prune_message(mode, paths, message_type.get(), value, &mut pruned).is_some()
            }
            wire => {
                let inner: Vec<_> =
                    paths.iter().filter_map(|path| enter_member(path, part.name.as_bytes())).collect();
                prune_child(mode, &inner, wire, value, &mut pruned)
            }
        };
        if is_kept {
            put_data(out, number, &pruned);
        }
    })
}

/// Whether a path names a part that is a number, or each number of a part that is a list of numbers. No
/// path can lead into a number. A field that the table does not know (`None`) has no name.
fn is_number_named(paths: &Paths<'_>, part: Option<&Part>) -> bool {
    let Some(part) = part else { return false };
    let is_list = matches!(part.wire, Wire::List(_));
    paths.iter().filter_map(|path| enter_member(path, part.name.as_bytes())).any(|rest| {
        rest.is_empty() || (is_list && enter_element(&rest, Parent::Object).is_some_and(<[_]>::is_empty))
    })
}

/// Prunes JSON inside a message.
fn prune_raw(mode: Mode, paths: &Paths<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut is_kept = true;
    each_field(bytes, |number, field, payload| match (number, payload) {
        (1, Payload::Data(text)) => {
            let mut pruned = Vec::new();
            is_kept = json::prune(mode, paths, text.trim_ascii(), &mut pruned);
            put_data(out, 1, &pruned);
        }
        _ => out.extend_from_slice(field),
    })?;
    is_kept.then_some(())
}

/// Prunes a message whose fields 1 and 2 are alternatives of these types; `None` for one that no path can
/// enter. In JSON, the value is the alternative that is present, so the same paths lead into both.
fn prune_choice(
    mode: Mode,
    paths: &Paths<'_>,
    wires: [Option<Wire>; 2],
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    each_field(bytes, |number, field, payload| {
        let wire = wires.get(number as usize - 1).copied().flatten();
        let (Some(wire), Payload::Data(value)) = (wire, payload) else {
            out.extend_from_slice(field);
            return;
        };
        let mut pruned = Vec::new();
        if prune(mode, paths, wire, value, &mut pruned) {
            put_data(out, number, &pruned);
        }
    })
}

/// Prunes a message that contains either one message (field 1) or a list of them (field 2).
fn prune_messages(
    mode: Mode,
    paths: &Paths<'_>,
    message_type: MessageId,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    each_field(bytes, |number, field, payload| {
        let mut pruned = Vec::new();
        let is_kept = match (number, payload) {
            (1, Payload::Data(value)) => {
                prune_value(mode, paths, Wire::Message(message_type), value, &mut pruned)
            }
            (2, Payload::Data(value)) => {
                prune_element(mode, paths, Wire::Message(message_type), value, &mut pruned)
            }
            _ => {
                out.extend_from_slice(field);
                return;
            }
        };
        if is_kept {
            put_data(out, number, &pruned);
        }
    })
}

/// Calls `visit` with each field: its number, all of its bytes, and its value. `None` if the message is
/// malformed.
fn each_field<'a>(bytes: &'a [u8], mut visit: impl FnMut(u32, &'a [u8], Payload<'a>)) -> Option<()> {
    let mut fields = Fields(bytes);
    loop {
        let before = fields.0;
        let Some((number, payload)) = fields.next().ok()? else { return Some(()) };
        visit(number, &before[..before.len() - fields.0.len()], payload);
    }
}
