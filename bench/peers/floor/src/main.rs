//! The floor: the requests of an informer through the same client, and what comes is dropped.
//!
//! It keeps nothing and reads nothing but the last bytes of each piece, where it looks for the end of what was asked for.

use std::process::ExitCode;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use peer_protocol::{Command, Failure, Gauge, Peer, Strategy, Sync};
use serde_json::{Value, json};

const LIST: &str = "/api/v1/pods?resourceVersion=0";
const WATCH_LIST: &str = "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=3600";

/// A bookmark is the last that a server sends, and fits in here.
const TAIL: usize = 1024;

/// So long without a byte means that something is broken.
const STALLED: Duration = Duration::from_mins(10);

fn main() -> ExitCode {
    peer_protocol::run(|config| Ok(Floor { client: informer::client(config)?, body: None, tail: Vec::new() }))
}

struct Floor {
    client: kube::Client,
    body: Option<Body>,
    /// The last bytes that came.
    tail: Vec<u8>,
}

impl Peer for Floor {
    async fn answer(&mut self, command: Command) -> Result<Value, Failure> {
        match command {
            Command::Sync(sync) => self.sync(&sync).await,
            Command::Follow { until, latency: false } => {
                let gauge = Gauge::begin();
                let bytes = self.drop_until(Some(until.to_string().as_bytes())).await?;
                Ok(gauge.answer(json!({"bytes": bytes})))
            }
            _ => Err("the floor keeps nothing and tells nothing".into()),
        }
    }
}

impl Floor {
    async fn sync(&mut self, sync: &Sync) -> Result<Value, Failure> {
        let gauge = Gauge::begin();
        let accept = match sync.encoding.as_str() {
            "json" => "application/json",
            "protobuf" => "application/vnd.kubernetes.protobuf",
            other => return Err(format!("`{other}` is no encoding").into()),
        };
        let list = sync.strategy == Strategy::List;
        let accept = if list || sync.encoding == "json" {
            accept.to_owned()
        } else {
            format!("{accept};stream=watch")
        };
        let request = http::Request::get(if list { LIST } else { WATCH_LIST })
            .header(http::header::ACCEPT, accept)
            .header(http::header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())?;
        let response = self.client.send(request).await?;
        if !response.status().is_success() {
            return Err(format!("the server says {}", response.status()).into());
        }
        self.body = Some(response.into_body());
        let end: Option<&[u8]> = if list { None } else { Some(b"k8s.io/initial-events-end") };
        let bytes = self.drop_until(end).await?;
        Ok(gauge.answer(json!({"bytes": bytes})))
    }

    /// Reads and drops until the last bytes contain this, or until the end.
    async fn drop_until(&mut self, end: Option<&[u8]>) -> Result<usize, Failure> {
        let body = self.body.as_mut().ok_or("sync first")?;
        let mut bytes = 0;
        loop {
            let frame = tokio::time::timeout(STALLED, body.frame()).await?;
            let Some(frame) = frame else { break };
            let data = frame?.into_data().unwrap_or_default();
            bytes += data.len();
            let Some(end) = end else { continue };
            self.tail.extend_from_slice(&data[data.len().saturating_sub(TAIL)..]);
            self.tail.drain(..self.tail.len().saturating_sub(TAIL));
            if self.tail.windows(end.len()).any(|window| window == end) {
                self.tail.clear();
                return Ok(bytes);
            }
        }
        if end.is_none() { Ok(bytes) } else { Err("the stream ended early".into()) }
    }
}
