//! Leader election: who of several processes may act, decided by a lease that all of them can read and write.
//!
//! An [`Election`] is the machine of one candidate: no clock, no requests of its own. It asks for requests ([`Election::poll_request`]), is told
//! the answers, and says when it leads and when it does not any more ([`Election::poll_event`]). What a lease looks like on the wire and how
//! requests travel is not known here.
//!
//! Clocks are never compared: a candidate counts from when it saw a record change, and a leader from when it sent the request that
//! renewed its lease. So only the rates of clocks matter, within the margin between `renew` and `lease`.

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
