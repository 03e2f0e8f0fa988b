//! Watchers that record each object's version, and the board on which they and the writer record times.
//!
//! A watcher panics if a frame is not an update with a higher version of its object. It reads name and
//! version at known positions of a frame, so that the server is measured and not a parser of JSON or
//! protobuf.

use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::Value;
use tokio::sync::Notify;

use crate::transport::Chunks;
use crate::{NAMESPACES, OBJECTS};

/// The start time of each write, and the latency of each frame.
pub(crate) struct Board {
    first: u64,
    written: Mutex<Vec<Instant>>,
    latencies: Mutex<Vec<Duration>>,
    frames: AtomicU64,
    expected_frames: AtomicU64,
    reached: Notify,
}

impl Board {
    pub(crate) fn new(version: u64) -> Self {
        Board {
            first: version + 1,
            written: Mutex::default(),
            latencies: Mutex::default(),
            frames: AtomicU64::new(0),
            expected_frames: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
        }
    }

    /// Records the start of a write. Each write consumes the next version.
    pub(crate) fn writing(&self) {
        self.written.lock().unwrap().push(Instant::now());
    }

    fn record(&self, versions: &[u64]) {
        let now = Instant::now();
        let written = self.written.lock().unwrap();
        let at = |version: &u64| now - written[usize::try_from(version - self.first).unwrap()];
        self.latencies.lock().unwrap().extend(versions.iter().map(at));
        let frames = self.frames.fetch_add(versions.len() as u64, Ordering::Relaxed) + versions.len() as u64;
        if frames >= self.expected_frames.load(Ordering::Relaxed) {
            self.reached.notify_waiters();
        }
    }

    /// Waits until the watchers have received this many frames.
    pub(crate) async fn until(&self, frames: u64) {
        self.expected_frames.store(frames, Ordering::Relaxed);
        let reached = async {
            loop {
                let reached = self.reached.notified();
                if self.frames.load(Ordering::Relaxed) >= frames {
                    return;
                }
                reached.await;
            }
        };
        tokio::time::timeout(Duration::from_secs(120), reached)
            .await
            .expect("the watchers must receive all frames");
    }

    /// Returns all latencies, sorted.
    pub(crate) fn latencies(&self) -> Vec<Duration> {
        let mut latencies = std::mem::take(&mut *self.latencies.lock().unwrap());
        latencies.sort_unstable();
        latencies
    }
}

/// The encoding of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Lines that start with this text, up to the number in the name.
    Json(&'static str),
    Protobuf,
}

impl Wire {
    pub(crate) fn accept(self) -> &'static str {
        match self {
            Wire::Json(_) => "application/json",
            Wire::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }

    /// Removes a complete frame from the bytes, if there is one.
    fn next<'a>(self, bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        if self != Wire::Protobuf {
            return next_line(bytes);
        }
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (frame, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        *bytes = rest;
        Some(frame)
    }

    /// Returns namespace, number and version of an updated object.
    fn read(self, frame: &[u8]) -> Option<(u64, u64, u64)> {
        // The bytes between name, namespace, uid and version. Protobuf includes an empty generateName and
        // selfLink.
        let (rest, gaps): (_, [&[u8]; 3]) = match self {
            Wire::Json(head) => (
                frame.strip_prefix(head.as_bytes())?,
                [br#"","namespace":"ns-"#, br#"","uid":""#, br#"","resourceVersion":""#],
            ),
            Wire::Protobuf => {
                let start = b"object-";
                let at = frame.windows(start.len()).position(|part| part == start)?;
                let rest = frame.strip_prefix(b"\x0a\x08MODIFIED").and(frame.get(at + start.len()..))?;
                (rest, [b"\x12\0\x1a\x05ns-", b"\x22\0\x2a\x24", b"\x32"])
            }
        };
        let (number, rest) = digits(rest);
        let (namespace, rest) = digits(rest.strip_prefix(gaps[0])?);
        let rest = rest.strip_prefix(gaps[1])?.get(36..)?.strip_prefix(gaps[2])?;
        // In protobuf, the version is preceded by its length.
        let rest = if self == Wire::Protobuf { rest.get(1..1 + usize::from(*rest.first()?))? } else { rest };
        Some((namespace, number, digits(rest).0))
    }

    fn is_bookmark(self, frame: &[u8]) -> bool {
        let start: &[u8] =
            if self == Wire::Protobuf { b"\x0a\x08BOOKMARK" } else { br#"{"type":"BOOKMARK""# };
        frame.starts_with(start)
    }
}

/// The last version of each object, by namespace and number; 0 if no frame was received.
type Versions = Vec<u64>;

pub(crate) struct Watchers {
    board: Arc<Board>,
    wire: Wire,
    /// For each watcher the versions it has received, and the namespace it watches.
    versions: Vec<(Arc<Mutex<Versions>>, Option<usize>)>,
}

impl Watchers {
    pub(crate) fn new(board: Arc<Board>, wire: Wire) -> Self {
        Watchers { board, wire, versions: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.versions.len()
    }

    /// Watches in a separate task until the stream ends.
    pub(crate) fn open(&mut self, mut chunks: Chunks, namespace: Option<usize>) {
        let versions = Arc::new(Mutex::new(vec![0; NAMESPACES * OBJECTS]));
        self.versions.push((versions.clone(), namespace));
        let (board, wire) = (self.board.clone(), self.wire);
        tokio::spawn(async move {
            // The start of a frame that continues in the next chunk.
            let mut rest: Vec<u8> = Vec::new();
            let mut received = Vec::new();
            while let Some(chunk) = chunks.next().await {
                let mut bytes: &[u8] = &chunk;
                if !rest.is_empty() {
                    rest.extend_from_slice(bytes);
                    bytes = &rest;
                }
                received.clear();
                while let Some(frame) = wire.next(&mut bytes) {
                    received.extend(note(frame, wire, &mut versions.lock().unwrap()));
                }
                rest = bytes.to_vec();
                board.record(&received);
            }
        });
    }

    /// Returns whether each watcher has received the last change of each object.
    pub(crate) fn all_equal(&self, objects: &[Value]) -> bool {
        let mut expected = vec![0; NAMESPACES * OBJECTS];
        for object in objects {
            let number = |field: &str, start: &str| -> u64 {
                let text = object["metadata"][field].as_str().unwrap_or_default();
                text.strip_prefix(start).unwrap().parse().unwrap()
            };
            let index = slot(number("namespace", "ns-"), number("name", "object-"));
            expected[index] =
                Some(number("resourceVersion", "")).filter(|at| *at >= self.board.first).unwrap_or(0);
        }
        self.versions.iter().all(|(versions, namespace)| {
            let of = |number: usize| number * OBJECTS..(number + 1) * OBJECTS;
            let range = namespace.map_or(0..expected.len(), of);
            let versions = versions.lock().unwrap();
            let outside =
                versions.iter().enumerate().any(|(at, version)| *version > 0 && !range.contains(&at));
            !outside && versions[range.clone()] == expected[range]
        })
    }
}

fn slot(namespace: u64, number: u64) -> usize {
    usize::try_from(namespace).unwrap() * OBJECTS + usize::try_from(number).unwrap()
}

/// Removes a complete line from the bytes, if there is one.
fn next_line<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (all, mut after) = (*bytes, *bytes);
    let length = after.skip_until(b'\n').unwrap();
    let line = all[..length].strip_suffix(b"\n")?;
    *bytes = after;
    Some(line)
}

/// Records the version of a frame and returns it; `None` for a bookmark.
fn note(frame: &[u8], wire: Wire, versions: &mut Versions) -> Option<u64> {
    if wire.is_bookmark(frame) {
        return None;
    }
    let read = wire.read(frame);
    let (namespace, number, version) = read.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(frame)));
    let before = std::mem::replace(&mut versions[slot(namespace, number)], version);
    assert!(before < version, "a version decreased: {}", String::from_utf8_lossy(frame));
    Some(version)
}

/// Splits a number off the start of a text.
fn digits(text: &[u8]) -> (u64, &[u8]) {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = text[..length].iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    (number, &text[length..])
}
