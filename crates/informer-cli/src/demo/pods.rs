//! Lifecycle of a pod: scheduled, created, running, ready; crashing, evicted, deleted.

use super::objects::{self, EventDetails, Owner};
use super::status::{self, Crash, Facts, Phase};
use super::write::{Kind, ObjectId, Operation, Write, WriteResult};
use super::{Demo, ScheduledAction};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Owner of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnerId {
    /// A revision of a deployment.
    Set(usize, u32),
    Job(String),
}

/// A pod.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) at: ObjectId,
    pub(super) owner: OwnerId,
    pub(super) node: Option<usize>,
    pub(super) phase: Phase,
    uid: String,
    container: String,
    image: String,
    /// Whether its image can be pulled.
    healthy: bool,
    address: String,
    restarts: u32,
    /// Number of remaining crashes before the container recovers.
    crashes: u32,
    last_crash: Option<(Crash, Timestamp)>,
    created: Timestamp,
    placed: Timestamp,
    changed: Timestamp,
    /// Start time of its container.
    started: Timestamp,
    /// Counts changes of phase; actions scheduled before the last one are stale.
    step: u32,
}

/// Parameters of a new pod.
pub(super) struct NewPod<'a> {
    pub(super) owner: OwnerId,
    pub(super) by: Owner<'a>,
    pub(super) program: &'a super::catalogue::Program,
    pub(super) app: &'a str,
    pub(super) hash: &'a str,
    pub(super) image: &'a str,
    pub(super) healthy: bool,
}

impl Demo {
    /// Creates a pod.
    pub(super) fn create_pod(&mut self, new: &NewPod<'_>) -> u64 {
        let id = self.number();
        let mut at = ObjectId::new(Kind::Pod, new.program.namespace, "");
        loop {
            at.name = format!("{}-{}", new.by.name, self.rng.suffix(5));
            if !self.names.contains_key(&at) {
                break;
            }
        }
        // While the cluster is being built, pods are placed without a scheduler.
        let node = if self.starting { self.choose_node() } else { None };
        if let Some(node) = node.and_then(|at| self.nodes.get_mut(at)) {
            node.load += 1;
        }
        let node_name = node.and_then(|at| self.nodes.get(at)).map(|node| node.name.as_str());
        let object = objects::pod(new.program, &new.by, (new.app, new.hash), &at.name, new.image, node_name);
        let (now, number) = (self.now, id % 60_000);
        let pod = Pod {
            at: at.clone(),
            owner: new.owner.clone(),
            node,
            phase: if node.is_some() { Phase::Running } else { Phase::New },
            uid: String::new(),
            container: new.app.to_owned(),
            image: new.image.to_owned(),
            healthy: new.healthy,
            address: format!("10.{}.{}.{}", 128 + number / 62_500, number / 250 % 250, number % 250 + 2),
            restarts: 0,
            crashes: 0,
            last_crash: None,
            created: now,
            placed: now,
            changed: now,
            started: now,
            step: 0,
        };
        self.names.insert(at.clone(), id);
        self.pods.insert(id, pod);
        self.create(at, object);
        id
    }

    /// Executes the next step of a pod's lifecycle.
    pub(super) fn step(&mut self, id: u64, step: u32) {
        let Some(pod) = self.pods.get(&id).filter(|pod| pod.step == step) else { return };
        match pod.phase {
            Phase::New => self.place(id),
            Phase::Creating if !pod.healthy => {
                let message = format!("Failed to pull image \"{}\": not found", pod.image);
                self.become_phase(id, Phase::NoImage);
                self.record_pod_event(id, "Failed", &message, "kubelet");
            }
            Phase::Creating => self.run(id, "Started"),
            Phase::Running if matches!(pod.owner, OwnerId::Job(_)) => self.become_phase(id, Phase::Completed),
            Phase::Running if pod.crashes > 0 => self.crash(id, Crash::Error),
            Phase::Running => self.become_phase(id, Phase::Ready),
            Phase::Crashed(_) => {
                if let Some(pod) = self.pods.get_mut(&id) {
                    pod.restarts += 1;
                    pod.crashes = pod.crashes.saturating_sub(1);
                }
                self.run(id, "Started");
            }
            Phase::Evicted | Phase::Completed | Phase::Terminating => self.delete_pod(id),
            Phase::Ready | Phase::NoImage => {}
        }
    }

    /// Ends its container, which is then restarted.
    pub(super) fn crash(&mut self, id: u64, crash: Crash) {
        let now = self.now;
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.last_crash = Some((crash, now));
        let waits = pod.restarts > 0;
        self.become_phase(id, Phase::Crashed(crash));
        if crash == Crash::OutOfMemory {
            self.record_pod_event(
                id,
                "OOMKilling",
                "Memory cgroup out of memory: killed process",
                "kernel-monitor",
            );
        }
        if waits {
            self.record_pod_event(id, "BackOff", "Back-off restarting failed container", "kubelet");
        }
    }

    /// Sets the number of crashes before it recovers.
    pub(super) fn set_crashes(&mut self, id: u64, crashes: u32) {
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.crashes = crashes;
        }
    }

    pub(super) fn evict(&mut self, id: u64) {
        self.become_phase(id, Phase::Evicted);
        self.record_pod_event(id, "Evicted", "The node was low on resource: memory.", "kubelet");
    }

    /// Deletes the pod gracefully, as a controller does.
    pub(super) fn terminate(&mut self, id: u64) {
        let Some(pod) = self.pods.get(&id).filter(|pod| pod.phase != Phase::Terminating) else { return };
        let (at, placed) = (pod.at.clone(), pod.node.is_some());
        self.write(at, Operation::Delete);
        if placed {
            self.record_pod_event(id, "Killing", "Stopping container", "kubelet");
        }
        self.set_phase(id, Phase::Terminating);
    }

    /// Marks its status as changed; scheduled steps stay valid.
    pub(super) fn touch(&mut self, id: u64) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.changed = now;
        }
    }

    /// Writes its status.
    pub(super) fn write_pod_status(&mut self, id: u64) {
        let Some(pod) = self.pods.get(&id) else { return };
        let node = pod.node.and_then(|at| self.nodes.get(at));
        let facts = Facts {
            container: &pod.container,
            image: &pod.image,
            phase: pod.phase,
            restarts: pod.restarts,
            last_crash: pod.last_crash,
            address: &pod.address,
            host: node.map_or("", |node| &node.address),
            created: pod.created,
            placed: pod.placed,
            changed: pod.changed,
            started: pod.started,
            node_ready: node.is_some_and(|node| node.ready),
        };
        let (at, status) = (pod.at.clone(), status::pod(&facts));
        self.write(at, Operation::MergeStatus(status));
    }

    /// Reads some pods, because users may have deleted them.
    pub(super) fn reconcile_pods(&mut self) {
        let some = (self.pods.len() / 20).max(8);
        let next = self.pods.range((Bound::Excluded(self.last_read_pod), Bound::Unbounded)).take(some);
        let next: Vec<(u64, ObjectId)> = next.map(|(id, pod)| (*id, pod.at.clone())).collect();
        self.last_read_pod = next.last().map_or(0, |(id, _)| *id);
        for (_, at) in next {
            self.write(at, Operation::Read);
        }
        self.after(1000, ScheduledAction::ReconcilePods);
    }

    pub(super) fn handle_pod_result(&mut self, write: &Write, result: &WriteResult) {
        let Some(id) = self.names.get(&write.at).copied() else { return };
        match (result, &write.operation) {
            (WriteResult::Done(object), Operation::Create(_)) => {
                if let Some(pod) = self.pods.get_mut(&id) {
                    object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut pod.uid);
                }
                let placed = self.pods.get(&id).is_some_and(|pod| pod.node.is_some());
                if placed { self.become_phase(id, Phase::Ready) } else { self.plan(id) }
            }
            // Without grace period it is removed already; otherwise it is removed later.
            (WriteResult::Gone | WriteResult::Rejected, Operation::Create(_)) | (WriteResult::Gone, _) => {
                self.remove_pod(id);
            }
            (WriteResult::Rejected, Operation::Bind(_)) => self.unplace(id),
            (WriteResult::Done(object), Operation::Read)
                if object["metadata"]["deletionTimestamp"].is_string() =>
            {
                // A user deleted it.
                self.set_phase(id, Phase::Terminating);
            }
            _ => {}
        }
    }

    /// Forgets a pod that no longer exists.
    pub(super) fn remove_pod(&mut self, id: u64) {
        let Some(pod) = self.pods.remove(&id) else { return };
        self.names.remove(&pod.at);
        if let Some(node) = pod.node.and_then(|at| self.nodes.get_mut(at)) {
            node.load = node.load.saturating_sub(1);
        }
        match pod.owner {
            OwnerId::Set(app, revision) => self.set_lost(app, revision, id),
            OwnerId::Job(job) => self.job_lost_pod(&job),
        }
    }

    /// Deletes the pod immediately.
    pub(super) fn delete_pod(&mut self, id: u64) {
        let Some(pod) = self.pods.get(&id) else { return };
        let at = pod.at.clone();
        self.write(at, Operation::DeleteNow);
        self.remove_pod(id);
    }

    fn place(&mut self, id: u64) {
        let Some(node) = self.choose_node() else {
            self.write_pod_status(id);
            self.record_pod_event(
                id,
                "FailedScheduling",
                "0 nodes are available: no node is ready and schedulable.",
                "default-scheduler",
            );
            self.plan(id);
            return;
        };
        let now = self.now;
        let Some(pod) = self.pods.get_mut(&id) else { return };
        (pod.node, pod.placed) = (Some(node), now);
        let at = pod.at.clone();
        let Some(node) = self.nodes.get_mut(node) else { return };
        node.load += 1;
        let name = node.name.clone();
        let message = format!("Successfully assigned {}/{} to {name}", at.namespace, at.name);
        self.write(at, Operation::Bind(name));
        self.record_pod_event(id, "Scheduled", &message, "default-scheduler");
        self.become_phase(id, Phase::Creating);
    }

    fn unplace(&mut self, id: u64) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        if let Some(node) = pod.node.take().and_then(|at| self.nodes.get_mut(at)) {
            node.load = node.load.saturating_sub(1);
        }
        self.set_phase(id, Phase::New);
    }

    fn run(&mut self, id: u64, reason: &str) {
        self.become_phase(id, Phase::Running);
        let Some(container) = self.pods.get(&id).map(|pod| pod.container.clone()) else { return };
        self.record_pod_event(id, reason, &format!("Started container {container}"), "kubelet");
    }

    /// Changes its phase and writes its status.
    fn become_phase(&mut self, id: u64, phase: Phase) {
        self.set_phase(id, phase);
        self.write_pod_status(id);
        match self.pods.get(&id).map(|pod| pod.owner.clone()) {
            Some(OwnerId::Set(app, _)) => self.want_sync(app),
            Some(OwnerId::Job(job)) => self.job_moved(&job, phase),
            None => {}
        }
    }

    /// Changes its phase and schedules the next step.
    fn set_phase(&mut self, id: u64, phase: Phase) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(&id).filter(|pod| pod.phase != phase) {
            (pod.phase, pod.changed) = (phase, now);
            if phase == Phase::Running {
                pod.started = now;
            }
            self.plan(id);
        }
    }

    fn plan(&mut self, id: u64) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.step += 1;
        let (step, restarts) = (pod.step, i64::from(pod.restarts));
        let job = matches!(pod.owner, OwnerId::Job(_));
        let (low, high) = match pod.phase {
            Phase::New => (150, 600),
            Phase::Creating => (600, 3000),
            Phase::Running if job => (4000, 20_000),
            Phase::Running => (800, 4000),
            Phase::Crashed(_) => (1000 + restarts.min(5) * 3000, 2000 + restarts.min(5) * 4000),
            Phase::Evicted => (15_000, 30_000),
            Phase::Completed => (20_000, 40_000),
            Phase::Terminating => (500, 3000),
            Phase::Ready | Phase::NoImage => return,
        };
        let wait = self.rng.between(low, high);
        self.after(wait, ScheduledAction::Pod(id, step));
    }

    fn record_pod_event(&mut self, id: u64, reason: &str, message: &str, component: &str) {
        let Some(pod) = self.pods.get(&id) else { return };
        let (about, uid) = (pod.at.clone(), pod.uid.clone());
        self.record_event(&EventDetails { about: &about, uid: &uid, reason, message, component });
    }
}

/// Returns the ids of pods in a phase.
pub(super) fn in_phase(pods: &BTreeMap<u64, Pod>, phase: Phase) -> Vec<u64> {
    pods.iter().filter(|(_, pod)| pod.phase == phase).map(|(id, _)| *id).collect()
}
