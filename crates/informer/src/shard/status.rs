//! [`ShardStatus`] and the metrics of a membership.

use super::ShardGroup;
use crate::metrics::{Collect, Encoder, Histogram};
use informer_core::shard::HashRanges;
use std::time::Duration;
use tokio::time::Instant;

/// The state of one membership in a shard group.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "independent facts, as in the metrics")]
pub struct ShardStatus {
    /// The name of this member.
    pub identity: String,
    /// Whether the membership runs.
    pub is_running: bool,
    /// Whether this process is the coordinator, which assigns the ranges.
    pub is_coordinator: bool,
    /// Whether the ranges are divided among members of which this is one. It may have none.
    pub is_considered: bool,
    /// Whether the member is considered and holds every range that is assigned to it.
    pub is_settled: bool,
    /// The hashes for which the process acts.
    pub held: HashRanges,
    /// The hashes for which running work ends.
    pub releasing: HashRanges,
    /// The hashes that the member has claimed, or is about to claim, and for which it does not act yet.
    pub claimed: HashRanges,
    /// The point in time until which the process may act if its Lease is not renewed; `None` if it may not act.
    pub acts_until: Option<Instant>,
    /// The resource version of the assignment that was read last; empty if none was read.
    pub assignment_version: String,
    /// The highest epoch of the ranges for which the process acts; 0 if there are none. The epoch of a range increases each
    /// time that it is assigned to another member.
    pub highest_epoch: u64,
    /// Number of ranges that the member has begun to act for.
    pub gained: u64,
    /// Number of ranges that the member has released in order.
    pub released: u64,
    /// Number of ranges that the member has lost: the Lease was not renewed in time, or was changed by another client.
    pub lost: u64,
    /// Time from the request to release a range until all work for it had ended, of the last released range.
    pub last_handover: Option<Duration>,
    /// Time from the moment at which the member knew that a range is assigned to it until it acted for it, of the last gained
    /// range.
    pub last_claim: Option<Duration>,
    /// The error of the last request; `None` if it succeeded.
    pub last_error: Option<String>,
}

impl ShardStatus {
    pub(super) fn new(identity: &str) -> Self {
        Self {
            identity: identity.to_owned(),
            is_running: false,
            is_coordinator: false,
            is_considered: false,
            is_settled: false,
            held: HashRanges::default(),
            releasing: HashRanges::default(),
            claimed: HashRanges::default(),
            acts_until: None,
            assignment_version: String::new(),
            highest_epoch: 0,
            gained: 0,
            released: 0,
            lost: 0,
            last_handover: None,
            last_claim: None,
            last_error: None,
        }
    }
}

/// Counters since the creation of the group, and current numbers of ranges.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    pub(super) gained: u64,
    pub(super) released: u64,
    pub(super) lost: u64,
    pub(super) lease_writes: u64,
    pub(super) handovers: Histogram,
    pub(super) last_handover: Option<Duration>,
    pub(super) claims: Histogram,
    pub(super) last_claim: Option<Duration>,
    pub(super) held: usize,
    pub(super) releasing: usize,
    pub(super) claimed: usize,
}

impl Collect for ShardGroup {
    fn collect(&self, encoder: &mut Encoder) {
        let group = encoder.identity("group", &self.to_string());
        let group = ("group", &*group);
        let counters = self.state().lock_counters().clone();
        let states =
            [("held", counters.held), ("releasing", counters.releasing), ("claimed", counters.claimed)];
        for (state, ranges) in states {
            #[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
            let ranges = ranges as f64;
            encoder.gauge(
                "informer_shard_ranges",
                "Ranges of the member.",
                &[group, ("state", state)],
                ranges,
            );
        }
        let kinds = [("gained", counters.gained), ("released", counters.released), ("lost", counters.lost)];
        for (kind, moves) in kinds {
            let help = "Ranges that the member has gained, released or lost.";
            encoder.counter("informer_shard_moves_total", help, &[group, ("kind", kind)], moves);
        }
        let help = "Time from knowing that a range is assigned to the member until it acted for the range.";
        encoder.histogram("informer_shard_claim_seconds", help, &[group], &counters.claims);
        let help = "Time from the request to release a range until all work for it had ended.";
        encoder.histogram("informer_shard_handover_seconds", help, &[group], &counters.handovers);
        let ShardStatus { is_coordinator, highest_epoch, .. } = self.status();
        let is_coordinator = f64::from(u8::from(is_coordinator));
        let help = "Whether this process assigns the ranges.";
        encoder.gauge("informer_shard_is_coordinator", help, &[group], is_coordinator);
        #[expect(clippy::cast_precision_loss, reason = "gauges are floating-point numbers")]
        let highest_epoch = highest_epoch as f64;
        let help = "Highest epoch of the ranges for which the process acts.";
        encoder.gauge("informer_shard_highest_epoch", help, &[group], highest_epoch);
        let help = "Requests that create, renew or delete the Lease of the member.";
        encoder.counter("informer_shard_lease_writes_total", help, &[group], counters.lease_writes);
    }
}
