//! Shard groups: several processes divide the objects of a cluster among themselves.
//!
//! [`informer_core::shard::Member`] and [`informer_core::shard::Coordinator`] make all decisions. The drivers in this
//! module send their requests, wait for deadlines and publish for which hashes this process may act.

mod assignment;
mod builder;
mod client;
mod coordinator;
mod describe;
mod lease;
mod member;
mod ranges;
mod state;
mod status;
mod watch;

#[cfg(test)]
mod tests;

pub use builder::{ShardGroupBuilder, ShardKey};
pub use describe::{GroupDescription, MemberDescription, RangeDescription, describe};
pub use informer_core::shard::{
    HashRange, HashRangeError, HashRanges, RangeCount, RangeLossReason, RangeToken, shard_hash,
};
pub use status::ShardStatus;

use crate::access::RequiredAccess;
use crate::election::{LeaderElector, Term};
use crate::error::ConfigError;
use crate::shard_view::ShardHandle;
use builder::Settings;
use client::GroupClient;
use coordinator::{CoordinatorParts, coordinate};
use informer_core::Object;
use informer_core::shard::{Coordinator, MAX_LEASE_DURATIONS, Member, ShardProperty};
use member::MemberDriver;
use state::{GroupState, Publisher};
use status::Counters;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, watch as channel};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;
use watch::{ObjectWatch, Objects, Selected};

/// The membership of this process in a shard group, the processes that divide objects among themselves.
///
/// Objects are divided by a hash of their namespace or uid ([`ShardKey`]). Each member acts for some ranges of hashes,
/// and no two members act for the same hash at the same time. Clones are handles of the same membership.
///
/// ```no_run
/// use informer::shard::{ShardGroup, shard_hash};
///
/// # async fn example(client: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
/// let group = ShardGroup::builder(client, "kube-system", "my-operator").build()?;
/// let member = group.clone();
/// let running = tokio::spawn(async move { member.run(std::future::pending()).await });
///
/// let mut status = group.subscribe_status();
/// status.wait_for(|status| status.is_settled).await?;
/// if group.owns_hash(shard_hash("shop")) {
///     println!("this process acts for the namespace shop");
/// }
/// # running.await??;
/// # Ok(())
/// # }
/// ```
///
/// # How it works
///
/// Each member has a Lease, `{group}-{identity}`, which it renews and in which it claims ranges. One of them, elected
/// with the Lease `{group}-coordinator`, writes into the config map `{group}-assignment` which member should have which
/// range, and deletes the Leases of members that have ended. All objects have the label `informer.rs/shard-group`,
/// except the Lease of the election. A member acts for a range when its claim is stored and no other Lease contains
/// one. The assignment is only a wish: if it is edited or deleted, no two members act for one hash.
///
/// A range that moves is released first: its running reconciles end in order, or are dropped after the
/// [timeout](ShardGroupBuilder::release_timeout), and then the next member claims it. Other ranges do not wait for that
/// work. A member that is stopped releases all ranges like this. The ranges of a member that was killed, or that cannot
/// reach the server, move when its Lease has expired, after 15 s unless [configured](ShardGroupBuilder::config); it
/// stops acting before that, `renew_deadline` after it sent the last successful renewal.
///
/// # Limits
///
/// Only the reconciles of [sharded controllers](crate::controller::Controller::sharded) are awaited and dropped. Handlers,
/// and work that has begun after a call of [`owns`](Self::owns), may continue when the next member acts.
/// Work that blocks its thread cannot be dropped. [`owns_hash`](Self::owns_hash) is exact in this case too, and a write
/// to another system carries the [token](Self::token), read before the work began, which that system compares with the
/// highest one it has seen. The clock may not count the time in which a virtual machine was paused, or the computer
/// suspended: afterwards, a process may act until its next renewal fails, so that only a receiver that compares tokens
/// rejects its writes.
/// If the Lease of a member that runs is deleted or loses its label, the ranges move when the Lease would have expired, or
/// when the member has noticed. A coordinator that was elected afterwards does not know of that Lease: then others may act
/// for the ranges until the member notices, at its next renewal.
///
/// # Load
///
/// At rest, each member sends two requests per `renew_deadline / 2`, a renewal and a read of the assignment, and those
/// of a candidate of the election. Only the coordinator watches the Leases; each member watches the assignment.
#[derive(Clone)]
pub struct ShardGroup(Arc<Membership>);

struct Membership {
    client: kube::Client,
    settings: Settings,
    state: Arc<GroupState>,
    /// Held while the membership runs.
    running: Mutex<()>,
}

impl ShardGroup {
    /// Returns a builder for a membership in the group `name`, whose objects are in `namespace`.
    ///
    /// Do not name one group in a namespace like another one followed by `-`, such as `web` and `web-cache`: if a member
    /// `cache-1` of the first and a member `1` of the second use the same Lease, one of them has to wait.
    pub fn builder(client: kube::Client, namespace: &str, name: &str) -> ShardGroupBuilder {
        ShardGroupBuilder::new(client, namespace, name)
    }

    fn from_parts(client: kube::Client, settings: Settings, state: Arc<GroupState>) -> Self {
        Self(Arc::new(Membership { client, settings, state, running: Mutex::new(()) }))
    }

    /// Returns by what the objects are divided.
    pub fn shard_by(&self) -> ShardKey {
        self.0.settings.shard_by
    }

    /// Returns the name of this member.
    pub fn identity(&self) -> &str {
        &self.0.settings.identity
    }

    /// Returns whether this process may begin work for a hash at this moment.
    ///
    /// It compares the clock with the time until which the process may act, so that a process that continues after it was
    /// stopped or throttled notices immediately that it has lost its ranges.
    pub fn owns_hash(&self, hash: u64) -> bool {
        self.state().handle.owns_hash(hash)
    }

    /// Returns whether this process acts for an object at this moment: by the hash of its namespace or uid.
    ///
    /// The key of an object is not enough if the group divides by uid. In such a group, do not call it for objects of a kind
    /// that a controller [`owns`](crate::controller::Controller::owns): these are divided by the uid of their owner.
    pub fn owns<K>(&self, object: &Object<K>) -> bool {
        let head = object.entry().head();
        let by_uid = || ShardProperty::Uid.hash(head);
        // Cluster-scoped objects are always divided by uid.
        let hash = self.shard_by().property().hash(head).or_else(by_uid);
        hash.is_some_and(|hash| self.owns_hash(hash))
    }

    /// Returns the token of the range that contains a hash; `None` if this process may not act for it at this moment.
    ///
    /// Work that is ending because its range is being released still has a token. Read the token before the work begins:
    /// later, the range may have been lost and gained again, and the token would be that of the new claim. A reconcile
    /// uses [`Context::range_token`](crate::controller::Context::range_token), which was read at that time.
    pub fn token(&self, hash: u64) -> Option<RangeToken> {
        self.state().token(hash)
    }

    /// Returns the state of the membership.
    pub fn status(&self) -> ShardStatus {
        self.state().status.borrow().clone()
    }

    /// Returns a receiver of the status. It is notified of each change, except that of
    /// [`acts_until`](ShardStatus::acts_until) by a renewal.
    pub fn subscribe_status(&self) -> channel::Receiver<ShardStatus> {
        self.state().status.subscribe()
    }

    /// Returns whether this member takes part in the group at this moment: it reaches the server, and either has ranges
    /// or was considered when they were divided.
    ///
    /// A member without ranges can be ready, for example if there are more members than ranges, or in a rolling update.
    pub fn is_ready(&self) -> bool {
        self.readiness_failure().is_none()
    }

    /// Returns the permissions that a member needs.
    pub fn required_access(&self) -> RequiredAccess {
        let mut access = RequiredAccess::default();
        self.0.settings.group.add_required_access(&mut access);
        access
    }

    /// Takes part in the group until `stop` completes. Then all ranges are released in order, and the Lease is deleted.
    ///
    /// A second call, also of a clone, waits until the first one has ended.
    ///
    /// # Errors
    ///
    /// Returns an error if the configuration is invalid. Failed requests are no errors: they are logged and retried.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the membership immediately: the process does not act for any range, and the Lease is not
    /// deleted but expires. Complete `stop` to release the ranges.
    pub async fn run(&self, stop: impl Future<Output = ()>) -> Result<(), ConfigError> {
        let _running = self.0.running.lock().await;
        let settings = &self.0.settings;
        let seed = crate::workqueue::seed();
        let machine = Member::new(&settings.identity, &settings.revision, settings.config, seed)?
            .with_key(settings.shard_by.name());
        let elector = LeaderElector::new(
            self.0.client.clone(),
            &settings.group.namespace,
            &settings.group.coordinator_lease(),
        );
        let elector = elector
            .identity(&settings.identity)
            .config(settings.config)?
            .max_lease_duration(settings.config.lease_duration.saturating_mul(MAX_LEASE_DURATIONS));
        let lease_duration = u32::try_from(settings.config.lease_duration.as_secs()).unwrap_or(u32::MAX);
        let client = Arc::new(GroupClient::new(
            self.0.client.clone(),
            settings.group.clone(),
            Arc::clone(&settings.identity),
            machine.record().instance,
            lease_duration,
        ));
        let run = self.state_arc().begin_run();
        let mut assignment = ObjectWatch::new(&client, &Selected::Assignment, seed);
        let versions = (assignment.subscribe(), assignment.subscribe());
        let ends = (channel::Sender::new(false), channel::Sender::new(false));
        // Dropping the sets aborts the tasks.
        let (mut member, mut coordinator, mut watch) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
        watch.spawn(assignment.run().in_current_span());
        let driver = self.member_driver(machine, &client, run.publisher(), versions.0);
        member.spawn(driver.run(ends.0.subscribe()).in_current_span());
        let coordination = self.run_coordinator(elector, client, versions.1, seed, ends.1.subscribe());
        coordinator.spawn(coordination.in_current_span());
        tokio::select! {
            biased;
            () = stop => {}
            // They end only by a panic.
            () = join(&mut member) => {}
            () = join(&mut coordinator) => {}
            () = join(&mut watch) => {}
        }
        ends.0.send_replace(true);
        join(&mut member).await;
        // The ranges of this member are assigned to others before another coordinator is elected.
        ends.1.send_replace(true);
        join(&mut coordinator).await;
        Ok(())
    }

    fn member_driver(
        &self,
        machine: Member,
        client: &Arc<GroupClient>,
        publisher: Publisher,
        assignment: channel::Receiver<Objects>,
    ) -> MemberDriver {
        let release_timeout = self.0.settings.release_timeout;
        MemberDriver::new(machine, Arc::clone(client), publisher, release_timeout, assignment)
    }

    /// Takes part in the election of the coordinator, until `end` becomes true.
    fn run_coordinator(
        &self,
        elector: LeaderElector,
        client: Arc<GroupClient>,
        assignment: channel::Receiver<Objects>,
        seed: u64,
        mut end: channel::Receiver<bool>,
    ) -> impl Future<Output = ()> + Send + 'static {
        let Settings { identity, config, count, .. } = self.0.settings.clone();
        let state = self.state_arc().clone();
        let work = move |term: Term| {
            let parts = CoordinatorParts {
                machine: Coordinator::new(count, config),
                client: Arc::clone(&client),
                identity: Arc::clone(&identity),
                state: Arc::clone(&state),
                assignment: assignment.clone(),
                seed,
            };
            coordinate(parts, term, config.retry_period)
        };
        async move {
            let stop = async { drop(end.wait_for(|end| *end).await) };
            // The configuration was checked, and the work ends only when it is asked to.
            if let Err(error) = elector.run(work, stop).await {
                tracing::error!(%error, "the election of the coordinator has failed");
            }
        }
    }

    /// Returns why this member does not take part in the group; `None` if it does.
    pub(crate) fn readiness_failure(&self) -> Option<String> {
        let status = self.status();
        let reason = if !status.is_running {
            "not running"
        } else if status.acts_until.is_none_or(|until| Instant::now() >= until) {
            "not renewed"
        } else if !status.is_considered && status.held.is_empty() {
            "not considered yet"
        } else {
            return None;
        };
        let error = status.last_error.map(|error| format!(": {error}")).unwrap_or_default();
        Some(format!("shard group {self}: member {}: {reason}{error}", status.identity))
    }

    /// Returns the ranges, the epoch and the moves of this member as a line.
    pub(crate) fn summary(&self) -> String {
        let counters = self.state().lock_counters().clone();
        let Counters { held, releasing, claimed, gained, released, lost, .. } = counters;
        let epoch = self.status().highest_epoch;
        let seconds = |duration: Option<Duration>| {
            duration.map(|duration| format!(" (last in {:.2} s)", duration.as_secs_f64())).unwrap_or_default()
        };
        let (claim, release) = (seconds(counters.last_claim), seconds(counters.last_handover));
        format!(
            "shard group {self}: {held} ranges held, {releasing} releasing, {claimed} claimed, highest epoch {epoch}; \
             moves so far: {gained} gained{claim}, {released} released{release}, {lost} lost"
        )
    }

    /// Returns what informers and controllers follow.
    pub(crate) fn handle(&self) -> &ShardHandle {
        &self.state().handle
    }

    /// Returns whether two handles are of the same membership.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn state(&self) -> &GroupState {
        &self.0.state
    }

    fn state_arc(&self) -> &Arc<GroupState> {
        &self.0.state
    }
}

/// Waits until the task of a set has ended, and continues its panic.
async fn join(tasks: &mut JoinSet<()>) {
    if let Some(Err(error)) = tasks.join_next().await
        && error.is_panic()
    {
        std::panic::resume_unwind(error.into_panic());
    }
}

/// Displays the namespace and the name of the group.
impl fmt::Display for ShardGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.settings.group.fmt(f)
    }
}

impl fmt::Debug for ShardGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShardGroup")
            .field("settings", &self.0.settings)
            .field("status", &self.status())
            .finish_non_exhaustive()
    }
}
