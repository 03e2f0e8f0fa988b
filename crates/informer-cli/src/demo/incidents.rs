//! Random incidents and their frequency.
//!
//! An incident writes what its cause would write: a deployment, a node, or the status of a pod. Actors do the rest.
//! Some incidents have a later part, for example the return of a lost node. Objects that users have deleted, and
//! deployments that users have changed, are left alone.

use super::catalogue::{PROGRAMS, Planned, Program};
use super::objects::{self, time};
use super::{condition, text};
use informer_actors::{Actor, Cluster};
use informer_apiserver::Status;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Mean time between incidents on a cluster of [`REFERENCE_PODS`] pods, in milliseconds.
const MEAN_INCIDENT_PERIOD_MS: f64 = 1200.0;
const REFERENCE_PODS: f64 = 40.0;

/// Names of jobs.
const TASKS: &[&str] = &["reindex", "nightly-report", "db-backup", "cleanup", "migrate"];

/// Incidents with their weights in percent.
const INCIDENTS: &[(usize, Incident)] = &[
    (24, Incident::Scale),
    (18, Incident::RollOut),
    (4, Incident::BadRollOut),
    (14, Incident::Crash),
    (5, Incident::CrashLoop),
    (7, Incident::OutOfMemory),
    (5, Incident::Evict),
    (10, Incident::Job),
    (7, Incident::Reconfigure),
    (3, Incident::LoseNode),
    (3, Incident::Cordon),
];

#[derive(Debug, Clone, Copy)]
enum Incident {
    Scale,
    RollOut,
    BadRollOut,
    Crash,
    CrashLoop,
    OutOfMemory,
    Evict,
    Job,
    Reconfigure,
    LoseNode,
    Cordon,
}

/// The later part of an incident.
#[derive(Debug)]
enum FollowUp {
    /// Reverts an update to an image that cannot be pulled, if no user has changed the deployment.
    RollBack {
        app: usize,
        bad: String,
        good: String,
    },
    /// Crashes a pod again, and this many more times later.
    Crash {
        pod: PodId,
        repeats: u32,
    },
    /// Deletes an evicted pod.
    Delete(PodId),
    RestoreNode(String),
    Uncordon(String),
}

#[derive(Debug, Clone)]
struct PodId {
    namespace: String,
    name: String,
    uid: String,
}

/// A deployment of the demo.
#[derive(Debug)]
struct App {
    program: Program,
    name: String,
    /// Initial number of replicas; incidents keep the deployment close to this number.
    replicas: i64,
    /// Patch number of the newest version.
    patch: u32,
    /// The deployment after the last change by an incident. If its spec is another, a user has changed it. The
    /// generation does not tell: it also increases with the annotation of the revision.
    written: Option<Arc<Value>>,
}

/// The source of incidents.
#[derive(Debug)]
pub(super) struct Incidents {
    apps: Vec<App>,
    mean_period_ms: i64,
    /// `None` before the first step.
    next: Option<Timestamp>,
    last: Timestamp,
    /// Follow-ups by time, and by a number for the order of those with equal times.
    follow_ups: BTreeMap<(Timestamp, u64), FollowUp>,
    last_number: u64,
}

impl Incidents {
    /// Creates a source of incidents for a cluster of about this many pods, until `last`. Larger clusters have more
    /// incidents, but fewer per pod.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_precision_loss,
        reason = "a few seconds; precision is irrelevant"
    )]
    pub(super) fn new(plan: Vec<Planned>, pods: usize, last: Timestamp) -> Self {
        let busy = (pods.max(1) as f64 / REFERENCE_PODS).powf(0.75).max(0.2);
        let app = |Planned { program, name, replicas }| {
            let replicas = i64::try_from(replicas).unwrap_or(i64::MAX);
            App { program, name, replicas, patch: 0, written: None }
        };
        Self {
            apps: plan.into_iter().map(app).collect(),
            mean_period_ms: (MEAN_INCIDENT_PERIOD_MS / busy) as i64,
            next: None,
            last,
            follow_ups: BTreeMap::new(),
            last_number: 0,
        }
    }

    /// Executes a random incident.
    fn run(&mut self, cluster: &mut Cluster<'_>) {
        let Some(incident) = draw(cluster) else { return };
        let app = cluster.random().index_below(self.apps.len());
        match incident {
            Incident::Scale => self.scale(cluster, app),
            Incident::RollOut => self.roll_out(cluster, app, true),
            Incident::BadRollOut => self.roll_out(cluster, app, false),
            Incident::Crash | Incident::CrashLoop | Incident::OutOfMemory | Incident::Evict => {
                if let Some(pod) = self.some_pod(cluster, app) {
                    self.disturb(cluster, incident, &pod);
                }
            }
            Incident::Job => {
                let program = cluster.random().index_below(PROGRAMS.len());
                let task = cluster.random().index_below(TASKS.len());
                if let (Some(program), Some(task)) = (PROGRAMS.get(program), TASKS.get(task)) {
                    drop(cluster.create(objects::job(program, task)));
                }
            }
            Incident::Reconfigure => self.reconfigure(cluster, app),
            Incident::LoseNode => {
                if let Some(node) = some_node(cluster)
                    && set_ready(cluster, &node, false).is_ok()
                {
                    let name = text(&node, "/metadata/name").to_owned();
                    self.follow_up(cluster, (5000, 15_000), FollowUp::RestoreNode(name));
                }
            }
            Incident::Cordon => {
                if let Some(node) = some_node(cluster)
                    && cluster.merge(&node, &json!({"spec": {"unschedulable": true}})).is_ok()
                {
                    let name = text(&node, "/metadata/name").to_owned();
                    self.follow_up(cluster, (20_000, 40_000), FollowUp::Uncordon(name));
                }
            }
        }
    }

    /// Executes the later part of an incident. Repeats it after a second if the server rejects it, for example because
    /// a user has changed the object at the same time.
    fn run_follow_up(&mut self, cluster: &mut Cluster<'_>, follow_up: FollowUp) {
        let written = match &follow_up {
            FollowUp::RollBack { app, bad, good } => match self.unchanged(cluster, *app) {
                Some((App { program, name, .. }, deployment)) if image_of(&deployment) == bad => {
                    let patch = objects::update(program, name, good, true);
                    self.change(cluster, *app, &patch)
                }
                _ => Ok(()),
            },
            FollowUp::Crash { pod: id, repeats } => match id.find(cluster) {
                Some(pod) if is_running(&pod) => self.crash(cluster, &pod, ("Error", 1), *repeats),
                Some(pod) if has_ended(&pod) => Ok(()),
                Some(_) => return self.follow_up(cluster, (1000, 1000), follow_up),
                None => Ok(()),
            },
            FollowUp::Delete(id) => id.find(cluster).map_or(Ok(()), |pod| cluster.delete_now(&pod)),
            FollowUp::RestoreNode(name) => match cluster.get("v1", "nodes", None, name) {
                Some(node) => set_ready(cluster, &node, true),
                None => Ok(()),
            },
            FollowUp::Uncordon(name) => match cluster.get("v1", "nodes", None, name) {
                Some(node) => cluster.merge(&node, &json!({"spec": {"unschedulable": null}})),
                None => Ok(()),
            },
        };
        if written.is_err() {
            self.follow_up(cluster, (1000, 1000), follow_up);
        }
    }

    /// Scales a deployment slightly and randomly.
    fn scale(&mut self, cluster: &mut Cluster<'_>, index: usize) {
        if let Some((app, _)) = self.unchanged(cluster, index) {
            let (min, max) = ((app.replicas / 2).max(1), app.replicas + (app.replicas + 1) / 2);
            let replicas = cluster.random().between(min, max);
            drop(self.change(cluster, index, &json!({"spec": {"replicas": replicas}})));
        }
    }

    /// Starts an update to the next version, unless one is in progress. If the image cannot be pulled, the update is
    /// rolled back later.
    fn roll_out(&mut self, cluster: &mut Cluster<'_>, index: usize, can_be_pulled: bool) {
        let Some((app, deployment)) = self.unchanged(cluster, index) else { return };
        let status = &deployment["status"];
        if status["updatedReplicas"] != status["replicas"]
            || status["observedGeneration"] != deployment["metadata"]["generation"]
        {
            return;
        }
        app.patch += 1;
        let suffix = if can_be_pulled { "" } else { "-rc1" };
        let image = format!("{}{suffix}", app.program.image(app.patch));
        let patch = objects::update(&app.program, &app.name, &image, can_be_pulled);
        if self.change(cluster, index, &patch).is_ok() && !can_be_pulled {
            let good = image_of(&deployment).to_owned();
            let roll_back = FollowUp::RollBack { app: index, bad: image, good };
            self.follow_up(cluster, (12_000, 20_000), roll_back);
        }
    }

    /// Crashes or evicts a pod.
    fn disturb(&mut self, cluster: &mut Cluster<'_>, incident: Incident, pod: &Value) {
        // A disturbance that the server rejects does not happen.
        let _rejected = match incident {
            Incident::CrashLoop => self.crash(cluster, pod, ("Error", 1), 3),
            Incident::OutOfMemory => self.crash(cluster, pod, ("OOMKilled", 137), 0),
            Incident::Evict => {
                let status = json!({
                    "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
                    "conditions": unready(pod, cluster.now()), "containerStatuses": null,
                });
                let evicted = cluster.merge_status(pod, &status);
                if evicted.is_ok() {
                    self.follow_up(cluster, (15_000, 30_000), FollowUp::Delete(PodId::of(pod)));
                }
                evicted
            }
            _ => self.crash(cluster, pod, ("Error", 1), 0),
        };
    }

    /// Ends the first container of a pod, now and `repeats` more times after its restarts. The kubelet restarts it.
    fn crash(
        &mut self,
        cluster: &mut Cluster<'_>,
        pod: &Value,
        (reason, exit_code): (&str, i64),
        repeats: u32,
    ) -> Result<(), Status> {
        let Some(before) = pod.pointer("/status/containerStatuses/0") else { return Ok(()) };
        let restarts = before["restartCount"].as_i64().unwrap_or(0);
        let ended = json!({
            "exitCode": exit_code, "reason": reason, "startedAt": before["state"]["running"]["startedAt"],
            "finishedAt": time(cluster.now()),
        });
        let mut container = before.clone();
        (container["ready"], container["started"]) = (json!(false), json!(false));
        if restarts == 0 {
            // The first restart comes soon; later ones wait for the backoff.
            container["state"] = json!({"terminated": ended});
        } else {
            let message = format!("back-off restarting failed container={}", text(before, "/name"));
            container["state"] = json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}});
            container["lastState"] = json!({"terminated": ended});
        }
        let conditions = unready(pod, cluster.now());
        let mut containers = pod["status"]["containerStatuses"].clone();
        containers[0] = container;
        let status = json!({"containerStatuses": containers, "conditions": conditions});
        cluster.merge_status(pod, &status)?;
        if repeats > 0 {
            let crash = FollowUp::Crash { pod: PodId::of(pod), repeats: repeats - 1 };
            let backoff = 1000 << restarts.min(8);
            self.follow_up(cluster, (backoff + 800, backoff + 4000), crash);
        }
        Ok(())
    }

    /// Changes the configuration or the password of a program.
    fn reconfigure(&mut self, cluster: &mut Cluster<'_>, index: usize) {
        let Some(App { program, name, .. }) = self.apps.get(index) else { return };
        let (plural, name, patch) = if program.secret && cluster.random().percent(50) {
            let secret = objects::secret(program, name, &objects::password(cluster.random()));
            ("secrets", format!("{name}-credentials"), json!({"stringData": secret["stringData"]}))
        } else {
            let level = cluster.random().index_below(3);
            let level = ["debug", "info", "warn"].get(level).copied().unwrap_or("info");
            let map = objects::config_map(program, name, level);
            ("configmaps", format!("{name}-config"), json!({"data": map["data"]}))
        };
        if let Some(object) = cluster.get("v1", plural, Some(program.namespace), &name) {
            drop(cluster.merge(&object, &patch));
        }
    }

    fn deployment(&self, cluster: &Cluster<'_>, index: usize) -> Option<Arc<Value>> {
        let App { program, name, .. } = self.apps.get(index)?;
        cluster.get("apps/v1", "deployments", Some(program.namespace), name)
    }

    /// Returns a deployment that exists and that no user has changed.
    fn unchanged(&mut self, cluster: &Cluster<'_>, index: usize) -> Option<(&mut App, Arc<Value>)> {
        let deployment = self.deployment(cluster, index)?;
        let app = self.apps.get_mut(index)?;
        let is_unchanged = |written: &Arc<Value>| {
            written["spec"] == deployment["spec"]
                && written["metadata"]["uid"] == deployment["metadata"]["uid"]
        };
        app.written.as_ref().is_some_and(is_unchanged).then_some((app, deployment))
    }

    /// Changes a deployment, unless a user has changed it.
    fn change(&mut self, cluster: &mut Cluster<'_>, index: usize, patch: &Value) -> Result<(), Status> {
        let Some((_, deployment)) = self.unchanged(cluster, index) else { return Ok(()) };
        cluster.merge(&deployment, patch)?;
        let written = self.deployment(cluster, index);
        if let Some(app) = self.apps.get_mut(index) {
            app.written = written;
        }
        Ok(())
    }

    /// Returns a random ready pod of a deployment that no user has changed.
    fn some_pod(&mut self, cluster: &mut Cluster<'_>, index: usize) -> Option<Arc<Value>> {
        let (_, deployment) = self.unchanged(cluster, index)?;
        let sets = cluster.dependents_of(text(&deployment, "/metadata/uid"), "apps/v1", "replicasets");
        let pods =
            sets.iter().flat_map(|set| cluster.dependents_of(text(set, "/metadata/uid"), "v1", "pods"));
        let mut ready: Vec<Arc<Value>> = pods.filter(|pod| condition(pod, "Ready") == "True").collect();
        let chosen = cluster.random().index_below(ready.len());
        (chosen < ready.len()).then(|| ready.swap_remove(chosen))
    }

    /// Schedules a follow-up after a random time in milliseconds.
    fn follow_up(&mut self, cluster: &mut Cluster<'_>, (low, high): (i64, i64), follow_up: FollowUp) {
        let time = cluster.now() + SignedDuration::from_millis(cluster.random().between(low, high));
        self.last_number += 1;
        self.follow_ups.insert((time, self.last_number), follow_up);
    }
}

impl Actor for Incidents {
    fn name(&self) -> &'static str {
        "incidents"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        let now = cluster.now();
        let mut next = self.next.unwrap_or(now + SignedDuration::from_secs(1));
        if self.next.is_none() {
            for index in 0..self.apps.len() {
                let written = self.deployment(cluster, index);
                if let Some(app) = self.apps.get_mut(index) {
                    app.written = written;
                }
            }
        }
        while let Some(entry) = self.follow_ups.first_entry().filter(|entry| entry.key().0 <= now) {
            let follow_up = entry.remove();
            self.run_follow_up(cluster, follow_up);
        }
        if next <= now && now <= self.last {
            let mean = self.mean_period_ms;
            let wait = cluster.random().between(mean / 3, mean * 5 / 3).max(10);
            next = now + SignedDuration::from_millis(wait);
            self.run(cluster);
        }
        self.next = Some(next);
        let incident = Some(next).filter(|next| *next <= self.last);
        let follow_up = self.follow_ups.first_key_value().map(|((time, _), _)| *time);
        incident.into_iter().chain(follow_up).min()
    }
}

impl PodId {
    fn of(pod: &Value) -> Self {
        let field = |pointer: &str| text(pod, pointer).to_owned();
        let namespace = field("/metadata/namespace");
        Self { namespace, name: field("/metadata/name"), uid: field("/metadata/uid") }
    }

    fn find(&self, cluster: &Cluster<'_>) -> Option<Arc<Value>> {
        let pod = cluster.get("v1", "pods", Some(&self.namespace), &self.name)?;
        (text(&pod, "/metadata/uid") == self.uid).then_some(pod)
    }
}

fn draw(cluster: &mut Cluster<'_>) -> Option<Incident> {
    let mut number = cluster.random().index_below(INCIDENTS.iter().map(|(weight, _)| weight).sum());
    for (weight, incident) in INCIDENTS {
        if number < *weight {
            return Some(*incident);
        }
        number -= weight;
    }
    None
}

/// Returns a random schedulable node; `None` unless more than half of the nodes are schedulable, so that the cluster
/// stays usable.
fn some_node(cluster: &mut Cluster<'_>) -> Option<Arc<Value>> {
    let nodes = cluster.list("v1", "nodes", None);
    let takes_pods =
        |node: &&Arc<Value>| condition(node, "Ready") == "True" && node["spec"]["unschedulable"] != true;
    let schedulable: Vec<&Arc<Value>> = nodes.iter().filter(takes_pods).collect();
    let chosen = cluster.random().index_below(schedulable.len());
    let node = schedulable.get(chosen).filter(|_| schedulable.len() * 2 > nodes.len());
    node.map(|node| Arc::clone(node))
}

/// Makes a node ready or lost. Actors set its taints, and the readiness of its pods.
fn set_ready(cluster: &mut Cluster<'_>, node: &Value, ready: bool) -> Result<(), Status> {
    if (condition(node, "Ready") == "True") == ready {
        return Ok(());
    }
    let conditions = objects::node_conditions(ready, cluster.now());
    cluster.merge_status(node, &json!({"conditions": conditions}))
}

/// Returns the conditions of a pod whose containers have ended.
fn unready(pod: &Value, now: Timestamp) -> Vec<Value> {
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for condition in &mut conditions {
        if matches!(text(condition, "/type"), "Ready" | "ContainersReady") && condition["status"] == "True" {
            condition["status"] = json!("False");
            condition["reason"] = json!("ContainersNotReady");
            condition["lastTransitionTime"] = json!(time(now));
        }
    }
    conditions
}

fn is_running(pod: &Value) -> bool {
    pod.pointer("/status/containerStatuses/0/state/running").is_some()
        && pod["metadata"]["deletionTimestamp"].is_null()
}

/// Returns whether the containers of a pod do not run again.
fn has_ended(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
        || matches!(text(pod, "/status/phase"), "Failed" | "Succeeded")
}

fn image_of(deployment: &Value) -> &str {
    text(deployment, "/spec/template/spec/containers/0/image")
}
