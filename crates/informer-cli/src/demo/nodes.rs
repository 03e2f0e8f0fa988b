//! Nodes: their leases, their readiness, and what that means for the pods on them.

use super::objects::{self, Report};
use super::status::{self, Phase};
use super::write::{Answer, At, Kind, What, Write};
use super::{Demo, Due};
use jiff::Timestamp;
use serde_json::json;

/// How often a lease is renewed, in milliseconds.
pub(super) const LEASE: i64 = 10_000;

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) address: String,
    uid: String,
    pub(super) ready: bool,
    cordoned: bool,
    changed: Timestamp,
    /// How many pods are on it.
    pub(super) load: usize,
}

impl Node {
    pub(super) fn takes_pods(&self) -> bool {
        self.ready && !self.cordoned
    }

    fn at(&self) -> At {
        At::new(Kind::Node, "", &self.name)
    }
}

impl Demo {
    pub(super) fn add_nodes(&mut self, count: usize) {
        for number in 0..count {
            let name = format!("node-{:02}", number + 1);
            let address = format!("10.0.{}.{}", number / 250, number % 250 + 4);
            let now = self.now;
            self.nodes.push(Node {
                name,
                address,
                uid: String::new(),
                ready: true,
                cordoned: false,
                changed: now,
                load: 0,
            });
            self.create_node(number);
        }
    }

    /// The node for the next pod: one with the fewest, if any takes pods.
    pub(super) fn choose_node(&mut self) -> Option<usize> {
        let fewest = self.nodes.iter().filter(|node| node.takes_pods()).map(|node| node.load).min()?;
        let among =
            self.nodes.iter().enumerate().filter(|(_, node)| node.takes_pods() && node.load <= fewest + 1);
        let among: Vec<usize> = among.map(|(at, _)| at).collect();
        let chosen = self.chance.below(among.len());
        among.get(chosen).copied()
    }

    pub(super) fn renew(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        if node.ready {
            let lease = At::new(Kind::Lease, "kube-node-lease", &node.name);
            let renewed = objects::micro_time(self.now);
            self.write(lease, What::Merge(json!({"spec": {"renewTime": renewed}})));
        }
        self.after(LEASE, Due::Lease(at));
    }

    /// A node is not heard any more, for a while.
    pub(super) fn node_lost(&mut self, at: usize) {
        self.set_ready(at, false, "NodeNotReady");
        let wait = self.chance.between(5000, 15_000);
        self.after(wait, Due::Back(at));
    }

    pub(super) fn node_back(&mut self, at: usize) {
        self.set_ready(at, true, "NodeReady");
    }

    /// Takes a node out of scheduling, or puts it back.
    pub(super) fn cordon(&mut self, at: usize, cordoned: bool) {
        let Some(node) = self.nodes.get_mut(at).filter(|node| node.cordoned != cordoned) else { return };
        node.cordoned = cordoned;
        let (place, uid) = (node.at(), node.uid.clone());
        let patch = if cordoned {
            json!({"spec": {"unschedulable": true}})
        } else {
            json!({"spec": {"unschedulable": null}})
        };
        let reason = if cordoned { "NodeNotSchedulable" } else { "NodeSchedulable" };
        let message = format!("Node {} status is now: {reason}", place.name);
        self.write(place.clone(), What::Merge(patch));
        self.say(&Report { about: &place, uid: &uid, reason, message: &message, component: "kubelet" });
        if cordoned {
            let wait = self.chance.between(20_000, 40_000);
            self.after(wait, Due::Uncordon(at));
        }
    }

    pub(super) fn node_answered(&mut self, write: &Write, answer: &Answer) {
        let found = self.nodes.iter().position(|node| node.name == write.at.name);
        let Some((at, node)) = found.and_then(|at| Some((at, self.nodes.get_mut(at)?))) else { return };
        match (answer, &write.what) {
            (Answer::Done(object), _) => {
                object["metadata"]["uid"].as_str().unwrap_or_default().clone_into(&mut node.uid);
                node.cordoned = object["spec"]["unschedulable"] == true;
            }
            // Somebody deleted it; its machine is still there, and registers again.
            (Answer::Gone, What::Merge(_) | What::MergeStatus(_)) => self.create_node(at),
            _ => {}
        }
    }

    fn create_node(&mut self, at: usize) {
        let Some(node) = self.nodes.get(at) else { return };
        let zone = ["eu-1a", "eu-1b", "eu-1c"].get(at % 3).copied().unwrap_or_default();
        let status = status::node(node.ready, &node.address, node.changed, self.now);
        let object = objects::node(&node.name, zone, &status);
        let (place, lease) = (node.at(), objects::lease(&node.name, self.now));
        let lease_at = At::new(Kind::Lease, "kube-node-lease", &node.name);
        self.create(place, object);
        self.create(lease_at, lease);
    }

    fn set_ready(&mut self, at: usize, ready: bool, reason: &str) {
        let now = self.now;
        let Some(node) = self.nodes.get_mut(at).filter(|node| node.ready != ready) else { return };
        (node.ready, node.changed) = (ready, now);
        let (place, uid) = (node.at(), node.uid.clone());
        let status = status::node(ready, &node.address, now, now);
        self.write(place.clone(), What::MergeStatus(status));
        let message = format!("Node {} status is now: {reason}", place.name);
        self.say(&Report {
            about: &place,
            uid: &uid,
            reason,
            message: &message,
            component: "node-controller",
        });
        let there: Vec<u64> = self
            .pods
            .iter()
            .filter(|(_, pod)| pod.node == Some(at) && pod.phase == Phase::Ready)
            .map(|(id, _)| *id)
            .collect();
        for pod in there {
            self.touch(pod);
            self.tell_status(pod);
        }
    }
}
