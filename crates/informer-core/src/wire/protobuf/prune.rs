//! Cutting declared paths out of one field of a message, or everything else.
//!
//! The rules are those of JSON, with one difference: a list or a map that nothing is left of is gone, since protobuf has no empty ones. One
//! walk through the table: names on no path are copied, or left out. The recursion is as deep as the longest path.

use super::fields::{Fields, Payload, put_data};
use crate::wire::json::prune as json;
use crate::wire::path::PathStep;
use crate::wire::paths::{Mode, Paths, into_element, into_member};
use informer_schema::{Message, MessageId, Part, Wire};

/// Appends what is left of a field's bytes to `out`; `false` if the field goes as a whole, whatever was appended.
///
/// Of a list or a map, a field is one element or entry. None of `paths` is empty.
pub(super) fn prune(mode: Mode, paths: &Paths<'_>, wire: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    match wire {
        Wire::List(items) => prune_element(mode, paths, *items, bytes, out),
        Wire::Map(values) => prune_entry(mode, paths, *values, bytes, out),
        wire => prune_value(mode, paths, wire, bytes, out),
    }
}

/// A value with the paths that lead into it.
fn prune_value(mode: Mode, paths: &Paths<'_>, wire: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let walked = match wire {
        Wire::Message(of) => prune_message(mode, paths, of.get(), bytes, out),
        Wire::Raw => prune_raw(mode, paths, bytes, out),
        Wire::Strings => prune_choice(mode, paths, [Some(Wire::List(&Wire::String)), None], bytes, out),
        Wire::OrBoolean(of) => prune_choice(mode, paths, [None, Some(Wire::Message(of))], bytes, out),
        Wire::OrStrings(of) => {
            prune_choice(mode, paths, [Some(Wire::Message(of)), Some(Wire::List(&Wire::String))], bytes, out)
        }
        Wire::OrList(of) => prune_messages(mode, paths, of, bytes, out),
        _ => None,
    };
    if walked.is_some() {
        return true;
    }
    // Nothing that a path could lead into.
    out.truncate(start);
    if mode == Mode::Drop {
        out.extend_from_slice(bytes);
    }
    mode == Mode::Drop
}

/// A part with the paths that lead to it: an empty one names it.
fn prune_part(mode: Mode, paths: &Paths<'_>, wire: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let is_named = paths.iter().any(|path| path.is_empty());
    if !is_named && !paths.is_empty() {
        return prune(mode, paths, wire, bytes, out);
    }
    let stays = is_named == (mode == Mode::Keep);
    if stays {
        out.extend_from_slice(bytes);
    }
    stays
}

fn prune_element(mode: Mode, paths: &Paths<'_>, items: Wire, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    let inner: Vec<_> = paths.iter().filter_map(|path| into_element(path, false)).collect();
    let is_named = inner.iter().any(|path| path.is_empty());
    if is_named {
        prune_part(mode, &inner, items, bytes, out)
    } else {
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
    let inner: Vec<_> = paths.iter().filter_map(|path| into_member(path, key)).collect();
    let mut left = Vec::new();
    let stays = prune_part(mode, &inner, values, value, &mut left);
    if stays && left == value {
        out.extend_from_slice(bytes);
    } else if stays {
        put_data(out, 1, key);
        put_data(out, 2, &left);
    }
    stays
}

/// `None` if no path leads into a message, or if it is none.
fn prune_message(
    mode: Mode,
    paths: &Paths<'_>,
    of: &'static Message,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    paths.iter().any(|path| matches!(path.first(), Some(PathStep::Name(_)))).then_some(())?;
    each_field(bytes, |number, field, payload| {
        let part = of.part(u64::from(number));
        let (Some(part), Payload::Data(value)) = (part, payload) else {
            if is_named(paths, part) == (mode == Mode::Keep) {
                out.extend_from_slice(field);
            }
            return;
        };
        let mut left = Vec::new();
        let stays = match part.wire {
            // Its fields are the object's.
            Wire::Message(of) if part.name.is_empty() => {
                prune_message(mode, paths, of.get(), value, &mut left).is_some()
            }
            wire => {
                let inner: Vec<_> =
                    paths.iter().filter_map(|path| into_member(path, part.name.as_bytes())).collect();
                prune_part(mode, &inner, wire, value, &mut left)
            }
        };
        if stays {
            put_data(out, number, &left);
        }
    })
}

/// Whether a path ends at a number, or at each of a list of them. No path can lead into one.
fn is_named(paths: &Paths<'_>, part: Option<&Part>) -> bool {
    let Some(part) = part else { return false };
    let is_list = matches!(part.wire, Wire::List(_));
    paths
        .iter()
        .filter_map(|path| into_member(path, part.name.as_bytes()))
        .any(|rest| rest.is_empty() || (is_list && into_element(&rest, false).is_some_and(<[_]>::is_empty)))
}

/// JSON in a message.
fn prune_raw(mode: Mode, paths: &Paths<'_>, bytes: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let mut stays = true;
    each_field(bytes, |number, field, payload| match (number, payload) {
        (1, Payload::Data(text)) => {
            let mut left = Vec::new();
            stays = json::prune(mode, paths, text.trim_ascii(), &mut left);
            put_data(out, 1, &left);
        }
        _ => out.extend_from_slice(field),
    })?;
    stays.then_some(())
}

/// A message whose fields 1 and 2 are something that paths can lead into.
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
        let mut left = Vec::new();
        if prune(mode, paths, wire, value, &mut left) {
            put_data(out, number, &left);
        }
    })
}

/// A message (1) or messages (2).
fn prune_messages(
    mode: Mode,
    paths: &Paths<'_>,
    of: MessageId,
    bytes: &[u8],
    out: &mut Vec<u8>,
) -> Option<()> {
    each_field(bytes, |number, field, payload| {
        let mut left = Vec::new();
        let stays = match (number, payload) {
            (1, Payload::Data(value)) => prune_value(mode, paths, Wire::Message(of), value, &mut left),
            (2, Payload::Data(value)) => prune_element(mode, paths, Wire::Message(of), value, &mut left),
            _ => {
                out.extend_from_slice(field);
                return;
            }
        };
        if stays {
            put_data(out, number, &left);
        }
    })
}

/// Calls `visit` with each field: its number, all of its bytes, and what it holds. `None` if the bytes are no message.
fn each_field<'a>(bytes: &'a [u8], mut visit: impl FnMut(u32, &'a [u8], Payload<'a>)) -> Option<()> {
    let mut fields = Fields(bytes);
    loop {
        let before = fields.0;
        let Some((number, payload)) = fields.next().ok()? else { return Some(()) };
        visit(number, &before[..before.len() - fields.0.len()], payload);
    }
}
