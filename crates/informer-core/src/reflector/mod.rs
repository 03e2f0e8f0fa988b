//! The list and watch machine: keeps a [`DeltaFifo`](crate::DeltaFifo) fed with what a server has, whatever the server does.
//!
//! [`Reflector`] is a pure machine. Its driver carries out the [`Action`]s it polls, tells it what happened with `handle_…`, and wakes it
//! at [`Reflector::next_deadline`]. It is split by state:
//!
//! | state | file | left when |
//! |---|---|---|
//! | watch-list | `watchlist` | the initial events end (→ watching), or it is refused or stalls (→ listing) |
//! | listing | `listing` | the last page is in (→ watching), or a page fails (→ waiting, or listing from another version) |
//! | watching | `watching` | the stream ends (→ watching, waiting, or a new round) |
//! | waiting | `machine` | the time has come (→ a new round, or watching) |
//!
//! These files are steps: methods of [`Reflector`], which nothing imports. The data of each state is in `phase`, and what the machine knows is in groups with
//! invariants of their own: `position`, `server` (what was learnt about it), `health`, `contact`, `cached` and `out`.
//!
//! Promises kept here: the versions of C1, the silence, back-off and hot-loop rules of C11, the states of C7.

mod cached;
mod config;
mod contact;
mod diagnostic;
mod encoding_policy;
mod entry;
mod failure;
mod health;
mod listing;
mod machine;
mod out;
mod phase;
mod position;
mod probe;
mod request;
mod server;
mod state;
mod watching;
mod watchlist;

pub use config::{Config, WatchListPolicy};
pub use diagnostic::{ReflectorDiagnostic, RequestKind};
pub use failure::{Failure, FailureKind, ResponseHead};
pub use machine::Reflector;
pub use out::Action;
pub use request::{Consistency, ListRequest, StreamId, WatchRequest, WatchStart};
pub use state::{InformerState, ReflectorCounters, RelistCounters, RelistReason};

#[cfg(test)]
mod tests;
