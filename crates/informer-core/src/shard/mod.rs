//! Groups of processes that divide objects among themselves by hashes, each acting for its ranges.
//!
//! Each process has a [`Member`], the state machine that keeps its Lease, claims ranges and reports for which of them
//! it may act. One process, elected like a leader, also has a [`Coordinator`], which decides who should have which
//! range ([`Assignment`]). This module knows neither the encoding of a Lease nor the transport.
//!
//! Clocks of different processes are never compared; the rules are those of the [`election`](crate::election).

mod claims;
mod coordinator;
mod filter;
mod member;
mod member_state;
mod plan;
mod protocol;
mod range;
mod range_sets;
mod record;

pub use coordinator::{Coordinator, CoordinatorRequest, CoordinatorResponse};
pub use filter::{ShardFilter, ShardProperty};
pub use member::Member;
pub use protocol::{ClaimState, MemberEvent, MemberRequest, MemberResponse, RangeLossReason, RangeToken};
pub use range::{HashRange, HashRangeError, HashRanges, RangeCount, shard_hash};
pub use record::{
    Assignment, MAX_LEASE_DURATION, MAX_LEASE_DURATIONS, MemberRecord, RangeAssignment, StoredAssignment,
};

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
