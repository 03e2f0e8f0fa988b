//! Hand-written protobuf: envelopes of objects, and changes of nested messages that keep the lengths around
//! them consistent. This module knows no kind.

use crate::chance::below;
use informer_core::random::Random;
use informer_core::wire::TypeMeta;

pub(crate) const MAGIC: &[u8] = b"k8s\0";

pub(crate) fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push((value & 0x7f) as u8);
}

/// Returns a length-delimited field.
pub(crate) fn data(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 12);
    varint(&mut out, number << 3 | 2);
    varint(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

/// Returns a message in the envelope that Kubernetes uses.
fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let type_meta = [data(1, api_version.as_bytes()), data(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), data(1, &type_meta), data(2, message), data(3, b""), data(4, b"")].concat()
}

/// Returns a list of messages in its envelope.
pub(crate) fn list(types: &TypeMeta, items: &[Vec<u8>]) -> Vec<u8> {
    let items: Vec<u8> = items.iter().flat_map(|item| data(2, item)).collect();
    envelope(&types.api_version, &format!("{}List", types.kind), &[data(1, &data(2, b"9")), items].concat())
}

/// Returns a watch frame with an object in its envelope.
pub(crate) fn frame(kind: &str, object: &[u8]) -> Vec<u8> {
    with_length(&[data(1, kind.as_bytes()), data(2, &data(1, object))].concat(), 0)
}

/// Returns an event prefixed by its length plus `length_error`.
fn with_length(event: &[u8], length_error: u64) -> Vec<u8> {
    let length = (event.len() as u64).saturating_add(length_error);
    [&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()[..], event].concat()
}

/// Returns the message in an envelope; empty if there is no envelope.
pub(crate) fn unwrap_envelope(body: &[u8]) -> Vec<u8> {
    let rest = body.strip_prefix(MAGIC).unwrap_or_default();
    fields(rest)
        .into_iter()
        .find(|field| field.number == 2)
        .map_or(Vec::new(), |field| rest[field.value].to_vec())
}

/// Returns a message nested in fields of these numbers, repeated to `depth` levels.
pub(crate) fn nested(message: &[u8], numbers: &[u64], depth: usize) -> Vec<u8> {
    // From the inside out, because each length includes the inner ones; the message is copied once.
    let (mut heads, mut length) = (Vec::with_capacity(depth), message.len());
    for number in numbers.iter().rev().cycle().take(depth) {
        let mut head = Vec::new();
        varint(&mut head, number << 3 | 2);
        varint(&mut head, length as u64);
        length += head.len();
        heads.push(head);
    }
    heads.iter().rev().flatten().chain(message).copied().collect()
}

/// A field, and the ranges of the field and of its value in the message.
struct Field {
    number: u64,
    is_length_delimited: bool,
    whole: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

/// Returns the length-delimited fields, up to the first invalid one.
fn fields(message: &[u8]) -> Vec<Field> {
    let mut at = 0;
    std::iter::from_fn(|| field(message, &mut at)).filter(|field| field.is_length_delimited).collect()
}

fn field(message: &[u8], at: &mut usize) -> Option<Field> {
    let start = *at;
    let tag = read_varint(message, at)?;
    let length = match tag & 7 {
        0 => read_varint(message, at).map(|_| 0)?,
        1 => 8,
        2 => usize::try_from(read_varint(message, at)?).ok()?,
        5 => 4,
        _ => return None,
    };
    let value = *at..at.checked_add(length)?;
    *at = value.end;
    message.get(value.clone())?;
    Some(Field { number: tag >> 3, is_length_delimited: tag & 7 == 2, whole: start..value.end, value })
}

fn read_varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A function that changes a message.
type Change<'a> = dyn FnMut(&mut Vec<u8>, &mut Random) + 'a;

/// The state of the descent to the message that is changed.
struct Descent {
    /// The numbers of the fields on the path.
    path: Vec<u64>,
    /// The error added to all lengths on the path.
    length_error: u64,
    /// Whether to append nested fields instead of another change, because some message types contain
    /// themselves through others.
    appends_nested: bool,
}

/// Changes a random message in a body, at any depth, and rewrites the lengths around it, so that all are
/// right, or all are wrong by the same amount and none exceeds the one around it.
pub(crate) fn edit(body: &[u8], random: &mut Random, change: &mut Change<'_>) -> Vec<u8> {
    let length_error = if random.below(10) == 0 { 1 << random.below(63) } else { 0 };
    let mut descent = Descent { path: Vec::new(), length_error, appends_nested: random.below(8) == 0 };
    if let Some(rest) = body.strip_prefix(MAGIC) {
        return [MAGIC, &edit_message(rest, &mut descent, random, change)].concat();
    }
    let mut frames = Vec::new();
    let mut rest = body;
    while let Some((length, remaining)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((event, remaining)) = remaining.split_at_checked(length) else { break };
        frames.push(event);
        rest = remaining;
    }
    let chosen = below(random, frames.len());
    let mut out = Vec::with_capacity(body.len() + 64);
    for (index, event) in frames.into_iter().enumerate() {
        out.extend(if index == chosen {
            with_length(&edit_message(event, &mut descent, random, change), length_error)
        } else {
            with_length(event, 0)
        });
    }
    [out, rest.to_vec()].concat()
}

fn edit_message(
    message: &[u8],
    descent: &mut Descent,
    random: &mut Random,
    change: &mut Change<'_>,
) -> Vec<u8> {
    let fields = fields(message);
    // Prefers fields with many bytes, and usually descends further.
    let at = below(random, message.len());
    let hit = fields.iter().find(|field| field.whole.contains(&at)).filter(|_| random.below(8) > 0);
    let can_descend = |field: &&Field| !descent.appends_nested || is_message(&message[field.value.clone()]);
    let Some(field) = hit.filter(can_descend) else {
        let mut changed = message.to_vec();
        if descent.appends_nested {
            // Repeats the last fields of the path.
            let last = descent.path.len() - descent.path.len().min(1 + below(random, 4));
            changed.extend(nested(b"", &descent.path[last..], below(random, 5000)));
        } else {
            change(&mut changed, random);
        }
        return changed;
    };
    descent.path.push(field.number);
    let value = &message[field.value.clone()];
    let value = match value.strip_prefix(MAGIC) {
        Some(rest) => [MAGIC, &edit_message(rest, descent, random, change)].concat(),
        None => edit_message(value, descent, random, change),
    };
    let mut out = message[..field.whole.start].to_vec();
    varint(&mut out, field.number << 3 | 2);
    varint(&mut out, (value.len() as u64).saturating_add(descent.length_error));
    [out, value, message[field.whole.end..].to_vec()].concat()
}

/// Returns whether a value looks like a message: it consists of fields with plausible numbers, unlike most
/// texts.
fn is_message(value: &[u8]) -> bool {
    let inner = value.strip_prefix(MAGIC).unwrap_or(value);
    let mut at = 0;
    while let Some(field) = field(inner, &mut at) {
        if !(1..1000).contains(&field.number) {
            return false;
        }
    }
    !inner.is_empty() && at == inner.len()
}
