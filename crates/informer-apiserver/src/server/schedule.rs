//! Runs a schedule of faults on a server.
//!
//! Each rule is active for its scheduled duration only. The schedule decides which rules start when.

use std::time::Duration;

use super::ApiServer;
use crate::faults::{FaultGuard, Schedule};

impl Schedule {
    /// Injects the faults of this schedule into a server for `duration`, then removes those that are still
    /// active.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future removes the rules that are active.
    pub async fn run(self, server: &ApiServer, duration: Duration) {
        let started = tokio::time::Instant::now();
        let mut active: Vec<(Duration, FaultGuard)> = Vec::new();
        for fault in self.take_while(|fault| fault.start < duration) {
            expire(&mut active, started, fault.start).await;
            active.push((fault.start + fault.duration, server.inject(fault.rule)));
        }
        expire(&mut active, started, duration).await;
    }
}

/// Waits until `until`, and removes each rule whose end is reached meanwhile.
///
/// `until` and the ends in `active` are relative to `started`, the start of the schedule.
async fn expire(active: &mut Vec<(Duration, FaultGuard)>, started: tokio::time::Instant, until: Duration) {
    active.sort_by_key(|(end, _)| *end);
    let ended = active.partition_point(|(end, _)| *end <= until);
    for (end, guard) in active.drain(..ended) {
        tokio::time::sleep_until(started + end).await;
        drop(guard);
    }
    tokio::time::sleep_until(started + until).await;
}
