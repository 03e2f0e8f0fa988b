//! The baseline: sends the requests of an informer through the same client and discards the responses.
//!
//! It caches nothing and inspects only the last bytes of each chunk, where it looks for the end of the
//! initial list or for the version to reach.

use std::process::ExitCode;
use std::time::Duration;

use http_body_util::BodyExt as _;
use kube::client::Body;
use peer_protocol::{Command, Failure, Peer, ProcessStats, Strategy, Sync};
use serde_json::{Value, json};

const LIST: &str = "/api/v1/pods?resourceVersion=0";
const WATCH_LIST: &str = "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&timeoutSeconds=3600";

/// Number of bytes kept from the end of the stream; the final bookmark fits into them.
const TAIL_BYTES: usize = 1024;

/// Time without any byte after which the run fails.
const STALL_TIMEOUT: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    peer_protocol::run(|config| {
        Ok(Baseline { client: informer::client(config)?, body: None, tail: Vec::new() })
    })
}

struct Baseline {
    client: kube::Client,
    body: Option<Body>,
    /// Last bytes received.
    tail: Vec<u8>,
}

impl Peer for Baseline {
    async fn execute(&mut self, command: Command) -> Result<Value, Failure> {
        match command {
            Command::Sync(sync) => self.sync(&sync).await,
            Command::Follow { until, latency: false } => {
                let stats = ProcessStats::start();
                let bytes = self.discard_until(Some(until.to_string().as_bytes())).await?;
                Ok(stats.response(json!({"bytes": bytes})))
            }
            _ => Err("the baseline has no cache and no handlers".into()),
        }
    }
}

impl Baseline {
    async fn sync(&mut self, sync: &Sync) -> Result<Value, Failure> {
        let stats = ProcessStats::start();
        let accept = match sync.encoding.as_str() {
            "json" => "application/json",
            "protobuf" => "application/vnd.kubernetes.protobuf",
            other => return Err(format!("unknown encoding `{other}`").into()),
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
            return Err(format!("unexpected status {}", response.status()).into());
        }
        self.body = Some(response.into_body());
        let end: Option<&[u8]> = if list { None } else { Some(b"k8s.io/initial-events-end") };
        let bytes = self.discard_until(end).await?;
        Ok(stats.response(json!({"bytes": bytes})))
    }

    /// Reads and discards until the last bytes contain the pattern, or until the end.
    async fn discard_until(&mut self, end: Option<&[u8]>) -> Result<usize, Failure> {
        let body = self.body.as_mut().ok_or("sync first")?;
        let mut bytes = 0;
        loop {
            let frame = tokio::time::timeout(STALL_TIMEOUT, body.frame()).await?;
            let Some(frame) = frame else { break };
            let data = frame?.into_data().unwrap_or_default();
            bytes += data.len();
            let Some(end) = end else { continue };
            self.tail.extend_from_slice(&data[data.len().saturating_sub(TAIL_BYTES)..]);
            self.tail.drain(..self.tail.len().saturating_sub(TAIL_BYTES));
            if self.tail.windows(end.len()).any(|window| window == end) {
                self.tail.clear();
                return Ok(bytes);
            }
        }
        if end.is_none() { Ok(bytes) } else { Err("the stream ended early".into()) }
    }
}
