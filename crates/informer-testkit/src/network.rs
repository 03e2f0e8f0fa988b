//! The network between a program and the server: requests and responses as messages.
//!
//! A [`Port`] is the service below the `kube::Client` of a program. It only puts requests into an outbox and waits
//! for what the simulation delivers; when, and whether at all, is decided elsewhere.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::sync::{mpsc, oneshot};

/// The connection failed. This is what a client sees if a server is unreachable or a response is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConnectionBroken;

impl std::fmt::Display for ConnectionBroken {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("connection broken (simulated)")
    }
}

impl std::error::Error for ConnectionBroken {}

/// A message from a program.
pub(crate) enum Outgoing {
    Request(Box<OutgoingRequest>),
    /// The program has dropped the body of a response.
    Closed(u64),
}

/// A request, and where its response goes.
pub(crate) struct OutgoingRequest {
    pub(crate) id: u64,
    pub(crate) head: http::request::Parts,
    pub(crate) body: Bytes,
    pub(crate) reply: Reply,
}

/// Delivers the response of one request. Dropping it breaks the connection.
pub(crate) struct Reply(oneshot::Sender<(http::response::Parts, BodyReceiver)>);

/// Delivers the body of one response. Dropping it ends the body.
#[derive(Debug)]
pub(crate) struct BodySender(mpsc::UnboundedSender<Result<Bytes, ConnectionBroken>>);

type BodyReceiver = mpsc::UnboundedReceiver<Result<Bytes, ConnectionBroken>>;

impl Reply {
    /// Delivers the head of the response. Returns `None` if the program no longer waits for it.
    pub(crate) fn respond(self, head: http::response::Parts) -> Option<BodySender> {
        let (sender, receiver) = mpsc::unbounded_channel();
        self.0.send((head, receiver)).is_ok().then_some(BodySender(sender))
    }
}

impl BodySender {
    /// Returns `false` if the program has dropped the body.
    pub(crate) fn send(&self, chunk: Result<Bytes, ConnectionBroken>) -> bool {
        self.0.send(chunk).is_ok()
    }
}

/// The messages that a program has sent and the simulation has not yet taken. Clones share their state.
#[derive(Clone, Default)]
pub(crate) struct Outbox(Arc<Mutex<OutboxState>>);

#[derive(Default)]
struct OutboxState {
    messages: VecDeque<Outgoing>,
    last_id: u64,
    /// Woken by a request.
    waker: Option<Waker>,
    /// The requests of a program that was killed go nowhere.
    closed: bool,
}

impl Outbox {
    pub(crate) fn take(&self) -> Option<Outgoing> {
        self.lock().messages.pop_front()
    }

    pub(crate) fn has_requests(&self) -> bool {
        !self.lock().messages.is_empty()
    }

    /// Registers the waker of the next message.
    pub(crate) fn wake_on_message(&self, waker: &Waker) {
        self.lock().waker = Some(waker.clone());
    }

    /// Discards all messages from now on.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
    }

    fn push(&self, message: Outgoing) {
        let mut state = self.lock();
        if state.closed {
            return;
        }
        state.messages.push_back(message);
        if let Some(waker) = state.waker.take() {
            drop(state);
            waker.wake();
        }
    }

    fn next_id(&self) -> u64 {
        let mut state = self.lock();
        state.last_id += 1;
        state.last_id
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The service of a program's client.
#[derive(Clone)]
pub(crate) struct Port(pub(crate) Outbox);

impl tower::Service<Request<Body>> for Port {
    type Response = Response<PortBody>;
    type Error = ConnectionBroken;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectionBroken>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectionBroken>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let outbox = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map_err(|_| ConnectionBroken)?.to_bytes();
            let (reply, response) = oneshot::channel();
            let id = outbox.next_id();
            outbox.push(Outgoing::Request(Box::new(OutgoingRequest { id, head, body, reply: Reply(reply) })));
            // Closes the request if the program stops waiting for it.
            let open = OpenResponse { id, outbox };
            let (head, receiver) = response.await.map_err(|_| ConnectionBroken)?;
            Ok(Response::from_parts(head, PortBody { receiver, _open: open }))
        })
    }
}

/// Reports that a program has dropped a response, or no longer waits for it.
struct OpenResponse {
    id: u64,
    outbox: Outbox,
}

impl Drop for OpenResponse {
    fn drop(&mut self) {
        self.outbox.push(Outgoing::Closed(self.id));
    }
}

/// The body of a response, as the simulation delivers it.
pub(crate) struct PortBody {
    receiver: BodyReceiver,
    _open: OpenResponse,
}

impl http_body::Body for PortBody {
    type Data = Bytes;
    type Error = ConnectionBroken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, ConnectionBroken>>> {
        self.receiver.poll_recv(context).map(|chunk| chunk.map(|chunk| chunk.map(http_body::Frame::data)))
    }
}
