//! The life of a pod: placed, made, running, ready; crashing, evicted, deleted.

use super::objects::{self, Owner, Report};
use super::status::{self, Crash, Facts, Phase};
use super::write::{Answer, At, Kind, What, Write};
use super::{Demo, Due};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;

/// Who a pod belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum OwnerId {
    /// A revision of a deployment.
    Set(usize, u32),
    Job(String),
}

/// A pod.
#[derive(Debug)]
pub(super) struct Pod {
    pub(super) at: At,
    pub(super) owner: OwnerId,
    pub(super) node: Option<usize>,
    pub(super) phase: Phase,
    uid: String,
    container: String,
    image: String,
    /// Whether its image can be had.
    sound: bool,
    address: String,
    restarts: u32,
    /// How often its container will crash until it recovers.
    crashes: u32,
    last_crash: Option<(Crash, Timestamp)>,
    created: Timestamp,
    placed: Timestamp,
    changed: Timestamp,
    /// When its container started.
    started: Timestamp,
    /// Counts its changes: what was planned before the last one is off.
    step: u32,
}

/// What a new pod is made from.
pub(super) struct Birth<'a> {
    pub(super) owner: OwnerId,
    pub(super) by: Owner<'a>,
    pub(super) program: &'a super::catalogue::Program,
    pub(super) app: &'a str,
    pub(super) hash: &'a str,
    pub(super) image: &'a str,
    pub(super) sound: bool,
}

impl Demo {
    /// Creates a pod.
    pub(super) fn bear(&mut self, birth: &Birth<'_>) -> u64 {
        let id = self.number();
        let mut at = At::new(Kind::Pod, birth.program.namespace, "");
        loop {
            at.name = format!("{}-{}", birth.by.name, self.chance.suffix(5));
            if !self.names.contains_key(&at) {
                break;
            }
        }
        // While the cluster is built nobody waits for a scheduler.
        let node = if self.young { self.choose_node() } else { None };
        if let Some(node) = node.and_then(|at| self.nodes.get_mut(at)) {
            node.load += 1;
        }
        let node_name = node.and_then(|at| self.nodes.get(at)).map(|node| node.name.as_str());
        let object =
            objects::pod(birth.program, &birth.by, (birth.app, birth.hash), &at.name, birth.image, node_name);
        let (now, number) = (self.now, id % 60_000);
        let pod = Pod {
            at: at.clone(),
            owner: birth.owner.clone(),
            node,
            phase: if node.is_some() { Phase::Running } else { Phase::New },
            uid: String::new(),
            container: birth.app.to_owned(),
            image: birth.image.to_owned(),
            sound: birth.sound,
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

    /// The next step of a pod's life.
    pub(super) fn step(&mut self, id: u64, step: u32) {
        let Some(pod) = self.pods.get(&id).filter(|pod| pod.step == step) else { return };
        match pod.phase {
            Phase::New => self.place(id),
            Phase::Creating if !pod.sound => {
                let message = format!("Failed to pull image \"{}\": not found", pod.image);
                self.become_phase(id, Phase::NoImage);
                self.say_about(id, "Failed", &message, "kubelet");
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
            Phase::Evicted | Phase::Completed | Phase::Terminating => self.kill(id),
            Phase::Ready | Phase::NoImage => {}
        }
    }

    /// Its container ends, and is started again.
    pub(super) fn crash(&mut self, id: u64, crash: Crash) {
        let now = self.now;
        let Some(pod) = self.pods.get_mut(&id) else { return };
        pod.last_crash = Some((crash, now));
        let waits = pod.restarts > 0;
        self.become_phase(id, Phase::Crashed(crash));
        if crash == Crash::OutOfMemory {
            self.say_about(id, "OOMKilling", "Memory cgroup out of memory: killed process", "kernel-monitor");
        }
        if waits {
            self.say_about(id, "BackOff", "Back-off restarting failed container", "kubelet");
        }
    }

    /// Plans how often it crashes until it recovers.
    pub(super) fn set_crashes(&mut self, id: u64, crashes: u32) {
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.crashes = crashes;
        }
    }

    pub(super) fn evict(&mut self, id: u64) {
        self.become_phase(id, Phase::Evicted);
        self.say_about(id, "Evicted", "The node was low on resource: memory.", "kubelet");
    }

    /// Asks for its end, as a controller does.
    pub(super) fn terminate(&mut self, id: u64) {
        let Some(pod) = self.pods.get(&id).filter(|pod| pod.phase != Phase::Terminating) else { return };
        let (at, placed) = (pod.at.clone(), pod.node.is_some());
        self.write(at, What::Delete);
        if placed {
            self.say_about(id, "Killing", "Stopping container", "kubelet");
        }
        self.set_phase(id, Phase::Terminating);
    }

    /// Its status is told again later; what was planned still holds.
    pub(super) fn touch(&mut self, id: u64) {
        let now = self.now;
        if let Some(pod) = self.pods.get_mut(&id) {
            pod.changed = now;
        }
    }

    /// Writes its status.
    pub(super) fn tell_status(&mut self, id: u64) {
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
        self.write(at, What::MergeStatus(status));
    }

    /// Looks at some pods: somebody may have deleted them.
    pub(super) fn look_at_pods(&mut self) {
        let some = (self.pods.len() / 20).max(8);
        let next = self.pods.range((Bound::Excluded(self.looked), Bound::Unbounded)).take(some);
        let next: Vec<(u64, At)> = next.map(|(id, pod)| (*id, pod.at.clone())).collect();
        self.looked = next.last().map_or(0, |(id, _)| *id);
        for (_, at) in next {
            self.write(at, What::Look);
        }
        self.after(1000, Due::LookPods);
    }

    pub(super) fn pod_answered(&mut self, write: &Write, answer: &Answer) {
        let Some(id) = self.names.get(&write.at).copied() else { return };
        match (answer, &write.what) {
            (Answer::Done(object), What::Create(_)) => {
                if let Some(pod) = self.pods.get_mut(&id) {
                    object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut pod.uid);
                }
                let placed = self.pods.get(&id).is_some_and(|pod| pod.node.is_some());
                if placed { self.become_phase(id, Phase::Ready) } else { self.plan(id) }
            }
            // Without a grace it is gone already; otherwise it goes when its time has come.
            (Answer::Gone | Answer::Refused, What::Create(_)) | (Answer::Gone, _) => self.lose(id),
            (Answer::Refused, What::Bind(_)) => self.unplace(id),
            (Answer::Done(object), What::Look) if object["metadata"]["deletionTimestamp"].is_string() => {
                // Somebody else wants it to end.
                self.set_phase(id, Phase::Terminating);
            }
            _ => {}
        }
    }

    /// Removes a pod that is not there any more.
    pub(super) fn lose(&mut self, id: u64) {
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

    /// Ends it at once.
    pub(super) fn kill(&mut self, id: u64) {
        let Some(pod) = self.pods.get(&id) else { return };
        let at = pod.at.clone();
        self.write(at, What::Kill);
        self.lose(id);
    }

    fn place(&mut self, id: u64) {
        let Some(node) = self.choose_node() else {
            self.tell_status(id);
            self.say_about(
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
        self.write(at, What::Bind(name));
        self.say_about(id, "Scheduled", &message, "default-scheduler");
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
        self.say_about(id, reason, &format!("Started container {container}"), "kubelet");
    }

    /// Changes its phase and tells everybody.
    fn become_phase(&mut self, id: u64, phase: Phase) {
        self.set_phase(id, phase);
        self.tell_status(id);
        match self.pods.get(&id).map(|pod| pod.owner.clone()) {
            Some(OwnerId::Set(app, _)) => self.want_sync(app),
            Some(OwnerId::Job(job)) => self.job_moved(&job, phase),
            None => {}
        }
    }

    /// Changes its phase, and plans what comes after.
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
        let wait = self.chance.between(low, high);
        self.after(wait, Due::Pod(id, step));
    }

    fn say_about(&mut self, id: u64, reason: &str, message: &str, component: &str) {
        let Some(pod) = self.pods.get(&id) else { return };
        let (about, uid) = (pod.at.clone(), pod.uid.clone());
        self.say(&Report { about: &about, uid: &uid, reason, message, component });
    }
}

/// The ids of pods in a phase.
pub(super) fn in_phase(pods: &BTreeMap<u64, Pod>, phase: Phase) -> Vec<u64> {
    pods.iter().filter(|(_, pod)| pod.phase == phase).map(|(id, _)| *id).collect()
}
