//! A watch of the few objects of a group.
//!
//! It uses the reflector of an informer without its cache and its handlers, because informers are above this module:
//! they divide their objects by the ranges of a group. What it publishes may be older than the newest state, so that
//! nothing that must be exact depends on it.

use super::client::GroupClient;
use crate::clock::Clock;
use crate::delta_queue::DeltaQueue;
use crate::reflector::ReflectorDriver;
use crate::resource::ResourceType;
use crate::source::{KubeSource, Throughput};
use crate::status::{DiagnosticSink, StatusCell};
use informer_core::reflector::{Config, ShardedReflector};
use informer_core::wire::UnreadableObject;
use informer_core::{Batch, Delta, Entry, Scope};
use kube::core::DynamicObject;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::watch;

/// Upper bound on the deltas that are applied before the objects are published.
const MAX_BATCH_DELTAS: usize = 256;

/// The objects by name; `None` before the first list.
pub(super) type Objects = Option<Arc<BTreeMap<String, Arc<DynamicObject>>>>;

/// The objects that a watch selects.
pub(super) enum Selected {
    /// The Leases of all members.
    Leases,
    /// The assignment.
    Assignment,
}

/// A watch that publishes the objects after each change.
pub(super) struct ObjectWatch {
    source: KubeSource,
    resource: ResourceType,
    scope: Scope,
    seed: u64,
    description: Arc<str>,
    /// One channel for each subscriber, so that they are woken in a fixed order.
    objects: Vec<watch::Sender<Objects>>,
}

impl ObjectWatch {
    pub(super) fn new(client: &GroupClient, selected: &Selected, seed: u64) -> Self {
        let (group, kind, plural) = match selected {
            Selected::Leases => ("coordination.k8s.io", "Lease", "leases"),
            Selected::Assignment => ("", "ConfigMap", "configmaps"),
        };
        let resource = ResourceType {
            group: group.into(),
            version: "v1".into(),
            kind: kind.into(),
            plural: plural.into(),
            metadata_only: false,
        };
        let namespace = client.namespace();
        let source = KubeSource::new(client.kube_client(), resource.url_path(Some(namespace)));
        let source = match selected {
            Selected::Leases => source.label_selector(client.label_selector()),
            Selected::Assignment => {
                source.field_selector(format!("metadata.name={}", client.assignment_name()))
            }
        };
        let description = format!("{} of shard group {client}", resource.name()).into();
        let scope = Scope::namespace(namespace);
        Self { source, resource, scope, seed, description, objects: Vec::new() }
    }

    /// Returns a channel with the objects, for one task.
    pub(super) fn subscribe(&mut self) -> watch::Receiver<Objects> {
        let (sender, receiver) = watch::channel(None);
        self.objects.push(sender);
        receiver
    }

    /// Watches until dropped.
    pub(super) async fn run(self) {
        let queue = Arc::new(DeltaQueue::new(1));
        let config = Config::new(self.resource.types(), self.scope.clone());
        let driver = ReflectorDriver {
            machine: ShardedReflector::new(config, self.seed, None),
            source: Arc::new(self.source.clone()),
            throughput: Throughput::default(),
            sample: None,
            queue: Arc::clone(&queue),
            status: Arc::new(StatusCell::new(std::slice::from_ref(&self.scope))),
            diagnostics: DiagnosticSink { resource: Arc::clone(&self.description), hook: None },
            scope_index: 0,
            clock: Clock::new(),
            stop: watch::Sender::new(false),
            saved: None,
            shard: None,
        };
        tokio::join!(driver.run(), self.publish(&queue));
    }

    async fn publish(&self, queue: &DeltaQueue) {
        let mut objects = BTreeMap::new();
        let mut is_published = false;
        while let Some((scope_index, batch)) = queue.pop(MAX_BATCH_DELTAS).await {
            let end = batch.end();
            let is_changed = apply(&mut objects, batch);
            if queue.applied(scope_index, end) && (is_changed || !is_published) {
                let published = Arc::new(objects.clone());
                for subscriber in &self.objects {
                    subscriber.send_replace(Some(Arc::clone(&published)));
                }
                is_published = true;
            }
        }
    }
}

/// Applies deltas; returns whether objects have changed.
fn apply(objects: &mut BTreeMap<String, Arc<DynamicObject>>, batch: Batch) -> bool {
    let mut is_changed = false;
    for delta in batch.deltas {
        is_changed |= match delta {
            Delta::Added(entry) | Delta::Updated(entry) => insert(objects, &entry),
            Delta::Deleted(deleted) => objects.remove(deleted.key.name()).is_some(),
            Delta::Replaced(replaced) => {
                let mut previous = std::mem::take(objects);
                for entry in &replaced.entries {
                    insert(objects, entry);
                }
                // Objects whose new state cannot be read exist: the last one that could be read stays.
                let unreadable = replaced.unreadable.into_iter().filter_map(unreadable_name);
                objects.extend(unreadable.filter_map(|name| previous.remove_entry(&name)));
                true
            }
            Delta::Bookmark(_) | Delta::Unreadable(_) | Delta::Gained(_) | Delta::Released(_) => false,
        };
    }
    is_changed
}

fn insert(objects: &mut BTreeMap<String, Arc<DynamicObject>>, entry: &Entry) -> bool {
    let Ok(object) = serde_json::from_slice::<DynamicObject>(&entry.bytes()) else { return false };
    objects.insert(entry.key().name().to_owned(), Arc::new(object));
    true
}

fn unreadable_name(object: UnreadableObject) -> Option<String> {
    object.key.map(|key| key.name().to_owned())
}
