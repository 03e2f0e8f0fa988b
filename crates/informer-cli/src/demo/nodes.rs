//! The agents of the nodes: they renew the Leases of ready nodes, and register deleted nodes again.

use super::condition;
use super::objects::{self, LEASE_NAMESPACE};
use informer_actors::{Actor, Cluster};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use std::collections::BTreeMap;

const LEASE_RENEW_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// Time until a deleted node registers again.
const REGISTER_DELAY: SignedDuration = SignedDuration::from_secs(5);

/// The agents of all nodes.
#[derive(Debug)]
pub(super) struct Nodes {
    count: usize,
    /// When each agent is due, by the name of its node, with the index of the node. Empty before the first step.
    due: BTreeMap<String, (Timestamp, usize)>,
}

impl Nodes {
    pub(super) fn new(count: usize) -> Self {
        Self { count, due: BTreeMap::new() }
    }
}

impl Actor for Nodes {
    fn name(&self) -> &'static str {
        "node-agents"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        if self.due.is_empty() {
            for index in 0..self.count {
                let due = cluster.after_delay(0, 5000);
                self.due.insert(objects::node_name(index), (due, index));
            }
        } else {
            for change in cluster.changes() {
                if (change.resource.group.as_str(), change.resource.plural.as_str()) == ("", "nodes")
                    && change.after.is_none()
                    && let Some((due, _)) = self.due.get_mut(&change.name)
                {
                    *due = cluster.now() + REGISTER_DELAY;
                }
            }
        }
        for (name, (due, index)) in &mut self.due {
            if *due <= cluster.now() {
                *due = cluster.now() + LEASE_RENEW_PERIOD;
                act(cluster, name, *index);
            }
        }
        self.due.values().map(|(due, _)| *due).min()
    }
}

/// Renews the Lease of a node, or registers the node if it was deleted. A rejected write is repeated with the next
/// renewal.
fn act(cluster: &mut Cluster<'_>, name: &str, index: usize) {
    let now = cluster.now();
    let lease = cluster.get("coordination.k8s.io/v1", "leases", Some(LEASE_NAMESPACE), name);
    match cluster.get("v1", "nodes", None, name) {
        Some(node) if condition(&node, "Ready") != "True" => return,
        Some(_) => {}
        None => drop(cluster.create(objects::node(index, now))),
    }
    drop(match lease {
        Some(lease) => cluster.merge(&lease, &json!({"spec": {"renewTime": objects::micro_time(now)}})),
        None => cluster.create(objects::lease(name, now)).map(drop),
    });
}
