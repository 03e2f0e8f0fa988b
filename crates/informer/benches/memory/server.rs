//! A server of one collection of pods: lists, watch-lists and watches over plain HTTP/1.1, one thread per
//! connection.
//!
//! Invariant: it keeps one pod in memory at a time; each is generated when sent. `POST /control?changed=N`
//! changes that many pods and ends every open watch with an ERROR frame of code 410. It supports only the
//! informer's requests and ignores paths.

use crate::Failure;
use crate::world::World;
use bench_data::http::{Chunked, Request};
use std::io::{BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::{io, thread};

/// Command line that starts this program as the server: `serve OBJECTS PAGED`.
pub(crate) const COMMAND: &str = "serve";

/// Bytes of a list per chunk.
const CHUNK_BYTES: usize = 32 * 1024;

const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old resource version","reason":"Expired","code":410}}"#;

struct Shared {
    world: Mutex<World>,
    changed: Condvar,
    /// Whether a list at version 0 is paged too.
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
            // A client that closes its connection is no error.
            thread::spawn(move || drop(shared.serve(&stream)));
        }
    });
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

impl Shared {
    /// Responds to requests one after the other.
    fn serve(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_nodelay(true)?;
        let mut input = BufReader::new(stream.try_clone()?);
        while let Some(request) = Request::read(&mut input)? {
            let out = Chunked::new(stream.try_clone()?);
            if request.path == "/control" {
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
        // A server with a watch cache returns the full list at version 0.
        let cached = request.number("resourceVersion") == Some(0) && !self.paged;
        let page = request.page(request.number("limit").filter(|_| !cached), world.len());
        let (version, left) = (world.version(), world.len() - page.end);
        let next = if left > 0 {
            format!(r#","continue":"{}","remainingItemCount":{left}"#, page.end)
        } else {
            String::new()
        };
        out.begin("application/json")?;
        put(
            &mut out,
            &format!(
                r#"{{"kind":"PodList","apiVersion":"v1","metadata":{{"resourceVersion":"{version}"{next}}},"items":["#
            ),
        )?;
        for place in page.clone() {
            put(&mut out, if place > page.start { "," } else { "" })?;
            put(&mut out, &world.item(place))?;
        }
        put(&mut out, "]}\n")?;
        out.end()
    }

    fn watch(&self, request: &Request, mut out: Chunked) -> io::Result<()> {
        let world = self.lock().clone();
        out.begin("application/json")?;
        out.send_from(0)?;
        let mut after = request.number("resourceVersion").unwrap_or(0) as u64;
        if request.has("sendInitialEvents") {
            for place in 0..world.len() {
                let item = world.item(place);
                put(&mut out, r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","#)?;
                put(&mut out, &item[1..])?;
                put(&mut out, "}\n")?;
                out.send_from(0)?;
            }
            after = world.version();
            put(&mut out, &initial_events_end(after))?;
            out.send_from(0)?;
        }
        let mut now = self.lock();
        while now.version() <= after {
            now = self.changed.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        drop(now);
        put(&mut out, EXPIRED)?;
        put(&mut out, "\n")?;
        out.end()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends the buffer once it is large enough.
fn put(out: &mut Chunked, text: &str) -> io::Result<()> {
    out.buffer.extend_from_slice(text.as_bytes());
    out.send_from(CHUNK_BYTES)
}

fn initial_events_end(version: u64) -> String {
    format!(
        r#"{{"type":"BOOKMARK","object":{{"kind":"Pod","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","creationTimestamp":null,"annotations":{{"k8s.io/initial-events-end":"true"}}}},"spec":{{"containers":null}},"status":{{}}}}}}
"#
    )
}
