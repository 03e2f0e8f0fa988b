//! Records what happens in the cluster as Event objects.
//!
//! Which events a change causes follows from the states before and after it. Beyond a limit, the oldest events are
//! deleted; a server would expire them after an hour.

use super::objects::time;
use super::{condition, text};
use informer_actors::{Actor, Cluster, ObjectChange};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::VecDeque;

const WARNINGS: &[&str] = &["BackOff", "Failed", "Evicted", "FailedScheduling", "OOMKilling", "NodeNotReady"];

/// Records events.
#[derive(Debug)]
pub(super) struct Recorder {
    max_events: usize,
    /// Namespaces and names of the events, the oldest first.
    events: VecDeque<(String, String)>,
    /// Number of recorded events.
    count: u64,
    has_started: bool,
}

/// The contents of an event.
struct Event {
    /// The object that the event is about, as a reference.
    regarding: Value,
    reason: &'static str,
    message: String,
    component: &'static str,
}

impl Recorder {
    /// Creates a recorder for a cluster of about this many pods.
    pub(super) fn new(pods: usize) -> Self {
        let max_events = pods.saturating_mul(2).saturating_add(100);
        Self { max_events, events: VecDeque::new(), count: 0, has_started: false }
    }

    /// Creates an Event object. A rejected one, for example in a namespace that is being deleted, is dropped.
    fn record(&mut self, cluster: &mut Cluster<'_>, event: &Event) {
        self.count += 1;
        let namespace = match text(&event.regarding, "/namespace") {
            "" => "default",
            namespace => namespace,
        };
        let name = format!("{}.{:016x}", text(&event.regarding, "/name"), self.count);
        let now = time(cluster.now());
        let kind = if WARNINGS.contains(&event.reason) { "Warning" } else { "Normal" };
        let created = cluster.create(json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": name, "namespace": namespace},
            "involvedObject": event.regarding, "reason": event.reason, "message": event.message, "type": kind,
            "source": {"component": event.component}, "reportingComponent": event.component,
            "reportingInstance": "", "firstTimestamp": now, "lastTimestamp": now, "count": 1,
        }));
        if created.is_ok() {
            self.events.push_back((namespace.to_owned(), name));
        }
        if self.events.len() > self.max_events
            && let Some((namespace, name)) = self.events.pop_front()
            && let Some(oldest) = cluster.get("v1", "events", Some(&namespace), &name)
        {
            drop(cluster.delete_now(&oldest));
        }
    }
}

impl Actor for Recorder {
    fn name(&self) -> &'static str {
        "events"
    }

    fn step(&mut self, cluster: &mut Cluster<'_>) -> Option<Timestamp> {
        // In the first step all objects count as created: no events.
        if std::mem::replace(&mut self.has_started, true) {
            for change in cluster.changes() {
                for event in events_of(&change) {
                    self.record(cluster, &event);
                }
            }
        }
        None
    }
}

/// Returns the events that a change causes.
fn events_of(change: &ObjectChange) -> Vec<Event> {
    let Some(after) = &change.after else { return Vec::new() };
    let before = change.before.as_deref().unwrap_or(&Value::Null);
    match (change.resource.group.as_str(), change.resource.plural.as_str()) {
        ("", "pods") => events_of_pod(before, after),
        ("", "nodes") => events_of_node(before, after),
        ("apps", "replicasets") => event_of_replica_set(before, after).into_iter().collect(),
        ("batch", "jobs")
            if condition(before, "Complete") != "True" && condition(after, "Complete") == "True" =>
        {
            vec![event(after, "Completed", "Job completed", "job-controller")]
        }
        _ => Vec::new(),
    }
}

fn events_of_pod(before: &Value, after: &Value) -> Vec<Event> {
    let mut events = Vec::new();
    let is_new = |pointer: &str| {
        let value = text(after, pointer);
        !value.is_empty() && value != text(before, pointer)
    };
    let name = text(after, "/metadata/name");
    if before.is_null()
        && let Some(owner) = controller(after)
    {
        let component = match text(&owner, "/kind") {
            "Job" => "job-controller",
            "StatefulSet" => "statefulset-controller",
            _ => "replicaset-controller",
        };
        let message = format!("Created pod: {name}");
        events.push(Event { regarding: owner, reason: "SuccessfulCreate", message, component });
    }
    let mut add = |reason: &'static str, message: &str, component: &'static str| {
        events.push(event(after, reason, message, component));
    };
    if is_new("/spec/nodeName") {
        let (namespace, node) = (text(after, "/metadata/namespace"), text(after, "/spec/nodeName"));
        add("Scheduled", &format!("Successfully assigned {namespace}/{name} to {node}"), "default-scheduler");
    }
    if condition(before, "PodScheduled") != "False" && condition(after, "PodScheduled") == "False" {
        let message = "0 nodes are available: no node is ready and schedulable.";
        add("FailedScheduling", message, "default-scheduler");
    }
    let container = |pod: &Value| pod["status"]["containerStatuses"][0].clone();
    for (reason, message, component) in events_of_container(&container(before), &container(after)) {
        add(reason, &message, component);
    }
    if is_new("/status/reason") && text(after, "/status/reason") == "Evicted" {
        add("Evicted", text(after, "/status/message"), "kubelet");
    }
    let is_terminating = |pod: &Value| !text(pod, "/metadata/deletionTimestamp").is_empty();
    if is_terminating(after) && !is_terminating(before) && !text(after, "/spec/nodeName").is_empty() {
        add("Killing", "Stopping container", "kubelet");
    }
    events
}

/// Returns the reason, message and component of the events that a change of a container's status causes.
fn events_of_container(before: &Value, after: &Value) -> Vec<(&'static str, String, &'static str)> {
    let mut events = Vec::new();
    let is_new = |pointer: &str| {
        let value = text(after, pointer);
        !value.is_empty() && value != text(before, pointer)
    };
    if is_new("/state/running/startedAt") {
        events.push(("Started", format!("Started container {}", text(after, "/name")), "kubelet"));
    }
    if is_new("/state/waiting/reason") {
        match text(after, "/state/waiting/reason") {
            "ImagePullBackOff" => {
                let message = format!("Failed to pull image \"{}\": not found", text(after, "/image"));
                events.push(("Failed", message, "kubelet"));
            }
            "CrashLoopBackOff" => {
                events.push(("BackOff", "Back-off restarting failed container".to_owned(), "kubelet"));
            }
            _ => {}
        }
    }
    // A container that waits to be restarted has its end as the last state.
    let was_killed = |state: &str| {
        is_new(&format!("/{state}/terminated/finishedAt"))
            && text(after, &format!("/{state}/terminated/reason")) == "OOMKilled"
    };
    if was_killed("state") || (was_killed("lastState") && after["state"]["waiting"].is_object()) {
        let message = "Memory cgroup out of memory: killed process".to_owned();
        events.push(("OOMKilling", message, "kernel-monitor"));
    }
    events
}

fn events_of_node(before: &Value, after: &Value) -> Vec<Event> {
    let mut events = Vec::new();
    let mut add = |reason: &'static str, component: &'static str| {
        let message = format!("Node {} status is now: {reason}", text(after, "/metadata/name"));
        events.push(event(after, reason, &message, component));
    };
    let is_ready = |node: &Value| condition(node, "Ready") == "True";
    if !before.is_null() && is_ready(before) != is_ready(after) {
        add(if is_ready(after) { "NodeReady" } else { "NodeNotReady" }, "node-controller");
    }
    let is_cordoned = |node: &Value| node["spec"]["unschedulable"] == true;
    if is_cordoned(before) != is_cordoned(after) {
        add(if is_cordoned(after) { "NodeNotSchedulable" } else { "NodeSchedulable" }, "kubelet");
    }
    events
}

/// Returns the event of a deployment whose replica set was scaled.
fn event_of_replica_set(before: &Value, after: &Value) -> Option<Event> {
    let size = |set: &Value| set["spec"]["replicas"].as_u64().unwrap_or(0);
    let (from, to) = (size(before), size(after));
    let regarding = controller(after).filter(|_| from != to)?;
    let direction = if to > from { "up" } else { "down" };
    let name = text(after, "/metadata/name");
    let message = format!("Scaled {direction} replica set {name} from {from} to {to}");
    Some(Event { regarding, reason: "ScalingReplicaSet", message, component: "deployment-controller" })
}

/// Returns a reference to the controller of an object.
fn controller(object: &Value) -> Option<Value> {
    let mut owners = object["metadata"]["ownerReferences"].as_array()?.iter();
    let owner = owners.find(|owner| owner["controller"] == true)?;
    Some(json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["name"], "uid": owner["uid"],
        "namespace": object["metadata"]["namespace"],
    }))
}

/// Returns an event about an object.
fn event(object: &Value, reason: &'static str, message: &str, component: &'static str) -> Event {
    let metadata = &object["metadata"];
    let regarding = json!({
        "apiVersion": object["apiVersion"], "kind": object["kind"], "name": metadata["name"],
        "namespace": metadata["namespace"], "uid": metadata["uid"],
    });
    Event { regarding, reason, message: message.to_owned(), component }
}
