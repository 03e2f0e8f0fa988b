//! The job controller: creates the pods of jobs, counts their results, and writes the status.
//!
//! A job is complete after `completions` pods have succeeded, or without `completions`, after one has succeeded
//! and none is active. It has failed after more than `backoffLimit` failures or after
//! `activeDeadlineSeconds`. The results of finished pods that are deleted later still count; a pod that is deleted
//! while it runs is replaced and does not count as failed. Indexed jobs are treated
//! like others: pods have no index.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use informer_apiserver::Status;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::cluster::{Actor, Cluster};
use crate::object::{
    at, condition_status, controller, is_controlled_by, is_pod_active, is_pod_ready, is_terminating, items,
    name, nonzero, number, pod_from_template, text, time, time_at, uid,
};
use crate::queue::{Handled, Queue};

/// Delay before a change is handled, in milliseconds.
const DELAY_MS: (i64, i64) = (50, 250);

/// The conditions that record how a job will end, and the conditions at its end, when no pod is left.
const CRITERIA: [(&str, &str); 2] = [("FailureTarget", "Failed"), ("SuccessCriteriaMet", "Complete")];

/// The job controller.
#[derive(Debug)]
pub(crate) struct Jobs {
    /// The results of pods, by the uid of their job.
    results: BTreeMap<String, Results>,
    queue: Queue<(String, String)>,
}

/// The uids of finished pods.
#[derive(Debug, Default)]
struct Results {
    succeeded: BTreeSet<String>,
    failed: BTreeSet<String>,
}

impl Jobs {
    pub(crate) fn new() -> Self {
        Jobs { results: BTreeMap::new(), queue: Queue::new() }
    }

    /// Remembers the result of a pod.
    fn observe(&mut self, pod: &Value) {
        let Some(owner) = controller(pod).filter(|owner| owner["kind"] == "Job") else { return };
        let phase = text(pod, "/status/phase");
        if matches!(phase, "Succeeded" | "Failed") {
            let results = self.results.entry(text(owner, "/uid").to_owned()).or_default();
            let set = if phase == "Succeeded" { &mut results.succeeded } else { &mut results.failed };
            set.insert(uid(pod).to_owned());
        }
    }
}

impl Actor for Jobs {
    fn name(&self) -> &'static str {
        "jobs"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        for change in cluster.changes() {
            match (change.resource.group.as_str(), change.resource.plural.as_str()) {
                ("batch", "jobs") => {
                    if let (Some(before), None) = (&change.before, &change.after) {
                        self.results.remove(uid(before));
                    }
                    let key = (change.namespace.clone(), change.name.clone());
                    self.queue.add(cluster, key, DELAY_MS);
                }
                ("", "pods") => {
                    let Some(pod) = change.after.as_ref().or(change.before.as_ref()) else { continue };
                    self.observe(pod);
                    let owner = controller(pod).filter(|owner| owner["kind"] == "Job");
                    if let Some(owner) = owner {
                        let key = (change.namespace.clone(), text(owner, "/name").to_owned());
                        self.queue.add(cluster, key, DELAY_MS);
                    }
                }
                _ => {}
            }
        }
        let results = &self.results;
        self.queue.run(cluster, |cluster, (namespace, name)| {
            let Some(job) = cluster.get("batch/v1", "jobs", Some(namespace), name) else { return Ok(None) };
            if is_terminating(&job) {
                return Ok(None);
            }
            match finished_at(&job) {
                Some(finished) => expire(cluster, &job, finished),
                None => Run::new(cluster, &job, results.get(uid(&job))).sync(cluster),
            }
        })
    }
}

/// Returns when a job has completed or failed.
fn finished_at(job: &Value) -> Option<Timestamp> {
    let conditions = items(job, "/status/conditions").iter();
    let mut ends = conditions.filter(|condition| {
        matches!(text(condition, "/type"), "Complete" | "Failed") && condition["status"] == "True"
    });
    time_at(ends.next()?, "/lastTransitionTime")
}

/// Deletes a finished job after `ttlSecondsAfterFinished`.
fn expire(cluster: &mut Cluster<'_>, job: &Value, finished: Timestamp) -> Handled {
    let Some(ttl) = number(job, "/spec/ttlSecondsAfterFinished") else { return Ok(None) };
    let end = finished.saturating_add(SignedDuration::from_secs(ttl)).unwrap_or(Timestamp::MAX);
    if end > cluster.now() {
        return Ok(Some(end));
    }
    cluster.delete(job).map(|()| None)
}

/// A job that is not finished.
struct Run<'a> {
    job: &'a Value,
    active: Vec<Arc<Value>>,
    terminating: i64,
    succeeded: i64,
    failed: i64,
    now: Timestamp,
}

/// How a job ends: the type, reason and message of its final condition.
type End = (&'static str, String, String);

impl<'a> Run<'a> {
    fn new(cluster: &Cluster<'_>, job: &'a Value, results: Option<&Results>) -> Self {
        let mut pods = cluster.dependents_of(uid(job), "v1", "pods");
        pods.retain(|pod| is_controlled_by(pod, uid(job)));
        let terminating = pods.iter().filter(|pod| is_terminating(pod)).count();
        pods.retain(|pod| is_pod_active(pod));
        let written = |path: &str| number(job, path).unwrap_or(0);
        let counted = |set: Option<&BTreeSet<String>>| set.map_or(0, |set| to_i64(set.len()));
        Run {
            job,
            active: pods,
            terminating: to_i64(terminating),
            succeeded: counted(results.map(|results| &results.succeeded)).max(written("/status/succeeded")),
            failed: counted(results.map(|results| &results.failed)).max(written("/status/failed")),
            now: cluster.now(),
        }
    }

    fn sync(mut self, cluster: &mut Cluster<'_>) -> Handled {
        let end = self.end();
        let is_suspended = self.job["spec"]["suspend"] == Value::Bool(true);
        let wanted = if end.is_some() || is_suspended { 0 } else { self.wanted() };
        let mut written = Ok(());
        if self.active.len() > wanted {
            for pod in self.active.split_off(wanted) {
                cluster.delete(&pod)?;
                self.terminating += 1;
            }
        }
        while self.active.len() < wanted && written.is_ok() {
            match cluster.create(self.new_pod()) {
                Ok(pod) => self.active.push(pod),
                Err(status) => written = Err(status),
            }
        }
        let is_ending = end.is_some();
        self.write_status(cluster, end, is_suspended)?;
        written.map(|()| self.deadline().filter(|_| !is_ending && !is_suspended))
    }

    fn parallelism(&self) -> i64 {
        number(self.job, "/spec/parallelism").unwrap_or(1)
    }

    /// Returns the number of pods that should be active.
    fn wanted(&self) -> usize {
        let wanted = match number(self.job, "/spec/completions") {
            Some(completions) => self.parallelism().min(completions - self.succeeded),
            // After the first success, no more pods are started.
            None if self.succeeded > 0 => to_i64(self.active.len()),
            None => self.parallelism(),
        };
        usize::try_from(wanted).unwrap_or(0)
    }

    /// Returns how the job ends, if it does.
    fn end(&self) -> Option<End> {
        // The decision is recorded before the last pods are gone, and stays.
        for (criterion, kind) in CRITERIA {
            let conditions = items(self.job, "/status/conditions").iter();
            let mut met = conditions.filter(|other| other["type"] == criterion && other["status"] == "True");
            if let Some(condition) = met.next() {
                return Some((
                    kind,
                    text(condition, "/reason").to_owned(),
                    text(condition, "/message").to_owned(),
                ));
            }
        }
        let end = |kind: &'static str, reason: &str, message: &str| {
            Some((kind, reason.to_owned(), message.to_owned()))
        };
        let limit = number(self.job, "/spec/backoffLimit").unwrap_or(6);
        let restarts: i64 = self.active.iter().map(|pod| restarts(pod)).sum();
        let is_restarting = text(self.job, "/spec/template/spec/restartPolicy") == "OnFailure";
        if self.failed > limit || (is_restarting && restarts > 0 && restarts >= limit) {
            return end("Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit");
        }
        if self.deadline().is_some_and(|deadline| deadline <= self.now) {
            return end("Failed", "DeadlineExceeded", "Job was active longer than specified deadline");
        }
        let is_complete = match number(self.job, "/spec/completions") {
            Some(completions) => self.succeeded >= completions,
            None => self.succeeded > 0 && self.active.is_empty(),
        };
        if is_complete {
            return end("Complete", "CompletionsReached", "Reached expected number of succeeded pods");
        }
        None
    }

    /// Returns when the job has been active for too long.
    fn deadline(&self) -> Option<Timestamp> {
        let seconds = number(self.job, "/spec/activeDeadlineSeconds")?;
        let started = time_at(self.job, "/status/startTime")?;
        started.saturating_add(SignedDuration::from_secs(seconds)).ok()
    }

    fn new_pod(&self) -> Value {
        let mut pod = pod_from_template(self.job, &self.job["spec"]["template"]);
        let labels = &mut pod["metadata"]["labels"];
        for label in ["batch.kubernetes.io/job-name", "job-name"] {
            labels[label] = json!(name(self.job));
        }
        for label in ["batch.kubernetes.io/controller-uid", "controller-uid"] {
            labels[label] = json!(uid(self.job));
        }
        pod
    }

    fn write_status(
        &self,
        cluster: &mut Cluster<'_>,
        end: Option<End>,
        is_suspended: bool,
    ) -> Result<(), Status> {
        let ready = to_i64(self.active.iter().filter(|pod| is_pod_ready(pod)).count());
        let mut conditions = items(self.job, "/status/conditions").to_vec();
        let mut add = |kind: &str, status: &str, reason: &str, message: &str| {
            conditions.retain(|condition| condition["type"] != kind);
            conditions.push(json!({
                "type": kind, "status": status, "reason": reason, "message": message,
                "lastProbeTime": time(self.now), "lastTransitionTime": time(self.now),
            }));
        };
        let was_suspended = condition_status(self.job, "Suspended") == "True";
        match (is_suspended, was_suspended) {
            (true, false) => add("Suspended", "True", "JobSuspended", "Job suspended"),
            (false, true) => add("Suspended", "False", "JobResumed", "Job resumed"),
            _ => {}
        }
        let started = match at(self.job, "/status/startTime") {
            _ if is_suspended => Value::Null,
            Some(started) => started.clone(),
            None => json!(time(self.now)),
        };
        let mut status = json!({
            "active": nonzero(to_i64(self.active.len())), "ready": ready, "terminating": self.terminating,
            "succeeded": nonzero(self.succeeded), "failed": nonzero(self.failed),
            "startTime": started, "uncountedTerminatedPods": {},
        });
        if let Some((kind, reason, message)) = end {
            let criteria = CRITERIA.iter().filter(|(_, end)| *end == kind);
            for (criterion, _) in criteria.filter(|(other, _)| condition_status(self.job, other) != "True") {
                add(criterion, "True", &reason, &message);
            }
            if self.terminating == 0 {
                add(kind, "True", &reason, &message);
                if kind == "Complete" {
                    status["completionTime"] = json!(time(self.now));
                }
            }
        }
        status["conditions"] = if conditions.is_empty() { Value::Null } else { json!(conditions) };
        cluster.put_status(self.job, &status)
    }
}

fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Returns how often the containers of a pod were restarted.
fn restarts(pod: &Value) -> i64 {
    let containers = items(pod, "/status/containerStatuses").iter();
    containers.map(|container| number(container, "/restartCount").unwrap_or(0)).sum()
}
