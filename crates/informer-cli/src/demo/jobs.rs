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
    at: ObjectId,
    uid: String,
    program: usize,
    begun: Timestamp,
    done: bool,
}

impl Demo {
    pub(super) fn start_job(&mut self) {
        let program_at = self.rng.below(PROGRAMS.len());
        let task = TASKS.get(self.rng.below(TASKS.len())).copied().unwrap_or("cleanup");
        let Some(program) = PROGRAMS.get(program_at) else { return };
        let name = format!("{task}-{}", self.rng.suffix(8));
        let at = ObjectId::new(Kind::Job, program.namespace, &name);
        let object = objects::job(program, &name, task, &image_of(task));
        self.jobs.insert(
            name,
            Job { at: at.clone(), uid: String::new(), program: program_at, begun: self.now, done: false },
        );
        self.create(at, object);
    }

    pub(super) fn handle_job_result(&mut self, at: &ObjectId, result: &WriteResult) {
        let Some(job) = self.jobs.get_mut(&at.name).filter(|job| job.at == *at) else { return };
        match result {
            WriteResult::Done(object) if job.uid.is_empty() => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut job.uid);
                let (uid, program) = (job.uid.clone(), job.program);
                let Some(program) = PROGRAMS.get(program) else { return };
                let task = at.name.rsplit_once('-').map_or("cleanup", |(task, _)| task);
                let pod = self.create_pod(&NewPod {
                    owner: OwnerId::Job(at.name.clone()),
                    by: Owner { kind: Kind::Job, name: &at.name, uid: &uid },
                    program,
                    app: task,
                    hash: "",
                    image: &image_of(task),
                    healthy: true,
                });
                let name = self.pods.get(&pod).map(|pod| pod.at.name.clone()).unwrap_or_default();
                let message = format!("Created pod: {name}");
                self.record_event(&EventDetails {
                    about: at,
                    uid: &uid,
                    reason: "SuccessfulCreate",
                    message: &message,
                    component: "job-controller",
                });
                self.write_job_status(&at.name, false);
            }
            WriteResult::Done(_) => {}
            WriteResult::Gone | WriteResult::Rejected => self.drop_job(&at.name),
        }
    }

    /// Handles a new phase of a job's pod.
    pub(super) fn job_moved(&mut self, name: &str, phase: Phase) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        job.done |= phase == Phase::Completed;
        if job.done {
            let (about, uid) = (job.at.clone(), job.uid.clone());
            self.record_event(&EventDetails {
                about: &about,
                uid: &uid,
                reason: "Completed",
                message: "Job completed",
                component: "job-controller",
            });
            self.after(COMPLETED_JOB_TTL_MS, ScheduledAction::Forget(name.to_owned()));
        }
        self.write_job_status(name, phase == Phase::Running);
    }

    /// Handles the removal of its pod: a job that is not complete is deleted.
    pub(super) fn job_lost_pod(&mut self, name: &str) {
        if self.jobs.get(name).is_some_and(|job| !job.done) {
            self.forget_job(name);
        }
    }

    pub(super) fn forget_job(&mut self, name: &str) {
        let Some(at) = self.jobs.get(name).map(|job| job.at.clone()) else { return };
        self.drop_job(name);
        self.write(at, Operation::DeleteNow);
    }

    /// Forgets the jobs of a deleted namespace.
    pub(super) fn drop_jobs(&mut self, namespace: &str) {
        let there = self.jobs.iter().filter(|(_, job)| job.at.namespace == namespace);
        for name in there.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.forget_job(&name);
        }
    }

    /// Forgets a job that no longer exists, and deletes its dependents.
    fn drop_job(&mut self, name: &str) {
        self.jobs.remove(name);
        let owner = OwnerId::Job(name.to_owned());
        let pods: Vec<(u64, ObjectId)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.owner == owner)
            .map(|(id, pod)| (*id, pod.at.clone()))
            .collect();
        for (id, at) in pods {
            self.write(at, Operation::DeleteNow);
            self.remove_pod(id);
        }
    }

    fn write_job_status(&mut self, name: &str, ready: bool) {
        let Some(job) = self.jobs.get(name) else { return };
        let status = status::job(job.begun, job.done.then_some(self.now), ready);
        let at = job.at.clone();
        self.write(at, Operation::MergeStatus(status));
    }
}

fn image_of(task: &str) -> String {
    format!("registry.example.com/jobs/{task}:1.0.0")
}
