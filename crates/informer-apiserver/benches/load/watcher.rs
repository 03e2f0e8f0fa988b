//! Watchers that remember each object's version, and the board on which they and the writer leave their times.
//!
//! A watcher stops the program when a frame is not the next change of its object: versions rise, and frames are updates. It knows where in
//! a frame name and version are, so that what is measured is the server and not a reader of JSON or protobuf.

use std::io::BufRead;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use serde_json::Value;
use tokio::sync::Notify;

use crate::transport::Chunks;
use crate::{NAMESPACES, OBJECTS};

/// When each version was written, and how long each frame took.
pub(crate) struct Board {
    first: u64,
    written: Mutex<Vec<Instant>>,
    took: Mutex<Vec<Duration>>,
    frames: AtomicU64,
    wanted: AtomicU64,
    reached: Notify,
}

impl Board {
    pub(crate) fn new(version: u64) -> Self {
        Board {
            first: version + 1,
            written: Mutex::default(),
            took: Mutex::default(),
            frames: AtomicU64::new(0),
            wanted: AtomicU64::new(u64::MAX),
            reached: Notify::new(),
        }
    }

    /// A write begins; each takes one version, in turn.
    pub(crate) fn writing(&self) {
        self.written.lock().unwrap().push(Instant::now());
    }

    fn seen(&self, versions: &[u64]) {
        let now = Instant::now();
        let written = self.written.lock().unwrap();
        let at = |version: &u64| now - written[usize::try_from(version - self.first).unwrap()];
        self.took.lock().unwrap().extend(versions.iter().map(at));
        let frames = self.frames.fetch_add(versions.len() as u64, Ordering::Relaxed) + versions.len() as u64;
        if frames >= self.wanted.load(Ordering::Relaxed) {
            self.reached.notify_waiters();
        }
    }

    /// Waits until there were so many frames.
    pub(crate) async fn until(&self, frames: u64) {
        self.wanted.store(frames, Ordering::Relaxed);
        let reached = async {
            loop {
                let reached = self.reached.notified();
                if self.frames.load(Ordering::Relaxed) >= frames {
                    return;
                }
                reached.await;
            }
        };
        tokio::time::timeout(Duration::from_mins(2), reached).await.expect("the watchers stand still");
    }

    /// All of them, sorted.
    pub(crate) fn latencies(&self) -> Vec<Duration> {
        let mut took = std::mem::take(&mut *self.took.lock().unwrap());
        took.sort_unstable();
        took
    }
}

/// What frames are made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Lines. They begin with this, up to the number in the name.
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

    /// Takes a whole frame from the bytes, if there is one.
    fn next<'a>(self, bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
        if self != Wire::Protobuf {
            return next_line(bytes);
        }
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (frame, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        *bytes = rest;
        Some(frame)
    }

    /// Namespace, number and version of the object of an update.
    fn read(self, frame: &[u8]) -> Option<(u64, u64, u64)> {
        // What is between name, namespace, uid and version. A generated name and a link are there in protobuf, and empty.
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
        // In protobuf the length of the version is before it.
        let rest = if self == Wire::Protobuf { rest.get(1..1 + usize::from(*rest.first()?))? } else { rest };
        Some((namespace, number, digits(rest).0))
    }

    fn is_bookmark(self, frame: &[u8]) -> bool {
        let start: &[u8] =
            if self == Wire::Protobuf { b"\x0a\x08BOOKMARK" } else { br#"{"type":"BOOKMARK""# };
        frame.starts_with(start)
    }
}

/// The last version of each object, by namespace and number; 0 if it was not seen.
type Versions = Vec<u64>;

pub(crate) struct Watchers {
    board: Arc<Board>,
    wire: Wire,
    /// What each has seen, and the namespace it is about.
    seen: Vec<(Arc<Mutex<Versions>>, Option<usize>)>,
}

impl Watchers {
    pub(crate) fn new(board: Arc<Board>, wire: Wire) -> Self {
        Watchers { board, wire, seen: Vec::new() }
    }

    pub(crate) fn len(&self) -> usize {
        self.seen.len()
    }

    /// Watches in a task of its own, for as long as the stream goes on.
    pub(crate) fn open(&mut self, mut chunks: Chunks, namespace: Option<usize>) {
        let versions = Arc::new(Mutex::new(vec![0; NAMESPACES * OBJECTS]));
        self.seen.push((versions.clone(), namespace));
        let (board, wire) = (self.board.clone(), self.wire);
        tokio::spawn(async move {
            // What a chunk of a socket has of a frame that goes on in the next.
            let mut rest: Vec<u8> = Vec::new();
            let mut told = Vec::new();
            while let Some(chunk) = chunks.next().await {
                let mut bytes: &[u8] = &chunk;
                if !rest.is_empty() {
                    rest.extend_from_slice(bytes);
                    bytes = &rest;
                }
                told.clear();
                while let Some(frame) = wire.next(&mut bytes) {
                    told.extend(note(frame, wire, &mut versions.lock().unwrap()));
                }
                rest = bytes.to_vec();
                board.seen(&told);
            }
        });
    }

    /// Whether each has seen the last change of each object that was written.
    pub(crate) fn all_equal(&self, objects: &[Value]) -> bool {
        let mut there = vec![0; NAMESPACES * OBJECTS];
        for object in objects {
            let number = |field: &str, start: &str| -> u64 {
                let text = object["metadata"][field].as_str().unwrap_or_default();
                text.strip_prefix(start).unwrap().parse().unwrap()
            };
            let place = place(number("namespace", "ns-"), number("name", "object-"));
            there[place] =
                Some(number("resourceVersion", "")).filter(|at| *at >= self.board.first).unwrap_or(0);
        }
        self.seen.iter().all(|(seen, namespace)| {
            let of = |number: usize| number * OBJECTS..(number + 1) * OBJECTS;
            let places = namespace.map_or(0..there.len(), of);
            let seen = seen.lock().unwrap();
            let elsewhere =
                seen.iter().enumerate().any(|(at, version)| *version > 0 && !places.contains(&at));
            !elsewhere && seen[places.clone()] == there[places]
        })
    }
}

fn place(namespace: u64, number: u64) -> usize {
    usize::try_from(namespace).unwrap() * OBJECTS + usize::try_from(number).unwrap()
}

/// Takes a whole line from the bytes, if there is one.
fn next_line<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (all, mut after) = (*bytes, *bytes);
    let length = after.skip_until(b'\n').unwrap();
    let line = all[..length].strip_suffix(b"\n")?;
    *bytes = after;
    Some(line)
}

/// Writes down what a frame says, and gives its version; none for a bookmark.
fn note(frame: &[u8], wire: Wire, versions: &mut Versions) -> Option<u64> {
    if wire.is_bookmark(frame) {
        return None;
    }
    let read = wire.read(frame);
    let (namespace, number, version) = read.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(frame)));
    let before = std::mem::replace(&mut versions[place(namespace, number)], version);
    assert!(before < version, "a version went back: {}", String::from_utf8_lossy(frame));
    Some(version)
}

/// The number at the beginning of a text, and what follows it.
fn digits(text: &[u8]) -> (u64, &[u8]) {
    let length = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let number = text[..length].iter().fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
    (number, &text[length..])
}
