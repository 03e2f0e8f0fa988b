//! Compares two protobuf messages, ignoring what differs between any two servers.
//!
//! Messages are compared field by field without knowledge of their types. Texts that differ must be a version, uid,
//! generated name or token that map to each other; numbers that differ must both be times.

use super::alike::Names;

/// The magic before an object.
const MAGIC: &[u8] = b"k8s\0";

/// Returns the differences between two messages.
pub(crate) fn differences(names: &mut Names, theirs: &[u8], ours: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    let bare = |bytes: &'_ [u8]| bytes.strip_prefix(MAGIC).unwrap_or(bytes).to_vec();
    if theirs.starts_with(MAGIC) != ours.starts_with(MAGIC) {
        found.push("  one has the magic and one has not".to_owned());
    }
    compare(names, "", &bare(theirs), &bare(ours), &mut found);
    found
}

/// Splits a stream into its length-prefixed frames.
pub(crate) fn frames(buffer: &mut Vec<u8>) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some(length) = buffer.first_chunk::<4>() {
        let end = 4 + usize::try_from(u32::from_be_bytes(*length)).unwrap();
        if buffer.len() < end {
            break;
        }
        found.push(buffer[4..end].to_vec());
        buffer.drain(..end);
    }
    found
}

enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn compare(names: &mut Names, path: &str, theirs: &[u8], ours: &[u8], found: &mut Vec<String>) {
    let (Some(mut a), Some(mut b)) = (parse(theirs), parse(ours)) else {
        return found.push(format!("  {path}: not a message: recorded {theirs:?}, actual {ours:?}"));
    };
    // Field managers are ordered by time.
    a.sort_by_key(owner);
    b.sort_by_key(owner);
    let numbers = |fields: &[(u64, Field<'_>)]| fields.iter().map(|(number, _)| *number).collect::<Vec<_>>();
    if numbers(&a) != numbers(&b) {
        return found.push(format!("  {path}: theirs {:?}, ours {:?}", numbers(&a), numbers(&b)));
    }
    for ((number, theirs), (_, ours)) in a.iter().zip(&b) {
        let path = format!("{path}/{number}");
        match (theirs, ours) {
            (Field::Number(a), Field::Number(b)) if a == b || (is_time(*a) && is_time(*b)) => {}
            (Field::Bytes(a), Field::Bytes(b)) if a == b => {}
            (Field::Bytes(a), Field::Bytes(b)) if is_same_text(names, a, b) => {}
            (Field::Bytes(a), Field::Bytes(b)) if parse(a.strip_prefix(MAGIC).unwrap_or(a)).is_some() => {
                let (a, b) = (a.strip_prefix(MAGIC).unwrap_or(a), b.strip_prefix(MAGIC).unwrap_or(b));
                compare(names, &path, a, b, found);
            }
            (Field::Bytes(a), Field::Bytes(b)) => {
                let text =
                    |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().take(200).collect::<String>();
                found.push(format!("  {path}:\n    theirs {}\n    ours   {}", text(a), text(b)));
            }
            _ => found.push(format!("  {path}: type or number of fields differs")),
        }
    }
}

/// Sort key of a field: its number, and for `managedFields` its manager.
fn owner(field: &(u64, Field<'_>)) -> (u64, Vec<Vec<u8>>) {
    let (17, Field::Bytes(bytes)) = field else { return (field.0, Vec::new()) };
    let parts = parse(bytes).unwrap_or_default();
    let text = |wanted: u64| {
        parts.iter().find_map(|(number, part)| match part {
            Field::Bytes(bytes) if *number == wanted => Some(bytes.to_vec()),
            _ => None,
        })
    };
    (17, [1, 2, 8].into_iter().map(|number| text(number).unwrap_or_default()).collect())
}

fn is_time(seconds: u64) -> bool {
    (1_600_000_000..2_500_000_000).contains(&seconds)
}

fn is_same_text(names: &mut Names, theirs: &[u8], ours: &[u8]) -> bool {
    let (Ok(a), Ok(b)) = (std::str::from_utf8(theirs), std::str::from_utf8(ours)) else { return false };
    names.stands_for(a, b)
}

fn parse(mut bytes: &[u8]) -> Option<Vec<(u64, Field<'_>)>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes)?;
        let field = match tag & 7 {
            0 => Field::Number(varint(&mut bytes)?),
            1 => Field::Bytes(take(&mut bytes, 8)?),
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                Field::Bytes(take(&mut bytes, length)?)
            }
            5 => Field::Bytes(take(&mut bytes, 4)?),
            _ => return None,
        };
        (tag >> 3 > 0).then_some(())?;
        fields.push((tag >> 3, field));
    }
    Some(fields)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
