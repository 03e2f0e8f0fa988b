//! Recording what happens: which occurrence becomes a new event on the server, which is counted into one that is there, and which is left out.
//!
//! A [`Correlator`] is that decision and the queue of writes that follows from it: no clock, no requests of its own. It is told what happens
//! ([`Correlator::handle_event`]), asks for writes ([`Correlator::poll_write`]) and is told the answers. What an event looks like is not known
//! here: it is a value that can be compared, about a subject that can be compared, in a lane that can be compared: where one write fails, its lane waits.
//!
//! What happens once is one event. What happens again before it was quiet for [`RecorderConfig::series_timeout`] is a series: told to the server at
//! its second occurrence, then every [`RecorderConfig::series_update_period`], and when it has ended. Everything is bounded: writes that wait, events that are
//! remembered, tries of a write, and new events about one subject.

mod config;
mod correlator;
mod limit;

pub use config::RecorderConfig;
pub use correlator::{Correlator, Occurrence, Write, WriteResponse};

/// What became of everything that was recorded.
///
/// Each call is one of `sent`, `aggregated`, `limited`, `dropped` and `failed`, or still waits for its write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RecorderMetrics {
    /// Events that the server has.
    pub sent: u64,
    /// Repeats that were counted into the series of an event.
    pub aggregated: u64,
    /// New events about an object that had too many already.
    pub limited: u64,
    /// Events for which there was no room or no time, or that came after the end.
    pub dropped: u64,
    /// Events that the server refused, could not be sent however often, or could not be written at all.
    pub failed: u64,
    /// Writes of series that the server has.
    pub updated: u64,
    /// Writes that wait.
    pub waiting: usize,
}

#[cfg(test)]
mod reference_model;
#[cfg(test)]
mod tests;
