//! The pages over HTTP: `/healthz`, `/readyz`, `/metrics`.
//!
//! Small and hard to hurt: requests without a body, a bound on connections and on the time a request may take to arrive.

use super::health::Health;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// So many connections at a time. If there are more, the oldest goes: whoever asks is answered at once, so that one has not.
const MAX_CONNECTIONS: usize = 64;
/// How long the head of a request may take to arrive.
const HEAD_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may last in all.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long answers may go on after the end.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// How long to wait after the system could not give us a connection: usually it has no file handles left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The pages, while they are served.
pub(super) struct Pages {
    pub(super) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Pages {
    pub(super) async fn serve(address: SocketAddr, health: Arc<Health>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept(listener, health, stopped));
        Ok(Self { address, stop, task })
    }

    /// Ends them; answers that have begun are given.
    pub(super) async fn end(self) {
        drop(self.stop);
        // A task that panicked has ended too.
        let _ended = self.task.await;
    }
}

async fn accept(listener: TcpListener, health: Arc<Health>, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    let mut order: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => {
                order.retain(|connection| !connection.is_finished());
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    if order.len() >= MAX_CONNECTIONS && let Some(oldest) = order.pop_front() {
                        oldest.abort();
                    }
                    let connection = connection(stream, Arc::clone(&health));
                    // However it ends, it harms nobody else.
                    order.push_back(connections.spawn(async { drop(tokio::time::timeout(REQUEST_TIMEOUT, connection).await) }));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    // Whoever has not got an answer by then may not even have asked.
    let _ended = tokio::time::timeout(DRAIN_TIMEOUT, all_ended).await;
}

async fn connection(stream: TcpStream, health: Arc<Health>) -> Result<(), hyper::Error> {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(request.method(), request.uri().path(), &health);
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_READ_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn answer(method: &Method, path: &str, health: &Health) -> Response<Full<Bytes>> {
    let page: fn(&Health) -> (StatusCode, String) = match path {
        "/healthz" | "/livez" => |health| verdict(&health.health_failures()),
        "/readyz" => |health| verdict(&health.readiness_failures()),
        "/metrics" => |health| (StatusCode::OK, health.metrics()),
        _ => |_| (StatusCode::NOT_FOUND, "there are /healthz, /readyz and /metrics\n".to_owned()),
    };
    let (status, text) = if matches!(*method, Method::GET | Method::HEAD) {
        // Checks and figures are others' code too.
        catch_unwind(AssertUnwindSafe(|| page(health)))
            .unwrap_or_else(|_| (StatusCode::INTERNAL_SERVER_ERROR, "a check panicked\n".to_owned()))
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, "these pages can only be read\n".to_owned())
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // The version is that of Prometheus's text form.
    let form = "text/plain; version=0.0.4; charset=utf-8";
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(form));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

fn verdict(reasons: &[String]) -> (StatusCode, String) {
    if reasons.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
}
