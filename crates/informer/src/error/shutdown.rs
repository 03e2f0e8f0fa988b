//! The error of a shutdown or drain.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The error of a shutdown or drain that did not finish within its timeout.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShutdownError {
    /// The timeout.
    pub timeout: Duration,
    /// The parts that had not finished. Never empty.
    pub unfinished: Vec<Unfinished>,
}

/// A part that had not finished when a shutdown timed out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unfinished {
    /// An informer: a call of a handler has not returned, or the cache is still busy.
    #[non_exhaustive]
    Informer {
        /// The description of the informer.
        informer: Arc<str>,
        /// The names of the handlers whose call has not returned.
        handlers: Vec<Arc<str>>,
    },
    /// A task of a manager. It was aborted.
    #[non_exhaustive]
    Task {
        /// The name of the task.
        name: Arc<str>,
    },
    /// Recorded events that were not written. They are lost.
    #[non_exhaustive]
    RecordedEvents {
        /// Number of writes.
        writes: usize,
    },
    /// Keys of a work queue.
    #[non_exhaustive]
    WorkQueue {
        /// Number of keys that no worker has taken.
        queued: usize,
        /// Number of keys that workers are processing.
        processing: usize,
        /// Number of keys whose delay has not passed.
        delayed: usize,
    },
}

impl ShutdownError {
    pub(crate) fn of(timeout: Duration, unfinished: Unfinished) -> Self {
        Self { timeout, unfinished: vec![unfinished] }
    }

    /// Combines the errors of several shutdowns with the same timeout; returns `Ok` if there are none.
    pub(crate) fn collect(
        timeout: Duration,
        outcomes: impl IntoIterator<Item = Result<(), Self>>,
    ) -> Result<(), Self> {
        let errors = outcomes.into_iter().filter_map(Result::err);
        let unfinished: Vec<_> = errors.flat_map(|error| error.unfinished).collect();
        if unfinished.is_empty() { Ok(()) } else { Err(Self { timeout, unfinished }) }
    }
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [queue @ Unfinished::WorkQueue { .. }] = &self.unfinished[..] {
            return write!(f, "drain work queue: timed out after {:?} with {queue}", self.timeout);
        }
        let unfinished: Vec<String> = self.unfinished.iter().map(ToString::to_string).collect();
        write!(f, "shutdown: timed out after {:?}: {}", self.timeout, unfinished.join("; "))
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Informer { informer, handlers } if handlers.is_empty() => {
                write!(f, "{informer}: the cache or the source is still busy")
            }
            Self::Informer { informer, handlers } => {
                let handlers: Vec<_> =
                    handlers.iter().map(|handler| format!("handler {handler} has not returned")).collect();
                write!(f, "{informer}: {}", handlers.join(", "))
            }
            Self::Task { name } => write!(f, "task {name} has not ended (does it wait for `stop`?)"),
            Self::RecordedEvents { writes } => write!(f, "{writes} writes of recorded events are lost"),
            Self::WorkQueue { queued, processing, delayed } => write!(
                f,
                "{queued} keys queued, {processing} processing, {delayed} delayed (a worker may be stuck)"
            ),
        }
    }
}

impl std::error::Error for ShutdownError {}
