//! Connections: taken in, served one task each, and brought to an end together.
//!
//! Whatever a client does, slow, wrong or huge, only its own connection pays for it. When the server stops, answers that
//! have something to send go on; those that wait for news, as watches do, end cleanly.

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

/// How long a client may take for TLS, and then for the headers of a request once it has begun one.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long answers may go on after the server was told to stop.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a silent HTTP/2 client is asked whether it is there.
const PING_PERIOD: Duration = Duration::from_secs(30);
/// How much of headers is read.
const HEADERS: u32 = 1024 * 1024;
/// How long to wait after the system could not give us a connection: usually it has no file handles left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Serves until told to stop, and then until all connections are closed.
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
            () = stopped(&mut stop) => break,
            // A connection that panicked has harmed nobody else.
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
    // Small frames of a watch are to be seen at once. Where that cannot be had, they come a little later.
    let _set = stream.set_nodelay(true);
    let Some(tls) = tls else { return speak(stream, service, stop).await };
    tokio::select! {
        () = stopped(&mut stop) => {}
        shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => {
            if let Ok(Ok(stream)) = shaken {
                speak(stream, service, stop).await;
            }
        }
    }
}

async fn speak<S>(stream: S, service: ApiService, mut stop: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HANDSHAKE_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(PING_PERIOD).max_header_list_size(HEADERS);
    let service = TowerToHyperService::new(Stoppable { service, stop: stop.clone() });
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    // How a connection ended interests nobody here.
    tokio::select! {
        _ended = connection.as_mut() => return,
        () = stopped(&mut stop) => connection.as_mut().graceful_shutdown(),
    }
    let _ended = connection.await;
}

/// Waits until the server is told to stop, or its guard is gone.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _told = stop.wait_for(|stop| *stop).await;
}

/// The service, with answers that end when the server stops.
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
        let answer = tower::Service::call(&mut self.service, request);
        let mut stop = self.stop.clone();
        Box::pin(async move {
            let told = Box::pin(async move { stopped(&mut stop).await });
            answer.await.map(|answer| answer.map(|body| UntilStopped { body, stopped: told, ended: false }))
        })
    }
}

/// A body that ends when it has nothing to send and the server stops.
struct UntilStopped {
    body: ResponseBody,
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
