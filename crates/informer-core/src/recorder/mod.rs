//! Event recording: which occurrence creates an event on the server, which is counted in an existing one, and
//! which is left out.
//!
//! A [`Correlator`] makes this decision and queues the resulting writes, without clock and I/O. It receives
//! occurrences ([`Correlator::handle_event`]), returns the writes to send ([`Correlator::poll_write`]) and
//! receives the responses. It does not know the contents of an event: event, subject (the object that the
//! event is about) and partition (its namespace) are only compared. If a write fails, its partition backs
//! off.
//!
//! The first occurrence creates an event. An event that recurs within [`RecorderConfig::series_timeout`] of
//! its last occurrence becomes a series. The series is written at its second occurrence, then every
//! [`RecorderConfig::series_update_period`], and when it has ended. Everything is bounded: queued writes,
//! remembered events, attempts per write, and new events per subject.

mod config;
mod correlator;
mod limit;

pub use config::RecorderConfig;
pub use correlator::{Correlator, Occurrence, Write, WriteResponse};

/// The counters of a recorder.
///
/// Each recorded occurrence is counted as one of `sent`, `aggregated`, `limited`, `dropped` and `failed`;
/// that of a new event only when its write has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecorderMetrics {
    /// Number of events created on the server.
    pub sent: u64,
    /// Number of repeats counted in the series of an event.
    pub aggregated: u64,
    /// Number of new events rejected because too many events about their subject were accepted recently.
    pub limited: u64,
    /// Number of events dropped because the queue was full, the shutdown timeout expired, or the recorder was
    /// stopped.
    pub dropped: u64,
    /// Number of events that the server rejected, including their repeats, that exhausted their attempts, or
    /// that could not be encoded.
    pub failed: u64,
    /// Number of series updates written to the server.
    pub updated: u64,
    /// Number of queued writes.
    pub waiting: usize,
}

#[cfg(test)]
mod reference_model;
#[cfg(test)]
mod tests;
