//! What goes wrong, told in one place: to the log, and to the hook of [`InformerOptions::on_diagnostic`](crate::InformerOptions::on_diagnostic).
//!
//! Nothing fails silently (C9), and nothing here ever holds the contents of an object.

use informer_core::reflector::{Report, Trouble};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Something that went wrong, with its class.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Problem {
    /// With the server, or with what it sent: requests and streams that failed ([`Report::Failed`], whose failure says which
    /// [`Trouble`] it is; errors inside a stream too), objects that could not be read, a server that went back.
    Server(Report),
    /// An audit found that the cache was not what the server had; it is now.
    #[non_exhaustive]
    Drift {
        /// How many objects differed.
        changes: u64,
    },
    /// An index function panicked; the objects concerned are not in its index.
    #[non_exhaustive]
    IndexPanicked {
        /// How many calls of one batch.
        calls: u64,
    },
    /// Learning a dictionary, or rewriting the cache with it, panicked. What is cached stays as it is, and nothing more is learnt: what comes is
    /// compressed with the dictionary there is, or by itself.
    CompressionPanicked,
    /// A task of the informer panicked, through something that objects or handlers hold: the informer has stopped.
    Died,
    /// A handler panicked. It goes on with the next event.
    #[non_exhaustive]
    HandlerPanicked {
        /// Its name.
        handler: Arc<str>,
    },
    /// An inline handler took long, during which its thread could do nothing else.
    #[non_exhaustive]
    HandlerSlow {
        /// Its name.
        handler: Arc<str>,
        /// How long one call took.
        took: Duration,
    },
}

impl Problem {
    /// The class of a failed request or a broken stream.
    pub fn trouble(&self) -> Option<Trouble> {
        match self {
            Self::Server(Report::Failed { failure, .. }) => Some(failure.trouble),
            _ => None,
        }
    }

    /// Whether it is an ordinary part of a watch's life, such as a connection that is made anew at once.
    fn is_ordinary(&self) -> bool {
        matches!(self, Self::Server(Report::Failed { retry_in, .. }) if retry_in.is_zero())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(report) => report.fmt(f),
            Self::Drift { changes } => {
                write!(f, "the cache differed from the server in {changes} objects, and was put right")
            }
            Self::IndexPanicked { calls } => {
                write!(f, "an index function panicked for {calls} objects, which are not in that index")
            }
            Self::CompressionPanicked => {
                f.write_str("compression panicked; no dictionary is learnt any more")
            }
            Self::Died => f.write_str("a task of the informer panicked; it has stopped"),
            Self::HandlerPanicked { handler } => {
                write!(f, "handler {handler} panicked; it goes on with the next event")
            }
            Self::HandlerSlow { handler, took } => write!(
                f,
                "handler {handler} took {took:.1?} for one event; handlers that block belong on a thread of their own \
                 (blocking), or put the key into a queue"
            ),
        }
    }
}

/// What is called with the resource and the problem.
pub(crate) type Hook = Arc<dyn Fn(&str, &Problem) + Send + Sync>;

/// Where an informer's problems go.
#[derive(Clone)]
pub(crate) struct Problems {
    pub(crate) resource: Arc<str>,
    pub(crate) hook: Option<Hook>,
}

impl Problems {
    pub(crate) fn report(&self, problem: &Problem) {
        let resource = &*self.resource;
        match problem {
            Problem::HandlerPanicked { .. }
            | Problem::IndexPanicked { .. }
            | Problem::CompressionPanicked
            | Problem::Died => {
                tracing::error!(resource, "{problem}");
            }
            problem if problem.is_ordinary() => tracing::info!(resource, "{problem}"),
            _ => tracing::warn!(resource, "{problem}"),
        }
        let Some(hook) = &self.hook else { return };
        if catch_unwind(AssertUnwindSafe(|| hook(resource, problem))).is_err() {
            tracing::error!(resource, "the error hook panicked");
        }
    }
}
