//! A simulated demo cluster: deployments roll and scale, pods start, crash and are replaced, nodes fail and return,
//! jobs complete.
//!
//! [`Demo`] is a pure state machine: [`Demo::tick`] returns the operations to execute now, [`Demo::handle_result`] receives
//! their results. It takes the roles of controllers, scheduler and kubelets, and periodically reads the objects it
//! depends on: a deployment that a user scales or updates rolls, a pod that a user deletes is replaced. Rejected
//! operations are skipped. The same seed, times and results give the same operations. [`start`] runs it on a server.
//!
//! Invariants, see [`Demo::check_invariants`]: names are unique per kind, the node of a pod exists, and so does its
//! replica set or job.

mod app;
mod apps;
mod catalogue;
mod driver;
mod incidents;
mod jobs;
mod nodes;
mod objects;
mod pods;
mod rng;
mod status;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use driver::{Running, start};
pub(crate) use rng::any_seed;

use app::App;
use jiff::{SignedDuration, Timestamp};
use jobs::Job;
use nodes::Node;
use objects::EventDetails;
use pods::Pod;
use rng::DemoRng;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use write::{Kind, ObjectId, Operation, Write, WriteResult};

/// State of the demo cluster.
#[derive(Debug)]
pub(crate) struct Demo {
    rng: DemoRng,
    now: Timestamp,
    size: usize,
    /// Until the cluster is complete, pods are ready immediately and there are no incidents.
    starting: bool,
    queue: BinaryHeap<Reverse<(Timestamp, u64, ScheduledAction)>>,
    /// Counter for everything that needs a number: queue order, pods, addresses, events.
    count: u64,
    /// Namespaces that have not been deleted.
    namespaces: Vec<&'static str>,
    nodes: Vec<Node>,
    apps: Vec<App>,
    pods: BTreeMap<u64, Pod>,
    /// Pods by namespace and name.
    names: BTreeMap<ObjectId, u64>,
    jobs: BTreeMap<String, Job>,
    /// Recorded events, the oldest first; a server would expire them after an hour.
    events: VecDeque<ObjectId>,
    /// Last pod that was read.
    last_read_pod: u64,
    writes: Vec<Write>,
}

/// An action scheduled for a later time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ScheduledAction {
    /// Moves a deployment closer to its desired state.
    Sync(usize),
    /// Reads a deployment.
    ReconcileApp(usize),
    /// Reads some pods.
    ReconcilePods,
    /// Executes the next step of a pod's lifecycle, unless it has changed since.
    Pod(u64, u32),
    /// Renews the Lease of a node.
    Lease(usize),
    /// Reads the nodes.
    ReconcileNodes,
    ReconcileNamespaces,
    /// Brings a node back.
    Back(usize),
    /// Registers a deleted node again.
    Register(usize),
    Uncordon(usize),
    /// Reverts an update that does not start.
    Rollback(usize),
    /// Deletes a completed job.
    Forget(String),
    /// Executes a random incident.
    Incident,
}

impl Demo {
    /// Creates a cluster of about this many pods.
    pub(crate) fn new(seed: u64, pods: usize, now: Timestamp) -> Self {
        let mut demo = Self {
            rng: DemoRng::new(seed),
            now,
            size: pods,
            starting: true,
            queue: BinaryHeap::new(),
            count: 0,
            namespaces: catalogue::NAMESPACES.to_vec(),
            nodes: Vec::new(),
            apps: Vec::new(),
            pods: BTreeMap::new(),
            names: BTreeMap::new(),
            jobs: BTreeMap::new(),
            events: VecDeque::new(),
            last_read_pod: 0,
            writes: Vec::new(),
        };
        for name in catalogue::NAMESPACES {
            demo.create(ObjectId::new(Kind::Namespace, "", name), objects::namespace(name));
        }
        demo.add_nodes(catalogue::nodes(pods));
        for planned in catalogue::plan(pods) {
            demo.add_app(planned);
        }
        demo
    }

    /// Returns the operations to execute now, in this order.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<Write> {
        self.now = self.now.max(now);
        while let Some(Reverse((at, ..))) = self.queue.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, action))) = self.queue.pop() else { break };
            self.execute(action);
        }
        std::mem::take(&mut self.writes)
    }

    /// Returns the time of the next action.
    pub(crate) fn next(&self) -> Timestamp {
        self.queue.peek().map_or(self.now + SignedDuration::from_secs(60), |Reverse((at, ..))| *at)
    }

    /// Marks the cluster as complete and starts incidents.
    pub(crate) fn start_incidents(&mut self) {
        self.starting = false;
        self.after(1000, ScheduledAction::Incident);
        self.after(1000, ScheduledAction::ReconcilePods);
        self.after(1000, ScheduledAction::ReconcileNodes);
        self.after(1000, ScheduledAction::ReconcileNamespaces);
        for at in 0..self.apps.len() {
            let wait = self.rng.between(1000, 3000);
            self.after(wait, ScheduledAction::ReconcileApp(at));
        }
        for at in 0..self.nodes.len() {
            let wait = self.rng.between(0, nodes::LEASE_RENEW_PERIOD_MS);
            self.after(wait, ScheduledAction::Lease(at));
        }
    }

    /// Handles the result of an operation.
    pub(crate) fn handle_result(&mut self, write: &Write, result: &WriteResult) {
        let deleting = matches!(write.operation, Operation::Delete | Operation::DeleteNow);
        match write.at.kind {
            Kind::Pod => self.handle_pod_result(write, result),
            Kind::Deployment => self.handle_app_result(write, result),
            Kind::ReplicaSet if !deleting => self.handle_set_result(&write.at, result),
            Kind::Node => self.handle_node_result(write, result),
            Kind::Namespace => self.handle_namespace_result(write, result),
            Kind::Job if !deleting => self.handle_job_result(&write.at, result),
            _ => {}
        }
    }

    fn execute(&mut self, action: ScheduledAction) {
        match action {
            ScheduledAction::Sync(app) => self.sync(app),
            ScheduledAction::ReconcileApp(app) => self.reconcile_app(app),
            ScheduledAction::ReconcilePods => self.reconcile_pods(),
            ScheduledAction::Pod(pod, step) => self.step(pod, step),
            ScheduledAction::Lease(node) => self.renew(node),
            ScheduledAction::ReconcileNodes => self.reconcile_nodes(),
            ScheduledAction::ReconcileNamespaces => self.reconcile_namespaces(),
            ScheduledAction::Back(node) => self.node_back(node),
            ScheduledAction::Register(node) => self.register(node),
            ScheduledAction::Uncordon(node) => self.cordon(node, false),
            ScheduledAction::Rollback(app) => self.roll_back(app),
            ScheduledAction::Forget(job) => self.forget_job(&job),
            ScheduledAction::Incident => self.incident(),
        }
    }

    fn reconcile_namespaces(&mut self) {
        for name in self.namespaces.clone() {
            self.write(ObjectId::new(Kind::Namespace, "", name), Operation::Read);
        }
        self.after(1000, ScheduledAction::ReconcileNamespaces);
    }

    /// Empties a namespace that a user deleted, and finalizes it.
    fn handle_namespace_result(&mut self, write: &Write, result: &WriteResult) {
        let ends = match result {
            WriteResult::Done(object) => object["metadata"]["deletionTimestamp"].is_string(),
            WriteResult::Gone => true,
            WriteResult::Rejected => false,
        };
        if !ends || matches!(write.operation, Operation::Create(_) | Operation::Finalize) {
            return;
        }
        self.drop_jobs(&write.at.name);
        self.clear_namespace(&write.at.name);
        if matches!(result, WriteResult::Gone) {
            self.namespaces.retain(|name| *name != write.at.name);
        } else {
            self.write(write.at.clone(), Operation::Finalize);
        }
    }

    /// Schedules an action after this many milliseconds.
    fn after(&mut self, milliseconds: i64, action: ScheduledAction) {
        let wait = if self.starting { 0 } else { milliseconds };
        let at = self.now + SignedDuration::from_millis(wait);
        let order = self.number();
        self.queue.push(Reverse((at, order, action)));
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn write(&mut self, at: ObjectId, operation: Operation) {
        self.writes.push(Write { at, operation });
    }

    fn create(&mut self, at: ObjectId, object: Value) {
        self.write(at, Operation::Create(object));
    }

    /// Creates an Event object.
    fn record_event(&mut self, report: &EventDetails<'_>) {
        if self.starting {
            return;
        }
        let namespace = if report.about.namespace.is_empty() { "default" } else { &report.about.namespace };
        let name = format!("{}.{:016x}", report.about.name, self.number());
        let at = ObjectId::new(Kind::Event, namespace, &name);
        self.create(at.clone(), objects::event(&name, report, self.now));
        self.events.push_back(at);
        if self.events.len() > 100 + 2 * self.size
            && let Some(oldest) = self.events.pop_front()
        {
            self.write(oldest, Operation::DeleteNow);
        }
    }

    /// Panics if an invariant is violated.
    #[cfg(test)]
    fn check_invariants(&self) {
        assert_eq!(self.names.len(), self.pods.len(), "names of pods must be unique");
        for (id, pod) in &self.pods {
            assert_eq!(self.names.get(&pod.at), Some(id), "a pod must be found by its name");
            assert!(pod.node.is_none_or(|node| node < self.nodes.len()), "the node of a pod must exist");
            match &pod.owner {
                pods::OwnerId::Set(app, id_of_set) => {
                    let set = self.apps[*app].sets.iter().find(|set| set.id == *id_of_set);
                    assert!(
                        set.is_some_and(|set| set.pods.contains(id)),
                        "a pod must belong to its replica set"
                    );
                }
                pods::OwnerId::Job(job) => {
                    assert!(self.jobs.contains_key(job), "the job of a pod must exist");
                }
            }
        }
        for app in &self.apps {
            let mut ids: Vec<u32> = app.sets.iter().map(|set| set.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), app.sets.len(), "ids of replica sets must be unique");
            for set in &app.sets {
                assert!(
                    set.pods.iter().all(|pod| self.pods.contains_key(pod)),
                    "pods of a replica set must exist"
                );
            }
        }
        let mut nodes: Vec<&str> = self.nodes.iter().map(|node| &*node.name).collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), self.nodes.len(), "names of nodes must be unique");
    }
}
