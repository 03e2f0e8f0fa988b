//! Connections: accepted, served by one task each, and shut down together.
//!
//! A client that is slow, breaks the protocol or sends oversized requests affects only its own connection.
//! Connections without requests are closed after some time, and their number is limited, see
//! [`ConnectionLimits`]. When the server stops, responses that are waiting, such as idle
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
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::activity::{Activity, OpenRequest};
use crate::http::{ApiService, BodyError, ResponseBody};

/// Timeouts of connections, and how many there may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionLimits {
    /// How long a client may take for the TLS handshake.
    pub(super) handshake_timeout: Duration,
    /// How long a client may take from the start of a connection to the complete head of its first request.
    pub(super) first_request_timeout: Duration,
    /// How long a connection may have no open request after its first one.
    pub(super) idle_timeout: Duration,
    /// Maximum number of open connections. Further clients wait until one is closed.
    pub(super) max_connections: usize,
}

impl Default for ConnectionLimits {
    /// Returns the timeouts of kube-apiserver, and a number of connections that a process can afford.
    fn default() -> Self {
        ConnectionLimits {
            handshake_timeout: Duration::from_secs(32),
            first_request_timeout: Duration::from_secs(32),
            idle_timeout: Duration::from_secs(90),
            max_connections: 4_096,
        }
    }
}

/// How long an idle connection may take to close after the closing was announced to the client (HTTP/2 only).
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Upper bound on the part of a response that is passed to the connection at once.
const PART_BYTES: usize = 64 * 1024;
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
    limits: ConnectionLimits,
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
            accepted = listener.accept(), if connections.len() < limits.max_connections => match accepted {
                Ok((stream, _)) => {
                    // Send small watch frames immediately. If this fails, they are only delayed.
                    let _result = stream.set_nodelay(true);
                    let (tls, service, stop) = (tls.clone(), service.clone(), stop.clone());
                    connections.spawn(connection(stream, tls, service, limits, stop));
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

pub(super) async fn connection<S>(
    stream: S,
    tls: Option<TlsAcceptor>,
    service: ApiService,
    limits: ConnectionLimits,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Some(tls) = tls else { return serve_http(stream, service, limits, stop).await };
    tokio::select! {
        () = wait_until_stopped(&mut stop) => {}
        handshake = tokio::time::timeout(limits.handshake_timeout, tls.accept(stream)) => {
            if let Ok(Ok(stream)) = handshake {
                serve_http(stream, service, limits, stop).await;
            }
        }
    }
}

async fn serve_http<S>(
    stream: S,
    service: ApiService,
    limits: ConnectionLimits,
    mut stop: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    // Activity closes connections whose next request does not arrive. hyper's own timeout does so for HTTP/1
    // only, and only after the first bytes of the connection.
    builder.http1().timer(TokioTimer::new()).header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING_PERIOD)
        .max_header_list_size(MAX_HEADER_BYTES);
    let activity = Activity::new();
    let tracked = TrackedService { service, activity: activity.clone(), stop: stop.clone() };
    let service = TowerToHyperService::new(tracked);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // The result is ignored: there is nothing to do about a failed connection.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = wait_until_stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
        () = activity.wait_until_idle(limits.first_request_timeout, limits.idle_timeout) => {
            connection.as_mut().graceful_shutdown();
            // A request may arrive at the same time. Its response ends normally.
            tokio::select! {
                _ended = connection.as_mut() => {}
                () = activity.wait_until_idle(limits.first_request_timeout + CLOSE_TIMEOUT, limits.idle_timeout + CLOSE_TIMEOUT) => {}
            }
            return;
        }
    }
    let _ended = connection.await;
}

/// Waits until the server is stopped or its [`RunningServer`](super::RunningServer) is dropped.
async fn wait_until_stopped(stop: &mut watch::Receiver<bool>) {
    let _stopped = stop.wait_for(|stop| *stop).await;
}

/// The service of one connection: its requests are counted, and its responses are ended by [`TrackedBody`] when
/// the server stops.
#[derive(Clone)]
struct TrackedService {
    service: ApiService,
    activity: Activity,
    stop: watch::Receiver<bool>,
}

impl<B> tower::Service<Request<B>> for TrackedService
where
    B: Body + Send + 'static,
    B::Data: Send,
{
    type Response = Response<TrackedBody>;
    type Error = BodyError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BodyError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BodyError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let open_request = self.activity.open_request();
        let response = tower::Service::call(&mut self.service, request);
        let mut stop = self.stop.clone();
        Box::pin(async move {
            let stopped = Box::pin(async move { wait_until_stopped(&mut stop).await });
            let track = |body| TrackedBody {
                body,
                rest: Bytes::new(),
                stopped,
                ended: false,
                _open_request: open_request,
            };
            response.await.map(|response| response.map(track))
        })
    }
}

/// A body that, once the server is stopped, ends as soon as it has nothing to send.
struct TrackedBody {
    body: ResponseBody,
    /// What is left of a large frame. It is sent in parts, so that the request stays open until almost all of
    /// the response is sent, even if the client reads slowly.
    rest: Bytes,
    /// Completes when the server is stopped.
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
    ended: bool,
    _open_request: OpenRequest,
}

impl Body for TrackedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        if !self.rest.is_empty() {
            let length = self.rest.len().min(PART_BYTES);
            return Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(length)))));
        }
        let mut frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &mut frame
            && let Some(data) = frame.data_mut()
            && data.len() > PART_BYTES
        {
            self.rest = data.split_off(PART_BYTES);
        }
        if frame.is_pending() && self.stopped.as_mut().poll(context).is_ready() {
            self.ended = true;
            return Poll::Ready(None);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.ended || (self.rest.is_empty() && self.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let mut hint = self.body.size_hint();
        let rest = self.rest.len() as u64;
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
