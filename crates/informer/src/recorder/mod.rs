//! Recorded events: Kubernetes Event objects that tell users what a controller does with an object, shown by
//! `kubectl describe` and `kubectl events`.
//!
//! This is the driver of [`informer_core::recorder::Correlator`], which makes all decisions. The lock is held
//! for one operation of the correlator; one task executes the writes that the correlator requests.

mod events;
mod metrics;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use informer_core::recorder::{Correlator, RecorderConfig, RecorderMetrics, WriteResponse};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::access::RequiredAccess;
use crate::clock::{Clock, sleep_until};
use crate::error::{ShutdownError, Unfinished};
use crate::reference::{ObjectReference, ToObjectReference};
use events::{Event, EventClient};

/// The timeout of one write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum length of a reason, an action and a reporting instance.
const MAX_REASON_BYTES: usize = 128;

/// Maximum length of a note.
const MAX_NOTE_BYTES: usize = 1024;

/// A recorder of events (`events.k8s.io/v1`) about objects. Clones are handles of the same recorder.
///
/// Recording never waits: a task writes the events, one after the other. Equal events become a series on the
/// server, which is updated at the second occurrence, then every 30 minutes, and when the event has not
/// occurred for 6 minutes. New events about one object are limited to a burst of 25 and one more every 5
/// minutes. Up to 1,000 writes are queued while the server is slow or unavailable, and each is attempted up
/// to 12 times; a namespace in which writes fail does not delay others. Events that are not written are
/// counted ([`EventRecorder::metrics`]).
///
/// Dropping the last handle loses the queued events; [`EventRecorder::shutdown`] writes them. The program
/// needs the permissions to create and patch `events` of `events.k8s.io`.
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

/// The type of a recorded event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum EventType {
    /// Information about an expected action.
    Normal,
    /// Something that may need attention.
    Warning,
}

/// The state owned by the handles but not by the task, so that dropping the last handle ends the task.
struct Handle {
    shared: Arc<Shared>,
    controller: Arc<str>,
    instance: Arc<str>,
    task: JoinHandle<()>,
    /// Closed when the task ends.
    running: watch::Receiver<()>,
}

struct Shared {
    correlator: Mutex<Correlator<String, ObjectReference, Arc<Event>>>,
    clock: Clock,
    /// Wakes the task after an event was recorded or a shutdown was requested.
    work_added: Notify,
    /// Number of events with an invalid reason or action, which are not passed to the correlator.
    invalid_events: AtomicU64,
}

impl EventRecorder {
    /// Adds the permissions that a recorder needs, in all namespaces: it is not known which objects it will be
    /// used for.
    pub(crate) fn add_required_access(access: &mut RequiredAccess) {
        access.add_verbs(None, "events.k8s.io", "events", None, &["create", "patch"]);
    }

    /// Creates a recorder for a controller with a name such as `websites.example.com/controller` or
    /// `my-controller`.
    ///
    /// The reporting instance of its events is the host name with a random suffix.
    ///
    /// # Panics
    ///
    /// Panics if called outside a tokio runtime.
    pub fn new(client: kube::Client, controller: &str) -> Self {
        let seed = crate::workqueue::seed();
        // The suffix is an underscore and 16 hexadecimal digits.
        let instance: Arc<str> =
            format!("{}_{seed:016x}", truncate(&crate::host::host(), MAX_REASON_BYTES - 17, "")).into();
        let correlator = Mutex::new(Correlator::new(RecorderConfig::default(), seed));
        let shared = Arc::new(Shared {
            correlator,
            clock: Clock::new(),
            work_added: Notify::new(),
            invalid_events: AtomicU64::new(0),
        });
        let controller: Arc<str> = controller.into();
        let events = EventClient::new(client, Arc::clone(&controller), Arc::clone(&instance), seed);
        let (running_guard, running) = watch::channel(());
        let task = tokio::spawn(write_events(Arc::clone(&shared), events, running_guard));
        EventRecorder { handle: Arc::new(Handle { shared, controller, instance, task, running }) }
    }

    /// Records an event about an object.
    ///
    /// `reason` and `action` are short identifiers such as `Created` and `CreateDeployment`, of 1 to 128
    /// bytes; otherwise the event is not recorded, but logged and counted as failed. `note` is a text for
    /// people, truncated to 1,024 bytes. The event is created in the object's namespace, or in `default` for
    /// cluster-scoped objects.
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

    /// Records an event about an object that also concerns a second object, `related`; otherwise like
    /// [`record`](Self::record).
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

    /// Returns the number of recorded events by result.
    pub fn metrics(&self) -> RecorderMetrics {
        let mut metrics = self.handle.shared.correlator().metrics();
        metrics.failed += self.handle.shared.invalid_events.load(Ordering::Relaxed);
        metrics
    }

    /// Returns the name of the controller, the `reportingController` of the events.
    pub fn reporting_controller(&self) -> &str {
        &self.handle.controller
    }

    /// Returns the `reportingInstance` of the events.
    pub fn reporting_instance(&self) -> &str {
        &self.handle.instance
    }

    /// Writes the queued events and the final count of every series, and ends the task.
    ///
    /// Events recorded after the call are lost.
    ///
    /// # Errors
    ///
    /// Returns an error if not everything was written within `timeout`; the remaining writes are lost.
    pub async fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        self.handle.shared.correlator().stop();
        self.handle.shared.work_added.notify_one();
        let mut running = self.handle.running.clone();
        let ended = async { while running.changed().await.is_ok() {} };
        if tokio::time::timeout(timeout, ended).await.is_ok() {
            return Ok(());
        }
        self.handle.task.abort();
        match self.handle.shared.correlator().abandon() {
            0 => Ok(()),
            writes => Err(ShutdownError::of(timeout, Unfinished::RecordedEvents { writes })),
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
        for (field, value) in [("reason", reason), ("action", action)] {
            if value.is_empty() || value.len() > MAX_REASON_BYTES {
                let error = format!("{field} has {} bytes, must have 1 to {MAX_REASON_BYTES}", value.len());
                tracing::warn!(controller = &*self.handle.controller, %regarding, reason, "event not recorded: {error}");
                shared.invalid_events.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
        let event = Event {
            regarding: regarding.clone(),
            related,
            severity: event_type,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: truncate(note, MAX_NOTE_BYTES, "..."),
        };
        let now = shared.clock.now();
        let partition = event.namespace().to_owned();
        shared.correlator().handle_event(now, crate::clock::now(), partition, regarding, Arc::new(event));
        shared.work_added.notify_one();
    }
}

impl Shared {
    fn correlator(&self) -> MutexGuard<'_, Correlator<String, ObjectReference, Arc<Event>>> {
        self.correlator.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventRecorder({})", self.handle.controller)
    }
}

/// Executes the writes that the correlator requests until it is over. Dropping `_running` signals the end of
/// the task.
async fn write_events(shared: Arc<Shared>, mut events: EventClient, _running: watch::Sender<()>) {
    loop {
        let (write, next) = {
            let mut correlator = shared.correlator();
            let write = correlator.poll_write(shared.clock.now());
            if write.is_none() && correlator.is_over() {
                return;
            }
            (write, correlator.next_deadline())
        };
        if let Some(write) = write {
            let response = tokio::time::timeout(WRITE_TIMEOUT, events.write(&write)).await;
            let response = response.unwrap_or(WriteResponse::Unavailable(None));
            shared.correlator().handle_response(shared.clock.now(), response);
        } else {
            tokio::select! {
                () = shared.work_added.notified() => {}
                () = sleep_until(next.map(|next| shared.clock.instant(next))) => {}
            }
        }
    }
}

/// Truncates a text to at most `max_bytes` at a character boundary; a truncated text ends with `suffix`.
fn truncate(text: &str, max_bytes: usize, suffix: &str) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let max_cut = max_bytes.saturating_sub(suffix.len()).min(text.len());
    let cut = (0..=max_cut).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
    format!("{}{suffix}", &text[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_truncated_at_character_boundaries() {
        assert_eq!(truncate("short", 5, "..."), "short");
        assert_eq!(truncate("longer", 5, "..."), "lo...");
        assert_eq!(truncate("ääää", 6, "..."), "ä...");
        assert_eq!(truncate("host-1", 4, ""), "host");
    }
}
