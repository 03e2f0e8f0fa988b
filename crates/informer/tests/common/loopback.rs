//! A scripted HTTP/1.1 server on a loopback port: each request gets the next reply of the script, byte for byte.
//!
//! Invariant: the server does exactly what the script says, on a real socket, until it is dropped. The last
//! reply is repeated for all further requests. It supports requests without bodies only and knows nothing
//! about Kubernetes.
#![allow(dead_code, unreachable_pub)]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

/// What the server sends for one request, and whether it closes the connection afterwards.
#[derive(Clone)]
pub struct Reply {
    bytes: Vec<u8>,
    close: bool,
}

impl Reply {
    /// A response with these headers and a body of known length; the connection stays open for the next request.
    pub fn new(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Self {
        let length = body.as_ref().len().to_string();
        Self::head(status, headers, ("content-length", &length)).and(body.as_ref())
    }

    /// A response without end: a chunked body with these chunks and no terminating chunk.
    pub fn endless<B: AsRef<[u8]>>(
        status: &str,
        headers: &[(&str, &str)],
        chunks: impl IntoIterator<Item = B>,
    ) -> Self {
        chunks.into_iter().fold(
            Self::head(status, headers, ("transfer-encoding", "chunked")),
            |reply, chunk| {
                let chunk = chunk.as_ref();
                reply.and(format!("{:x}\r\n", chunk.len()).as_bytes()).and(chunk).and(b"\r\n")
            },
        )
    }

    /// No response; the connection stays open.
    pub fn silence() -> Self {
        Self { bytes: Vec::new(), close: false }
    }

    /// Closes the connection after the bytes are sent.
    pub fn then_close(self) -> Self {
        Self { close: true, ..self }
    }

    /// Leaves out the last `count` bytes.
    pub fn without_last(mut self, count: usize) -> Self {
        self.bytes.truncate(self.bytes.len() - count);
        self
    }

    fn head(status: &str, headers: &[(&str, &str)], framing: (&str, &str)) -> Self {
        let lines = headers.iter().chain([&framing]).map(|(name, value)| format!("{name}: {value}\r\n"));
        let head = format!("HTTP/1.1 {status}\r\n{}\r\n", lines.collect::<String>());
        Self { bytes: head.into_bytes(), close: false }
    }

    fn and(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend_from_slice(bytes);
        self
    }
}

/// A request as received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The client's end of the connection.
    pub peer: SocketAddr,
    /// The request line.
    pub line: String,
    /// The headers, names in lower case, in alphabetical order.
    pub headers: Vec<String>,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find_map(|header| header.strip_prefix(name)?.strip_prefix(": "))
    }
}

/// The running server; dropping it closes the port and every connection.
pub struct Loopback {
    address: SocketAddr,
    requests: mpsc::UnboundedReceiver<Request>,
    task: JoinHandle<()>,
}

impl Loopback {
    /// Starts a server on a free port.
    pub async fn start(script: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a loopback port");
        let address = listener.local_addr().expect("a bound address");
        let (received, requests) = mpsc::unbounded_channel();
        let mut script: Vec<Reply> = script.into_iter().collect();
        assert!(!script.is_empty(), "a script needs a reply");
        script.reverse();
        let script = Arc::new(Mutex::new(script));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, peer)) = listener.accept().await {
                connections.spawn(serve(stream, peer, Arc::clone(&script), received.clone()));
            }
        });
        Self { address, requests, task }
    }

    /// The URL of the server with the given scheme.
    pub fn url(&self, scheme: &str) -> http::Uri {
        format!("{scheme}://{}", self.address).parse().expect("a valid url")
    }

    /// Returns the next received request.
    pub async fn request(&mut self) -> Request {
        self.requests.recv().await.expect("the server runs as long as this handle")
    }

    /// Closes the port and every connection; when this returns, connections are refused.
    pub async fn stop(mut self) {
        self.task.abort();
        let _ = (&mut self.task).await;
    }

    /// Number of received requests that were not taken yet.
    pub fn pending(&self) -> usize {
        self.requests.len()
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    peer: SocketAddr,
    script: Arc<Mutex<Vec<Reply>>>,
    received: mpsc::UnboundedSender<Request>,
) {
    let mut input = Vec::new();
    while let Some(head) = read_head(&mut stream, &mut input).await {
        let reply = next_reply(&script);
        let mut lines = head.split("\r\n").map(str::to_owned);
        let line = lines.next().unwrap_or_default();
        let mut headers: Vec<String> = lines.map(lower_name).collect();
        headers.sort();
        let _ = received.send(Request { peer, line, headers });
        if stream.write_all(&reply.bytes).await.is_err() || reply.close {
            return;
        }
    }
}

/// Reads the head of the next request without its empty line. Returns `None` if the client closed the
/// connection.
async fn read_head(stream: &mut TcpStream, input: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(end) = input.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&input[..end]).into_owned();
            input.drain(..end + 4);
            return Some(head);
        }
        if stream.read_buf(input).await.ok()? == 0 {
            return None;
        }
    }
}

fn next_reply(script: &Mutex<Vec<Reply>>) -> Reply {
    let mut script = script.lock().expect("no panic while the script is locked");
    if script.len() > 1 { script.pop() } else { script.last().cloned() }.expect("a script is never empty")
}

fn lower_name(header: String) -> String {
    header.split_once(": ").map(|(name, value)| format!("{}: {value}", name.to_lowercase())).unwrap_or(header)
}
