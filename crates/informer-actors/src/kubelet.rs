//! The kubelets of all nodes: pods on a node run, become ready, complete, crash and are removed.
//!
//! Which transition comes next follows from the pod and its node only; the kubelet remembers when it is due.
//! A change that makes another transition come next discards the one that was due. Pods on nodes that are not
//! ready do not advance; pods on nodes without a node object do. The status is built in `pod_status`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::cluster::{Actor, Cluster};
use crate::mirror::ObjectChange;
use crate::object::{
    condition_status, is_pod_finished, is_pod_ready, is_terminating, items, number, text, uid,
};
use crate::outcome::PodOutcome;
use crate::pod_status::{self, Place, Transition};
use crate::queue::{Handled, Queue};

/// Delay before the containers of a pod start, in milliseconds.
const START_DELAY_MS: (i64, i64) = (100, 1_500);

/// Delay before a running pod is ready, or its containers fail, in milliseconds.
const READY_DELAY_MS: (i64, i64) = (50, 1_500);

/// Delay before a pod that is not to be restarted completes, in milliseconds.
const COMPLETE_DELAY_MS: (i64, i64) = (500, 3_000);

/// Delay before a terminating pod is removed, in milliseconds. The grace period may be shorter.
const REMOVE_DELAY_MS: (i64, i64) = (50, 3_000);

/// Delay before a pod on a lost or deleted node is marked or removed, in milliseconds.
const NODE_DELAY_MS: (i64, i64) = (50, 500);

/// Delay before a container is restarted for the first time. It doubles with each restart.
const MIN_RESTART_DELAY: SignedDuration = SignedDuration::from_secs(1);

/// Maximum delay before a container is restarted.
const MAX_RESTART_DELAY: SignedDuration = SignedDuration::from_secs(300);

/// The next transition of a pod and when it is due.
#[derive(Debug)]
struct Planned {
    uid: String,
    transition: Transition,
    due: Timestamp,
}

/// All kubelets.
#[derive(Debug)]
pub(crate) struct Kubelet {
    planned: BTreeMap<(String, String), Planned>,
    /// Pods by node.
    on_node: BTreeMap<String, BTreeSet<(String, String)>>,
    /// The outcome of the current start of a pod's containers, by uid, if it was chosen at random.
    outcomes: BTreeMap<String, (i64, PodOutcome)>,
    /// Nodes that were deleted.
    deleted_nodes: BTreeSet<String>,
    /// Number of pods that have an address.
    addresses: u32,
    queue: Queue<(String, String)>,
}

impl Kubelet {
    pub(crate) fn new() -> Self {
        Kubelet {
            planned: BTreeMap::new(),
            on_node: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            deleted_nodes: BTreeSet::new(),
            addresses: 0,
            queue: Queue::new(),
        }
    }

    fn observe_pod(&mut self, now: Timestamp, change: &ObjectChange) {
        let key = (change.namespace.clone(), change.name.clone());
        if let Some(before) = &change.before {
            let node = text(before, "/spec/nodeName");
            if let Some(pods) = self.on_node.get_mut(node) {
                pods.remove(&key);
            }
            if change.after.is_none() {
                self.outcomes.remove(uid(before));
                self.planned.remove(&key);
            }
        }
        let node = change.after.as_ref().map_or("", |pod| text(pod, "/spec/nodeName"));
        if !node.is_empty() {
            self.on_node.entry(node.to_owned()).or_default().insert(key.clone());
            self.queue.add_at(key, now);
        }
    }

    fn observe_node(&mut self, now: Timestamp, change: &ObjectChange) {
        if change.after.is_some() {
            self.deleted_nodes.remove(&change.name);
        } else {
            self.deleted_nodes.insert(change.name.clone());
        }
        let is_ready =
            |node: &Option<Arc<Value>>| node.as_ref().map(|node| condition_status(node, "Ready").to_owned());
        if is_ready(&change.before) != is_ready(&change.after) {
            for key in self.on_node.get(&change.name).cloned().unwrap_or_default() {
                self.queue.add_at(key, now);
            }
        }
    }

    /// Plans the next transition of a pod, or makes it if it is due.
    fn sync(&mut self, cluster: &mut Cluster<'_>, key: &(String, String)) -> Handled {
        let Some(pod) = cluster.get("v1", "pods", Some(&key.0), &key.1) else { return Ok(None) };
        let Some(transition) = self.next_transition(cluster, &pod) else {
            self.planned.remove(key);
            return Ok(None);
        };
        let due = match self.planned.get(key) {
            Some(planned) if planned.transition == transition && planned.uid == uid(&pod) => planned.due,
            _ => {
                let due = due(cluster, &pod, transition);
                let planned = Planned { uid: uid(&pod).to_owned(), transition, due };
                self.planned.insert(key.clone(), planned);
                due
            }
        };
        if due > cluster.now() {
            return Ok(Some(due));
        }
        self.planned.remove(key);
        self.apply(cluster, &pod, transition)
    }

    fn apply(&mut self, cluster: &mut Cluster<'_>, pod: &Value, transition: Transition) -> Handled {
        match transition {
            Transition::Remove | Transition::Abandon => {
                if transition == Transition::Remove && !items(pod, "/metadata/finalizers").is_empty() {
                    // The pod stays until its finalizers are removed, and must not seem to run.
                    cluster.put_status(pod, &pod_status::ended(pod, cluster.now()))?;
                }
                cluster.delete_now(pod)?;
            }
            _ => {
                let node = cluster.get("v1", "nodes", None, text(pod, "/spec/nodeName"));
                if transition == Transition::Start {
                    self.addresses += 1;
                }
                let place = Place::new(node.as_deref(), self.addresses);
                let skips_probes = cluster.options.delay_percent == 0;
                let status = pod_status::after(pod, transition, &place, skips_probes, cluster.now());
                cluster.put_status(pod, &status)?;
            }
        }
        Ok(None)
    }

    /// Returns the transition that comes next for a pod on a node.
    fn next_transition(&mut self, cluster: &mut Cluster<'_>, pod: &Value) -> Option<Transition> {
        let node = text(pod, "/spec/nodeName");
        if node.is_empty() {
            return None;
        }
        if self.deleted_nodes.contains(node) {
            let is_removed =
                is_terminating(pod) && number(pod, "/metadata/deletionGracePeriodSeconds") == Some(0);
            return (!is_removed).then_some(Transition::Abandon);
        }
        let is_node_ready = cluster
            .get("v1", "nodes", None, node)
            .is_none_or(|node| condition_status(&node, "Ready") == "True");
        if !is_node_ready {
            return is_pod_ready(pod).then_some(Transition::Lose);
        }
        if is_terminating(pod) {
            let has_grace = number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0) > 0;
            return has_grace.then_some(Transition::Remove);
        }
        if is_pod_finished(pod) {
            return None;
        }
        if text(pod, "/status/phase") != "Running" {
            return next_before_start(cluster, pod);
        }
        if pod_status::is_crashed(pod) {
            return Some(Transition::Restart);
        }
        let is_restarted = text(pod, "/spec/restartPolicy") == "Always";
        match self.outcome(cluster, pod) {
            PodOutcome::NeverReady => None,
            PodOutcome::Fail => Some(Transition::Fail),
            PodOutcome::Crash if text(pod, "/spec/restartPolicy") == "Never" => Some(Transition::Fail),
            PodOutcome::Crash => Some(Transition::Crash),
            PodOutcome::Succeed | PodOutcome::NoImage if !is_restarted => Some(Transition::Complete),
            PodOutcome::Succeed | PodOutcome::NoImage => (!is_pod_ready(pod)).then_some(Transition::Ready),
        }
    }

    /// Returns the outcome of the current start of a pod's containers.
    fn outcome(&mut self, cluster: &mut Cluster<'_>, pod: &Value) -> PodOutcome {
        if let Some(outcome) = PodOutcome::of(pod) {
            return outcome;
        }
        let percent = cluster.options.failure_percent;
        if percent == 0 {
            return PodOutcome::Succeed;
        }
        let restarts = pod_status::restarts(pod);
        match self.outcomes.get(uid(pod)) {
            Some((start, outcome)) if *start == restarts => *outcome,
            _ => {
                let fails = cluster.random().percent(percent);
                let outcome = if fails { PodOutcome::Crash } else { PodOutcome::Succeed };
                self.outcomes.insert(uid(pod).to_owned(), (restarts, outcome));
                outcome
            }
        }
    }
}

impl Actor for Kubelet {
    fn name(&self) -> &'static str {
        "kubelet"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        for change in cluster.changes() {
            match (change.resource.group.as_str(), change.resource.plural.as_str()) {
                ("", "pods") => self.observe_pod(cluster.now(), &change),
                ("", "nodes") => self.observe_node(cluster.now(), &change),
                _ => {}
            }
        }
        let mut queue = std::mem::replace(&mut self.queue, Queue::new());
        let due = queue.run(cluster, |cluster, key| self.sync(cluster, key));
        self.queue = queue;
        due
    }
}

/// Returns the transition that comes next for a pod whose containers have not started.
fn next_before_start(cluster: &Cluster<'_>, pod: &Value) -> Option<Transition> {
    let waiting_for = text(pod, "/status/containerStatuses/0/state/waiting/reason");
    let has_delays = cluster.options.delay_percent > 0;
    if cluster.options.container_creation && has_delays && waiting_for.is_empty() {
        return Some(Transition::Create);
    }
    if PodOutcome::of(pod) == Some(PodOutcome::NoImage) {
        return (waiting_for != pod_status::NO_IMAGE_REASON).then_some(Transition::FailPull);
    }
    Some(Transition::Start)
}

/// Returns a time for a transition, with a random delay.
fn due(cluster: &mut Cluster<'_>, pod: &Value, transition: Transition) -> Timestamp {
    let (low, high) = match transition {
        Transition::Create => return cluster.now(),
        Transition::Start | Transition::FailPull => START_DELAY_MS,
        Transition::Ready | Transition::Crash | Transition::Fail => READY_DELAY_MS,
        Transition::Complete => COMPLETE_DELAY_MS,
        Transition::Lose | Transition::Abandon => NODE_DELAY_MS,
        Transition::Remove => {
            let grace =
                number(pod, "/metadata/deletionGracePeriodSeconds").unwrap_or(0).saturating_mul(1_000);
            (REMOVE_DELAY_MS.0, REMOVE_DELAY_MS.1.min(grace))
        }
        Transition::Restart => {
            let doublings = u32::try_from(pod_status::restarts(pod)).unwrap_or(u32::MAX).min(16);
            let delay = (MIN_RESTART_DELAY * (1 << doublings)).min(MAX_RESTART_DELAY);
            return cluster.now().saturating_add(delay).unwrap_or(Timestamp::MAX);
        }
    };
    cluster.after_delay(low, high)
}
