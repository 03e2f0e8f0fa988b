//! A scheduler built with informers: a queue with priorities, indexes, retries when there is room again, leader
//! election.
//!
//!     cargo example scheduler -- [--kubeconfig PATH] [--lease-namespace NAME]

#[path = "scheduler/fit.rs"]
pub(crate) mod fit;

use fit::{Resources, add, misfit, requests_of};
use informer::cache::Retention;
use informer::election::{LeaderElector, Term};
use informer::workqueue::{Priority, WorkQueue};
use informer::{Event, Index, IndexHandle, InformerOptions, Key, Object};
use informer::{SharedInformer, SharedInformerFactory};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{error::Error, process::ExitCode, time::Duration};
use tokio::sync::Notify;

const USAGE: &str = "usage: scheduler [--kubeconfig PATH] [--lease-namespace NAME]

Places every pod with `schedulerName: example`, the highest priority first, on the node that has the fewest pods among
those that are ready, tolerated and have enough free resources, until Ctrl-C or SIGTERM. Start it twice: one works, and
the other takes over when it ends. Affinity, volumes, host ports and preemption are not considered.

The lease is in the namespace of --lease-namespace or LEASE_NAMESPACE, or in that of the kubeconfig or pod.";

/// Finished pods occupy no node. The server leaves them out, and delivers a pod that finishes as deleted.
const UNFINISHED: &str = "status.phase!=Succeeded,status.phase!=Failed";

#[tokio::main]
async fn main() -> ExitCode {
    program(USAGE, async |mut arguments| {
        let namespace = arguments.setting("--lease-namespace")?;
        let client = arguments.client().await?;
        let namespace: String = namespace.unwrap_or_else(|| client.default_namespace().to_owned());
        run(client, &namespace, |line| println!("{line}"), stop_signal()).await
    })
    .await
}

/// Places pods while leading, until `done`.
pub(crate) async fn run(
    client: kube::Client,
    lease_namespace: &str,
    print: impl Fn(String) + Clone + Send + Sync + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let factory = SharedInformerFactory::new(client.clone());
    factory.configure::<Pod>(InformerOptions::default().field_selector(UNFINISHED.parse()?))?;
    // Every placement reads every node, so nodes stay decoded.
    factory.configure::<Node>(InformerOptions::default().retention(Retention::Decoded))?;
    let (pods, nodes) = (factory.informer::<Pod>(), factory.informer::<Node>());
    let by_node = pods.add_index(Index::field("spec.nodeName"))?;
    let waiting = pods.add_index(Index::from_fn("waiting", |pod| is_waiting(pod).then(String::new)))?;
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;
    let elector = LeaderElector::new(client.clone(), lease_namespace, "example-scheduler");
    let lead = |term| {
        let (client, pods, nodes) = (client.clone(), pods.clone(), nodes.clone());
        let (by_node, waiting) = (by_node.clone(), waiting.clone());
        let scheduler = Scheduler { client, pods, nodes, by_node, waiting, usage: Arc::default() };
        scheduler.run(term, print.clone())
    };
    elector.run(lead, done).await?;
    Ok(factory.shutdown(Duration::from_secs(5)).await?)
}

struct Scheduler {
    client: kube::Client,
    pods: SharedInformer<Pod>,
    nodes: SharedInformer<Node>,
    /// Pods by the name of their node.
    by_node: IndexHandle<Pod>,
    /// Pods for which `is_waiting` holds, under the empty value.
    waiting: IndexHandle<Pod>,
    usage: Arc<Mutex<Usage>>,
}

impl Scheduler {
    /// Places pods until the term ends.
    async fn run(self, term: Term, print: impl Fn(String)) {
        let (queue, room) = (WorkQueue::new(), Arc::new(Notify::new()));
        let (adding, usage, freed) = (queue.clone(), Arc::clone(&self.usage), Arc::clone(&room));
        let on_pod = self.pods.handler().name("pods").on_event(move |event| match event {
            Event::Added { object: pod, .. } | Event::Updated { new: pod, .. } if is_waiting(&pod) => {
                adding.add_with_priority(pod.key().clone(), priority_of(&pod));
            }
            Event::Deleted { last, .. } => {
                lock(&usage).invalidate(&last);
                freed.notify_one();
            }
            event => lock(&usage).invalidate(event.object()), // placed, or of another scheduler
        });
        let appeared = Arc::clone(&room);
        let _on_node = self.nodes.handler().name("nodes").on_event(move |_| appeared.notify_one());
        // The order of priorities is unknown until the handler has queued all waiting pods.
        if !on_pod.wait_for_sync().await {
            return;
        }
        print(format!("leading since version {}", term.fencing_token().version));
        loop {
            let item = tokio::select! {
                () = term.stop_requested() => return,
                // Pods that did not fit are retried with backoff, and at once when a node appeared or changed
                // or a pod left. Only after the queued pods: this way a burst of changes causes one retry.
                () = room.notified(), if queue.is_empty() => {
                    for pod in self.pods.snapshot().by_index(&self.waiting, "") {
                        queue.add_with_priority(pod.key().clone(), priority_of(pod));
                    }
                    continue;
                }
                Some(item) = queue.get() => item,
            };
            let key = item.key().clone();
            match self.place(&key).await {
                Ok(node) => {
                    item.done();
                    if let Some(node) = node {
                        print(format!("{key} on {node}"));
                    }
                }
                Err(error) => print(format!("{key}: {error}, again in {:.1?}", item.retry())),
            }
        }
    }

    /// Places one pod and returns its node; `None` if it is placed, deleted, or belongs to another scheduler.
    async fn place(&self, key: &Key) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let Some(pod) = self.pods.lister().get_by_key(key).filter(is_waiting) else { return Ok(None) };
        let Some(node) = self.choose(&pod)? else { return Ok(None) };
        // Contains the uid, so that the server does not bind a re-created pod with the same name.
        let (name, uid) = (Some(key.name().to_owned()), Some(pod.uid().to_owned()));
        let metadata = ObjectMeta { name, uid, ..ObjectMeta::default() };
        let target =
            ObjectReference { kind: Some("Node".into()), name: Some(node.clone()), ..Default::default() };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        let (params, binding) = (PostParams::default(), Binding { metadata, target });
        let bound: Result<Value, _> = pods.create_subresource("binding", key.name(), &params, &binding).await;
        let Err(error) = bound else { return Ok(Some(node)) };
        lock(&self.usage).invalidate(&pod);
        match error {
            // It was placed by another scheduler or deleted; the informer will deliver which.
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(None),
            error => Err(error.into()),
        }
    }

    /// Chooses a node for the pod and assumes the placement, so that the next pod counts it; `None` if that
    /// has happened before and the cache does not show it yet.
    fn choose(&self, pod: &Object<Pod>) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let (typed, nodes) = (pod.typed()?, self.nodes.snapshot());
        let requests = requests_of(&typed);
        let mut usage = lock(&self.usage);
        if usage.assumed.contains_key(pod.key()) {
            return Ok(None);
        }
        let mut best: Option<(f64, &str)> = None;
        let mut misfits: BTreeMap<String, usize> = BTreeMap::new();
        for node in &nodes {
            let requested = usage.requested_on(node.name(), self);
            let unreadable = |_| Some("unreadable".to_owned());
            if let Some(reason) =
                node.typed().map_or_else(unreadable, |node| misfit(&typed, &requests, &node, requested))
            {
                *misfits.entry(reason).or_default() += 1;
                continue;
            }
            let count = requested.get("pods").copied().unwrap_or_default();
            if best.is_none_or(|(least, _)| count < least) {
                best = Some((count, node.name()));
            }
        }
        let Some((_, node)) = best else {
            let reasons = misfits.iter().map(|(reason, count)| format!(", {count} {reason}"));
            return Err(format!("0/{} nodes fit{}", nodes.len(), reasons.collect::<String>()).into());
        };
        usage.assume(pod.key(), node, requests);
        Ok(Some(node.to_owned()))
    }
}

/// Requested resources per node, so that a placement does not add up all pods.
#[derive(Default)]
struct Usage {
    /// Computed when needed, and removed when a pod of the node changes.
    requested: HashMap<String, Resources>,
    /// Placements that were sent and not delivered by the informer yet.
    assumed: HashMap<Key, (String, Resources)>,
}

impl Usage {
    /// The cache is read under the lock. A later change is delivered later, and removes the sum.
    fn requested_on(&mut self, node: &str, scheduler: &Scheduler) -> &Resources {
        let Self { requested, assumed } = self;
        requested.entry(node.to_owned()).or_insert_with(|| {
            let (pods, mut sum) = (scheduler.pods.snapshot(), Resources::new());
            for pod in pods.by_index(&scheduler.by_node, node) {
                let unreadable = |_| requests_of(&Pod::default()); // counts as a pod
                add(&mut sum, &pod.typed().map_or_else(unreadable, |pod| requests_of(&pod)));
            }
            for (pod, (_, requests)) in assumed.iter().filter(|(_, (name, _))| name == node) {
                if pods.get(pod).and_then(node_of).is_none() {
                    add(&mut sum, requests);
                }
            }
            sum
        })
    }

    fn assume(&mut self, pod: &Key, node: &str, requests: Resources) {
        add(self.requested.entry(node.to_owned()).or_default(), &requests);
        self.assumed.insert(pod.clone(), (node.to_owned(), requests));
    }

    /// Ends the assumption about a pod, and has the sums of the affected nodes computed again.
    fn invalidate(&mut self, pod: &Object<Pod>) {
        let assumed = self.assumed.remove(pod.key()).map(|(node, _)| node);
        for node in assumed.into_iter().chain(node_of(pod)) {
            self.requested.remove(&node);
        }
    }
}

/// A panic leaves no half-finished change.
fn lock(usage: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    usage.lock().unwrap_or_else(PoisonError::into_inner)
}

fn node_of(pod: &Object<Pod>) -> Option<String> {
    pod.field("spec.nodeName").filter(|node| !node.is_empty())
}

/// Whether this scheduler has to place the pod. Reads fields without decoding the pod.
fn is_waiting(pod: &Object<Pod>) -> bool {
    let is_ours = pod.field("spec.schedulerName").as_deref() == Some("example");
    is_ours && pod.deletion_timestamp().is_none() && node_of(pod).is_none()
}

fn priority_of(pod: &Object<Pod>) -> Priority {
    Priority(pod.field("spec.priority").and_then(|value| value.parse().ok()).unwrap_or_default())
}
