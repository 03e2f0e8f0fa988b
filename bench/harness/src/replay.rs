//! A server of prepared pods: lists, watch-lists and watches over plain HTTP/1.1 on loopback, a thread for each connection.
//!
//! It answers as an API server does as far as informers can tell, and does nothing but copy bytes. What happens to the pods is a queue of
//! [`Job`]s, which the one open watch carries out; each ends with a bookmark.

use std::collections::VecDeque;
use std::io::{self, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bench_data::http::{Chunked, Request};

use super::data::{self, Data};
use super::wire::{self, Encoding, Item};
use crate::failure::Failure;

/// How much is sent at a time at full speed.
const CHUNK: usize = 64 * 1024;

impl Encoding {
    /// The best that a client can read.
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

/// What happens to the pods.
enum Job {
    /// So many of them change, in turn; at full speed without a rate.
    Write { frames: usize, rate: Option<u32> },
    /// They change at full speed until told to stop.
    Flood(Arc<AtomicBool>),
    /// The watch ends, its version forgotten.
    Expire,
}

/// Ends when it is dropped.
pub(super) struct Replay {
    shared: Arc<Shared>,
    port: u16,
}

struct Shared {
    data: Arc<Data>,
    count: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Of each pod.
    versions: Vec<u64>,
    /// The highest of them.
    version: u64,
    /// The pod that changes next.
    next: usize,
    jobs: VecDeque<Job>,
    closed: bool,
}

impl Replay {
    /// Serves the first so many pods.
    pub(super) fn start(data: &Arc<Data>, count: usize) -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::Failed(format!("cannot listen on loopback: {error}"));
        let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        let versions: Vec<u64> = (0..count).map(data::version).collect();
        let version = versions.last().copied().unwrap_or(wire::FIRST_VERSION);
        let state = State { versions, version, next: 0, jobs: VecDeque::new(), closed: false };
        let shared = Arc::new(Shared {
            data: Arc::clone(data),
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
                // A client that hangs up is no trouble of the server.
                thread::spawn(move || drop(shared.serve(&stream)));
            }
        });
        Ok(Self { shared, port })
    }

    /// A kubeconfig for it.
    pub(super) fn kubeconfig(&self) -> String {
        let server = format!("http://127.0.0.1:{}", self.port);
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: replay\n\
             clusters: [{{name: replay, cluster: {{server: '{server}'}}}}]\n\
             users: [{{name: replay, user: {{}}}}]\n\
             contexts: [{{name: replay, context: {{cluster: replay, user: replay}}}}]\n"
        )
    }

    /// The version after so many changes more; for what is begun next.
    pub(super) fn version_after(&self, changes: usize) -> u64 {
        self.shared.lock().version + changes as u64
    }

    /// Begins to change pods.
    pub(super) fn write(&self, frames: usize, rate: Option<u32>) {
        self.push(Job::Write { frames, rate });
    }

    /// Begins to change pods at full speed, until the flag is set.
    pub(super) fn flood(&self) -> Arc<AtomicBool> {
        let stop = Arc::new(AtomicBool::new(false));
        self.push(Job::Flood(Arc::clone(&stop)));
        stop
    }

    /// Changes the last so many pods unseen, and has the watch end.
    pub(super) fn expire(&self, changed: usize) {
        let mut state = self.shared.lock();
        for number in self.shared.count.saturating_sub(changed)..self.shared.count {
            state.version += 1;
            state.versions[number] = state.version;
        }
        drop(state);
        self.push(Job::Expire);
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
        // Wakes the listener, which then sees that it is over.
        drop(TcpStream::connect(("127.0.0.1", self.port)));
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn items(&self, encoding: Encoding) -> &[Item] {
        let items = self.data.items(encoding);
        &items[..self.count.min(items.len())]
    }

    /// Answers one request after the other.
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
        let items = self.items(encoding);
        // A server with a watch cache answers version 0 from there, whole.
        let limit = request.number("limit").filter(|_| request.number("resourceVersion") != Some(0));
        let page = request.page(limit, items.len());
        let left = items.len() - page.end;
        let (version, versions) = {
            let state = self.lock();
            (state.version, state.versions.clone())
        };
        let size: usize =
            items[page.clone()].iter().map(|item| item.len() + wire::item_overhead(encoding, item)).sum();
        out.begin(encoding.content_type(false))?;
        let rest = (left > 0).then_some((page.end, left));
        out.buffer.extend(wire::list_head(encoding, version, rest, size));
        for place in page.clone() {
            if encoding == Encoding::Json && place > page.start {
                out.buffer.push(b',');
            }
            items[place].put_item(encoding, &mut out.buffer, versions[place]);
            out.send_from(CHUNK)?;
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
            for (item, version) in self.items(encoding).iter().zip(versions) {
                item.put_frame(encoding, &mut out.buffer, "ADDED", version, None);
                out.send_from(CHUNK)?;
            }
            out.buffer.extend(wire::bookmark(encoding, version, true));
            out.send_from(0)?;
        }
        while let Some(job) = self.next_job() {
            match job {
                Job::Write { frames, rate } => {
                    self.write(&mut out, encoding, frames, rate)?;
                    out.buffer.extend(wire::bookmark(encoding, self.lock().version, false));
                    out.send_from(0)?;
                }
                Job::Flood(stop) => {
                    while !stop.load(Ordering::Relaxed) && !self.lock().closed {
                        self.write(&mut out, encoding, 100, None)?;
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
        rate: Option<u32>,
    ) -> io::Result<()> {
        let mut pace = rate.map(Pace::new);
        for _ in 0..frames {
            let sent = pace.as_mut().map(Pace::wait);
            let (pod, version) = self.lock().change();
            self.items(encoding)[pod].put_frame(encoding, &mut out.buffer, "MODIFIED", version, sent);
            out.send_from(if pace.is_some() { 0 } else { CHUNK })?;
            if let Some(pace) = &mut pace {
                pace.free = Instant::now();
            }
        }
        Ok(())
    }
}

impl State {
    fn change(&mut self) -> (usize, u64) {
        let place = self.next;
        self.next = (place + 1) % self.versions.len();
        self.version += 1;
        self.versions[place] = self.version;
        (place, self.version)
    }
}

/// When frames are due. One that is late because the client did not take the one before it counts from when it was due.
struct Pace {
    every: Duration,
    due: Instant,
    /// Since when nothing is being sent.
    free: Instant,
}

impl Pace {
    fn new(rate: u32) -> Self {
        let now = Instant::now();
        Self { every: Duration::from_secs(1) / rate, due: now, free: now }
    }

    /// Waits until the next is due; the send time it carries.
    fn wait(&mut self) -> u64 {
        let due = self.due;
        self.due += self.every;
        let now = Instant::now();
        if let Some(early) = due.checked_duration_since(now) {
            thread::sleep(early);
        }
        let late = if self.free > due { due.elapsed() } else { Duration::ZERO };
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
        let Ok(data) = Data::make(PODS, None, Path::new("")) else { panic!("no pods") };
        Replay::start(&Arc::new(data), PODS).unwrap_or_else(|_| panic!("no server"))
    }

    fn ask(replay: &Replay, query: &str) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", replay.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(
            stream,
            "GET /api/v1/pods?{query} HTTP/1.1\r\nhost: replay\r\naccept: application/json\r\n\r\n"
        )
        .unwrap();
        stream
    }

    /// What comes until it contains `end`.
    fn read_until(stream: &mut TcpStream, end: &str) -> String {
        let (mut text, mut piece) = (String::new(), [0; 4096]);
        while !text.contains(end) {
            let read = stream.read(&mut piece).unwrap();
            assert_ne!(read, 0, "the end came before `{end}`");
            text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
        text
    }

    #[test]
    fn a_list_comes_in_pages() {
        let replay = replay();
        for (query, items, next) in [
            ("limit=5", 5, Some(5)),
            ("limit=5&continue=10", 2, None),
            ("limit=5&resourceVersion=0", PODS, None),
        ] {
            let text = read_until(&mut ask(&replay, query), "\r\n0\r\n");
            let (_, chunks) = text.split_once("\r\n\r\n").unwrap();
            // A size, then so much, in turn.
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
    fn a_watch_is_told_what_is_there_what_changes_and_that_it_is_over() {
        let replay = replay();
        let mut stream = ask(&replay, "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan");
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
        let text = read_until(&mut ask(&replay, "resourceVersion=0"), "\r\n0\r\n");
        assert!(text.contains(&format!(r#""resourceVersion":"{}""#, last + 1)));
    }
}
