//! The reflector driver: performs the actions of the reflector's state machine and feeds it responses and
//! timeouts.
//!
//! The driver makes no decisions; the state machine in `informer-core` makes all of them.

mod shard;

use crate::clock::{Clock, sleep_until};
use crate::delta_queue::DeltaQueue;
use crate::shard_view::ShardHandle;
use crate::source::{
    self, ByteStream, Response, ResponseFuture, Source, SourceError, Throughput, TransferSample,
};
use crate::status::{DiagnosticSink, StatusCell};
use futures::{FutureExt as _, StreamExt as _};
use informer_core::reflector::{
    Action, Failure, ReflectorDiagnostic, ResponseHead, SavedScope, ShardedReflector, StreamId,
};
use informer_core::{Moment, QueueClosed};
use shard::{ShardProgress, shard_change};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

/// The task that drives one reflector.
pub(crate) struct ReflectorDriver {
    pub(crate) machine: ShardedReflector,
    pub(crate) source: Arc<dyn Source>,
    /// The measured throughput of full lists, shared with the other informers of a factory.
    pub(crate) throughput: Throughput,
    /// The measurement of the list or watch-list being received; `None` if there is none, or if it has gzip.
    pub(crate) sample: Option<(StreamId, TransferSample)>,
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
    /// The group that decides about the hash ranges, with sharding.
    pub(crate) shard: Option<ShardHandle>,
}

/// A request in flight.
struct InFlight {
    id: StreamId,
    progress: Progress,
}

enum Progress {
    Response(ResponseFuture),
    Body(ByteStream),
}

/// The requests in flight: at most one, and with sharding one more while ranges are gained.
#[derive(Default)]
struct Requests(Vec<InFlight>);

/// A response or body chunk of the request in flight.
enum Incoming {
    Response(StreamId, Result<Response, SourceError>),
    Chunk(StreamId, Option<Result<bytes::Bytes, SourceError>>),
}

impl InFlight {
    /// Sends a request by calling `request`, which calls the source. If the source panics, immediately or
    /// later, only this request fails (C9).
    fn send(id: StreamId, request: impl FnOnce() -> ResponseFuture) -> Self {
        let response =
            catch_unwind(AssertUnwindSafe(request)).unwrap_or_else(|_| Box::pin(async { Err(panicked()) }));
        Self { id, progress: Progress::Response(response) }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Incoming> {
        let id = self.id;
        match &mut self.progress {
            Progress::Response(response) => {
                let polled = catch_unwind(AssertUnwindSafe(|| response.poll_unpin(context)));
                polled
                    .unwrap_or_else(|_| Poll::Ready(Err(panicked())))
                    .map(|response| Incoming::Response(id, response))
            }
            Progress::Body(body) => {
                let polled = catch_unwind(AssertUnwindSafe(|| body.poll_next_unpin(context)));
                let polled = polled.unwrap_or_else(|_| Poll::Ready(Some(Err(panicked()))));
                polled.map(|chunk| Incoming::Chunk(id, chunk))
            }
        }
    }
}

impl Requests {
    fn remove(&mut self, id: StreamId) {
        self.0.retain(|request| request.id != id);
    }

    /// Waits for the next input. A request with much input does not delay another one: they take turns.
    async fn next(&mut self) -> Incoming {
        poll_fn(|context| {
            let ready =
                self.0.iter_mut().enumerate().find_map(|(index, request)| match request.poll(context) {
                    Poll::Ready(incoming) => Some((index, incoming)),
                    Poll::Pending => None,
                });
            let Some((index, incoming)) = ready else { return Poll::Pending };
            if self.0.len() > 1 {
                let request = self.0.remove(index);
                self.0.push(request);
            }
            Poll::Ready(incoming)
        })
        .await
    }

    /// Receives the body of a request from now on.
    fn begin_body(&mut self, id: StreamId, body: ByteStream) {
        if let Some(request) = self.0.iter_mut().find(|request| request.id == id) {
            request.progress = Progress::Body(body);
        }
    }
}

impl ReflectorDriver {
    /// Runs until the informer stops or the queue is closed.
    pub(crate) async fn run(mut self) {
        let (clock, mut stop) = (self.clock, self.stop.subscribe());
        let mut requests = Requests::default();
        let mut shard = self.shard.as_ref().map(|group| ShardProgress::new(group.join_cache()));
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
                executed = self.execute_actions(&mut requests) => if executed.is_err() { break },
            }
            if let Some(shard) = &mut shard {
                shard.record_pushed(self.machine.complete_ranges(), self.queue.pushed(self.scope_index));
            }
            let deadline = self.machine.next_deadline().map(|moment| clock.instant(moment));
            let wait_started = Instant::now();
            // Over a slow connection, a list with gzip arrives earlier than a watch-list.
            self.machine.prefer_lists(self.throughput.is_slow(wait_started));
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                () = shard_change(shard.as_mut(), &self.queue, self.scope_index) => {
                    self.apply_shard_change(shard.as_mut());
                }
                incoming = requests.next() => {
                    self.measure(&incoming, wait_started);
                    self.handle(clock.now(), incoming, &mut requests);
                }
                () = sleep_until(deadline) => self.machine.handle_timeout(clock.now()),
            }
        }
    }

    /// Pushes the deltas of the state machine to the delta queue and executes its pending actions. While this
    /// waits for capacity in the queue, nothing is read from the source.
    async fn execute_actions(&mut self, requests: &mut Requests) -> Result<(), QueueClosed> {
        self.publish();
        self.queue.push(self.scope_index, self.machine.deltas()).await?;
        while let Some(action) = self.machine.poll_action() {
            match action {
                Action::List(id, request) => {
                    requests.0.push(InFlight::send(id, || self.source.list(request)));
                }
                Action::Watch(id, request) => {
                    requests.0.push(InFlight::send(id, || self.source.watch(request)));
                }
                Action::Cancel(id) => requests.remove(id),
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
            (Incoming::Chunk(id, Some(Ok(chunk))), Some((measured, sample)))
                if id == measured && self.machine.is_receiving_list(*id) =>
            {
                let now = Instant::now();
                sample.note(chunk.len(), now - wait_started, now);
            }
            // Another request shares the connection, so that the measurement would be wrong.
            _ => self.sample = None,
        }
    }

    fn handle(&mut self, now: Moment, incoming: Incoming, requests: &mut Requests) {
        match incoming {
            Incoming::Response(id, Ok(response)) => {
                let mut head = ResponseHead::new(response.status);
                head.content_type = response.content_type.map(Into::into);
                head.retry_after = response.retry_after;
                let compressed = response.compressed;
                requests.begin_body(id, response.body);
                self.machine.handle_response(now, id, head);
                // The transferred size of a compressed body is not known here.
                self.sample = (!compressed && self.machine.is_receiving_list(id))
                    .then(|| (id, self.throughput.begin()));
            }
            Incoming::Chunk(id, Some(Ok(chunk))) => self.machine.handle_bytes(now, id, &chunk),
            Incoming::Chunk(id, None) => {
                requests.remove(id);
                self.machine.handle_end(now, id);
            }
            Incoming::Response(id, Err(error)) | Incoming::Chunk(id, Some(Err(error))) => {
                requests.remove(id);
                self.machine.handle_error(now, id, failure(&error));
            }
        }
    }

    /// Publishes what the store contains, and passes a new view of the group to the state machine.
    fn apply_shard_change(&mut self, shard: Option<&mut ShardProgress>) {
        let Some(shard) = shard else { return };
        let (now, scope_index) = (self.clock.now(), self.scope_index);
        if let Some(complete) = shard.take_applied(|end| self.queue.has_applied(scope_index, end)) {
            self.status.record_ranges(scope_index, complete, now);
        }
        if let Some(view) = shard.new_view() {
            // What was lost and gained since the last view leaves the store, because others may have changed it.
            let kept = view.kept_since(shard.view());
            let ranges = shard.ranges_of(&view, &kept);
            let kept = kept.intersection(ranges);
            if kept != *ranges {
                self.machine.set_ranges(now, &kept, false);
            }
            self.machine.set_ranges(now, ranges, view.is_settled);
            let remaining = self.machine.complete_ranges().unwrap_or_default();
            self.status.record_ranges(scope_index, shard.begin_view(view.number, &remaining), now);
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
