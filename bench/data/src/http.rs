//! A minimal HTTP/1.1 server side for benchmarks: parses the head of a request and writes chunked bodies.
//!
//! Used by the server of the memory benchmark and by the replay server of `cargo xtask bench`. It knows
//! nothing about pods.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::ops::Range;

/// The relevant parts of the head of a request.
#[derive(Debug)]
pub struct Request {
    /// Path without the query.
    pub path: String,
    query: Vec<(String, String)>,
    /// Whether the client accepts protobuf.
    pub protobuf: bool,
}

impl Request {
    /// Reads the next request; `None` if the client closed the connection.
    pub fn read(input: &mut BufReader<TcpStream>) -> io::Result<Option<Self>> {
        let mut first = String::new();
        if input.read_line(&mut first)? == 0 {
            return Ok(None);
        }
        let (mut line, mut protobuf) = (String::new(), false);
        while input.read_line(&mut line)? > 2 {
            let line = std::mem::take(&mut line).to_ascii_lowercase();
            protobuf |= line.starts_with("accept:") && line.contains("kubernetes.protobuf");
        }
        let target = first.split(' ').nth(1).unwrap_or_default();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        // Values are numbers and words, so nothing is escaped.
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let query = pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        Ok(Some(Self { path: path.to_owned(), query, protobuf }))
    }

    /// Returns whether a parameter is present and neither `false` nor `0`.
    pub fn has(&self, name: &str) -> bool {
        self.query.iter().any(|(known, value)| known == name && value != "false" && value != "0")
    }

    /// Returns the parameter of this name if it is a number.
    pub fn number(&self, name: &str) -> Option<usize> {
        self.query.iter().find(|(known, _)| known == name)?.1.parse().ok()
    }

    /// Returns the requested range of `all` objects, for pages of `limit`.
    pub fn page(&self, limit: Option<usize>, all: usize) -> Range<usize> {
        let start = self.number("continue").unwrap_or(0).min(all);
        start..limit.filter(|limit| *limit > 0).map_or(all, |limit| (start + limit).min(all))
    }
}

/// A chunked response body.
#[derive(Debug)]
pub struct Chunked {
    stream: TcpStream,
    /// Bytes that are not sent yet.
    pub buffer: Vec<u8>,
}

impl Chunked {
    /// Creates an empty body; sends nothing.
    pub fn new(stream: TcpStream) -> Self {
        Self { stream, buffer: Vec::new() }
    }

    /// Sends the head of the response.
    pub fn begin(&mut self, content_type: &str) -> io::Result<()> {
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n");
        self.stream.write_all(head.as_bytes())
    }

    /// Sends the buffer as one chunk if it has at least this many bytes and is not empty.
    pub fn send_from(&mut self, min_bytes: usize) -> io::Result<()> {
        if self.buffer.len() < min_bytes.max(1) {
            return Ok(());
        }
        // One write per chunk, including its size and end.
        let size = format!("{:x}\r\n", self.buffer.len());
        self.buffer.splice(..0, size.bytes());
        self.buffer.extend_from_slice(b"\r\n");
        self.stream.write_all(&self.buffer)?;
        self.buffer.clear();
        Ok(())
    }

    /// Sends the rest of the buffer and the end of the body.
    pub fn end(mut self) -> io::Result<()> {
        self.send_from(0)?;
        self.stream.write_all(b"0\r\n\r\n")
    }
}
