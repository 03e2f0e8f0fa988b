//! Members of one group in one runtime with a paused clock, and a check that no two of them act for one hash.

use informer::shard::{HashRanges, ShardGroup, ShardGroupBuilder, ShardStatus};
use informer_apiserver::ApiServer;
use serde_json::Value;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

pub(crate) const NAMESPACE: &str = "default";
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3600);

/// All memberships of a test. At each change of one, no two may act for one hash.
#[derive(Clone, Default)]
pub(crate) struct Groups(Arc<Mutex<Vec<ShardGroup>>>);

/// Returns the hashes for which a member acts at this moment.
pub(crate) fn acting(status: &ShardStatus) -> HashRanges {
    match status.acts_until {
        Some(until) if Instant::now() < until => status.held.union(&status.releasing),
        _ => HashRanges::default(),
    }
}

impl Groups {
    fn add(&self, group: &ShardGroup) {
        self.0.lock().unwrap().push(group.clone());
        let (groups, mut status) = (self.clone(), group.subscribe_status());
        tokio::spawn(async move {
            while status.changed().await.is_ok() {
                groups.check();
            }
        });
    }

    /// Runs a membership.
    pub(crate) fn run(&self, group: ShardGroup) -> Member {
        self.add(&group);
        let (stop, stopped) = oneshot::channel::<()>();
        let running = group.clone();
        let task = tokio::spawn(async move { running.run(async { drop(stopped.await) }).await.unwrap() });
        Member { group, task, stop: Some(stop) }
    }

    /// Fails if two members act for one hash; returns the hashes of all.
    pub(crate) fn check(&self) -> HashRanges {
        let mut all = HashRanges::default();
        for group in self.0.lock().unwrap().iter() {
            let status = group.status();
            let acting = acting(&status);
            let twice = acting.iter().find(|range| all.overlaps(range));
            assert_eq!(twice, None, "{} and another member act for one range", status.identity);
            all = all.union(&acting);
        }
        all
    }
}

/// A running membership.
pub(crate) struct Member {
    pub(crate) group: ShardGroup,
    pub(crate) task: JoinHandle<()>,
    stop: Option<oneshot::Sender<()>>,
}

impl Member {
    pub(crate) fn start(server: &ApiServer, groups: &Groups, identity: &str) -> Self {
        Self::start_with(server, groups, identity, |builder| builder)
    }

    pub(crate) fn start_with(
        server: &ApiServer,
        groups: &Groups,
        identity: &str,
        set: impl FnOnce(ShardGroupBuilder) -> ShardGroupBuilder,
    ) -> Self {
        let builder = ShardGroup::builder(server.client(), NAMESPACE, "shop").identity(identity);
        groups.run(set(builder).build().unwrap())
    }

    pub(crate) fn status(&self) -> ShardStatus {
        self.group.status()
    }

    /// Returns the part of all hashes for which the member acts, in ranges of which there are 256.
    pub(crate) fn ranges(&self) -> usize {
        let ranges = acting(&self.status()).share() * 256.0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        let whole = ranges.round() as usize;
        whole
    }

    /// Waits until the member acts for this number of ranges, and returns how long that took.
    pub(crate) async fn wait_for_ranges(&self, ranges: usize) -> Duration {
        let wait = self.wait_until(|member| member.ranges() == ranges);
        wait.await
    }

    pub(crate) async fn wait_until(&self, is_met: impl Fn(&Self) -> bool) -> Duration {
        let begun = Instant::now();
        let mut status = self.group.subscribe_status();
        let wait = async {
            while !is_met(self) {
                tokio::select! {
                    changed = status.changed() => changed.unwrap(),
                    // The time until which a member acts passes without a change.
                    () = tokio::time::sleep_until(Instant::now() + Duration::from_millis(200)) => {}
                }
            }
        };
        timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("not in time: {:?}", self.status()));
        begun.elapsed()
    }

    /// Leaves the group in order.
    pub(crate) async fn stop(mut self) -> ShardGroup {
        drop(self.stop.take());
        let ended = timeout(TIMEOUT, self.task).await;
        ended.unwrap_or_else(|_| panic!("not in time: {:?}", self.group.status())).unwrap();
        self.group
    }

    /// Ends the process as if it was killed.
    pub(crate) fn kill(self) -> ShardGroup {
        self.task.abort();
        self.group
    }
}

pub(crate) async fn pass(duration: Duration) {
    tokio::time::sleep_until(Instant::now() + duration).await;
}

pub(crate) fn lease(server: &ApiServer, identity: &str) -> Option<Value> {
    let name = format!("shop-{identity}");
    server.get("coordination.k8s.io/v1", "leases", Some(NAMESPACE), &name)
}

pub(crate) fn delete_lease(server: &ApiServer, identity: &str) {
    let name = format!("shop-{identity}");
    server.delete("coordination.k8s.io/v1", "leases", Some(NAMESPACE), &name).unwrap();
}

pub(crate) fn assignment(server: &ApiServer) -> Option<Value> {
    server.get("v1", "configmaps", Some(NAMESPACE), "shop-assignment")
}
