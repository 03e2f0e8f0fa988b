//! Log of a run: virtual time, all requests, and a textual trace.
//!
//! The trace contains everything that could differ between two runs of a seed and nothing else: no addresses,
//! no wall-clock times, no contents of objects.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response, header};
use informer_apiserver::{ApiService, BodyError, ResponseBody};
use kube::client::Body;
use tokio::time::Instant;

/// What to do with the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trace {
    Off,
    Kept,
    Printed,
}

/// One request, as the network saw it.
#[derive(Debug, Clone)]
pub(crate) struct SentRequest {
    pub(crate) at: Duration,
    /// Sender: path, selectors and encoding.
    pub(crate) client: String,
    /// Whether it requests a further page of a list.
    pub(crate) page: bool,
    /// Whether it requests a full list: it is neither a watch from a version nor a probe.
    pub(crate) full: bool,
    /// Time of the headers, status code and `Retry-After`; `None` if the connection broke.
    pub(crate) answer: Option<(Duration, u16, Option<u64>)>,
}

/// The log of a run. Clones share the same log.
#[derive(Clone)]
pub(crate) struct Log {
    began: Instant,
    trace: Trace,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    text: String,
    requests: Vec<SentRequest>,
}

impl Log {
    pub(crate) fn new(trace: Trace) -> Self {
        Self { began: Instant::now(), trace, inner: Arc::default() }
    }

    /// Virtual time since the run began.
    pub(crate) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(crate) fn note(&self, line: impl fmt::Display) {
        match self.trace {
            Trace::Off => {}
            Trace::Kept => {
                let line = format!("{:.3} {line}\n", self.now().as_secs_f64());
                self.lock().text.push_str(&line);
            }
            Trace::Printed => println!("{:9.3} {line}", self.now().as_secs_f64()),
        }
    }

    pub(crate) fn take_text(&self) -> String {
        std::mem::take(&mut self.lock().text)
    }

    pub(crate) fn requests(&self) -> Vec<SentRequest> {
        self.lock().requests.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The server behind a network that logs every request.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) server: ApiService,
    pub(crate) log: Log,
}

impl tower::Service<Request<Body>> for Network {
    type Response = Response<ResponseBody>;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BodyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let of = |name: &str| query.split('&').find(|pair| pair.starts_with(name)).unwrap_or_default();
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok());
        let encoding =
            if accept.is_some_and(|accept| accept.contains("Metadata")) { " metadata" } else { "" };
        let client = format!("{path} {}{encoding}", of("labelSelector="));
        let page = !of("continue=").is_empty();
        let (is_watch, is_probe) = (!of("watch=").is_empty(), of("limit=") == "limit=1");
        let full = if is_watch { of("sendInitialEvents=").ends_with("true") } else { !is_probe };
        let number = {
            let mut inner = self.log.lock();
            inner.requests.push(SentRequest { at: self.log.now(), client, page, full, answer: None });
            inner.requests.len() - 1
        };
        self.log.note(format_args!("#{number} {path}?{query}{encoding}"));
        let answer = self.server.call(request);
        let log = self.log.clone();
        Box::pin(async move {
            let answer = answer.await;
            match &answer {
                Ok(answer) => {
                    let (headers, code) = (answer.headers(), answer.status().as_u16());
                    let wait = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
                    let wait = wait.and_then(|seconds| seconds.parse().ok());
                    log.note(format_args!("#{number} = {code}"));
                    let now = log.now();
                    log.lock().requests[number].answer = Some((now, code, wait));
                }
                Err(_) => log.note(format_args!("#{number} = broken")),
            }
            answer
        })
    }
}
