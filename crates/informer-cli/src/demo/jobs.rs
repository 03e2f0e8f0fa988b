//! Jobs: each has one pod, ends when that does, and is forgotten some time later.

use super::catalogue::PROGRAMS;
use super::objects::{self, Owner, Report};
use super::pods::{Birth, OwnerId};
use super::status::{self, Phase};
use super::write::{Answer, At, Kind, What};
use super::{Demo, Due};
use jiff::Timestamp;

/// What jobs are for.
const TASKS: &[&str] = &["reindex", "nightly-report", "db-backup", "cleanup", "migrate"];

/// How long a job that is done is kept, in milliseconds.
const KEPT: i64 = 45_000;

/// A job.
#[derive(Debug)]
pub(super) struct Job {
    at: At,
    uid: String,
    program: usize,
    begun: Timestamp,
    done: bool,
}

impl Demo {
    pub(super) fn start_job(&mut self) {
        let program_at = self.chance.below(PROGRAMS.len());
        let task = TASKS.get(self.chance.below(TASKS.len())).copied().unwrap_or("cleanup");
        let Some(program) = PROGRAMS.get(program_at) else { return };
        let name = format!("{task}-{}", self.chance.suffix(8));
        let at = At::new(Kind::Job, program.namespace, &name);
        let object = objects::job(program, &name, task, &image_of(task));
        self.jobs.insert(
            name,
            Job { at: at.clone(), uid: String::new(), program: program_at, begun: self.now, done: false },
        );
        self.create(at, object);
    }

    pub(super) fn job_answered(&mut self, at: &At, answer: &Answer) {
        let Some(job) = self.jobs.get_mut(&at.name).filter(|job| job.at == *at) else { return };
        match answer {
            Answer::Done(object) if job.uid.is_empty() => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut job.uid);
                let (uid, program) = (job.uid.clone(), job.program);
                let Some(program) = PROGRAMS.get(program) else { return };
                let task = at.name.rsplit_once('-').map_or("cleanup", |(task, _)| task);
                let pod = self.bear(&Birth {
                    owner: OwnerId::Job(at.name.clone()),
                    by: Owner { kind: Kind::Job, name: &at.name, uid: &uid },
                    program,
                    app: task,
                    hash: "",
                    image: &image_of(task),
                    sound: true,
                });
                let name = self.pods.get(&pod).map(|pod| pod.at.name.clone()).unwrap_or_default();
                let message = format!("Created pod: {name}");
                self.say(&Report {
                    about: at,
                    uid: &uid,
                    reason: "SuccessfulCreate",
                    message: &message,
                    component: "job-controller",
                });
                self.tell_job(&at.name, false);
            }
            Answer::Done(_) => {}
            Answer::Gone | Answer::Refused => self.drop_job(&at.name),
        }
    }

    /// The pod of a job has come to another phase.
    pub(super) fn job_moved(&mut self, name: &str, phase: Phase) {
        let Some(job) = self.jobs.get_mut(name) else { return };
        job.done |= phase == Phase::Completed;
        if job.done {
            let (about, uid) = (job.at.clone(), job.uid.clone());
            self.say(&Report {
                about: &about,
                uid: &uid,
                reason: "Completed",
                message: "Job completed",
                component: "job-controller",
            });
            self.after(KEPT, Due::Forget(name.to_owned()));
        }
        self.tell_job(name, phase == Phase::Running);
    }

    /// Its pod is gone: if it was not done, the job is given up with it.
    pub(super) fn job_lost_pod(&mut self, name: &str) {
        if self.jobs.get(name).is_some_and(|job| !job.done) {
            self.forget_job(name);
        }
    }

    pub(super) fn forget_job(&mut self, name: &str) {
        let Some(at) = self.jobs.get(name).map(|job| job.at.clone()) else { return };
        self.drop_job(name);
        self.write(at, What::Kill);
    }

    /// Forgets the jobs of a namespace that is deleted.
    pub(super) fn drop_jobs(&mut self, namespace: &str) {
        let there = self.jobs.iter().filter(|(_, job)| job.at.namespace == namespace);
        for name in there.map(|(name, _)| name.clone()).collect::<Vec<_>>() {
            self.forget_job(&name);
        }
    }

    /// Removes a job that is not there any more, and what belongs to it.
    fn drop_job(&mut self, name: &str) {
        self.jobs.remove(name);
        let owner = OwnerId::Job(name.to_owned());
        let pods: Vec<(u64, At)> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.owner == owner)
            .map(|(id, pod)| (*id, pod.at.clone()))
            .collect();
        for (id, at) in pods {
            self.write(at, What::Kill);
            self.lose(id);
        }
    }

    fn tell_job(&mut self, name: &str, ready: bool) {
        let Some(job) = self.jobs.get(name) else { return };
        let status = status::job(job.begun, job.done.then_some(self.now), ready);
        let at = job.at.clone();
        self.write(at, What::MergeStatus(status));
    }
}

fn image_of(task: &str) -> String {
    format!("registry.example.com/jobs/{task}:1.0.0")
}
