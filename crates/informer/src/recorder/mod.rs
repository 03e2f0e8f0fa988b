//! Events for users: what a controller does with an object, to be read with `kubectl describe` and `kubectl events`.
//!
//! The face of [`informer_core::recorder::Correlator`], which decides everything. The lock is held for one operation of the machine; one task
//! writes what it asks for.

mod events;
mod metrics;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer_core::recorder::{Correlator, RecorderConfig, RecorderMetrics, WriteResponse};
use jiff::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::clock::{Clock, sleep_until};
use crate::error::{ShutdownError, Unfinished};
use crate::reference::{ObjectReference, ToObjectReference};
use events::{Event, Events};

/// So long a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// The longest reason and the longest action that a server takes.
const MAX_REASON_BYTES: usize = 128;

/// The longest note that a server takes.
const MAX_NOTE_BYTES: usize = 1024;

/// Records events (`events.k8s.io/v1`) about objects. Clones are handles of the same recorder.
///
/// Recording never waits: events are written by a task, one after the other. The same again becomes a series on the server: its second
/// occurrence is told, then one word every 30 minutes, and one when it was quiet for 6. New events about one object are limited to 25, and one more every 5
/// minutes. Up to 1,000 writes wait while the server is slow or away, and each is tried 12 times; a namespace in which they fail holds up no other. What is
/// left out is counted ([`EventRecorder::metrics`]).
///
/// When the last handle goes, what waits is lost; [`EventRecorder::shutdown`] writes it. The controller needs the rights to create and to patch `events` of
/// `events.k8s.io`.
///
/// ```
/// use informer::recorder::{EventRecorder, EventType};
/// # use k8s_openapi::api::core::v1::Pod;
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), informer::error::ShutdownError> {
/// # let server = informer_apiserver::ApiServer::new();
/// # let (client, mut website, deployment) = (server.client(), Pod::default(), Pod::default());
/// # website.metadata.name = Some("site".to_owned());
/// let recorder = EventRecorder::new(client, "website-controller");
/// recorder.record(&website, EventType::Normal, "Created", "CreateDeployment", "created deployment site");
/// recorder.record_related(&website, &deployment, EventType::Warning, "NotReady", "Probe", "no pod answers");
/// recorder.shutdown(std::time::Duration::from_secs(5)).await?;
/// # assert_eq!(recorder.metrics().sent, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct EventRecorder {
    handle: Arc<Handle>,
}

/// How an event is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// As it should be.
    Normal,
    /// Somebody may have to do something.
    Warning,
}

/// What the handles hold, and the task does not: with the last of them the task ends.
struct Handle {
    shared: Arc<Shared>,
    controller: Arc<str>,
    instance: Arc<str>,
    task: JoinHandle<()>,
    /// Closed when the task has ended.
    running: watch::Receiver<()>,
}

struct Shared {
    machine: Mutex<Correlator<String, ObjectReference, Arc<Event>>>,
    clock: Clock,
    /// There may be something to write.
    work_added: Notify,
    /// Events that no server would take, and were not given to the machine.
    invalid_events: AtomicU64,
}

impl EventRecorder {
    /// A recorder for the controller of this name, which is one like `websites.example.com/controller` or `my-controller`. It says that events come
    /// from this host, with something random behind it. Needs a tokio runtime.
    pub fn new(client: kube::Client, controller: &str) -> Self {
        let seed = crate::workqueue::seed();
        let instance: Arc<str> =
            format!("{}_{seed:016x}", shortened(&crate::host::host(), MAX_REASON_BYTES - 17, "")).into();
        let machine = Mutex::new(Correlator::new(RecorderConfig::default(), seed));
        let shared = Arc::new(Shared {
            machine,
            clock: Clock::new(),
            work_added: Notify::new(),
            invalid_events: AtomicU64::new(0),
        });
        let controller: Arc<str> = controller.into();
        let events = Events::new(client, Arc::clone(&controller), Arc::clone(&instance), seed);
        let (runs, running) = watch::channel(());
        let task = tokio::spawn(write(Arc::clone(&shared), events, runs));
        EventRecorder { handle: Arc::new(Handle { shared, controller, instance, task, running }) }
    }

    /// Something happened to an object: a reason and an action in a word or two, such as `Created` and `CreateDeployment` (at most 128 bytes), and
    /// a note for people, which is cut at 1,024 bytes. The event is in the object's namespace, or in `default`.
    pub fn record<Form>(
        &self,
        regarding: &impl ToObjectReference<Form>,
        event_type: EventType,
        reason: &str,
        action: &str,
        note: impl AsRef<str>,
    ) {
        self.enqueue(regarding.reference(), None, event_type, reason, action, note.as_ref());
    }

    /// The same, with another object that has to do with it.
    pub fn record_related<Form, OtherForm>(
        &self,
        regarding: &impl ToObjectReference<Form>,
        related: &impl ToObjectReference<OtherForm>,
        event_type: EventType,
        reason: &str,
        action: &str,
        note: impl AsRef<str>,
    ) {
        let related = Some(related.reference());
        self.enqueue(regarding.reference(), related, event_type, reason, action, note.as_ref());
    }

    /// What became of everything so far.
    pub fn metrics(&self) -> RecorderMetrics {
        let mut metrics = self.handle.shared.machine().metrics();
        metrics.failed += self.handle.shared.invalid_events.load(Ordering::Relaxed);
        metrics
    }

    /// The name of its controller: what the server is told as `reportingController`.
    pub fn reporting_controller(&self) -> &str {
        &self.handle.controller
    }

    /// What the server is told as `reportingInstance`.
    pub fn reporting_instance(&self) -> &str {
        &self.handle.instance
    }

    /// Writes what waits, and the last word about every series, and ends. What is not written in time is lost, and so is what is recorded from now on.
    pub async fn shutdown(&self, within: Duration) -> Result<(), ShutdownError> {
        self.handle.shared.machine().stop();
        self.handle.shared.work_added.notify_one();
        let mut running = self.handle.running.clone();
        let ended = async { while running.changed().await.is_ok() {} };
        if tokio::time::timeout(within, ended).await.is_ok() {
            return Ok(());
        }
        self.handle.task.abort();
        match self.handle.shared.machine().abandon() {
            0 => Ok(()),
            writes => Err(ShutdownError::of(within, Unfinished::RecordedEvents { writes })),
        }
    }

    fn enqueue(
        &self,
        regarding: ObjectReference,
        related: Option<ObjectReference>,
        event_type: EventType,
        reason: &str,
        action: &str,
        note: &str,
    ) {
        let shared = &self.handle.shared;
        for (what, word) in [("reason", reason), ("action", action)] {
            if word.is_empty() || word.len() > MAX_REASON_BYTES {
                let why =
                    format!("its {what} must have 1 to {MAX_REASON_BYTES} bytes, and has {}", word.len());
                tracing::warn!(controller = &*self.handle.controller, %regarding, reason, "event not recorded: {why}");
                shared.invalid_events.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let event = Event {
            regarding: regarding.clone(),
            related,
            level: event_type,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: shortened(note, MAX_NOTE_BYTES, "..."),
        };
        let now = shared.clock.now();
        let lane = event.namespace().to_owned();
        shared.machine().handle_event(now, Timestamp::now(), lane, regarding, Arc::new(event));
        shared.work_added.notify_one();
    }
}

impl Shared {
    fn machine(&self) -> MutexGuard<'_, Correlator<String, ObjectReference, Arc<Event>>> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({})", self.handle.controller)
    }
}

/// Writes what the machine asks for, until it is over. The sender tells by its end that this has ended.
async fn write(shared: Arc<Shared>, mut events: Events, _runs: watch::Sender<()>) {
    loop {
        let (write, next) = {
            let mut machine = shared.machine();
            let write = machine.poll_write(shared.clock.now());
            if write.is_none() && machine.is_over() {
                return;
            }
            (write, machine.next_deadline())
        };
        if let Some(write) = write {
            let answer = tokio::time::timeout(WRITE_TIMEOUT, events.write(&write)).await;
            let answer = answer.unwrap_or(WriteResponse::Unavailable(None));
            shared.machine().handle_response(shared.clock.now(), answer);
        } else {
            tokio::select! {
                () = shared.work_added.notified() => {}
                () = sleep_until(next.map(|next| shared.clock.instant(next))) => {}
            }
        }
    }
}

/// A text of at most so many bytes; one that is longer ends with `end`.
fn shortened(text: &str, longest: usize, end: &str) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let cut = text.floor_char_boundary(longest.saturating_sub(end.len()));
    format!("{}{end}", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_letters() {
        assert_eq!(shortened("short", 5, "..."), "short");
        assert_eq!(shortened("longer", 5, "..."), "lo...");
        assert_eq!(shortened("ääää", 6, "..."), "ä...");
        assert_eq!(shortened("host-1", 4, ""), "host");
    }
}
