//! Jobs: each has one pod, completes with it, and is deleted some time later.

use super::catalogue::PROGRAMS;
use super::objects::{self, EventDetails, Owner};
use super::pods::{NewPod, OwnerId};
use super::status::{self, Phase};
use super::write::{Kind, ObjectId, Operation, WriteResult};
use super::{Demo, ScheduledAction};
use jiff::Timestamp;

/// Names of jobs.
const TASKS: &[&str] = &["reindex", "nightly-report", "db-backup", "cleanup", "migrate"];

/// Time until a completed job is deleted, in milliseconds.
const COMPLETED_JOB_TTL_MS: i64 = 45_000;

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    object_id: ObjectId,
    uid: String,
    /// Index in [`PROGRAMS`].
    program_index: usize,
    started: Timestamp,
    done: bool,
}

impl Demo {
    pub(super) fn start_job(&mut self) {
        let program_index = self.rng.below(PROGRAMS.len());
        let task = TASKS.get(self.rng.below(TASKS.len())).copied().unwrap_or("cleanup");
        let Some(program) = PROGRAMS.get(program_index) else { return };
        let name = format!("{task}-{}", self.rng.suffix(8));
        let object_id = ObjectId::new(Kind::Job, program.namespace, &name);
        let object = objects::job(program, &name, task, &image_of(task));
        let (uid, started) = (String::new(), self.now);
        let job = Job { object_id: object_id.clone(), uid, program_index, started, done: false };
        self.jobs.insert(name, job);
        self.create(object_id, object);
    }

    pub(super) fn handle_job_result(&mut self, object_id: &ObjectId, result: &WriteResult) {
        let Some(job) = self.jobs.get_mut(&object_id.name).filter(|job| job.object_id == *object_id) else {
            return;
        };
        match result {
            WriteResult::Done(object) if job.uid.is_empty() => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut job.uid);
                let uid = job.uid.clone();
                let Some(program) = PROGRAMS.get(job.program_index) else { return };
                let task = object_id.name.rsplit_once('-').map_or("cleanup", |(task, _)| task);
                let pod = self.create_pod(&NewPod {
                    owner: OwnerId::Job(object_id.name.clone()),
                    controller: Owner { kind: Kind::Job, name: &object_id.name, uid: &uid },
                    program,
                    app: task,
                    hash: "",
                    image: &image_of(task),
                    healthy: true,
                });
                let name = self.pods.get(&pod).map(|pod| pod.object_id.name.clone()).unwrap_or_default();
                let message = format!("Created pod: {name}");
                self.record_event(&EventDetails {
                    regarding: object_id,
                    uid: &uid,
                    reason: "SuccessfulCreate",
                    message: &message,
                    component: "job-controller",
                });
                let ready = false;
                self.write_job_status(&object_id.name, ready);
            }
            WriteResult::Done(_) => {}
            WriteResult::Gone | WriteResult::Rejected => self.remove_job(&object_id.name),
        }
    }

    /// Handles a new phase of a job's pod.
    pub(super) fn handle_job_pod_phase(&mut self, name: &str, phase: Phase) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        job.done |= phase == Phase::Completed;
        if job.done {
            let (object_id, uid) = (job.object_id.clone(), job.uid.clone());
            self.record_event(&EventDetails {
                regarding: &object_id,
                uid: &uid,
                reason: "Completed",
                message: "Job completed",
                component: "job-controller",
            });
            self.schedule_after(COMPLETED_JOB_TTL_MS, ScheduledAction::DeleteJob(name.to_owned()));
        }
        self.write_job_status(name, phase == Phase::Running);
    }

    /// Handles the removal of a job's pod: a job that is not complete is deleted.
    pub(super) fn handle_job_pod_removal(&mut self, name: &str) {
        if self.jobs.get(name).is_some_and(|job| !job.done) {
            self.delete_job(name);
        }
    }

    /// Deletes a job and its dependents.
    pub(super) fn delete_job(&mut self, name: &str) {
        let Some(object_id) = self.jobs.get(name).map(|job| job.object_id.clone()) else { return };
        self.remove_job(name);
        self.write(object_id, Operation::DeleteNow);
    }

    /// Deletes the jobs of a deleted namespace.
    pub(super) fn delete_jobs(&mut self, namespace: &str) {
        let jobs = self.jobs.iter().filter(|(_, job)| job.object_id.namespace == namespace);
        for name in jobs.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.delete_job(&name);
        }
    }

    /// Removes a job from the state of the demo, and deletes its dependents.
    fn remove_job(&mut self, name: &str) {
        self.jobs.remove(name);
        let owner = OwnerId::Job(name.to_owned());
        let pods: Vec<(u64, ObjectId)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.owner == owner)
            .map(|(id, pod)| (*id, pod.object_id.clone()))
            .collect();
        for (id, object_id) in pods {
            self.write(object_id, Operation::DeleteNow);
            self.remove_pod(id);
        }
    }

    fn write_job_status(&mut self, name: &str, ready: bool) {
        let Some(job) = self.jobs.get(name) else { return };
        let status = status::job(job.started, job.done.then_some(self.now), ready);
        let object_id = job.object_id.clone();
        self.write(object_id, Operation::MergeStatus(status));
    }
}

fn image_of(task: &str) -> String {
    format!("registry.example.com/jobs/{task}:1.0.0")
}
