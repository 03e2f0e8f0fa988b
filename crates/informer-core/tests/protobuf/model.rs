//! Reference model of the readers: parses a whole body slowly and simply, and extracts the same objects.

use super::bytes::data;
use informer_core::wire::TypeMeta;
use informer_core::{Key, ResourceVersion};

/// Result for one object. The readers describe errors; the model only knows how far they reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Model {
    /// Key and version of the object, and the bytes that are cached.
    Object(Key, ResourceVersion, Vec<u8>),
    Unreadable,
    /// Nothing can be read after this point.
    End,
}

/// Fields of a message: number, wire type, bytes of the value, and all bytes of the field. `None` if it is
/// not a message.
type Fields<'a> = Vec<(u64, u64, &'a [u8], &'a [u8])>;

fn fields(bytes: &[u8]) -> Option<Fields<'_>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let start = at;
        let tag = varint(bytes, &mut at)?;
        let (number, layout) = (tag >> 3, tag & 7);
        if number == 0 || number >= 1 << 29 {
            return None;
        }
        let begin = at;
        let length = match layout {
            0 => {
                varint(bytes, &mut at)?;
                at - begin
            }
            1 => 8,
            5 => 4,
            2 => usize::try_from(varint(bytes, &mut at)?).ok()?,
            _ => return None,
        };
        let begin = if layout == 0 { begin } else { at };
        let value = bytes.get(begin..begin.checked_add(length)?)?;
        at = begin + length;
        found.push((number, layout, value, &bytes[start..at]));
    }
    Some(found)
}

fn varint(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0_u64;
    for place in 0..10 {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Parses the message of an object.
pub(crate) fn object(bytes: &[u8]) -> Model {
    readable(bytes).map_or(Model::Unreadable, |(key, version, cached)| Model::Object(key, version, cached))
}

fn readable(bytes: &[u8]) -> Option<(Key, ResourceVersion, Vec<u8>)> {
    let all = fields(bytes)?;
    let metadatas: Vec<&[u8]> = all.iter().filter(|f| (f.0, f.1) == (1, 2)).map(|f| f.2).collect();
    let [metadata] = metadatas[..] else { return None };
    let inner = fields(metadata)?;
    let text = |number: u64| {
        let found = inner.iter().rev().find(|f| f.0 == number);
        found.map_or(Some(""), |f| std::str::from_utf8(f.2).ok().filter(|_| f.1 == 2))
    };
    let (name, namespace, version) = (text(1)?, text(3)?, text(6)?);
    let bad = |text: &str| text.contains(['\0', '/']);
    if name.is_empty() || version.is_empty() || bad(name) || bad(namespace) {
        return None;
    }
    let mut cached = Vec::new();
    for (number, layout, _, whole) in &all {
        if (*number, *layout) == (1, 2) {
            let left: Vec<u8> = inner.iter().filter(|f| f.0 != 17).flat_map(|f| minimal(f.3)).collect();
            cached.extend(data(1, &left));
        } else {
            cached.extend(minimal(whole));
        }
    }
    Some((Key::new(namespace, name), ResourceVersion::new(version), cached))
}

/// The field with all varints in their shortest form.
fn minimal(field: &[u8]) -> Vec<u8> {
    let mut at = 0;
    let tag = varint(field, &mut at).unwrap();
    let number = u32::try_from(tag >> 3).unwrap();
    match tag & 7 {
        0 => super::bytes::number(number, varint(field, &mut at).unwrap()),
        2 => {
            let length = usize::try_from(varint(field, &mut at).unwrap()).unwrap();
            data(number, &field[at..at + length])
        }
        _ => {
            let mut out = Vec::new();
            super::bytes::varint(&mut out, tag);
            out.extend_from_slice(&field[at..]);
            out
        }
    }
}

/// Type and bytes of the object in an envelope.
fn opened(body: &[u8]) -> Option<(String, String, &[u8])> {
    let (mut api_version, mut kind, mut object) = (String::new(), String::new(), None);
    for (number, layout, value, _) in fields(body.strip_prefix(b"k8s\0")?)? {
        match (number, layout) {
            (1, 2) => {
                for (number, layout, value, _) in fields(value)? {
                    let text = || String::from_utf8_lossy(value).into_owned();
                    match (number, layout) {
                        (1, 2) => api_version = text(),
                        (2, 2) => kind = text(),
                        _ => {}
                    }
                }
            }
            (2, 2) if object.is_some() => return None,
            (2, 2) => object = Some(value),
            (3 | 4, 2) if !value.is_empty() => return None,
            _ => {}
        }
    }
    Some((api_version, kind, object.unwrap_or_default()))
}

/// Items of a list; ends with [`Model::End`] if the body is malformed at some point.
pub(crate) fn list(types: &TypeMeta, body: &[u8]) -> Option<Vec<Model>> {
    let (api_version, kind, list) = opened(body)?;
    if api_version != types.api_version || kind != format!("{}List", types.kind) {
        return None;
    }
    let mut found = Vec::new();
    for (number, layout, value, _) in fields(list)? {
        match (number, layout) {
            (2, 2) => found.push(object(value)),
            (2, _) => found.push(Model::Unreadable),
            _ => {}
        }
    }
    Some(found)
}

/// Objects of a watch's frames, without bookmarks and errors.
pub(crate) fn watch(types: &TypeMeta, mut body: &[u8]) -> Vec<Model> {
    let mut found = Vec::new();
    while let Some((length, rest)) = body.split_first_chunk::<4>() {
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
        let event = rest.get(..length).and_then(fields);
        let Some(event) = event else {
            found.push(Model::End);
            return found;
        };
        body = &rest[length..];
        let Some(one) = frame(types, &event) else {
            found.push(Model::End);
            return found;
        };
        found.extend(one);
    }
    if !body.is_empty() {
        found.push(Model::End);
    }
    found
}

/// The frame's object, if it has one to return; `None` if it is not a frame.
fn frame(types: &TypeMeta, event: &Fields<'_>) -> Option<Vec<Model>> {
    let (mut kind, mut raw) = (&[][..], None);
    for (number, layout, value, _) in event {
        match (number, layout) {
            (1, 2) => kind = &value[..value.len().min(64)],
            (2, 2) => {
                for (number, layout, value, _) in fields(value)? {
                    if (number, layout) == (1, 2) {
                        raw = Some(value);
                    }
                }
            }
            _ => {}
        }
    }
    if matches!(kind, b"BOOKMARK" | b"ERROR") {
        return Some(Vec::new());
    }
    let read = || {
        let (api_version, found_kind, object_bytes) = opened(raw?)?;
        let fits = |found_kind: &str, own: &str| found_kind.is_empty() || found_kind == own;
        let of = fits(&api_version, &types.api_version) && fits(&found_kind, &types.kind);
        (of && matches!(kind, b"ADDED" | b"MODIFIED" | b"DELETED")).then(|| object(object_bytes))
    };
    Some(vec![read().unwrap_or(Model::Unreadable)])
}
