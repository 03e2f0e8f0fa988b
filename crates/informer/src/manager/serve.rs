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
use std::task::Poll;
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
        let listeners = bind(address, TcpListener::bind).await?;
        let address = listeners.iter().map(TcpListener::local_addr).next().unwrap_or(Ok(address))?;
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listeners, health, stopped));
        Ok(Self { address, stop, task })
    }

    /// Stops accepting connections and waits for the open ones, at most for [`DRAIN_TIMEOUT`].
    pub(super) async fn shutdown(self) {
        drop(self.stop);
        // If the task panicked, it has ended too.
        let _ended = self.task.await;
    }
}

/// Binds an address by calling `bind`; for the unspecified IPv6 address, all addresses.
///
/// Whether a socket of that address accepts IPv4 connections as well depends on the host, on Linux on the setting
/// `net.ipv6.bindv6only`. If it does, the port of IPv4 is in use by it, and cannot be bound again; if it does not,
/// IPv4 needs a second socket. A host without IPv6 needs only that one.
async fn bind<Bound>(address: SocketAddr, bind: impl Fn(SocketAddr) -> Bound) -> io::Result<Vec<TcpListener>>
where
    Bound: Future<Output = io::Result<TcpListener>>,
{
    let first = bind(address).await;
    if address.ip() != Ipv6Addr::UNSPECIFIED
        || first.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse)
    {
        return Ok(vec![first?]);
    }
    // Port 0 has selected a port.
    let port = first.as_ref().ok().and_then(|first| first.local_addr().ok()).unwrap_or(address).port();
    let second = bind((Ipv4Addr::UNSPECIFIED, port).into()).await;
    match (first, second) {
        (Ok(first), Ok(second)) => Ok(vec![first, second]),
        (first, Err(_)) => Ok(vec![first?]),
        (Err(_), Ok(second)) => Ok(vec![second]),
    }
}

/// Accepts a connection of any of the listeners.
async fn accept(listeners: &[TcpListener]) -> io::Result<TcpStream> {
    std::future::poll_fn(|context| {
        for listener in listeners {
            if let Poll::Ready(accepted) = listener.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, _)| stream));
            }
        }
        Poll::Pending
    })
    .await
}

async fn serve(listeners: Vec<TcpListener>, health: Arc<Health>, mut stopped: oneshot::Receiver<()>) {
    let mut connections = JoinSet::new();
    let mut order: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        tokio::select! {
            biased;
            _ = &mut stopped => break,
            Some(_ended) = connections.join_next(), if !connections.is_empty() => {
                order.retain(|connection| !connection.is_finished());
            }
            accepted = accept(&listeners) => match accepted {
                Ok(stream) => {
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
    drop(listeners);
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
        "/healthz" | "/livez" => |health| verdict(&health.health_failures(), &[]),
        "/readyz" => |health| verdict(&health.readiness_failures(), &health.shard_groups()),
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

/// Returns whether there are no reasons for a failure, followed by lines with further information.
fn verdict(reasons: &[String], information: &[String]) -> (StatusCode, String) {
    let text = |lines: &[String]| lines.iter().flat_map(|line| [line, "\n"]).collect::<String>();
    if reasons.is_empty() {
        return (StatusCode::OK, "ok\n".to_owned() + &text(information));
    }
    (StatusCode::SERVICE_UNAVAILABLE, text(reasons) + &text(information))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns whether a connection to a port of the IPv4 loopback address is accepted.
    async fn accepts_ipv4(listeners: &[TcpListener], port: u16) -> bool {
        let timeout = Duration::from_secs(5);
        let Ok(_stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return false };
        tokio::time::timeout(timeout, accept(listeners)).await.is_ok_and(|accepted| accepted.is_ok())
    }

    /// Regression: on a host with `net.ipv6.bindv6only=1`, "all addresses" were only those of IPv6, and the probes
    /// of a kubelet that uses IPv4 failed. The hosts of the tests have the other setting.
    #[tokio::test]
    async fn ipv4_is_bound_if_the_ipv6_socket_does_not_accept_it() {
        // A socket of the IPv6 loopback address stands for one that accepts IPv6 only.
        let only_ipv6 = |address: SocketAddr| {
            let is_ipv6 = address.ip() == Ipv6Addr::UNSPECIFIED;
            let address = if is_ipv6 { (Ipv6Addr::LOCALHOST, address.port()).into() } else { address };
            TcpListener::bind(address)
        };
        let mut is_accepted = false;
        for _ in 0..5 {
            // Several attempts, because another process may use the selected port with IPv4.
            let listeners = bind((Ipv6Addr::UNSPECIFIED, 0).into(), only_ipv6).await.unwrap();
            let port = listeners[0].local_addr().unwrap().port();
            is_accepted |= accepts_ipv4(&listeners, port).await;
        }
        assert!(is_accepted);
    }

    #[tokio::test]
    async fn host_without_ipv6_binds_ipv4() {
        let no_ipv6 = |address: SocketAddr| async move {
            if address.is_ipv6() {
                return Err(io::ErrorKind::Unsupported.into());
            }
            TcpListener::bind(address).await
        };
        let listeners = bind((Ipv6Addr::UNSPECIFIED, 0).into(), no_ipv6).await.unwrap();
        assert_eq!(listeners.len(), 1);
        assert!(accepts_ipv4(&listeners, listeners[0].local_addr().unwrap().port()).await);
        let address = SocketAddr::from((Ipv6Addr::LOCALHOST, 0));
        assert!(bind(address, no_ipv6).await.is_err(), "a certain address is not replaced");
    }

    #[tokio::test]
    async fn port_in_use_is_an_error() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let error = bind(taken.local_addr().unwrap(), TcpListener::bind).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
