//! Memberships of one shard group in one process, on any server and clock, and a check that no two of them act for one
//! hash.

use informer::shard::{HashRanges, ShardGroup, ShardStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

/// Timeout of each wait, longer than all expected ones.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(120);

/// All memberships of a test. After each change of one, no two may act for one hash.
#[derive(Clone, Default)]
pub(crate) struct Groups {
    groups: Arc<Mutex<Vec<ShardGroup>>>,
    /// What was found by tasks, whose panics would not fail the test.
    violation: Arc<Mutex<Option<String>>>,
}

/// Returns the hashes for which a member acts at this moment.
pub(crate) fn acting(status: &ShardStatus) -> HashRanges {
    match status.acts_until {
        Some(until) if Instant::now() < until => status.held.union(&status.releasing),
        _ => HashRanges::default(),
    }
}

/// What a member acts for, and how often its ranges have changed.
struct Observation {
    identity: String,
    acting: HashRanges,
    changes: u64,
}

impl Observation {
    fn of(group: &ShardGroup) -> Self {
        let status = group.status();
        let changes = status.gained + status.released + status.lost;
        Self { acting: acting(&status), changes, identity: status.identity }
    }
}

impl Groups {
    fn add(&self, group: &ShardGroup) {
        self.groups.lock().unwrap().push(group.clone());
        let (groups, mut status) = (self.clone(), group.subscribe_status());
        tokio::spawn(async move {
            while status.changed().await.is_ok() {
                groups.observe();
            }
        });
    }

    /// Runs a membership.
    pub(crate) fn run(&self, group: ShardGroup) -> Member {
        self.add(&group);
        let (stop, stopped) = oneshot::channel::<()>();
        let running = group.clone();
        let task = tokio::spawn(async move { running.run(async { drop(stopped.await) }).await.unwrap() });
        Member { group, task, groups: self.clone(), stop: Some(stop) }
    }

    /// Records whether two members act for one hash; returns the hashes of all.
    ///
    /// On a clock that does not stand still, members are observed one after the other. So each is observed twice: one
    /// that has changed nothing in between acted when the others were observed.
    fn observe(&self) -> HashRanges {
        let groups = self.groups.lock().unwrap();
        let observations: Vec<Observation> = groups.iter().map(Observation::of).collect();
        let mut all = HashRanges::default();
        for (index, first) in observations.iter().enumerate() {
            let again = Observation::of(&groups[index]);
            let is_unchanged = again.changes == first.changes && again.acting == first.acting;
            let others = observations[index + 1..].iter();
            let other = others.filter(|_| is_unchanged).find(|other| overlap(&first.acting, &other.acting));
            if let Some(other) = other {
                let found = format!("{} and {} act for one range", first.identity, other.identity);
                self.violation.lock().unwrap().get_or_insert(found);
            }
            all = all.union(&first.acting);
        }
        all
    }

    /// Fails if two members have acted for one hash at the same time; returns the hashes of all.
    pub(crate) fn check(&self) -> HashRanges {
        let all = self.observe();
        assert_eq!(*self.violation.lock().unwrap(), None);
        all
    }
}

fn overlap(left: &HashRanges, right: &HashRanges) -> bool {
    right.iter().any(|range| left.overlaps(range))
}

/// A running membership.
pub(crate) struct Member {
    pub(crate) group: ShardGroup,
    pub(crate) task: JoinHandle<()>,
    groups: Groups,
    stop: Option<oneshot::Sender<()>>,
}

impl Member {
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

    /// Waits until the condition is met, and returns how long that took.
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
        let took = begun.elapsed();
        self.groups.check();
        took
    }

    /// Leaves the group in order.
    pub(crate) async fn stop(mut self) -> ShardGroup {
        drop(self.stop.take());
        let ended = timeout(TIMEOUT, self.task).await;
        ended.unwrap_or_else(|_| panic!("not in time: {:?}", self.group.status())).unwrap();
        self.groups.check();
        self.group
    }

    /// Ends the process as if it was killed.
    pub(crate) fn kill(self) -> ShardGroup {
        self.task.abort();
        self.group
    }
}
