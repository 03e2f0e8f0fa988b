//! The status of a pod after each transition, as merge patches.
//!
//! Pure: all inputs are parameters. A patch contains the phase, all conditions and the states of all
//! containers, so the status is complete whatever it was before.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::object::{at, items, number, put_condition, text, time};
use crate::outcome::PodOutcome;
use crate::random::fnv1a;

/// A transition of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transition {
    /// Containers are being created.
    Create,
    /// The images of containers cannot be pulled.
    FailPull,
    /// Containers start.
    Start,
    /// Containers start again after a crash.
    Restart,
    /// The pod becomes ready.
    Ready,
    /// The pod is no longer ready, because its node is lost.
    Lose,
    /// Containers end successfully.
    Complete,
    /// Containers fail, and so does the pod.
    Fail,
    /// Containers fail and will be restarted.
    Crash,
    /// The pod is removed at the end of its grace period.
    Remove,
    /// The pod is removed, because its node was deleted.
    Abandon,
}

/// The addresses of a pod and its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    host: String,
    address: String,
}

impl Place {
    /// Returns the place of the pod with this number on a node.
    pub(crate) fn new(node: Option<&Value>, pod_number: u32) -> Self {
        let addresses = node.map(|node| items(node, "/status/addresses")).unwrap_or_default();
        let internal = addresses.iter().find(|address| address["type"] == "InternalIP");
        let host = internal.map_or("10.0.0.1", |address| text(address, "/address")).to_owned();
        let [_, high, middle, low] = (pod_number + 1).to_be_bytes();
        Place { host, address: format!("10.{}.{middle}.{low}", 128 | (high & 0x7f)) }
    }
}

/// The reason for which containers wait whose image cannot be pulled.
pub(crate) const NO_IMAGE_REASON: &str = "ImagePullBackOff";

/// Returns whether a container of a running pod has failed and waits to be restarted.
pub(crate) fn is_crashed(pod: &Value) -> bool {
    items(pod, "/status/containerStatuses").iter().any(|container| is_restarted(pod, container))
}

/// Returns whether a container has failed, or has ended and is restarted by the policy of its pod.
fn is_restarted(pod: &Value, container: &Value) -> bool {
    let ended = at(container, "/state/terminated");
    at(container, "/state/waiting").is_some()
        || ended.is_some_and(|ended| match text(pod, "/spec/restartPolicy") {
            "Always" => true,
            "OnFailure" => number(ended, "/exitCode") != Some(0),
            _ => false,
        })
}

/// Returns the number of restarts of the container that was restarted most often.
pub(crate) fn restarts(pod: &Value) -> i64 {
    let counts = items(pod, "/status/containerStatuses").iter();
    counts.filter_map(|container| number(container, "/restartCount")).max().unwrap_or(0)
}

/// Returns the status after a transition. With `skips_probes`, readiness probes succeed at once.
pub(crate) fn after(
    pod: &Value,
    transition: Transition,
    place: &Place,
    skips_probes: bool,
    now: Timestamp,
) -> Value {
    let is_ready = match transition {
        Transition::Ready => true,
        Transition::Start | Transition::Restart => is_ready_at_start(pod, skips_probes),
        _ => false,
    };
    let phase = match transition {
        Transition::Complete => "Succeeded",
        Transition::Fail => "Failed",
        Transition::Create | Transition::FailPull => "Pending",
        _ => "Running",
    };
    let containers: Vec<Value> = items(pod, "/spec/containers")
        .iter()
        .enumerate()
        .map(|(index, container)| container_status(pod, (index, container), transition, is_ready, now))
        .collect();
    let mut status = json!({
        "phase": phase,
        "conditions": conditions(pod, phase, is_ready, now),
        "containerStatuses": containers,
    });
    let initial = items(pod, "/spec/initContainers");
    if transition == Transition::Start && !initial.is_empty() {
        let done = initial.iter().map(|container| completed_container(container, now));
        status["initContainerStatuses"] = done.collect();
    }
    if matches!(transition, Transition::Create | Transition::FailPull | Transition::Start) {
        status["startTime"] = at(pod, "/status/startTime").cloned().unwrap_or_else(|| json!(time(now)));
        status["hostIP"] = json!(place.host);
        status["hostIPs"] = json!([{"ip": place.host}]);
    }
    if transition == Transition::Start {
        status["podIP"] = json!(place.address);
        status["podIPs"] = json!([{"ip": place.address}]);
    }
    status
}

/// Returns the status of a pod that was terminated and stays because of finalizers.
pub(crate) fn ended(pod: &Value, now: Timestamp) -> Value {
    let transition = Transition::Fail;
    let place = Place { host: String::new(), address: String::new() };
    after(pod, transition, &place, false, now)
}

/// Returns whether a pod is ready as soon as its containers run: it does not wait for readiness probes, and is not
/// chosen to fail.
fn is_ready_at_start(pod: &Value, skips_probes: bool) -> bool {
    let has_probe = |container: &Value| container.get("readinessProbe").is_some();
    PodOutcome::of(pod).is_none_or(|outcome| outcome == PodOutcome::Succeed)
        && (skips_probes || !items(pod, "/spec/containers").iter().any(has_probe))
}

fn conditions(pod: &Value, phase: &str, is_ready: bool, now: Timestamp) -> Vec<Value> {
    let before = items(pod, "/status/conditions");
    let mut conditions = before.to_vec();
    let reason = match phase {
        "Succeeded" => Some("PodCompleted"),
        "Failed" => Some("PodFailed"),
        _ if is_ready => None,
        _ => Some("ContainersNotReady"),
    };
    let states = [
        ("PodReadyToStartContainers", phase == "Running"),
        ("Initialized", true),
        ("Ready", is_ready),
        ("ContainersReady", is_ready),
        ("PodScheduled", true),
    ];
    for (kind, holds) in states {
        let mut condition = json!({
            "type": kind, "status": if holds { "True" } else { "False" }, "lastProbeTime": null,
            "lastTransitionTime": time(now),
        });
        if let Some(reason) = reason.filter(|_| matches!(kind, "Ready" | "ContainersReady")) {
            condition["reason"] = json!(reason);
        }
        put_condition(&mut conditions, before, condition);
    }
    conditions
}

fn container_status(
    pod: &Value,
    (index, container): (usize, &Value),
    transition: Transition,
    is_ready: bool,
    now: Timestamp,
) -> Value {
    let name = text(container, "/name");
    let statuses = items(pod, "/status/containerStatuses");
    let before = statuses.iter().find(|status| text(status, "/name") == name);
    let started = before.map_or("", |before| text(before, "/state/running/startedAt"));
    let terminated = |code: i64, reason: &str| {
        let started = if started.is_empty() { time(now) } else { started.to_owned() };
        json!({"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": time(now)})
    };
    let running =
        json!({"running": {"startedAt": if started.is_empty() { time(now) } else { started.to_owned() }}});
    let mut last = before.and_then(|before| before.get("lastState")).cloned().unwrap_or_else(|| json!({}));
    let mut count = before.and_then(|before| number(before, "/restartCount")).unwrap_or(0);
    let image = text(container, "/image");
    // Of the crashes that the kubelet decides, only the first container is affected.
    let state = match transition {
        Transition::Create => json!({"waiting": {"reason": "ContainerCreating"}}),
        Transition::FailPull => {
            let message = format!("Back-off pulling image \"{image}\"");
            json!({"waiting": {"reason": NO_IMAGE_REASON, "message": message}})
        }
        Transition::Complete => json!({"terminated": terminated(0, "Completed")}),
        Transition::Fail => json!({"terminated": terminated(1, "Error")}),
        Transition::Crash if index == 0 => {
            last = json!({"terminated": terminated(1, "Error")});
            let message = format!("back-off restarting failed container={name}");
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        }
        Transition::Restart if before.is_some_and(|before| is_restarted(pod, before)) => {
            count += 1;
            // A container that others have marked as terminated is restarted like one that crashed.
            if let Some(ended) = before.and_then(|before| at(before, "/state/terminated")) {
                last = json!({"terminated": ended});
            }
            json!({"running": {"startedAt": time(now)}})
        }
        // A container that has completed stays so.
        Transition::Restart => before.and_then(|before| before.get("state")).cloned().unwrap_or(running),
        _ => running,
    };
    let is_running = state.get("running").is_some();
    let image_id = match transition {
        Transition::Create | Transition::FailPull => String::new(),
        _ => format!("{image}@sha256:{:064x}", fnv1a(image.as_bytes())),
    };
    json!({
        "name": name, "image": image, "imageID": image_id,
        "ready": is_running && is_ready, "started": is_running, "restartCount": count,
        "state": state, "lastState": last,
    })
}

fn completed_container(container: &Value, now: Timestamp) -> Value {
    let image = text(container, "/image");
    let done = json!({"exitCode": 0, "reason": "Completed", "startedAt": time(now), "finishedAt": time(now)});
    json!({
        "name": container["name"], "image": image, "imageID": "", "ready": true, "started": false,
        "restartCount": 0, "state": {"terminated": done}, "lastState": {},
    })
}
