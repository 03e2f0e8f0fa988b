//! The namespace controller: empties namespaces that are being deleted, then finalizes them.
//!
//! All namespaced resources are emptied, including custom ones. Objects with finalizers keep the namespace
//! until their finalizers are removed.

use std::collections::BTreeSet;

use informer_apiserver::{DeleteParams, Propagation};
use jiff::Timestamp;

use crate::cluster::{Actor, Cluster};
use crate::object::{is_terminating, items};
use crate::queue::{Handled, Queue};

/// Delay before a change in a terminating namespace is handled, in milliseconds.
const DELAY_MS: (i64, i64) = (50, 800);

/// The namespace controller.
#[derive(Debug)]
pub(crate) struct Namespaces {
    /// The namespaces that are being deleted.
    terminating: BTreeSet<String>,
    queue: Queue<String>,
}

impl Namespaces {
    pub(crate) fn new() -> Self {
        Namespaces { terminating: BTreeSet::new(), queue: Queue::new() }
    }
}

impl Actor for Namespaces {
    fn name(&self) -> &'static str {
        "namespaces"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        for change in cluster.changes() {
            let is_namespace = change.resource.plural == "namespaces" && change.resource.group.is_empty();
            let name = if is_namespace { &change.name } else { &change.namespace };
            if is_namespace {
                if change.after.as_ref().is_some_and(|after| is_terminating(after)) {
                    self.terminating.insert(name.clone());
                } else {
                    self.terminating.remove(name);
                }
            }
            if self.terminating.contains(name) {
                self.queue.add(cluster, name.clone(), DELAY_MS);
            }
        }
        self.queue.run(cluster, |cluster, name| empty(cluster, name))
    }
}

/// Deletes the objects in a namespace; finalizes the namespace if there are none.
fn empty(cluster: &mut Cluster<'_>, name: &str) -> Handled {
    let Some(namespace) = cluster.get("v1", "namespaces", None, name) else { return Ok(None) };
    if !is_terminating(&namespace) {
        return Ok(None);
    }
    for object in cluster.in_namespace(name) {
        if is_terminating(&object) {
            continue;
        }
        // The object may be gone as a consequence of an earlier deletion.
        let params = DeleteParams::new().propagation(Propagation::Background);
        match cluster.delete_with(&object, params) {
            Err(status) if status.code != 404 => return Err(status),
            _ => {}
        }
    }
    if cluster.in_namespace(name).is_empty() && !items(&namespace, "/spec/finalizers").is_empty() {
        cluster.finalize_namespace(&namespace)?;
    }
    Ok(None)
}
