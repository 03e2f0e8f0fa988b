//! The replay server: serves prepared pods in lists, watch-lists and watches, over plain HTTP/1.1 on
//! loopback, with one thread per connection.
//!
//! Its responses look like those of an API server to an informer, but it only copies bytes. Changes of the
//! pods are a queue of [`Job`]s, which the only open watch executes.

use std::collections::VecDeque;
use std::io::{self, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench_data::http::{Chunked, Request};

use super::data::{self, Data, Pods, Size};
use super::wire::{self, Encoding};
use crate::failure::Failure;

/// Distance between small pods that change one after the other: changes far apart in a large cache find nothing
/// in the caches of the CPU. It has no common divisor with a power of ten, so that all pods change.
const FAR: usize = 618_033;

/// Size of a chunk at full speed.
const CHUNK_BYTES: usize = 64 * 1024;

impl Encoding {
    /// Returns the most compact encoding that the client accepts.
    fn of(request: &Request) -> Self {
        if request.protobuf { Self::Protobuf } else { Self::Json }
    }

    fn content_type(self, watch: bool) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Protobuf if watch => "application/vnd.kubernetes.protobuf;stream=watch",
            Self::Protobuf => "application/vnd.kubernetes.protobuf",
        }
    }
}

/// A change of the pods.
enum Job {
    /// Changes this many pods one after the other, at this rate per second or at full speed, and sends a
    /// bookmark.
    Write { frames: usize, rate: Option<u32> },
    /// Changes pods at this rate per second or at full speed, until the flag is set.
    WriteUntil { stop: Arc<AtomicBool>, rate: Option<u32> },
    /// Ends the watch with an expired version.
    Expire,
}

/// A running server, stopped on drop.
pub(super) struct Replay {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    data: Arc<Data>,
    size: Size,
    count: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Version of each pod.
    versions: Vec<u64>,
    /// Highest version.
    version: u64,
    /// Lowest version from which a watch may start.
    oldest: u64,
    /// Index of the pod that changes next.
    next: usize,
    /// Distance between two pods that change one after the other.
    stride: usize,
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Replay {
    /// Starts a server with the first `count` pods of this size.
    pub(super) fn start(data: &Arc<Data>, size: Size, count: usize) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::Failed(format!("cannot listen on loopback: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let versions: Vec<u64> = (0..count).map(data::version).collect();
        let version = versions.last().copied().unwrap_or(wire::FIRST_VERSION);
        let stride = match size {
            Size::Usual => 1,
            Size::Small => FAR,
        };
        let state =
            State { versions, version, oldest: 0, next: 0, stride, jobs: VecDeque::new(), closed: false };
        let shared = Arc::new(Shared {
            data: Arc::clone(data),
            size,
            count,
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.lock().closed {
                    break;
                }
                let shared = Arc::clone(&serving);
                // A client that disconnects is not an error.
                thread::spawn(move || drop(shared.serve(&stream)));
            }
        });
        Ok(Self { shared, port })
    }

    /// Returns a kubeconfig for the server.
    pub(super) fn kubeconfig(&self) -> String {
        let server = format!("http://127.0.0.1:{}", self.port);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: replay\n\
             clusters: [{{name: replay, cluster: {{server: '{server}'}}}}]\n\
             users: [{{name: replay, user: {{}}}}]\n\
             contexts: [{{name: replay, context: {{cluster: replay, user: replay}}}}]\n"
        )
    }

    /// Returns the version after this many more changes.
    pub(super) fn version_after(&self, changes: usize) -> u64 {
        self.shared.lock().version + changes as u64
    }

    /// Starts to change pods.
    pub(super) fn write(&self, frames: usize, rate: Option<u32>) {
        self.push(Job::Write { frames, rate });
    }

    /// Starts to change pods, at this rate per second or at full speed; returns the flag that stops it.
    pub(super) fn write_until(&self, rate: Option<u32>) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        self.push(Job::WriteUntil { stop: Arc::clone(&stop), rate });
        stop
    }

    /// Changes the last `changed` pods without frames and ends the watch with an expired version.
    pub(super) fn expire(&self, changed: usize) {
        self.change_last(changed);
        self.push(Job::Expire);
    }

    /// Changes the last `changed` pods without frames. A watch from an earlier version starts with them.
    pub(super) fn change_last(&self, changed: usize) {
        let mut state = self.shared.lock();
        for number in self.shared.count.saturating_sub(changed)..self.shared.count {
            state.version += 1;
            state.versions[number] = state.version;
        }
    }

    /// Rejects watches from versions before the current one.
    pub(super) fn forget_history(&self) {
        let mut state = self.shared.lock();
        state.oldest = state.version;
    }

    /// Makes pods that change one after the other be far apart, as small ones always are.
    pub(super) fn scatter_changes(&self) {
        self.shared.lock().stride = FAR;
    }

    fn push(&self, job: Job) {
        self.shared.lock().jobs.push_back(job);
        self.shared.changed.notify_all();
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.changed.notify_all();
        // Wakes the listener, which then sees that the server is closed.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the pods and their number, which is zero if they cannot be encoded.
    fn pods(&self, encoding: Encoding) -> (Pods<'_>, usize) {
        let pods = self.data.pods(self.size, encoding);
        (pods, if pods.is_empty() { 0 } else { self.count })
    }

    /// Responds to the requests of a connection one after the other.
    fn serve(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        while let Some(request) = Request::read(&mut input)? {
            if request.path != "/api/v1/pods" {
                let mut stream = stream;
                stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")?;
            } else if request.has("watch") {
                return self.watch(&request, Chunked::new(stream.try_clone()?));
            } else {
                self.list(&request, Chunked::new(stream.try_clone()?))?;
            }
        }
        Ok(())
    }

    fn list(&self, request: &Request, mut out: Chunked) -> io::Result<()> {
        let encoding = Encoding::of(request);
        let (pods, count) = self.pods(encoding);
        // Like a server with a watch cache, it ignores the limit at version 0.
        let limit = request.number("limit").filter(|_| request.number("resourceVersion") != Some(0));
        let page = request.page(limit, count);
        let remaining = count - page.end;
        let (version, versions) = {
            let state = self.lock();
            (state.version, state.versions.clone())
        };
        let size: usize = page.clone().map(|number| pods.item_len(number)).sum();
        out.begin(encoding.content_type(false))?;
        let rest = (remaining > 0).then_some((page.end, remaining));
        out.buffer.extend(wire::list_head(encoding, version, rest, size));
        for index in page.clone() {
            if encoding == Encoding::Json && index > page.start {
                out.buffer.push(b',');
            }
            pods.put_item(&mut out.buffer, index, versions[index]);
            out.send_from(CHUNK_BYTES)?;
        }
        if encoding == Encoding::Json {
            out.buffer.extend_from_slice(b"]}\n");
        }
        out.end()
    }

    fn watch(&self, request: &Request, mut out: Chunked) -> io::Result<()> {
        let encoding = Encoding::of(request);
        out.begin(encoding.content_type(true))?;
        if request.has("sendInitialEvents") {
            let (version, versions) = {
                let state = self.lock();
                (state.version, state.versions.clone())
            };
            let (pods, count) = self.pods(encoding);
            for (number, version) in versions.into_iter().take(count).enumerate() {
                pods.put_frame(&mut out.buffer, "ADDED", number, version, None);
                out.send_from(CHUNK_BYTES)?;
            }
            out.buffer.extend(wire::bookmark(encoding, version, true));
            out.send_from(0)?;
        } else if let Some(since) = request.number("resourceVersion")
            && !self.catch_up(&mut out, encoding, since as u64)?
        {
            return out.end();
        }
        while let Some(job) = self.next_job() {
            match job {
                Job::Write { frames, rate } => {
                    self.write(&mut out, encoding, frames, &mut rate.map(Pacer::new))?;
                    out.buffer.extend(wire::bookmark(encoding, self.lock().version, false));
                    out.send_from(0)?;
                }
                Job::WriteUntil { stop, rate } => {
                    let mut pacer = rate.map(Pacer::new);
                    while !stop.load(Ordering::Relaxed) && !self.lock().closed {
                        self.write(&mut out, encoding, 100, &mut pacer)?;
                    }
                    out.send_from(0)?;
                }
                Job::Expire => {
                    out.buffer.extend(wire::expired(encoding));
                    return out.end();
                }
            }
        }
        Ok(())
    }

    /// Sends the changes since a version; returns whether the version is not too old for that.
    fn catch_up(&self, out: &mut Chunked, encoding: Encoding, since: u64) -> io::Result<bool> {
        let (pods, count) = self.pods(encoding);
        let state = self.lock();
        if since < state.oldest {
            out.buffer.extend(wire::expired(encoding));
            return Ok(false);
        }
        let versions = state.versions.iter().copied().zip(0..count);
        let mut changes: Vec<(u64, usize)> = versions.filter(|(version, _)| *version > since).collect();
        let version = state.version;
        drop(state);
        changes.sort_unstable();
        for (version, number) in &changes {
            pods.put_frame(&mut out.buffer, "MODIFIED", *number, *version, None);
            out.send_from(CHUNK_BYTES)?;
        }
        if !changes.is_empty() {
            out.buffer.extend(wire::bookmark(encoding, version, false));
            out.send_from(0)?;
        }
        Ok(true)
    }

    fn next_job(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn write(
        &self,
        out: &mut Chunked,
        encoding: Encoding,
        frames: usize,
        pacer: &mut Option<Pacer>,
    ) -> io::Result<()> {
        let (pods, _) = self.pods(encoding);
        for _ in 0..frames {
            let sent = pacer.as_mut().map(Pacer::wait);
            let (pod, version) = self.lock().change();
            pods.put_frame(&mut out.buffer, "MODIFIED", pod, version, sent);
            out.send_from(if pacer.is_some() { 0 } else { CHUNK_BYTES })?;
            if let Some(pacer) = pacer {
                pacer.idle_since = Instant::now();
            }
        }
        Ok(())
    }
}

impl State {
    /// Changes the next pod; returns its index and its new version.
    fn change(&mut self) -> (usize, u64) {
        let index = self.next;
        self.next = (index + self.stride) % self.versions.len();
        self.version += 1;
        self.versions[index] = self.version;
        (index, self.version)
    }
}

/// Sends frames at a fixed rate. The send time of a frame that is delayed because the client did not read the
/// frame before is the time at which it was due.
struct Pacer {
    period: Duration,
    due: Instant,
    /// Time at which the last frame was sent completely.
    idle_since: Instant,
}

impl Pacer {
    fn new(rate: u32) -> Self {
        let now = Instant::now();
        Self { period: Duration::from_secs(1) / rate, due: now, idle_since: now }
    }

    /// Waits until the next frame is due; returns its send time in nanoseconds since 1970.
    fn wait(&mut self) -> u64 {
        let due = self.due;
        self.due += self.period;
        let now = Instant::now();
        if let Some(early) = due.checked_duration_since(now) {
            thread::sleep(early);
        }
        let late = if self.idle_since > due { due.elapsed() } else { Duration::ZERO };
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.saturating_sub(late).as_nanos()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::path::Path;

    use super::*;

    const PODS: usize = 12;

    fn replay() -> Replay {
        let Ok(data) = Data::generate(PODS, None, Path::new("")) else { panic!("cannot generate pods") };
        Replay::start(&Arc::new(data), Size::Usual, PODS)
            .unwrap_or_else(|_| panic!("cannot start the server"))
    }

    fn get(replay: &Replay, query: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", replay.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(
            stream,
            "GET /api/v1/pods?{query} HTTP/1.1\r\nhost: replay\r\naccept: application/json\r\n\r\n"
        )
        .unwrap();
        stream
    }

    /// Reads until the text contains `end`.
    fn read_until(stream: &mut TcpStream, end: &str) -> String {
        let (mut text, mut piece) = (String::new(), [0; 4096]);
        while !text.contains(end) {
            let read = stream.read(&mut piece).unwrap();
            assert_ne!(read, 0, "the stream ended before `{end}`");
            text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
        text
    }

    #[test]
    fn list_is_paginated() {
        let replay = replay();
        for (query, items, next) in [
            ("limit=5", 5, Some(5)),
            ("limit=5&continue=10", 2, None),
            ("limit=5&resourceVersion=0", PODS, None),
        ] {
            let text = read_until(&mut get(&replay, query), "\r\n0\r\n");
            let (_, chunks) = text.split_once("\r\n\r\n").unwrap();
            // Sizes and contents alternate.
            let body: String = chunks.split("\r\n").skip(1).step_by(2).collect();
            let list: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!(list["items"].as_array().unwrap().len(), items, "{query}");
            assert_eq!(
                list["metadata"]["continue"].as_str(),
                next.map(|next: usize| next.to_string()).as_deref()
            );
        }
    }

    #[test]
    fn watch_sends_initial_list_changes_and_expiry() {
        let replay = replay();
        let mut stream = get(&replay, "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
        let text = read_until(&mut stream, "initial-events-end");
        assert_eq!(text.matches(r#"{"type":"ADDED""#).count(), PODS);
        let last = replay.version_after(3);
        replay.write(3, Some(1000));
        let text = read_until(
            &mut stream,
            &format!(
                r#"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{last}""#
            ),
        );
        assert_eq!(text.matches(r#"{"type":"MODIFIED""#).count(), 3);
        replay.expire(1);
        read_until(&mut stream, r#""code":410}}"#);
        let text = read_until(&mut get(&replay, "resourceVersion=0"), "\r\n0\r\n");
        assert!(text.contains(&format!(r#""resourceVersion":"{}""#, last + 1)));
    }

    #[test]
    fn watch_starts_with_the_changes_since_its_version() {
        let replay = replay();
        let before = replay.version_after(0);
        replay.change_last(2);
        let query = format!("watch=true&resourceVersion={before}");
        let text = read_until(&mut get(&replay, &query), "BOOKMARK");
        assert_eq!(text.matches(r#"{"type":"MODIFIED""#).count(), 2);
        replay.forget_history();
        read_until(&mut get(&replay, &query), r#""code":410}}"#);
    }
}
