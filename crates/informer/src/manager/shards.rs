//! The memberships in shard groups that a manager runs.

use crate::shard::ShardGroup;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument as _;

use super::run::wait_until_true;

/// Running memberships. They end without releasing their ranges when this is dropped.
pub(super) struct RunningGroups {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl RunningGroups {
    pub(super) fn start(groups: &[ShardGroup]) -> Self {
        let (stop, mut tasks) = (watch::Sender::new(false), JoinSet::new());
        for group in groups {
            let (group, stop) = (group.clone(), wait_until_true(stop.subscribe()));
            let run = async move {
                // Cannot fail: the settings of the group were checked.
                if let Err(error) = group.run(stop).await {
                    tracing::error!(%group, %error, "the membership in a shard group has failed");
                }
            };
            tasks.spawn(run.in_current_span());
        }
        Self { stop, tasks }
    }

    /// Begins to leave all groups in order: ranges without running work move to other members at once.
    pub(super) fn begin_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Leaves all groups in order. Memberships that have not ended after `timeout` are dropped: their Leases expire.
    ///
    /// A membership that panicked has ended; its ranges move when its Lease has expired.
    pub(super) async fn stop(mut self, timeout: Duration) {
        self.begin_stop();
        let end = async {
            while let Some(ended) = self.tasks.join_next().await {
                if let Err(error) = ended {
                    tracing::error!(%error, "the membership in a shard group has failed");
                }
            }
        };
        if tokio::time::timeout(timeout, end).await.is_err() {
            tracing::error!(
                "the ranges of a shard group are not released, because work for them has not ended"
            );
        }
    }
}
