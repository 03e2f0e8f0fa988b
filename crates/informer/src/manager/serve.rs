//! The HTTP server for `/healthz`, `/readyz` and `/metrics`.
//!
//! Limits protect the server against slow and numerous clients: request bodies are not read, and the number
//! of connections, their duration and the time to send a request head are limited.

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
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinHandle, JoinSet};

/// Maximum number of open connections. If there are more, the oldest is closed. Requests are answered
/// immediately, so the client of an open connection has not sent its request yet.
const MAX_CONNECTIONS: usize = 64;
/// How long a client may take to send the head of a request.
const HEAD_READ_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection may last in total.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long open connections may continue after a shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The delay after a failed `accept`; usually the process has no file descriptors left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The running HTTP server.
pub(super) struct Endpoints {
    pub(super) address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Endpoints {
    pub(super) async fn serve(address: SocketAddr, health: Arc<Health>) -> io::Result<Self> {
        let listener = bind(address).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(accept(listener, health, stopped));
        Ok(Self { address, stop, task })
    }

    /// Stops accepting connections and waits for the open ones, at most for [`DRAIN_TIMEOUT`].
    pub(super) async fn shutdown(self) {
        drop(self.stop);
        // If the task panicked, it has ended too.
        let _ended = self.task.await;
    }
}

/// Binds an address. A host without IPv6 serves all IPv4 addresses instead of all addresses.
async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(address).await;
    match &bound {
        Err(error) if address.ip() == Ipv6Addr::UNSPECIFIED && error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await.or(bound)
        }
        _ => bound,
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
                    // A failed connection affects no other one.
                    order.push_back(connections.spawn(async { drop(tokio::time::timeout(CONNECTION_TIMEOUT, connection).await) }));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    // Connections that are still open after the timeout have probably not sent a request. They are closed.
    let _ended = tokio::time::timeout(DRAIN_TIMEOUT, all_ended).await;
}

async fn connection(stream: TcpStream, health: Arc<Health>) -> Result<(), hyper::Error> {
    let service = service_fn(move |request: Request<Incoming>| {
        let response = respond(request.method(), request.uri().path(), &health);
        std::future::ready(Ok::<_, Infallible>(response))
    });
    hyper::server::conn::http1::Builder::new()
        .keep_alive(false)
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_READ_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

fn respond(method: &Method, path: &str, health: &Health) -> Response<Full<Bytes>> {
    let endpoint: fn(&Health) -> (StatusCode, String) = match path {
        "/healthz" | "/livez" => |health| verdict(&health.health_failures()),
        "/readyz" => |health| verdict(&health.readiness_failures()),
        "/metrics" => |health| (StatusCode::OK, health.metrics()),
        _ => |_| (StatusCode::NOT_FOUND, "not found; available: /healthz, /readyz, /metrics\n".to_owned()),
    };
    let (status, text) = if matches!(*method, Method::GET | Method::HEAD) {
        // Checks and collectors may be code of the application, which may panic.
        catch_unwind(AssertUnwindSafe(|| endpoint(health)))
            .unwrap_or_else(|_| (StatusCode::INTERNAL_SERVER_ERROR, "a check panicked\n".to_owned()))
    } else {
        (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are allowed\n".to_owned())
    };
    let mut response = Response::new(Full::from(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // The version is that of the Prometheus text format.
    let content_type = "text/plain; version=0.0.4; charset=utf-8";
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    response
}

fn verdict(reasons: &[String]) -> (StatusCode, String) {
    if reasons.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned());
    }
    (StatusCode::SERVICE_UNAVAILABLE, reasons.join("\n") + "\n")
}
