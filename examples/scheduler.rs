//! A scheduler built with informers: handlers for pending and placed pods, a queue with priorities, leader
//! election.
//!
//!     cargo run --example scheduler -- [--kubeconfig PATH]

use informer::election::LeaderElector;
use informer::election::Term;
use informer::workqueue::Priority;
use informer::workqueue::WorkQueue;
use informer::{Event, Key, Lister, Object};
use informer::{SharedInformer, SharedInformerFactory};
use informer_examples::{program, stop_signal};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use kube::api::{Api, ObjectMeta, PostParams};
use serde_json::Value;
use std::sync::{Arc, Mutex, PoisonError};
use std::{collections::BTreeMap, error::Error, process::ExitCode, time::Duration};

const USAGE: &str = "usage: scheduler [--kubeconfig PATH]

Places every pod with `schedulerName: example` on the node that has the fewest pods, the highest priority first, until Ctrl-C or SIGTERM. Start it
twice: one works, and the other takes over when it ends.";

#[tokio::main]
async fn main() -> ExitCode {
    let print = |line| println!("{line}");
    program(USAGE, async |arguments| run(arguments.client().await?, print, stop_signal()).await).await
}

/// Places pods while leading, until `done`.
pub(crate) async fn run(
    client: kube::Client,
    print: impl Fn(String) + Clone + Send + Sync + 'static,
    done: impl Future<Output = ()>,
) -> Result<(), Box<dyn Error>> {
    let factory = SharedInformerFactory::new(client.clone());
    let (pods, nodes) = (factory.informer::<Pod>(), factory.lister::<Node>());
    factory.start();
    factory.wait_for_sync(Duration::from_secs(30)).await?;
    let elector = LeaderElector::new(client.clone(), "kube-system", "example-scheduler");
    let lead = |term| {
        let (client, pods, nodes) = (client.clone(), pods.clone(), nodes.clone());
        Scheduler { client, pods, nodes, placed: Placed::default() }.run(term, print.clone())
    };
    elector.run(lead, done).await?;
    Ok(factory.shutdown(Duration::from_secs(5)).await?)
}

struct Scheduler {
    client: kube::Client,
    pods: SharedInformer<Pod>,
    nodes: Lister<Node>,
    placed: Placed,
}

impl Scheduler {
    /// Places pods until the term ends.
    async fn run(self, term: Term, print: impl Fn(String)) {
        let queue = WorkQueue::new();
        let (adding, placed, pods) = (queue.clone(), self.placed.clone(), self.pods.lister());
        let unassigned = self.pods.handler().filter(is_waiting).on_event(move |event| match event {
            Event::Deleted { last, .. } => placed.update(last.key(), &pods), // placed or deleted
            event => adding.add_with_priority(event.object().key().clone(), priority_of(event.object())),
        });
        let (placed, pods) = (self.placed.clone(), self.pods.lister());
        let assigned = self.pods.handler().filter(|pod| node_of(pod).is_some());
        let assigned = assigned.on_event(move |event| placed.update(event.object().key(), &pods));
        // The emptiest node is unknown until both handlers have received their initial lists.
        if !(unassigned.wait_for_sync().await && assigned.wait_for_sync().await) {
            return;
        }
        print(format!("leading since version {}", term.fencing_token().version));
        while let Some(lease) = tokio::select! {
            () = term.stop_requested() => None,
            lease = queue.get() => lease,
        } {
            let (key, placed) = (lease.key().clone(), self.place(lease.key()).await);
            match placed {
                Ok(node) => {
                    lease.done();
                    if let Some(node) = node {
                        print(format!("{key} on {node}"));
                    }
                }
                Err(error) => print(format!("{key}: {error}, again in {:.1?}", lease.retry())),
            }
        }
    }

    /// Places one pod and returns its node; `None` if it is placed, deleted, or belongs to another scheduler.
    async fn place(&self, key: &Key) -> Result<Option<String>, Box<dyn Error + Send + Sync>> {
        let Some(pod) = self.pods.lister().get_by_key(key).filter(is_waiting) else { return Ok(None) };
        let node = self.placed.emptiest(&self.nodes).ok_or("there is no node")?;
        // Assumed to succeed, so that the next pod counts it. The informer will deliver the same.
        self.placed.assume(key, &node);
        // Contains the uid, so that the server does not bind a re-created pod with the same name.
        let (name, uid) = (Some(key.name().to_owned()), Some(pod.uid().to_owned()));
        let metadata = ObjectMeta { name, uid, ..ObjectMeta::default() };
        let target =
            ObjectReference { kind: Some("Node".into()), name: Some(node.clone()), ..Default::default() };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        let (params, binding) = (PostParams::default(), Binding { metadata, target });
        let bound: Result<Value, _> = pods.create_subresource("binding", key.name(), &params, &binding).await;
        let Err(error) = bound else { return Ok(Some(node)) };
        self.placed.update(key, &self.pods.lister());
        match error {
            // It was placed by another scheduler or deleted; the informer will deliver which.
            kube::Error::Api(status) if matches!(status.code, 404 | 409) => Ok(None),
            error => Err(error.into()),
        }
    }
}

/// Node of each pod: delivered by the informer, or assumed after a binding was sent.
#[derive(Clone, Default)]
struct Placed(Arc<Mutex<BTreeMap<Key, String>>>);

impl Placed {
    fn assume(&self, pod: &Key, node: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(pod.clone(), node.to_owned());
    }

    /// Replaces an assumed placement by the cached one. The cache is read under the lock, so later changes
    /// are applied later.
    fn update(&self, pod: &Key, pods: &Lister<Pod>) {
        let mut placed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match pods.get_by_key(pod).as_ref().and_then(node_of) {
            Some(node) => placed.insert(pod.clone(), node),
            None => placed.remove(pod),
        };
    }

    fn emptiest(&self, nodes: &Lister<Node>) -> Option<String> {
        let mut counts: BTreeMap<_, usize> = nodes.list().iter().map(|n| (n.name().to_owned(), 0)).collect();
        for node in self.0.lock().unwrap_or_else(PoisonError::into_inner).values() {
            counts.entry(node.clone()).and_modify(|count| *count += 1);
        }
        counts.into_iter().min_by_key(|(_, count)| *count).map(|(node, _)| node)
    }
}

fn node_of(pod: &Object<Pod>) -> Option<String> {
    pod.typed().ok()?.spec.as_ref()?.node_name.clone()
}

/// Whether this scheduler has to place the pod.
fn is_waiting(pod: &Object<Pod>) -> bool {
    let name = |pod: &Pod| pod.spec.as_ref()?.scheduler_name.clone();
    let is_ours = pod.typed().is_ok_and(|pod| name(&pod).as_deref() == Some("example"));
    is_ours && pod.deletion_timestamp().is_none() && node_of(pod).is_none()
}

fn priority_of(pod: &Object<Pod>) -> Priority {
    Priority(pod.typed().ok().and_then(|pod| pod.spec.as_ref()?.priority).unwrap_or_default())
}
