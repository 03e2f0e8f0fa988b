//! Connections: accepted, served by one task each, and shut down together.
//!
//! A client that is slow, breaks the protocol or sends oversized requests affects only its own connection.
//! The number of connections is not limited. When the server stops, responses that are waiting, such as idle
//! watches, end normally. Responses that have data to send continue for at most `DRAIN_TIMEOUT`; then the
//! remaining connections are aborted.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::http::{ApiService, BodyError, ResponseBody};

/// How long a client may take for the TLS handshake.
const TLS_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an HTTP/1 client may take to send the headers of its next request; also closes idle connections.
///
/// Not applied before the first bytes of a connection, which select HTTP/1 or HTTP/2.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long responses may continue after the server was stopped.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Time without a received frame after which an HTTP/2 client is pinged. A client that does not respond is
/// disconnected.
const PING_PERIOD: Duration = Duration::from_secs(30);
/// Upper bound on the size of the headers of an HTTP/2 request. For HTTP/1, hyper's default applies.
const MAX_HEADER_BYTES: u32 = 1024 * 1024;
/// Delay after an accept that failed, usually because the process has no free file descriptors.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Accepts and serves connections until the server is stopped, then waits until all of them are closed.
///
/// Connections that are still open after `DRAIN_TIMEOUT` are aborted.
pub(super) async fn serve(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    service: ApiService,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = wait_until_stopped(&mut stop) => break,
            // Removes ended connections. The result is ignored, so that a panic in one does not affect the
            // others.
            Some(_ended) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let (tls, service, stop) = (tls.clone(), service.clone(), stop.clone());
                    connections.spawn(connection(stream, tls, service, stop));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY_DELAY).await,
            },
        }
    }
    drop(listener);
    let all_ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN_TIMEOUT, all_ended).await.is_err() {
        connections.shutdown().await;
    }
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    service: ApiService,
    mut stop: watch::Receiver<bool>,
) {
    // Send small watch frames immediately. If this fails, they are only delayed.
    let _result = stream.set_nodelay(true);
    let Some(tls) = tls else { return serve_http(stream, service, stop).await };
    tokio::select! {
        () = wait_until_stopped(&mut stop) => {}
        handshake = tokio::time::timeout(TLS_HANDSHAKE_TIMEOUT, tls.accept(stream)) => {
            if let Ok(Ok(stream)) = handshake {
                serve_http(stream, service, stop).await;
            }
        }
    }
}

async fn serve_http<S>(stream: S, service: ApiService, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_READ_TIMEOUT);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_PERIOD)
        .max_header_list_size(MAX_HEADER_BYTES);
    let service = TowerToHyperService::new(Stoppable { service, stop: stop.clone() });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // The result is ignored: there is nothing to do about a failed connection.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = wait_until_stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

/// Waits until the server is stopped or its [`RunningServer`](super::RunningServer) is dropped.
async fn wait_until_stopped(stop: &mut watch::Receiver<bool>) {
    let _stopped = stop.wait_for(|stop| *stop).await;
}

/// The service, with responses that are ended by [`UntilStopped`] when the server stops.
#[derive(Clone)]
struct Stoppable {
    service: ApiService,
    stop: watch::Receiver<bool>,
}

impl<B> tower::Service<Request<B>> for Stoppable
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<UntilStopped>;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BodyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let response = tower::Service::call(&mut self.service, request);
        let mut stop = self.stop.clone();
        Box::pin(async move {
            let stopped = Box::pin(async move { wait_until_stopped(&mut stop).await });
            response.await.map(|response| response.map(|body| UntilStopped { body, stopped, ended: false }))
        })
    }
}

/// A body that, once the server is stopped, ends as soon as it has nothing to send.
struct UntilStopped {
    body: ResponseBody,
    /// Completes when the server is stopped.
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
}

impl Body for UntilStopped {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending() && self.stopped.as_mut().poll(context).is_ready() {
            self.ended = true;
            return Poll::Ready(None);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
