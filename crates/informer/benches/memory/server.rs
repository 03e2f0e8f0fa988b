//! A server of one collection of pods: lists, watch-lists and watches over plain HTTP/1.1, a thread for each connection.
//!
//! Invariant: it holds one pod at a time; each is made when it is sent. `POST /control?changed=N` changes that many pods and ends every
//! open watch with an ERROR frame of code 410. It knows only what the informer asks; paths are not looked at.

use crate::Failure;
use crate::world::World;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

/// How this program is told to be the server: `serve OBJECTS PAGED`.
pub(crate) const COMMAND: &str = "serve";

/// How much of a list is sent at a time.
const CHUNK: usize = 32 * 1024;

const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;

struct Shared {
    world: Mutex<World>,
    changed: Condvar,
    /// Whether a list at version 0 comes in pages too.
    paged: bool,
}

/// Prints the port, then serves until standard input is closed.
pub(crate) fn run(world: World, paged: bool) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let shared = Arc::new(Shared { world: Mutex::new(world), changed: Condvar::new(), paged });
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let shared = Arc::clone(&shared);
            // A client that hangs up is no trouble of the server.
            thread::spawn(move || drop(shared.serve(&stream)));
        }
    });
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

impl Shared {
    /// Answers one request after the other.
    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        while let Some(request) = Request::read(&mut input)? {
            let out = Chunked { stream: stream.try_clone()?, buffer: Vec::new() };
            if request.control {
                self.change(request.number("changed").unwrap_or(0));
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n")?;
            } else if request.has("watch") {
                self.watch(&request, out)?;
            } else {
                self.list(&request, out)?;
            }
        }
        Ok(())
    }

    fn change(&self, pods: usize) {
        self.lock().change(pods);
        self.changed.notify_all();
    }

    fn list(&self, request: &Request, mut out: Chunked) -> io::Result<()> {
        let world = self.lock().clone();
        // A server with a watch cache answers version 0 from there, whole.
        let cached = request.number("resourceVersion") == Some(0) && !self.paged;
        let (start, limit) = (request.number("continue").unwrap_or(0), request.number("limit"));
        let page = page(start, limit.filter(|_| !cached), world.len());
        let (version, left) = (world.version(), world.len() - page.end);
        let next = if left > 0 {
            format!(r#","continue":"{}","remainingItemCount":{left}"#, page.end)
        } else {
            String::new()
        };
        out.begin()?;
        out.write(&format!(
            r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{next}}},"items":["#
        ))?;
        for place in page.clone() {
            out.write(if place > page.start { "," } else { "" })?;
            out.write(&world.item(place))?;
        }
        out.write("]}\n")?;
        out.end()
    }

    fn watch(&self, request: &Request, mut out: Chunked) -> io::Result<()> {
        let world = self.lock().clone();
        out.begin()?;
        out.send()?;
        let mut after = request.number("resourceVersion").unwrap_or(0) as u64;
        if request.has("sendInitialEvents") {
            for place in 0..world.len() {
                let item = world.item(place);
                out.write(r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","#)?;
                out.write(&item[1..])?;
                out.write("}\n")?;
                out.send()?;
            }
            after = world.version();
            out.write(&initial_events_end(after))?;
            out.send()?;
        }
        let mut now = self.lock();
        while now.version() <= after {
            now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        drop(now);
        out.write(EXPIRED)?;
        out.write("\n")?;
        out.end()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn page(start: usize, limit: Option<usize>, all: usize) -> Range<usize> {
    let start = start.min(all);
    start..limit.filter(|limit| *limit > 0).map_or(all, |limit| (start + limit).min(all))
}

fn initial_events_end(version: u64) -> String {
    format!(
        r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null,"annotations":{{"k8s.io/initial-events-end":"true"}}}},"spec":{{"containers":null}},"status":{{}}}}}}
"#
    )
}

/// What matters of a request's head.
struct Request {
    control: bool,
    query: Vec<(String, String)>,
}

impl Request {
    /// The next request; `None` when the client has hung up.
    fn read(input: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut first = String::new();
        if input.read_line(&mut first)? == 0 {
            return Ok(None);
        }
        let mut line = String::new();
        while input.read_line(&mut line)? > 2 {
            line.clear();
        }
        let target = first.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        // Values are numbers and words: nothing in them is escaped.
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Some(Self { control: path == "/control", query }))
    }

    fn has(&self, name: &str) -> bool {
        self.query.iter().any(|(known, _)| known == name)
    }

    fn number(&self, name: &str) -> Option<usize> {
        self.query.iter().find(|(known, _)| known == name)?.1.parse().ok()
    }
}

/// A chunked body.
struct Chunked {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Chunked {
    fn begin(&mut self) -> io::Result<()> {
        self.stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        )
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        self.buffer.extend_from_slice(text.as_bytes());
        if self.buffer.len() < CHUNK { Ok(()) } else { self.send() }
    }

    /// Sends what there is as one chunk.
    fn send(&mut self) -> io::Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let size = format!("{:x}\r\n", self.buffer.len());
        self.buffer.splice(..0, size.bytes());
        self.buffer.extend_from_slice(b"\r\n");
        self.stream.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    fn end(mut self) -> io::Result<()> {
        self.send()?;
        self.stream.write_all(b"0\r\n\r\n")
    }
}
