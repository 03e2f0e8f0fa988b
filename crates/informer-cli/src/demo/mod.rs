//! A simulated demo cluster: deployments roll and scale, pods start, crash and are replaced, nodes fail and return,
//! jobs complete.
//!
//! [`Demo`] is a pure state machine: [`Demo::tick`] returns the operations to execute now,
//! [`Demo::handle_result`] receives their results. The demo takes the roles of controllers, scheduler and
//! kubelets. It periodically reads the objects that it depends on: a deployment that a user scales or updates
//! rolls, a pod that a user deletes is replaced. Rejected operations are skipped. The same seed, times and
//! results give the same operations. [`start`] runs the demo on a server.
//!
//! Invariants, see [`Demo::check_invariants`]: names are unique per kind; the node and the replica set or job
//! of a pod exist.

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
    /// The requested number of pods.
    size: usize,
    /// Whether the cluster is being built: actions are then executed immediately, and there are no incidents.
    starting: bool,
    /// Scheduled actions: their time, a number for the order of actions with the same time, and the action.
    queue: BinaryHeap<Reverse<(Timestamp, u64, ScheduledAction)>>,
    /// The last number returned by `next_number`, for everything that needs a number: queue order, pods,
    /// addresses, events.
    last_number: u64,
    /// Namespaces that have not been deleted.
    namespaces: Vec<&'static str>,
    nodes: Vec<Node>,
    apps: Vec<App>,
    pods: BTreeMap<u64, Pod>,
    /// The ids of the pods, by namespace and name.
    pod_ids: BTreeMap<ObjectId, u64>,
    jobs: BTreeMap<String, Job>,
    /// Recorded events, the oldest first; a server would expire them after an hour.
    events: VecDeque<ObjectId>,
    /// The last pod that `read_pods` has read; the next call continues after it.
    last_read_pod: u64,
    writes: Vec<Write>,
}

/// An action scheduled for a later time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum ScheduledAction {
    /// Moves a deployment closer to its desired state.
    Sync(usize),
    /// Reads a deployment.
    ReadApp(usize),
    /// Reads some pods.
    ReadPods,
    /// Executes a step of a pod's lifecycle, unless another step was scheduled since.
    StepPod(u64, u32),
    RenewLease(usize),
    /// Reads the nodes.
    ReadNodes,
    ReadNamespaces,
    /// Makes a lost node ready again.
    RestoreNode(usize),
    /// Registers a deleted node again.
    RegisterNode(usize),
    Uncordon(usize),
    /// Reverts an update that does not start.
    Rollback(usize),
    /// Deletes a completed job.
    DeleteJob(String),
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
            last_number: 0,
            namespaces: catalogue::NAMESPACES.to_vec(),
            nodes: Vec::new(),
            apps: Vec::new(),
            pods: BTreeMap::new(),
            pod_ids: BTreeMap::new(),
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
        while let Some(Reverse((time, ..))) = self.queue.peek()
            && *time <= self.now
        {
            let Some(Reverse((_, _, action))) = self.queue.pop() else { break };
            self.execute(action);
        }
        std::mem::take(&mut self.writes)
    }

    /// Returns the time of the next action.
    pub(crate) fn next_action_time(&self) -> Timestamp {
        self.queue.peek().map_or(self.now + SignedDuration::from_secs(60), |Reverse((time, ..))| *time)
    }

    /// Marks the cluster as complete and starts incidents.
    pub(crate) fn start_incidents(&mut self) {
        self.starting = false;
        self.schedule_after(1000, ScheduledAction::Incident);
        self.schedule_after(1000, ScheduledAction::ReadPods);
        self.schedule_after(1000, ScheduledAction::ReadNodes);
        self.schedule_after(1000, ScheduledAction::ReadNamespaces);
        for app_index in 0..self.apps.len() {
            let wait = self.rng.between(1000, 3000);
            self.schedule_after(wait, ScheduledAction::ReadApp(app_index));
        }
        for node_index in 0..self.nodes.len() {
            let wait = self.rng.between(0, nodes::LEASE_RENEW_PERIOD_MS);
            self.schedule_after(wait, ScheduledAction::RenewLease(node_index));
        }
    }

    /// Handles the result of an operation.
    pub(crate) fn handle_result(&mut self, write: &Write, result: &WriteResult) {
        let deleting = matches!(write.operation, Operation::Delete | Operation::DeleteNow);
        match write.object_id.kind {
            Kind::Pod => self.handle_pod_result(write, result),
            Kind::Deployment => self.handle_app_result(write, result),
            Kind::ReplicaSet if !deleting => self.handle_set_result(&write.object_id, result),
            Kind::Node => self.handle_node_result(write, result),
            Kind::Namespace => self.handle_namespace_result(write, result),
            Kind::Job if !deleting => self.handle_job_result(&write.object_id, result),
            _ => {}
        }
    }

    fn execute(&mut self, action: ScheduledAction) {
        match action {
            ScheduledAction::Sync(app) => self.sync(app),
            ScheduledAction::ReadApp(app) => self.read_app(app),
            ScheduledAction::ReadPods => self.read_pods(),
            ScheduledAction::StepPod(pod, step) => self.step(pod, step),
            ScheduledAction::RenewLease(node) => self.renew_lease(node),
            ScheduledAction::ReadNodes => self.read_nodes(),
            ScheduledAction::ReadNamespaces => self.read_namespaces(),
            ScheduledAction::RestoreNode(node) => self.restore_node(node),
            ScheduledAction::RegisterNode(node) => self.register_node(node),
            ScheduledAction::Uncordon(node) => {
                let cordoned = false;
                self.cordon(node, cordoned);
            }
            ScheduledAction::Rollback(app) => self.roll_back(app),
            ScheduledAction::DeleteJob(job) => self.delete_job(&job),
            ScheduledAction::Incident => self.run_incident(),
        }
    }

    /// Reads the namespaces, because a user may have deleted one.
    fn read_namespaces(&mut self) {
        for name in self.namespaces.clone() {
            self.write(ObjectId::new(Kind::Namespace, "", name), Operation::Read);
        }
        self.schedule_after(1000, ScheduledAction::ReadNamespaces);
    }

    /// Empties a namespace that a user deleted, and finalizes it.
    fn handle_namespace_result(&mut self, write: &Write, result: &WriteResult) {
        let is_deleted = match result {
            WriteResult::Done(object) => object["metadata"]["deletionTimestamp"].is_string(),
            WriteResult::Gone => true,
            WriteResult::Rejected => false,
        };
        if !is_deleted || matches!(write.operation, Operation::Create(_) | Operation::Finalize) {
            return;
        }
        self.delete_jobs(&write.object_id.name);
        self.clear_namespace(&write.object_id.name);
        if matches!(result, WriteResult::Gone) {
            self.namespaces.retain(|name| *name != write.object_id.name);
        } else {
            self.write(write.object_id.clone(), Operation::Finalize);
        }
    }

    /// Schedules an action after this many milliseconds, or immediately while the cluster is being built.
    fn schedule_after(&mut self, milliseconds: i64, action: ScheduledAction) {
        let wait = if self.starting { 0 } else { milliseconds };
        let time = self.now + SignedDuration::from_millis(wait);
        let order = self.next_number();
        self.queue.push(Reverse((time, order, action)));
    }

    fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn write(&mut self, object_id: ObjectId, operation: Operation) {
        self.writes.push(Write { object_id, operation });
    }

    fn create(&mut self, object_id: ObjectId, object: Value) {
        self.write(object_id, Operation::Create(object));
    }

    /// Creates an Event object, unless the cluster is being built. Beyond a limit, deletes the oldest one.
    fn record_event(&mut self, details: &EventDetails<'_>) {
        if self.starting {
            return;
        }
        let regarding = details.regarding;
        let namespace = if regarding.namespace.is_empty() { "default" } else { &regarding.namespace };
        let name = format!("{}.{:016x}", regarding.name, self.next_number());
        let object_id = ObjectId::new(Kind::Event, namespace, &name);
        self.create(object_id.clone(), objects::event(&name, details, self.now));
        self.events.push_back(object_id);
        if self.events.len() > 100 + 2 * self.size
            && let Some(oldest) = self.events.pop_front()
        {
            self.write(oldest, Operation::DeleteNow);
        }
    }

    /// Panics if an invariant is violated.
    #[cfg(test)]
    fn check_invariants(&self) {
        assert_eq!(self.pod_ids.len(), self.pods.len(), "names of pods must be unique");
        for (id, pod) in &self.pods {
            assert_eq!(self.pod_ids.get(&pod.object_id), Some(id), "a pod must be found by its name");
            assert!(pod.node.is_none_or(|node| node < self.nodes.len()), "the node of a pod must exist");
            match &pod.owner {
                pods::OwnerId::Set(app_index, set_id) => {
                    let set = self.apps[*app_index].sets.iter().find(|set| set.id == *set_id);
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
