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
    /// A replica set: the index of its deployment, and its id.
    Set(usize, u32),
    Job(String),
}

/// A pod.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) object_id: ObjectId,
    pub(super) owner: OwnerId,
    pub(super) node: Option<usize>,
    pub(super) phase: Phase,
    uid: String,
    container: String,
    image: String,
    /// Whether the image can be pulled.
    healthy: bool,
    address: String,
    restarts: u32,
    /// Number of remaining crashes before the container recovers.
    crashes: u32,
    last_crash: Option<(Crash, Timestamp)>,
    created: Timestamp,
    scheduled: Timestamp,
    changed: Timestamp,
    /// Start time of the container.
    started: Timestamp,
    /// Number of the last scheduled step; earlier steps are stale.
    step: u32,
}

/// Parameters of a new pod.
pub(super) struct NewPod<'a> {
    pub(super) owner: OwnerId,
    /// The owner, as its reference in the object.
    pub(super) controller: Owner<'a>,
    pub(super) program: &'a super::catalogue::Program,
    pub(super) app: &'a str,
    pub(super) hash: &'a str,
    pub(super) image: &'a str,
    pub(super) healthy: bool,
}

impl Demo {
    /// Creates a pod and returns its id.
    pub(super) fn create_pod(&mut self, new: &NewPod<'_>) -> u64 {
        let id = self.next_number();
        let mut object_id = ObjectId::new(Kind::Pod, new.program.namespace, "");
        loop {
            object_id.name = format!("{}-{}", new.controller.name, self.rng.suffix(5));
            if !self.pod_ids.contains_key(&object_id) {
                break;
            }
        }
        // While the cluster is being built, pods are created with their node, without a scheduler.
        let node = if self.starting { self.choose_node() } else { None };
        if let Some(node) = node.and_then(|index| self.nodes.get_mut(index)) {
            node.load += 1;
        }
        let node_name = node.and_then(|index| self.nodes.get(index)).map(|node| node.name.as_str());
        let labels = (new.app, new.hash);
        let object =
            objects::pod(new.program, &new.controller, labels, &object_id.name, new.image, node_name);
        let (now, number) = (self.now, id % 60_000);
        let pod = Pod {
            object_id: object_id.clone(),
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
            scheduled: now,
            changed: now,
            started: now,
            step: 0,
        };
        self.pod_ids.insert(object_id.clone(), id);
        self.pods.insert(id, pod);
        self.create(object_id, object);
        id
    }

    /// Executes a step of a pod's lifecycle, unless another step was scheduled since.
    pub(super) fn step(&mut self, id: u64, step: u32) {
        let Some(pod) = self.pods.get(&id).filter(|pod| pod.step == step) else { return };
        match pod.phase {
            Phase::New => self.schedule_pod(id),
            Phase::Creating if !pod.healthy => {
                let message = format!("Failed to pull image \"{}\": not found", pod.image);
                self.enter_phase(id, Phase::NoImage);
                self.record_pod_event(id, "Failed", &message, "kubelet");
            }
            Phase::Creating => self.run(id, "Started"),
            Phase::Running if matches!(pod.owner, OwnerId::Job(_)) => self.enter_phase(id, Phase::Completed),
            Phase::Running if pod.crashes > 0 => self.crash(id, Crash::Error),
            Phase::Running => self.enter_phase(id, Phase::Ready),
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

    /// Ends the container of a pod; the next step restarts the container.
    pub(super) fn crash(&mut self, id: u64, crash: Crash) {
        let now = self.now;
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.last_crash = Some((crash, now));
        let is_backing_off = pod.restarts > 0;
        self.enter_phase(id, Phase::Crashed(crash));
        if crash == Crash::OutOfMemory {
            self.record_pod_event(
                id,
                "OOMKilling",
                "Memory cgroup out of memory: killed process",
                "kernel-monitor",
            );
        }
        if is_backing_off {
            self.record_pod_event(id, "BackOff", "Back-off restarting failed container", "kubelet");
        }
    }

    /// Sets the number of crashes before the container of a pod recovers.
    pub(super) fn set_crashes(&mut self, id: u64, crashes: u32) {
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.crashes = crashes;
        }
    }

    pub(super) fn evict(&mut self, id: u64) {
        self.enter_phase(id, Phase::Evicted);
        self.record_pod_event(id, "Evicted", "The node was low on resource: memory.", "kubelet");
    }

    /// Deletes a pod gracefully, as a controller does.
    pub(super) fn terminate(&mut self, id: u64) {
        let Some(pod) = self.pods.get(&id).filter(|pod| pod.phase != Phase::Terminating) else { return };
        let (object_id, scheduled) = (pod.object_id.clone(), pod.node.is_some());
        self.write(object_id, Operation::Delete);
        if scheduled {
            self.record_pod_event(id, "Killing", "Stopping container", "kubelet");
        }
        self.set_phase(id, Phase::Terminating);
    }

    /// Marks the status of a pod as changed; scheduled steps stay valid.
    pub(super) fn touch(&mut self, id: u64) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.changed = now;
        }
    }

    /// Writes the status of a pod.
    pub(super) fn write_pod_status(&mut self, id: u64) {
        let Some(pod) = self.pods.get(&id) else { return };
        let node = pod.node.and_then(|index| self.nodes.get(index));
        let facts = Facts {
            container: &pod.container,
            image: &pod.image,
            phase: pod.phase,
            restarts: pod.restarts,
            last_crash: pod.last_crash,
            address: &pod.address,
            host: node.map_or("", |node| &node.address),
            created: pod.created,
            scheduled: pod.scheduled,
            changed: pod.changed,
            started: pod.started,
            node_ready: node.is_some_and(|node| node.ready),
        };
        let (object_id, status) = (pod.object_id.clone(), status::pod(&facts));
        self.write(object_id, Operation::MergeStatus(status));
    }

    /// Reads the next few pods, because users may have deleted them. After the last pod, starts again with
    /// the first.
    pub(super) fn read_pods(&mut self) {
        let count = (self.pods.len() / 20).max(8);
        let next = self.pods.range((Bound::Excluded(self.last_read_pod), Bound::Unbounded)).take(count);
        let next: Vec<(u64, ObjectId)> = next.map(|(id, pod)| (*id, pod.object_id.clone())).collect();
        self.last_read_pod = next.last().map_or(0, |(id, _)| *id);
        for (_, object_id) in next {
            self.write(object_id, Operation::Read);
        }
        self.schedule_after(1000, ScheduledAction::ReadPods);
    }

    pub(super) fn handle_pod_result(&mut self, write: &Write, result: &WriteResult) {
        let Some(id) = self.pod_ids.get(&write.object_id).copied() else { return };
        match (result, &write.operation) {
            (WriteResult::Done(object), Operation::Create(_)) => {
                if let Some(pod) = self.pods.get_mut(&id) {
                    object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut pod.uid);
                }
                let scheduled = self.pods.get(&id).is_some_and(|pod| pod.node.is_some());
                if scheduled { self.enter_phase(id, Phase::Ready) } else { self.schedule_step(id) }
            }
            // The pod was not created, or it no longer exists. During the grace period of a deletion the pod
            // still exists; it is removed later.
            (WriteResult::Gone | WriteResult::Rejected, Operation::Create(_)) | (WriteResult::Gone, _) => {
                self.remove_pod(id);
            }
            (WriteResult::Rejected, Operation::Bind(_)) => self.unschedule_pod(id),
            (WriteResult::Done(object), Operation::Read)
                if object["metadata"]["deletionTimestamp"].is_string() =>
            {
                // A user deleted the pod.
                self.set_phase(id, Phase::Terminating);
            }
            _ => {}
        }
    }

    /// Forgets a pod that no longer exists.
    pub(super) fn remove_pod(&mut self, id: u64) {
        let Some(pod) = self.pods.remove(&id) else { return };
        self.pod_ids.remove(&pod.object_id);
        if let Some(node) = pod.node.and_then(|index| self.nodes.get_mut(index)) {
            node.load = node.load.saturating_sub(1);
        }
        match pod.owner {
            OwnerId::Set(app_index, set_id) => self.remove_pod_from_set(app_index, set_id, id),
            OwnerId::Job(job) => self.handle_job_pod_removal(&job),
        }
    }

    /// Deletes a pod immediately.
    pub(super) fn delete_pod(&mut self, id: u64) {
        let Some(pod) = self.pods.get(&id) else { return };
        let object_id = pod.object_id.clone();
        self.write(object_id, Operation::DeleteNow);
        self.remove_pod(id);
    }

    /// Binds a pod to a node, as kube-scheduler does; without a schedulable node, tries again later.
    fn schedule_pod(&mut self, id: u64) {
        let Some(node) = self.choose_node() else {
            self.write_pod_status(id);
            self.record_pod_event(
                id,
                "FailedScheduling",
                "0 nodes are available: no node is ready and schedulable.",
                "default-scheduler",
            );
            self.schedule_step(id);
            return;
        };
        let now = self.now;
        let Some(pod) = self.pods.get_mut(&id) else { return };
        (pod.node, pod.scheduled) = (Some(node), now);
        let object_id = pod.object_id.clone();
        let Some(node) = self.nodes.get_mut(node) else { return };
        node.load += 1;
        let node_name = node.name.clone();
        let message =
            format!("Successfully assigned {}/{} to {node_name}", object_id.namespace, object_id.name);
        self.write(object_id, Operation::Bind(node_name));
        self.record_pod_event(id, "Scheduled", &message, "default-scheduler");
        self.enter_phase(id, Phase::Creating);
    }

    /// Takes a pod off its node, because the server rejected the binding.
    fn unschedule_pod(&mut self, id: u64) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        if let Some(node) = pod.node.take().and_then(|index| self.nodes.get_mut(index)) {
            node.load = node.load.saturating_sub(1);
        }
        self.set_phase(id, Phase::New);
    }

    fn run(&mut self, id: u64, reason: &str) {
        self.enter_phase(id, Phase::Running);
        let Some(container) = self.pods.get(&id).map(|pod| pod.container.clone()) else { return };
        self.record_pod_event(id, reason, &format!("Started container {container}"), "kubelet");
    }

    /// Changes the phase of a pod, writes its status and informs its owner.
    fn enter_phase(&mut self, id: u64, phase: Phase) {
        self.set_phase(id, phase);
        self.write_pod_status(id);
        match self.pods.get(&id).map(|pod| pod.owner.clone()) {
            Some(OwnerId::Set(app_index, _)) => self.schedule_sync(app_index),
            Some(OwnerId::Job(job)) => self.handle_job_pod_phase(&job, phase),
            None => {}
        }
    }

    /// Changes the phase of a pod and schedules the next step; does not write the status.
    fn set_phase(&mut self, id: u64, phase: Phase) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(&id).filter(|pod| pod.phase != phase) {
            (pod.phase, pod.changed) = (phase, now);
            if phase == Phase::Running {
                pod.started = now;
            }
            self.schedule_step(id);
        }
    }

    /// Schedules the step that follows the current phase of a pod. Steps scheduled earlier become stale.
    fn schedule_step(&mut self, id: u64) {
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.step += 1;
        let (step, restarts) = (pod.step, i64::from(pod.restarts));
        let is_job = matches!(pod.owner, OwnerId::Job(_));
        let (low, high) = match pod.phase {
            Phase::New => (150, 600),
            Phase::Creating => (600, 3000),
            Phase::Running if is_job => (4000, 20_000),
            Phase::Running => (800, 4000),
            Phase::Crashed(_) => (1000 + restarts.min(5) * 3000, 2000 + restarts.min(5) * 4000),
            Phase::Evicted => (15_000, 30_000),
            Phase::Completed => (20_000, 40_000),
            Phase::Terminating => (500, 3000),
            Phase::Ready | Phase::NoImage => return,
        };
        let wait = self.rng.between(low, high);
        self.schedule_after(wait, ScheduledAction::StepPod(id, step));
    }

    fn record_pod_event(&mut self, id: u64, reason: &str, message: &str, component: &str) {
        let Some(pod) = self.pods.get(&id) else { return };
        let (object_id, uid) = (pod.object_id.clone(), pod.uid.clone());
        self.record_event(&EventDetails { regarding: &object_id, uid: &uid, reason, message, component });
    }
}

/// Returns the ids of pods in a phase.
pub(super) fn in_phase(pods: &BTreeMap<u64, Pod>, phase: Phase) -> Vec<u64> {
    pods.iter().filter(|(_, pod)| pod.phase == phase).map(|(id, _)| *id).collect()
}
