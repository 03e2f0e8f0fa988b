//! Drives the reflector machine: carries out its actions, tells it what happened. It decides nothing.

use crate::clock::{Clock, sleep_until};
use crate::delta_queue::DeltaQueue;
use crate::source::{
    self, ByteStream, Response, ResponseFuture, Source, SourceError, Throughput, TransferSample,
};
use crate::status::{DiagnosticSink, StatusCell};
use futures::{FutureExt as _, StreamExt as _};
use informer_core::reflector::{Action, Failure, Reflector, ResponseHead, StreamId};
use informer_core::{Delta, Moment, QueueClosed};
use std::collections::VecDeque;
use std::future::pending;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use tokio::sync::watch;
use tokio::time::Instant;

/// Everything the driver works with.
pub(crate) struct ReflectorDriver {
    pub(crate) machine: Reflector,
    pub(crate) source: Arc<dyn Source>,
    /// The connection over which its sets come.
    pub(crate) link: Throughput,
    /// The set that is coming, unless it is compressed.
    pub(crate) reading: Option<TransferSample>,
    pub(crate) queue: Arc<DeltaQueue>,
    pub(crate) status: Arc<StatusCell>,
    pub(crate) diagnostics: DiagnosticSink,
    /// Which of the informer's scopes it reflects.
    pub(crate) scope_index: usize,
    /// What is to be pushed next; empty but for its room.
    pub(crate) deltas: VecDeque<Delta>,
    pub(crate) clock: Clock,
    /// Says to everybody that the informer is to stop.
    pub(crate) stop: watch::Sender<bool>,
}

/// The one request that is open.
enum InFlight {
    Nothing,
    Answer(StreamId, ResponseFuture),
    Body(StreamId, ByteStream),
}

/// What the open request brought.
enum Incoming {
    Answer(StreamId, Result<Response, SourceError>),
    Chunk(StreamId, Option<Result<bytes::Bytes, SourceError>>),
}

impl InFlight {
    fn id(&self) -> Option<StreamId> {
        match self {
            Self::Nothing => None,
            Self::Answer(id, _) | Self::Body(id, _) => Some(*id),
        }
    }

    /// Asks a source. If it panics, at once or later, that request has failed, and no more (C9).
    fn send(id: StreamId, source: impl FnOnce() -> ResponseFuture) -> Self {
        let answer =
            catch_unwind(AssertUnwindSafe(source)).unwrap_or_else(|_| Box::pin(async { Err(panicked()) }));
        Self::Answer(id, answer)
    }

    async fn next(&mut self) -> Incoming {
        match self {
            Self::Nothing => pending().await,
            Self::Answer(id, answer) => {
                let answer = AssertUnwindSafe(answer).catch_unwind().await;
                Incoming::Answer(*id, answer.unwrap_or_else(|_| Err(panicked())))
            }
            Self::Body(id, body) => {
                let chunk = AssertUnwindSafe(body.next()).catch_unwind().await;
                Incoming::Chunk(*id, chunk.unwrap_or_else(|_| Some(Err(panicked()))))
            }
        }
    }
}

impl ReflectorDriver {
    /// Runs until it is to stop or the queue is closed.
    pub(crate) async fn run(mut self) {
        let (clock, mut stop) = (self.clock, self.stop.subscribe());
        let mut open = InFlight::Nothing;
        self.machine.prefer_lists(self.link.is_slow(Instant::now()));
        self.machine.start(clock.now());
        loop {
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                carried_out = self.execute_actions(&mut open) => if carried_out.is_err() { break },
            }
            let deadline = self.machine.next_deadline().map(|moment| clock.instant(moment));
            let before = Instant::now();
            self.machine.prefer_lists(self.link.is_slow(before));
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                arrival = open.next() => {
                    self.measure(&arrival, before);
                    self.handle(clock.now(), arrival, &mut open);
                }
                () = sleep_until(deadline) => self.machine.handle_timeout(clock.now()),
            }
        }
    }

    /// Does what the machine wants done. Deltas wait for room in the queue; meanwhile nothing is read.
    async fn execute_actions(&mut self, open: &mut InFlight) -> Result<(), QueueClosed> {
        self.publish();
        while let Some(action) = self.machine.poll_action() {
            if !matches!(action, Action::Push(_)) {
                self.queue.push(self.scope_index, &mut self.deltas).await?;
            }
            match action {
                Action::List(id, request) => *open = InFlight::send(id, || self.source.list(request)),
                Action::Watch(id, request) => *open = InFlight::send(id, || self.source.watch(request)),
                Action::Cancel(id) if open.id() == Some(id) => *open = InFlight::Nothing,
                Action::Cancel(_) => {}
                Action::Push(delta) => self.deltas.push_back(delta),
                Action::Report(diagnostic) => self.diagnostics.report(&diagnostic.into()),
            }
        }
        self.queue.push(self.scope_index, &mut self.deltas).await
    }

    /// What comes of a set says how fast the connection is.
    fn measure(&mut self, arrival: &Incoming, before: Instant) {
        match (arrival, &mut self.reading) {
            (Incoming::Chunk(_, Some(Ok(chunk))), Some(reading)) if self.machine.is_receiving_list() => {
                let now = Instant::now();
                reading.note(chunk.len(), now - before, now);
            }
            _ => self.reading = None,
        }
    }

    fn handle(&mut self, now: Moment, arrival: Incoming, open: &mut InFlight) {
        match arrival {
            Incoming::Answer(id, Ok(response)) => {
                let mut head = ResponseHead::new(response.status);
                head.content_type = response.content_type.map(Into::into);
                head.retry_after = response.retry_after;
                let compressed = response.compressed;
                *open = InFlight::Body(id, response.body);
                self.machine.handle_response(now, id, head);
                // How much a compressed body took on its way is not known here.
                self.reading = (!compressed && self.machine.is_receiving_list()).then(|| self.link.begin());
            }
            Incoming::Chunk(id, Some(Ok(chunk))) => self.machine.handle_bytes(now, id, &chunk),
            Incoming::Chunk(id, None) => {
                *open = InFlight::Nothing;
                self.machine.handle_end(now, id);
            }
            Incoming::Answer(id, Err(error)) | Incoming::Chunk(id, Some(Err(error))) => {
                *open = InFlight::Nothing;
                self.machine.handle_error(now, id, failure(&error));
            }
        }
    }

    fn publish(&self) {
        self.status.record_reflector(self.scope_index, &self.machine, self.clock.now());
    }
}

/// However the driver ends, also by a panic of the source: nothing more comes, and everybody can see it (C9).
impl Drop for ReflectorDriver {
    fn drop(&mut self) {
        self.machine.stop();
        self.publish();
        self.queue.close();
        self.stop.send_replace(true);
    }
}

/// Returns when the informer is to stop, also when nobody is left who could say so.
pub(crate) async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

fn panicked() -> SourceError {
    SourceError::ConnectionLost { source: "the source panicked".into() }
}

/// Classifies an error of the source. The message contains the causes of the error.
fn failure(error: &SourceError) -> Failure {
    Failure::new(error.failure_kind(), source::error_chain(error))
}
