//! Protobuf by hand: what is put around objects, and changes below whose lengths still add up. Knows no kind.

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

/// A field that holds bytes.
pub(crate) fn data(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len() + 12);
    varint(&mut out, number << 3 | 2);
    varint(&mut out, bytes.len() as u64);
    out.extend_from_slice(bytes);
    out
}

fn envelope(api_version: &str, kind: &str, message: &[u8]) -> Vec<u8> {
    let said = [data(1, api_version.as_bytes()), data(2, kind.as_bytes())].concat();
    [MAGIC.to_vec(), data(1, &said), data(2, message), data(3, b""), data(4, b"")].concat()
}

/// A list of messages.
pub(crate) fn list(types: &TypeMeta, items: &[Vec<u8>]) -> Vec<u8> {
    let items: Vec<u8> = items.iter().flat_map(|item| data(2, item)).collect();
    envelope(&types.api_version, &format!("{}List", types.kind), &[data(1, &data(2, b"9")), items].concat())
}

/// A frame of a watch around an object in its envelope.
pub(crate) fn frame(kind: &str, object: &[u8]) -> Vec<u8> {
    framed(&[data(1, kind.as_bytes()), data(2, &data(1, object))].concat(), 0)
}

/// An event with its length, which may lie.
fn framed(event: &[u8], lie: u64) -> Vec<u8> {
    let length = (event.len() as u64).saturating_add(lie);
    [&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()[..], event].concat()
}

/// A message out of its envelope; empty if it is in none.
pub(crate) fn opened(body: &[u8]) -> Vec<u8> {
    let rest = body.strip_prefix(MAGIC).unwrap_or_default();
    fields(rest)
        .into_iter()
        .find(|field| field.number == 2)
        .map_or(Vec::new(), |field| rest[field.value].to_vec())
}

/// A message in fields of these numbers, over and over, `depth` fields in all.
pub(crate) fn nested(message: &[u8], numbers: &[u64], depth: usize) -> Vec<u8> {
    // From the inside out, so that it is written once.
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

/// A field, and where in the message it and its value are.
struct Field {
    number: u64,
    holds_bytes: bool,
    whole: std::ops::Range<usize>,
    value: std::ops::Range<usize>,
}

/// The fields that hold bytes, up to where the message makes no sense.
fn fields(message: &[u8]) -> Vec<Field> {
    let mut at = 0;
    std::iter::from_fn(|| field(message, &mut at)).filter(|field| field.holds_bytes).collect()
}

fn field(message: &[u8], at: &mut usize) -> Option<Field> {
    let start = *at;
    let tag = number(message, at)?;
    let length = match tag & 7 {
        0 => number(message, at).map(|_| 0)?,
        1 => 8,
        2 => usize::try_from(number(message, at)?).ok()?,
        5 => 4,
        _ => return None,
    };
    let value = *at..at.checked_add(length)?;
    *at = value.end;
    message.get(value.clone())?;
    Some(Field { number: tag >> 3, holds_bytes: tag & 7 == 2, whole: start..value.end, value })
}

fn number(bytes: &[u8], at: &mut usize) -> Option<u64> {
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

/// A change of a message.
type Change<'a> = dyn FnMut(&mut Vec<u8>, &mut Random) + 'a;

/// On the way down to where something is changed.
struct Way {
    /// The fields so far.
    path: Vec<u64>,
    /// By how much all lengths on the way lie.
    lie: u64,
    /// Nests what is there, instead of another change: some messages are in themselves, by way of others.
    nests: bool,
}

/// Changes the bytes of some message in a body, however deep, and writes the lengths around it anew: so that they are right, or that
/// all of them lie and none goes beyond the one around it.
pub(crate) fn edit(body: &[u8], random: &mut Random, change: &mut Change<'_>) -> Vec<u8> {
    let lie = if random.below(10) == 0 { 1 << random.below(63) } else { 0 };
    let mut way = Way { path: Vec::new(), lie, nests: random.below(8) == 0 };
    if let Some(rest) = body.strip_prefix(MAGIC) {
        return [MAGIC, &within(rest, &mut way, random, change)].concat();
    }
    let mut frames = Vec::new();
    let mut rest = body;
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = u32::from_be_bytes(*length) as usize;
        let Some((event, behind)) = behind.split_at_checked(length) else { break };
        frames.push(event);
        rest = behind;
    }
    let chosen = below(random, frames.len());
    let mut out = Vec::with_capacity(body.len() + 64);
    for (index, event) in frames.into_iter().enumerate() {
        out.extend(if index == chosen {
            framed(&within(event, &mut way, random, change), lie)
        } else {
            framed(event, 0)
        });
    }
    [out, rest.to_vec()].concat()
}

fn within(message: &[u8], way: &mut Way, random: &mut Random, change: &mut Change<'_>) -> Vec<u8> {
    let fields = fields(message);
    // Where most of the bytes are, and more often deeper than not.
    let at = below(random, message.len());
    let hit = fields.iter().find(|field| field.whole.contains(&at)).filter(|_| random.below(8) > 0);
    let deeper = |field: &&Field| !way.nests || is_message(&message[field.value.clone()]);
    let Some(field) = hit.filter(deeper) else {
        let mut changed = message.to_vec();
        if way.nests {
            // The last fields on the way here, over and over.
            let last = way.path.len() - way.path.len().min(1 + below(random, 4));
            changed.extend(nested(b"", &way.path[last..], below(random, 5000)));
        } else {
            change(&mut changed, random);
        }
        return changed;
    };
    way.path.push(field.number);
    let value = &message[field.value.clone()];
    let value = match value.strip_prefix(MAGIC) {
        Some(rest) => [MAGIC, &within(rest, way, random, change)].concat(),
        None => within(value, way, random, change),
    };
    let mut out = message[..field.whole.start].to_vec();
    varint(&mut out, field.number << 3 | 2);
    varint(&mut out, (value.len() as u64).saturating_add(way.lie));
    [out, value, message[field.whole.end..].to_vec()].concat()
}

/// Whether a value looks like a message: all of it is fields, and not letters that happen to be some.
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
