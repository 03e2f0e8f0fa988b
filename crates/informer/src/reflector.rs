//! The reflector driver: performs the actions of the reflector's state machine and feeds it responses and
//! timeouts.
//!
//! The driver makes no decisions; the state machine in `informer-core` makes all of them.

use crate::clock::{Clock, sleep_until};
use crate::delta_queue::DeltaQueue;
use crate::source::{
    self, ByteStream, Response, ResponseFuture, Source, SourceError, Throughput, TransferSample,
};
use crate::status::{DiagnosticSink, StatusCell};
use futures::{FutureExt as _, StreamExt as _};
use informer_core::reflector::{
    Action, Failure, Reflector, ReflectorDiagnostic, ResponseHead, SavedScope, StreamId,
};
use informer_core::{Moment, QueueClosed};
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// The task that drives one reflector.
pub(crate) struct ReflectorDriver {
    pub(crate) machine: Reflector,
    pub(crate) source: Arc<dyn Source>,
    /// The measured throughput of full lists, shared with the other informers of a factory.
    pub(crate) throughput: Throughput,
    /// The measurement of the list or watch-list being received; `None` if there is none, or if it has gzip.
    pub(crate) sample: Option<TransferSample>,
    pub(crate) queue: Arc<DeltaQueue>,
    pub(crate) status: Arc<StatusCell>,
    pub(crate) diagnostics: DiagnosticSink,
    /// Index of the reflected scope among the informer's scopes.
    pub(crate) scope_index: usize,
    pub(crate) clock: Clock,
    /// Requests all tasks of the informer to stop.
    pub(crate) stop: watch::Sender<bool>,
    /// The saved state from which the reflector starts, if one is expected.
    pub(crate) saved: Option<oneshot::Receiver<Option<SavedScope>>>,
}

/// The request in flight; there is at most one.
enum InFlight {
    Nothing,
    Response(StreamId, ResponseFuture),
    Body(StreamId, ByteStream),
}

/// A response or body chunk of the request in flight.
enum Incoming {
    Response(StreamId, Result<Response, SourceError>),
    Chunk(StreamId, Option<Result<bytes::Bytes, SourceError>>),
}

impl InFlight {
    fn id(&self) -> Option<StreamId> {
        match self {
            Self::Nothing => None,
            Self::Response(id, _) | Self::Body(id, _) => Some(*id),
        }
    }

    /// Sends a request by calling `request`, which calls the source. If the source panics, immediately or
    /// later, only this request fails (C9).
    fn send(id: StreamId, request: impl FnOnce() -> ResponseFuture) -> Self {
        let response =
            catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| Box::pin(async { Err(panicked()) }));
        Self::Response(id, response)
    }

    async fn next(&mut self) -> Incoming {
        match self {
            Self::Nothing => pending().await,
            Self::Response(id, response) => {
                let response = AssertUnwindSafe(response).catch_unwind().await;
                Incoming::Response(*id, response.unwrap_or_else(|_| Err(panicked())))
            }
            Self::Body(id, body) => {
                let chunk = AssertUnwindSafe(body.next()).catch_unwind().await;
                Incoming::Chunk(*id, chunk.unwrap_or_else(|_| Some(Err(panicked()))))
            }
        }
    }
}

impl ReflectorDriver {
    /// Runs until the informer stops or the queue is closed.
    pub(crate) async fn run(mut self) {
        let (clock, mut stop) = (self.clock, self.stop.subscribe());
        let mut in_flight = InFlight::Nothing;
        if let Some(saved) = self.saved.take() {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return,
                saved = saved => if let Ok(Some(saved)) = saved {
                    self.machine.restore(saved);
                },
            }
        }
        self.machine.prefer_lists(self.throughput.is_slow(Instant::now()));
        self.machine.start(clock.now());
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                executed = self.execute_actions(&mut in_flight) => if executed.is_err() { break },
            }
            let deadline = self.machine.next_deadline().map(|moment| clock.instant(moment));
            let wait_started = Instant::now();
            // Over a slow connection, a list with gzip arrives earlier than a watch-list.
            self.machine.prefer_lists(self.throughput.is_slow(wait_started));
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                incoming = in_flight.next() => {
                    self.measure(&incoming, wait_started);
                    self.handle(clock.now(), incoming, &mut in_flight);
                }
                () = sleep_until(deadline) => self.machine.handle_timeout(clock.now()),
            }
        }
    }

    /// Pushes the deltas of the state machine to the delta queue and executes its pending actions. While this
    /// waits for capacity in the queue, nothing is read from the source.
    async fn execute_actions(&mut self, in_flight: &mut InFlight) -> Result<(), QueueClosed> {
        self.publish();
        self.queue.push(self.scope_index, self.machine.deltas()).await?;
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::List(id, request) => *in_flight = InFlight::send(id, || self.source.list(request)),
                Action::Watch(id, request) => *in_flight = InFlight::send(id, || self.source.watch(request)),
                Action::Cancel(id) if in_flight.id() == Some(id) => *in_flight = InFlight::Nothing,
                Action::Cancel(_) => {}
                Action::Report(diagnostic) => {
                    if let ReflectorDiagnostic::RequestFailed { failure, .. } = &diagnostic {
                        self.status.record_failure(self.scope_index, failure, self.clock.now());
                    }
                    self.diagnostics.report(&diagnostic.into());
                }
            }
        }
        Ok(())
    }

    /// Measures the throughput while a full list is received; `wait_started` is when the driver began to wait
    /// for `incoming`.
    fn measure(&mut self, incoming: &Incoming, wait_started: Instant) {
        match (incoming, &mut self.sample) {
            (Incoming::Chunk(_, Some(Ok(chunk))), Some(sample)) if self.machine.is_receiving_list() => {
                let now = Instant::now();
                sample.note(chunk.len(), now - wait_started, now);
            }
            _ => self.sample = None,
        }
    }

    fn handle(&mut self, now: Moment, incoming: Incoming, in_flight: &mut InFlight) {
        match incoming {
            Incoming::Response(id, Ok(response)) => {
                let mut head = ResponseHead::new(response.status);
                head.content_type = response.content_type.map(Into::into);
                head.retry_after = response.retry_after;
                let compressed = response.compressed;
                *in_flight = InFlight::Body(id, response.body);
                self.machine.handle_response(now, id, head);
                // The transferred size of a compressed body is not known here.
                self.sample =
                    (!compressed && self.machine.is_receiving_list()).then(|| self.throughput.begin());
            }
            Incoming::Chunk(id, Some(Ok(chunk))) => self.machine.handle_bytes(now, id, &chunk),
            Incoming::Chunk(id, None) => {
                *in_flight = InFlight::Nothing;
                self.machine.handle_end(now, id);
            }
            Incoming::Response(id, Err(error)) | Incoming::Chunk(id, Some(Err(error))) => {
                *in_flight = InFlight::Nothing;
                self.machine.handle_error(now, id, failure(&error));
            }
        }
    }

    fn publish(&self) {
        self.status.record_reflector(self.scope_index, &self.machine, self.clock.now());
    }
}

/// However the driver ends, also by a panic, it stops the informer and sets its state to `Stopped` (C9).
impl Drop for ReflectorDriver {
    fn drop(&mut self) {
        self.machine.stop();
        self.publish();
        self.queue.close();
        self.stop.send_replace(true);
    }
}

/// Waits for a stop request, or until the sender is dropped.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn panicked() -> SourceError {
    SourceError::ConnectionLost { source: "the source panicked".into() }
}

/// Converts an error of a source into a failure for the state machine, with the whole chain of causes in
/// its message.
fn failure(error: &SourceError) -> Failure {
    Failure::new(error.failure_kind(), source::error_chain(error))
}
