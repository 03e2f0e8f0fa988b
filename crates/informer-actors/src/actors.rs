//! The running actors of one server.
//!
//! A step lets each actor that has unseen changes, or is due, handle them, round after round, until a round
//! in which no actor has anything to do. The order of the actors is fixed. Each actor has its own random
//! numbers, so that adding one does not change what the others do.

use std::fmt;
use std::sync::Arc;

use informer_apiserver::ApiServer;
use jiff::Timestamp;

use crate::action::{Action, ActionLog};
use crate::cluster::{Actor, Cluster, Options};
use crate::mirror::Mirror;
use crate::random::Random;
use crate::{deployment, garbage, job, kubelet, namespace, node, replica_set, scheduler, stateful_set};

/// Number of nodes that are created by default if there are none.
const DEFAULT_NODES: usize = 2;

/// Maximum number of rounds in one step.
const MAX_ROUNDS: usize = 1_000;

/// A built-in actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ActorKind {
    /// Creates, scales and deletes the replica sets of deployments.
    Deployments,
    /// Creates and deletes the pods of replica sets.
    ReplicaSets,
    /// Creates and deletes the pods of stateful sets, in order.
    StatefulSets,
    /// Creates the pods of jobs and records their results.
    Jobs,
    /// Keeps the taints of nodes that follow from their state.
    Nodes,
    /// Binds pods to nodes.
    Scheduler,
    /// Runs the pods on all nodes.
    Kubelet,
    /// Deletes objects whose owners are gone.
    GarbageCollector,
    /// Empties and removes namespaces that are being deleted.
    Namespaces,
}

impl ActorKind {
    /// All built-in actors, in the order in which they step.
    pub const ALL: &'static [ActorKind] = &[
        ActorKind::Deployments,
        ActorKind::ReplicaSets,
        ActorKind::StatefulSets,
        ActorKind::Jobs,
        ActorKind::Nodes,
        ActorKind::Scheduler,
        ActorKind::Kubelet,
        ActorKind::GarbageCollector,
        ActorKind::Namespaces,
    ];

    /// Returns the name of the actor in actions and errors, for example `replica-sets`.
    pub fn name(self) -> &'static str {
        match self {
            ActorKind::Deployments => "deployments",
            ActorKind::ReplicaSets => "replica-sets",
            ActorKind::StatefulSets => "stateful-sets",
            ActorKind::Jobs => "jobs",
            ActorKind::Nodes => "nodes",
            ActorKind::Scheduler => "scheduler",
            ActorKind::Kubelet => "kubelet",
            ActorKind::GarbageCollector => "garbage-collector",
            ActorKind::Namespaces => "namespaces",
        }
    }

    fn actor(self) -> Box<dyn Actor + Send> {
        match self {
            ActorKind::Deployments => Box::new(deployment::Deployments::new()),
            ActorKind::ReplicaSets => Box::new(replica_set::ReplicaSets::new()),
            ActorKind::StatefulSets => Box::new(stateful_set::StatefulSets::new()),
            ActorKind::Jobs => Box::new(job::Jobs::new()),
            ActorKind::Nodes => Box::new(node::Nodes::new()),
            ActorKind::Scheduler => Box::new(scheduler::Scheduler::new()),
            ActorKind::Kubelet => Box::new(kubelet::Kubelet::new()),
            ActorKind::GarbageCollector => Box::new(garbage::GarbageCollector::new()),
            ActorKind::Namespaces => Box::new(namespace::Namespaces::new()),
        }
    }
}

/// The actors did not come to rest, from [`Actors::step`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ActorError {
    /// An actor still had something to do at the same time after the maximum number of rounds.
    #[error(
        "step actors: actor {actor} is still busy at {time} after {rounds} rounds (does it write in every step, or return a time that is not after now?)"
    )]
    Busy {
        /// The name of the actor that stepped in the last round.
        actor: String,
        /// The time of the step.
        time: Timestamp,
        /// The number of rounds.
        rounds: usize,
    },
}

/// The running actors of one server. See the documentation of the [crate](crate) for an example.
#[must_use]
pub struct Actors {
    server: ApiServer,
    mirror: Mirror,
    slots: Vec<Slot>,
    actions: ActionLog,
    options: Options,
    seed: u64,
    /// The name of the actor that is stepping.
    current: Option<Arc<str>>,
}

/// An actor and where it is.
struct Slot {
    actor: Box<dyn Actor + Send>,
    /// `None` for an actor of the user.
    kind: Option<ActorKind>,
    name: Arc<str>,
    random: Random,
    /// Sequence number of the next change to handle; `None` before the first step.
    position: Option<u64>,
    /// When the actor is due.
    due: Option<Timestamp>,
}

impl fmt::Debug for Actors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.slots.iter().map(|slot| &*slot.name).collect();
        out.debug_struct("Actors")
            .field("actors", &names)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Actors {
    /// Creates all built-in actors for a server. Equal seeds, times and writes of others give equal actions.
    pub fn new(server: ApiServer, seed: u64) -> Self {
        let options = Options {
            nodes: DEFAULT_NODES,
            failure_percent: 0,
            delay_percent: 100,
            container_creation: false,
        };
        let mut actors = Actors {
            mirror: Mirror::new(&server),
            server,
            slots: Vec::new(),
            actions: ActionLog::default(),
            options,
            seed,
            current: None,
        };
        for kind in ActorKind::ALL {
            actors.push(kind.actor(), Some(*kind));
        }
        actors
    }

    /// Keeps only these built-in actors.
    pub fn with_only(mut self, kinds: &[ActorKind]) -> Self {
        self.slots.retain(|slot| slot.kind.is_none_or(|kind| kinds.contains(&kind)));
        self
    }

    /// Switches a built-in actor off.
    pub fn without(mut self, kind: ActorKind) -> Self {
        self.slots.retain(|slot| slot.kind != Some(kind));
        self
    }

    /// Sets the number of nodes that the scheduler creates at the start if there are none. Defaults to 2.
    pub fn nodes(mut self, count: usize) -> Self {
        self.options.nodes = count;
        self
    }

    /// Sets the probability that a container fails after its start, in percent. Defaults to 0.
    ///
    /// Containers are restarted, except those of pods with restart policy `Never`, which fail. See also
    /// [`PodOutcome`](crate::PodOutcome).
    pub fn failure_percent(mut self, percent: u8) -> Self {
        self.options.failure_percent = percent;
        self
    }

    /// Sets the length of the delays of actors, in percent of the usual length. Defaults to 100.
    ///
    /// With 0, actors act immediately, pods are ready as soon as they start, and a step continues until the cluster
    /// is at rest. The delays after failures keep their length.
    pub fn delay_percent(mut self, percent: u32) -> Self {
        self.set_delay_percent(percent);
        self
    }

    /// Sets the length of delays like [`Actors::delay_percent`], from now on.
    pub fn set_delay_percent(&mut self, percent: u32) {
        self.options.delay_percent = percent;
    }

    /// Sets whether pods on a node have the state `ContainerCreating` until their containers start, which takes
    /// another write per pod. Defaults to `false`. Without delays, containers start at once.
    pub fn container_creation(mut self, is_written: bool) -> Self {
        self.options.container_creation = is_written;
        self
    }

    /// Adds an actor, which steps after those that were added before.
    pub fn add(&mut self, actor: Box<dyn Actor + Send>) {
        self.push(actor, None);
    }

    /// Returns the server.
    pub fn server(&self) -> &ApiServer {
        &self.server
    }

    /// Lets all actors handle what changed and what is due at `now`, until none has anything left to do at
    /// this time.
    ///
    /// Returns when something is due next; `None` if the actors wait for changes by others only. `now` should
    /// not go back.
    pub fn step(&mut self, now: Timestamp) -> Result<Option<Timestamp>, ActorError> {
        for _ in 0..MAX_ROUNDS {
            if self.run_round(now).is_none() {
                self.mirror.drop_changes_before(self.mirror.log_end());
                return Ok(self.slots.iter().filter_map(|slot| slot.due).min());
            }
            let handled = self.slots.iter().filter_map(|slot| slot.position).min();
            self.mirror.drop_changes_before(handled.unwrap_or(u64::MAX));
        }
        let actor = self.run_round(now);
        Err(ActorError::Busy {
            actor: actor.as_deref().unwrap_or("unknown").to_owned(),
            time: now,
            rounds: MAX_ROUNDS,
        })
    }

    /// Returns the name of the actor that is stepping; after a panic, of the one that panicked.
    pub fn current(&self) -> Option<&str> {
        self.current.as_deref()
    }

    /// Returns the writes since the last call, oldest first: at most the last 10,000.
    pub fn take_actions(&mut self) -> Vec<Action> {
        self.actions.take()
    }

    fn push(&mut self, actor: Box<dyn Actor + Send>, kind: Option<ActorKind>) {
        let name: Arc<str> = kind.map_or_else(|| actor.name().into(), |kind| kind.name().into());
        let random = Random::for_part(self.seed, &name);
        self.slots.push(Slot { actor, kind, name, random, position: None, due: None });
    }

    /// Lets each actor step that has something to do. Returns the name of the last one.
    fn run_round(&mut self, now: Timestamp) -> Option<Arc<str>> {
        let mut last = None;
        for slot in &mut self.slots {
            self.mirror.refresh();
            let end = self.mirror.log_end();
            if slot.position == Some(end) && slot.due.is_none_or(|due| due > now) {
                continue;
            }
            let mut cluster = Cluster {
                server: &self.server,
                mirror: &mut self.mirror,
                actions: &mut self.actions,
                random: &mut slot.random,
                options: &self.options,
                actor: &slot.name,
                now,
                unseen: slot.position.map(|position| (position, end)),
            };
            self.current = Some(slot.name.clone());
            slot.due = slot.actor.step(&mut cluster);
            self.current = None;
            slot.position = Some(end);
            last = Some(slot.name.clone());
        }
        last
    }
}
