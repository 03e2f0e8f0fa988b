//! Shard groups against the embedded server: who acts for which ranges, and never two members for one hash.
#![allow(clippy::unwrap_used, reason = "a failing test panics")]

mod caches;
mod faults;
mod harness;
mod keys;
mod manager;
mod membership;
#[path = "../common/shard_members.rs"]
mod shard_members;
mod storage;
