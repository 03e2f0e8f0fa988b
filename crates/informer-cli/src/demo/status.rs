//! Statuses of pods, nodes, replica sets, deployments and jobs.

use super::objects::time;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Phase in the lifecycle of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Created, not scheduled.
    New,
    /// Scheduled; its container is being created.
    Creating,
    /// Its image cannot be pulled.
    NoImage,
    /// Running, not ready.
    Running,
    Ready,
    /// Its container failed; another one starts after the backoff.
    Crashed(Crash),
    /// Evicted from its node.
    Evicted,
    /// Completed.
    Completed,
    /// Being deleted.
    Terminating,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Crash {
    Error,
    OutOfMemory,
}

/// The facts about a pod from which its status is built.
#[derive(Debug, Clone)]
pub(super) struct Facts<'a> {
    pub(super) container: &'a str,
    pub(super) image: &'a str,
    pub(super) phase: Phase,
    pub(super) restarts: u32,
    pub(super) last_crash: Option<(Crash, Timestamp)>,
    pub(super) address: &'a str,
    pub(super) host: &'a str,
    /// Time of creation.
    pub(super) created: Timestamp,
    /// Time of scheduling.
    pub(super) scheduled: Timestamp,
    /// Time of the last change of phase.
    pub(super) changed: Timestamp,
    /// Start time of the container.
    pub(super) started: Timestamp,
    /// Whether the node of the pod is ready.
    pub(super) node_ready: bool,
}

/// Returns the status of a pod.
pub(super) fn pod(facts: &Facts<'_>) -> Value {
    let Facts { phase, .. } = *facts;
    if phase == Phase::New {
        let why = "0 nodes are available: no node is ready and schedulable.";
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": why,
            "lastProbeTime": null, "lastTransitionTime": time(facts.created),
        });
        return json!({"phase": "Pending", "conditions": [condition]});
    }
    let (phase_name, ready) = match phase {
        Phase::Running | Phase::Crashed(_) | Phase::Terminating => ("Running", false),
        Phase::Ready => ("Running", facts.node_ready),
        Phase::Evicted => ("Failed", false),
        Phase::Completed => ("Succeeded", false),
        _ => ("Pending", false),
    };
    let condition = |kind: &str, holds: bool, since: Timestamp| {
        json!({
            "type": kind, "status": if holds { "True" } else { "False" }, "lastProbeTime": null,
            "lastTransitionTime": time(since),
        })
    };
    let conditions = [
        condition(
            "PodReadyToStartContainers",
            !matches!(phase, Phase::Creating | Phase::NoImage),
            facts.changed,
        ),
        condition("Initialized", true, facts.scheduled),
        condition("Ready", ready, facts.changed),
        condition("ContainersReady", phase == Phase::Ready, facts.changed),
        condition("PodScheduled", true, facts.scheduled),
    ];
    let mut status = json!({
        "phase": phase_name, "qosClass": "Burstable", "startTime": time(facts.scheduled),
        "hostIP": facts.host, "hostIPs": [{"ip": facts.host}], "conditions": conditions,
    });
    if phase == Phase::Evicted {
        status["reason"] = json!("Evicted");
        status["message"] = json!("The node was low on resource: memory.");
        // The status is written as a merge patch, in which null removes the containers.
        status["containerStatuses"] = Value::Null;
    } else {
        status["containerStatuses"] = json!([container(facts)]);
    }
    if !matches!(phase, Phase::Creating | Phase::NoImage) {
        status["podIP"] = json!(facts.address);
        status["podIPs"] = json!([{"ip": facts.address}]);
    }
    status
}

fn container(facts: &Facts<'_>) -> Value {
    let Facts { phase, restarts, changed, .. } = *facts;
    let running = json!({"running": {"startedAt": time(facts.started)}});
    let state = match phase {
        Phase::New | Phase::Creating | Phase::Evicted => json!({"waiting": {"reason": "ContainerCreating"}}),
        Phase::NoImage => {
            let message = format!("Back-off pulling image \"{}\"", facts.image);
            json!({"waiting": {"reason": "ImagePullBackOff", "message": message}})
        }
        Phase::Running | Phase::Ready | Phase::Terminating => running,
        // The first restart is immediate; later ones wait for the backoff.
        Phase::Crashed(crash) if restarts == 0 => json!({"terminated": terminated_state(crash, changed)}),
        Phase::Crashed(_) => {
            let message = format!("back-off restarting failed container={}", facts.container);
            json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
        }
        Phase::Completed => json!({"terminated": {
            "exitCode": 0, "reason": "Completed", "startedAt": time(facts.started), "finishedAt": time(changed),
        }}),
    };
    let last_crash = facts.last_crash.filter(|_| restarts > 0);
    let last = last_crash.map(|(crash, at)| json!({"terminated": terminated_state(crash, at)}));
    let is_running = matches!(phase, Phase::Running | Phase::Ready | Phase::Terminating);
    let pulled = !matches!(phase, Phase::New | Phase::Creating | Phase::NoImage);
    json!({
        "name": facts.container, "image": facts.image,
        "imageID": if pulled { format!("{}@sha256:{:064x}", facts.image, digest(facts.image)) } else { String::new() },
        "ready": phase == Phase::Ready, "started": is_running, "restartCount": restarts,
        "state": state, "lastState": last.unwrap_or_else(|| json!({})),
    })
}

/// Returns the `terminated` state of a container that crashed.
fn terminated_state(crash: Crash, at: Timestamp) -> Value {
    let (code, reason) = match crash {
        Crash::Error => (1, "Error"),
        Crash::OutOfMemory => (137, "OOMKilled"),
    };
    json!({"exitCode": code, "reason": reason, "startedAt": time(at), "finishedAt": time(at)})
}

/// Returns a hash (FNV-1a) that stands for the digest of an image.
fn digest(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

pub(super) fn node(ready: bool, address: &str, changed: Timestamp, now: Timestamp) -> Value {
    let condition = |kind: &str, status: &str, reason: &str, message: &str, since: Timestamp| {
        json!({
            "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": time(now), "lastTransitionTime": time(since),
        })
    };
    let (status, reason, message) = if ready {
        ("True", "KubeletReady", "kubelet is posting ready status")
    } else {
        ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    };
    json!({
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available", changed),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure", changed),
            condition("Ready", status, reason, message, changed),
        ],
        "addresses": [{"type": "InternalIP", "address": address}],
        "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
        "allocatable": {"cpu": "15800m", "memory": "62Gi", "pods": "110"},
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "osImage": "Linux", "kernelVersion": "6.12.0",
            "kubeletVersion": "v1.36.4", "kubeProxyVersion": "", "containerRuntimeVersion": "containerd://2.1.0",
            "machineID": "", "systemUUID": "", "bootID": "",
        },
    })
}

/// Numbers of pods of a replica set or a deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Count {
    pub(super) all: usize,
    pub(super) ready: usize,
    /// Pods of the newest revision; unused for a replica set.
    pub(super) updated: usize,
}

pub(super) fn replica_set(count: Count, generation: i64) -> Value {
    json!({
        "replicas": count.all, "fullyLabeledReplicas": nonzero(count.all),
        "readyReplicas": nonzero(count.ready), "availableReplicas": nonzero(count.ready),
        "observedGeneration": generation,
    })
}

pub(super) fn deployment(
    count: Count,
    wanted: usize,
    generation: i64,
    (changed, now): (Timestamp, Timestamp),
) -> Value {
    // `maxUnavailable` is 25 %.
    let available = count.ready * 4 >= wanted * 3;
    let done = count.updated == wanted && count.all == wanted && count.ready == wanted;
    let condition = |kind: &str, holds: bool, reason: &str| {
        json!({
            "type": kind, "status": if holds { "True" } else { "False" }, "reason": reason,
            "lastTransitionTime": time(changed), "lastUpdateTime": time(now),
        })
    };
    let available_reason = if available { "MinimumReplicasAvailable" } else { "MinimumReplicasUnavailable" };
    let progress_reason = if done { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" };
    json!({
        "replicas": nonzero(count.all), "updatedReplicas": nonzero(count.updated),
        "readyReplicas": nonzero(count.ready), "availableReplicas": nonzero(count.ready),
        "unavailableReplicas": nonzero(wanted.saturating_sub(count.ready)),
        "observedGeneration": generation,
        "conditions": [
            condition("Available", available, available_reason), condition("Progressing", true, progress_reason),
        ],
    })
}

/// Returns `None` for zero, which the API omits.
fn nonzero(count: usize) -> Option<usize> {
    (count > 0).then_some(count)
}

/// Returns the status of a job with one pod; the job is running if `completed` is `None`.
pub(super) fn job(started: Timestamp, completed: Option<Timestamp>, ready: bool) -> Value {
    let Some(completed) = completed else {
        return json!({"active": 1, "ready": u8::from(ready), "startTime": time(started), "terminating": 0});
    };
    let condition = |kind: &str| {
        json!({
            "type": kind, "status": "True", "reason": "CompletionsReached", "message": "Reached expected number of succeeded pods",
            "lastProbeTime": time(completed), "lastTransitionTime": time(completed),
        })
    };
    json!({
        "active": null, "ready": 0, "terminating": 0, "succeeded": 1, "startTime": time(started),
        "completionTime": time(completed),
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    })
}
