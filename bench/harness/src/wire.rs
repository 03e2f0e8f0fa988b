//! Prepared pods as list items and watch frames, in JSON and protobuf, with placeholders for a version, a
//! send time and the identity of a pod.
//!
//! All versions, all send times and all identities have the same length, so that they can be overwritten in
//! place in both encodings. This file writes the envelopes; the generator writes the pods, and the Go program
//! encodes them as protobuf.

/// Annotation with the time at which a frame was sent.
const SENT: &str = "bench.example.com/sent";

/// Lowest version of the initial list. All versions have ten digits.
pub(super) const FIRST_VERSION: u64 = 1_000_000_000;

/// Placeholder of the send time. All send times have 19 digits.
const NOT_SENT: &str = "1000000000000000000";

/// The encoding of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

impl Encoding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Protobuf => "protobuf",
        }
    }
}

/// An encoded object, as in a list.
pub(super) struct Item {
    bytes: Vec<u8>,
    /// Position of the version.
    version: usize,
    /// Position of the send time.
    sent: usize,
    /// Positions of the texts that identify the pod.
    identity: Vec<usize>,
}

/// What is written into a copy of an item.
#[derive(Default)]
pub(super) struct Values {
    pub(super) version: u64,
    /// The send time, in nanoseconds since 1970.
    pub(super) sent: Option<u64>,
    /// The texts that identify the pod; empty if the item is the pod itself.
    pub(super) identity: Vec<String>,
}

/// Adds an annotation for the send time to the JSON of a pod.
pub(super) fn with_send_time(pod: &str) -> String {
    let annotations = format!(r#""annotations":{{"{SENT}":"{NOT_SENT}","#);
    pod.replacen(r#""annotations":{"#, &annotations, 1)
}

impl Item {
    /// Creates an item from bytes that contain `version`, the placeholder of the send time and the texts of
    /// `identity`. `None` if one is missing.
    pub(super) fn new(bytes: Vec<u8>, version: u64, identity: &[String]) -> Option<Self> {
        let version = find(&bytes, version.to_string().as_bytes())?;
        let sent = find(&bytes, NOT_SENT.as_bytes())?;
        let position = |text: &String| find(&bytes, text.as_bytes());
        let identity = identity.iter().map(position).collect::<Option<_>>()?;
        Some(Self { bytes, version, sent, identity })
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Appends the object without its first `skip` bytes, with these values.
    fn put(&self, out: &mut Vec<u8>, skip: usize, values: &Values) {
        let start = out.len();
        out.extend_from_slice(&self.bytes[skip..]);
        let object = &mut out[start..];
        let mut put =
            |at: usize, text: &str| object[at - skip..][..text.len()].copy_from_slice(text.as_bytes());
        put(self.version, &values.version.to_string());
        if let Some(sent) = values.sent {
            put(self.sent, &sent.to_string());
        }
        for (at, text) in self.identity.iter().zip(&values.identity) {
            put(*at, text);
        }
    }

    /// Appends the object as an item of a list; in JSON, the caller adds the commas.
    pub(super) fn put_item(&self, encoding: Encoding, out: &mut Vec<u8>, values: &Values) {
        if encoding == Encoding::Protobuf {
            out.push(field(2));
            varint(out, self.bytes.len());
        }
        self.put(out, 0, values);
    }

    /// Appends the object as a frame of a watch.
    pub(super) fn put_frame(&self, encoding: Encoding, out: &mut Vec<u8>, kind: &str, values: &Values) {
        match encoding {
            Encoding::Json => {
                out.extend_from_slice(br#"{"type":""#);
                out.extend_from_slice(kind.as_bytes());
                out.extend_from_slice(br#"","object":{"kind":"Pod","apiVersion":"v1","#);
                self.put(out, 1, values);
                out.extend_from_slice(b"}\n");
            }
            Encoding::Protobuf => {
                frame_head(out, kind, "Pod", self.bytes.len());
                self.put(out, 0, values);
            }
        }
    }
}

/// Returns the bytes of a list before its items. `rest` is the continue token and the number of remaining
/// items; `size` is the number of bytes of the items.
pub(super) fn list_head(
    encoding: Encoding,
    version: u64,
    rest: Option<(usize, usize)>,
    size: usize,
) -> Vec<u8> {
    match encoding {
        Encoding::Json => {
            let next = rest.map_or_else(String::new, |(next, remaining)| {
                format!(r#","continue":"{next}","remainingItemCount":{remaining}"#)
            });
            let meta = format!(r#"{{"resourceVersion":"{version}"{next}}}"#);
            format!(r#"{{"kind":"PodList","apiVersion":"v1","metadata":{meta},"items":["#).into_bytes()
        }
        Encoding::Protobuf => {
            // Fields of ListMeta: 2 resourceVersion, 3 continue.
            let mut meta = text(2, &version.to_string());
            if let Some((next, _)) = rest {
                meta.extend(text(3, &next.to_string()));
            }
            let mut head = vec![field(1)];
            varint(&mut head, meta.len());
            head.extend(meta);
            let mut out = envelope("PodList", head.len() + size);
            out.extend(head);
            out
        }
    }
}

/// Returns the number of bytes that a list needs for an item in addition to the item.
pub(super) fn item_overhead(encoding: Encoding, item: &Item) -> usize {
    match encoding {
        Encoding::Json => 0,
        Encoding::Protobuf => {
            let mut length = Vec::new();
            varint(&mut length, item.len());
            1 + length.len()
        }
    }
}

/// Returns a bookmark. `initial_end` marks the end of the initial list.
pub(super) fn bookmark(encoding: Encoding, version: u64, initial_end: bool) -> Vec<u8> {
    const END: &str = "k8s.io/initial-events-end";
    match encoding {
        Encoding::Json => {
            let annotations =
                if initial_end { format!(r#","annotations":{{"{END}":"true"}}"#) } else { String::new() };
            let meta = format!(r#"{{"resourceVersion":"{version}","creationTimestamp":null{annotations}}}"#);
            let pod = format!(
                r#"{{"kind":"Pod","apiVersion":"v1","metadata":{meta},"spec":{{"containers":null}},"status":{{}}}}"#
            );
            format!("{{\"type\":\"BOOKMARK\",\"object\":{pod}}}\n").into_bytes()
        }
        Encoding::Protobuf => {
            // Fields of ObjectMeta: 6 resourceVersion, 12 annotations with 1 key and 2 value.
            let mut meta = text(6, &version.to_string());
            if initial_end {
                let entry = [text(1, END), text(2, "true")].concat();
                meta.push(field(12));
                varint(&mut meta, entry.len());
                meta.extend(entry);
            }
            let mut pod = vec![field(1)];
            varint(&mut pod, meta.len());
            pod.extend(meta);
            let mut out = Vec::new();
            frame_head(&mut out, "BOOKMARK", "Pod", pod.len());
            out.extend(pod);
            out
        }
    }
}

/// Returns the error frame that ends a watch with an expired version.
pub(super) fn expired(encoding: Encoding) -> Vec<u8> {
    const MESSAGE: &str = "too old resource version";
    match encoding {
        Encoding::Json => {
            let status = format!(r#""status":"Failure","message":"{MESSAGE}","reason":"Expired","code":410"#);
            let status = format!(r#"{{"kind":"Status","apiVersion":"v1","metadata":{{}},{status}}}"#);
            format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n").into_bytes()
        }
        Encoding::Protobuf => {
            // Fields of Status: 2 status, 3 message, 4 reason, 6 code.
            let mut status = [text(2, "Failure"), text(3, MESSAGE), text(4, "Expired")].concat();
            status.push(6 << 3);
            varint(&mut status, 410);
            let mut out = Vec::new();
            frame_head(&mut out, "ERROR", "Status", status.len());
            out.extend(status);
            out
        }
    }
}

/// Appends a protobuf frame up to its object of `object` bytes: length, event {1 type, 2 {1 object in its
/// envelope}}.
fn frame_head(out: &mut Vec<u8>, event: &str, kind: &str, object: usize) {
    let envelope = envelope(kind, object);
    let enveloped = envelope.len() + object;
    let mut raw = vec![field(1)];
    varint(&mut raw, enveloped);
    let mut event = text(1, event);
    event.push(field(2));
    varint(&mut event, raw.len() + enveloped);
    event.extend(raw);
    let length = u32::try_from(event.len() + enveloped).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend(event);
    out.extend(envelope);
}

/// Returns the magic number and the start of an `Unknown` {1 {1 apiVersion, 2 kind}, 2 object} with an object
/// of this many bytes.
fn envelope(kind: &str, object: usize) -> Vec<u8> {
    let type_meta = [text(1, "v1"), text(2, kind)].concat();
    let mut out = b"k8s\0".to_vec();
    out.push(field(1));
    varint(&mut out, type_meta.len());
    out.extend(type_meta);
    out.push(field(2));
    varint(&mut out, object);
    out
}

/// Returns the tag of a length-delimited field; the number must be below 16.
fn field(number: u8) -> u8 {
    number << 3 | 2
}

fn text(number: u8, text: &str) -> Vec<u8> {
    let mut out = vec![field(number)];
    varint(&mut out, text.len());
    out.extend_from_slice(text.as_bytes());
    out
}

#[allow(clippy::cast_possible_truncation, reason = "seven bits fit into a byte")]
fn varint(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 & 0x7f | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> Item {
        let pod = r#"{"metadata":{"resourceVersion":"1000000007","annotations":{"a":"b"}}}"#;
        Item::new(with_send_time(pod).into_bytes(), 1_000_000_007, &[]).unwrap()
    }

    fn values(version: u64, sent: Option<u64>) -> Values {
        Values { version, sent, identity: Vec::new() }
    }

    #[test]
    fn versions_and_send_times_are_overwritten() {
        let mut out = Vec::new();
        let values = values(1_000_000_042, Some(1_763_200_000_123_456_789));
        item().put_frame(Encoding::Json, &mut out, "MODIFIED", &values);
        let expected = concat!(
            r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"1000000042","#,
            r#""annotations":{"bench.example.com/sent":"1763200000123456789","a":"b"}}}}"#,
            "\n"
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn identity_is_overwritten() {
        let pod = r#"{"metadata":{"resourceVersion":"1000000007","annotations":{"a":"b"},"name":"pod-1"}}"#;
        let item = Item::new(with_send_time(pod).into_bytes(), 1_000_000_007, &["pod-1".to_owned()]).unwrap();
        let mut out = Vec::new();
        let values = Values { identity: vec!["pod-2".to_owned()], ..values(1_000_000_008, None) };
        item.put_item(Encoding::Json, &mut out, &values);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(r#""name":"pod-2""#) && text.contains("1000000008"), "{text}");
    }

    #[test]
    fn protobuf_frames_start_with_their_length() {
        let mut out = Vec::new();
        item().put_frame(Encoding::Protobuf, &mut out, "ADDED", &values(1_000_000_042, None));
        out.extend(bookmark(Encoding::Protobuf, 1_000_000_043, true));
        let mut rest = out.as_slice();
        for kind in ["ADDED", "BOOKMARK"] {
            let (length, after) = rest.split_at(4);
            let length = u32::from_be_bytes(length.try_into().unwrap()) as usize;
            assert_eq!(after[2..2 + kind.len()], *kind.as_bytes());
            rest = &after[length..];
        }
        assert_eq!(rest, b"");
    }

    /// Regression: the error frame was JSON in both encodings, so that a client with protobuf never relisted.
    #[test]
    fn expired_frame_has_the_requested_encoding() {
        assert!(expired(Encoding::Json).ends_with(b"\"code\":410}}\n"));
        let frame = expired(Encoding::Protobuf);
        let length: [u8; 4] = frame[..4].try_into().unwrap();
        assert_eq!(u32::from_be_bytes(length) as usize, frame.len() - 4);
        assert!(find(&frame, b"Status").is_some() && find(&frame, b"Expired").is_some());
        // Field 6 is the varint 410.
        assert!(frame.ends_with(&[0x30, 0x9a, 0x03]), "{frame:?}");
    }

    #[test]
    fn protobuf_list_has_the_declared_length() {
        let item = item();
        let size = item.len() + item_overhead(Encoding::Protobuf, &item);
        let mut list = list_head(Encoding::Protobuf, 1_000_000_000, None, size);
        item.put_item(Encoding::Protobuf, &mut list, &values(1_000_000_001, None));
        // The magic number, field 1 with 13 bytes, and field 2 with a length of two bytes.
        assert_eq!(list[..6], *b"k8s\0\x0a\x0d");
        let length = usize::from(list[20] & 0x7f) | usize::from(list[21]) << 7;
        assert_eq!(list.len(), 22 + length);
    }
}
