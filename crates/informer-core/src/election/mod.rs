//! Leader election: one of several processes may act, decided by a lease that all of them read and write.
//!
//! An [`Election`] is the state machine of one candidate, without clock and I/O. It returns requests to send
//! ([`Election::poll_request`]), receives the responses, and reports when it becomes leader and when it stops
//! being leader ([`Election::poll_event`]). This module knows neither the encoding of a lease nor the
//! transport.
//!
//! Clocks of different processes are never compared: a candidate measures time from when it observed a change
//! of the record, a leader from when it sent the request that renewed its lease. So the clocks may show
//! different times, and their rates may differ within the margin between `renew_deadline` and
//! `lease_duration`.

mod candidate;
mod config;
mod record;

pub use candidate::{Election, Event, FencingToken, LeaseRequest, LeaseResponse, LossReason};
pub use config::ElectionConfig;
pub use record::LeaseRecord;

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
