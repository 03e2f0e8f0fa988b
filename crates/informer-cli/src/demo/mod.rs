//! A demo cluster that keeps moving: deployments roll and scale, pods start, crash and are replaced, nodes come and go, jobs
//! end.
//!
//! [`Demo`] decides and is pure: [`Demo::tick`] says what is to be written now, [`Demo::answer`] hears what became of it. It plays
//! controllers, scheduler and kubelets at once, and looks at what it depends on now and then: a deployment that somebody scaled or updated by hand
//! rolls, a pod that somebody deleted is replaced. What the server refuses is skipped. The same seed, times and answers give the same story. [`start`] drives
//! it against a server.
//!
//! Invariants, see [`Demo::check_invariants`]: no two objects of a kind have one name, a pod is on a node that is there, and belongs to a
//! set or a job that is there.

mod app;
mod apps;
mod catalogue;
mod chance;
mod driver;
mod incidents;
mod jobs;
mod nodes;
mod objects;
mod pods;
mod status;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use chance::any_seed;
pub(crate) use driver::{Running, start};

use app::App;
use chance::Chance;
use jiff::{SignedDuration, Timestamp};
use jobs::Job;
use nodes::Node;
use objects::Report;
use pods::Pod;
use serde_json::Value;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use write::{Answer, At, Kind, What, Write};

/// The cluster as its controllers know it.
#[derive(Debug)]
pub(crate) struct Demo {
    chance: Chance,
    now: Timestamp,
    size: usize,
    /// Until the cluster stands, pods are there at once, and nothing happens by chance.
    young: bool,
    queue: BinaryHeap<Reverse<(Timestamp, u64, Due)>>,
    /// Numbers everything that needs one: turns in the queue, pods, addresses, events.
    count: u64,
    /// Those that nobody has deleted.
    namespaces: Vec<&'static str>,
    nodes: Vec<Node>,
    apps: Vec<App>,
    pods: BTreeMap<u64, Pod>,
    /// Which pod has a namespace and name.
    names: BTreeMap<At, u64>,
    jobs: BTreeMap<String, Job>,
    /// Words that were said, the oldest first; the server would forget them after an hour.
    events: VecDeque<At>,
    /// Which pods were looked at last.
    looked: u64,
    writes: Vec<Write>,
}

/// What there is to do at some time.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Bring a deployment nearer to what it should be.
    Sync(usize),
    /// Look at a deployment.
    LookApp(usize),
    /// Look at some pods.
    LookPods,
    /// The next step of a pod's life, unless it has changed since.
    Pod(u64, u32),
    /// Renew a node's lease.
    Lease(usize),
    /// Look at the nodes, and at the namespaces.
    LookNodes,
    LookNamespaces,
    /// A node comes back.
    Back(usize),
    /// A node that somebody deleted is there again.
    Register(usize),
    Uncordon(usize),
    /// Take back an update that does not start.
    Rollback(usize),
    /// Forget a job that is done.
    Forget(String),
    /// Something happens.
    Incident,
}

impl Demo {
    /// A cluster of about so many pods.
    pub(crate) fn new(seed: u64, pods: usize, now: Timestamp) -> Self {
        let mut demo = Self {
            chance: Chance::new(seed),
            now,
            size: pods,
            young: true,
            queue: BinaryHeap::new(),
            count: 0,
            namespaces: catalogue::NAMESPACES.to_vec(),
            nodes: Vec::new(),
            apps: Vec::new(),
            pods: BTreeMap::new(),
            names: BTreeMap::new(),
            jobs: BTreeMap::new(),
            events: VecDeque::new(),
            looked: 0,
            writes: Vec::new(),
        };
        for name in catalogue::NAMESPACES {
            demo.create(At::new(Kind::Namespace, "", name), objects::namespace(name));
        }
        demo.add_nodes(catalogue::nodes(pods));
        for planned in catalogue::plan(pods) {
            demo.add_app(planned);
        }
        demo
    }

    /// What is to be written now, in this order.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Vec<Write> {
        self.now = self.now.max(now);
        while let Some(Reverse((at, ..))) = self.queue.peek()
            && *at <= self.now
        {
            let Some(Reverse((_, _, due))) = self.queue.pop() else { break };
            self.happen(due);
        }
        std::mem::take(&mut self.writes)
    }

    /// When there is something to do next.
    pub(crate) fn next(&self) -> Timestamp {
        self.queue.peek().map_or(self.now + SignedDuration::from_secs(60), |Reverse((at, ..))| *at)
    }

    /// The cluster stands: from now on things happen.
    pub(crate) fn let_live(&mut self) {
        self.young = false;
        self.after(1000, Due::Incident);
        self.after(1000, Due::LookPods);
        self.after(1000, Due::LookNodes);
        self.after(1000, Due::LookNamespaces);
        for at in 0..self.apps.len() {
            let wait = self.chance.between(1000, 3000);
            self.after(wait, Due::LookApp(at));
        }
        for at in 0..self.nodes.len() {
            let wait = self.chance.between(0, nodes::LEASE);
            self.after(wait, Due::Lease(at));
        }
    }

    /// Hears what became of a write.
    pub(crate) fn answer(&mut self, write: &Write, answer: &Answer) {
        let deleting = matches!(write.what, What::Delete | What::Kill);
        match write.at.kind {
            Kind::Pod => self.pod_answered(write, answer),
            Kind::Deployment => self.app_answered(write, answer),
            Kind::ReplicaSet if !deleting => self.set_answered(&write.at, answer),
            Kind::Node => self.node_answered(write, answer),
            Kind::Namespace => self.namespace_answered(write, answer),
            Kind::Job if !deleting => self.job_answered(&write.at, answer),
            _ => {}
        }
    }

    fn happen(&mut self, due: Due) {
        match due {
            Due::Sync(app) => self.sync(app),
            Due::LookApp(app) => self.look_at_app(app),
            Due::LookPods => self.look_at_pods(),
            Due::Pod(pod, step) => self.step(pod, step),
            Due::Lease(node) => self.renew(node),
            Due::LookNodes => self.look_at_nodes(),
            Due::LookNamespaces => self.look_at_namespaces(),
            Due::Back(node) => self.node_back(node),
            Due::Register(node) => self.register(node),
            Due::Uncordon(node) => self.cordon(node, false),
            Due::Rollback(app) => self.roll_back(app),
            Due::Forget(job) => self.forget_job(&job),
            Due::Incident => self.incident(),
        }
    }

    fn look_at_namespaces(&mut self) {
        for name in self.namespaces.clone() {
            self.write(At::new(Kind::Namespace, "", name), What::Look);
        }
        self.after(1000, Due::LookNamespaces);
    }

    /// Empties a namespace that somebody deleted, and lets it end.
    fn namespace_answered(&mut self, write: &Write, answer: &Answer) {
        let ends = match answer {
            Answer::Done(object) => object["metadata"]["deletionTimestamp"].is_string(),
            Answer::Gone => true,
            Answer::Refused => false,
        };
        if !ends || matches!(write.what, What::Create(_) | What::Finalize) {
            return;
        }
        self.drop_jobs(&write.at.name);
        self.clear_namespace(&write.at.name);
        if matches!(answer, Answer::Gone) {
            self.namespaces.retain(|name| *name != write.at.name);
        } else {
            self.write(write.at.clone(), What::Finalize);
        }
    }

    /// Puts something on the list, so many milliseconds from now.
    fn after(&mut self, milliseconds: i64, due: Due) {
        let wait = if self.young { 0 } else { milliseconds };
        let at = self.now + SignedDuration::from_millis(wait);
        let turn = self.number();
        self.queue.push(Reverse((at, turn, due)));
    }

    fn number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    fn write(&mut self, at: At, what: What) {
        self.writes.push(Write { at, what });
    }

    fn create(&mut self, at: At, object: Value) {
        self.write(at, What::Create(object));
    }

    /// Says what happened to an object.
    fn say(&mut self, report: &Report<'_>) {
        if self.young {
            return;
        }
        let namespace = if report.about.namespace.is_empty() { "default" } else { &report.about.namespace };
        let name = format!("{}.{:016x}", report.about.name, self.number());
        let at = At::new(Kind::Event, namespace, &name);
        self.create(at.clone(), objects::event(&name, report, self.now));
        self.events.push_back(at);
        if self.events.len() > 100 + 2 * self.size
            && let Some(oldest) = self.events.pop_front()
        {
            self.write(oldest, What::Kill);
        }
    }

    /// Panics if something is not as it always should be.
    #[cfg(test)]
    fn check_invariants(&self) {
        assert_eq!(self.names.len(), self.pods.len(), "names of pods are unique");
        for (id, pod) in &self.pods {
            assert_eq!(self.names.get(&pod.at), Some(id), "a pod is found by its name");
            assert!(pod.node.is_none_or(|node| node < self.nodes.len()), "a pod is on a node that is there");
            match &pod.owner {
                pods::OwnerId::Set(app, id_of_set) => {
                    let set = self.apps[*app].sets.iter().find(|set| set.id == *id_of_set);
                    assert!(set.is_some_and(|set| set.pods.contains(id)), "a pod belongs to its set");
                }
                pods::OwnerId::Job(job) => assert!(self.jobs.contains_key(job), "a pod belongs to its job"),
            }
        }
        for app in &self.apps {
            let mut ids: Vec<u32> = app.sets.iter().map(|set| set.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), app.sets.len(), "sets are told apart");
            for set in &app.sets {
                assert!(
                    set.pods.iter().all(|pod| self.pods.contains_key(pod)),
                    "a set has pods that are there"
                );
            }
        }
        let mut nodes: Vec<&str> = self.nodes.iter().map(|node| &*node.name).collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert_eq!(nodes.len(), self.nodes.len(), "names of nodes are unique");
    }
}
