//! A server that follows a schedule of faults.
//!
//! Each rule is in force for its time and for no longer. Which rules come when is decided by the schedule.

use std::time::Duration;

use super::ApiServer;
use crate::faults::{FaultGuard, Schedule};

impl Schedule {
    /// Has a server misbehave by this schedule for a while. Afterwards no rule of it is in force.
    pub async fn run(self, server: &ApiServer, time: Duration) {
        let began = tokio::time::Instant::now();
        let mut in_force: Vec<(Duration, FaultGuard)> = Vec::new();
        for turn in self.take_while(|turn| turn.start < time) {
            expire(&mut in_force, began, turn.start).await;
            in_force.push((turn.start + turn.duration, server.inject(turn.rule)));
        }
        expire(&mut in_force, began, time).await;
    }
}

/// Waits until a time of the schedule, and lets go of the rules that end before it, each when it ends.
async fn expire(in_force: &mut Vec<(Duration, FaultGuard)>, began: tokio::time::Instant, until: Duration) {
    in_force.sort_by_key(|(end, _)| *end);
    let over = in_force.partition_point(|(end, _)| *end <= until);
    for (end, fault) in in_force.drain(..over) {
        tokio::time::sleep_until(began + end).await;
        drop(fault);
    }
    tokio::time::sleep_until(began + until).await;
}
