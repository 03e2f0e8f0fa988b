//! The list and watch state machine: keeps a [`DeltaFifo`](crate::DeltaFifo) up to date with a server,
//! however the server behaves.
//!
//! [`Reflector`] does no I/O. Its driver polls and executes [`Action`]s, reports responses and errors with
//! the `handle_…` methods, and calls [`Reflector::handle_timeout`] at [`Reflector::next_deadline`]. The state
//! machine is split by phase:
//!
//! | phase | file | left when |
//! |---|---|---|
//! | watch-listing | `watchlist` | the initial events end (→ watching) or fail (→ a relist or backing off) |
//! | listing | `listing` | the last page is complete (→ watching) or a page fails (→ listing or backing off) |
//! | watching | `watching` | the stream ends (→ watching, a relist or backing off); an audit is due (→ listing) |
//! | backing off | `machine` | the delay has passed (→ a relist, probing or watching) |
//! | probing (a `Listing` of one object) | `probe` | the list ends or fails (→ watching, a relist or backing off) |
//! | confirming a saved state (a `Listing` of one object, then watching) | `saved` | the version of that list is reached (→ watching), or not (→ a relist) |
//!
//! A relist is either watch-listing or listing. The files of the table contain the transitions, as methods of
//! [`Reflector`]. The data of each phase is in `phase`. Everything else the reflector knows is in groups with
//! their own invariants: `position`, `server` (facts about the server), `health`, `contact`, `cached` and
//! `out`.
//!
//! Guarantees implemented here: the order of versions (C1), the rules about silence, backoff and hot loops
//! (C11), and the states of an informer (C7).

mod cached;
mod config;
mod contact;
mod detached;
mod diagnostic;
mod encoding_policy;
mod entry;
mod failure;
mod gain_log;
mod health;
mod listing;
mod machine;
mod out;
mod phase;
mod position;
mod probe;
mod ranges;
mod request;
mod saved;
mod server;
mod sharded;
mod state;
mod watching;
mod watchlist;

pub use cached::SavedScope;
pub use config::{Config, WatchListPolicy};
pub use diagnostic::{ReflectorDiagnostic, RequestKind};
pub use failure::{Failure, FailureKind, ResponseHead};
pub use machine::Reflector;
pub use out::Action;
pub use request::{Consistency, ListRequest, StreamId, WatchRequest, WatchStart};
pub use sharded::ShardedReflector;
pub use state::{InformerState, ReflectorCounters, RelistCounters, RelistReason};

#[cfg(test)]
mod tests;
