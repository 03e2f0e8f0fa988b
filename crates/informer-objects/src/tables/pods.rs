//! Table cells of pods: ready containers, status and restarts.
//!
//! The status is a summary. Each of the following overrides the previous ones: the phase; the reason of the
//! pod; scheduling gates; what an init container is waiting for or failed with; once the pod is initialized,
//! what a container is waiting for or ended with; the deletion of the pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::fields::{at, filled, flag, has_condition, is_terminating, list, number, text};
use crate::text::times;

const NONE: &str = "<none>";

/// Three cells: ready containers, status and restarts.
pub(super) fn state(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let restarts = match summary.restarts.last {
        Some(last) if summary.restarts.count != 0 => {
            format!("{} ({} ago)", summary.restarts.count, times::human_duration(times::between(last, now)))
        }
        _ => summary.restarts.count.to_string(),
    };
    vec![json!(format!("{}/{}", summary.ready, summary.containers)), json!(summary.status), json!(restarts)]
}

/// The first IP address of a pod.
pub(super) fn address(pod: &Value) -> String {
    let address = filled(pod, "/status/podIP").or_else(|| filled(pod, "/status/podIPs/0/ip"));
    address.unwrap_or(NONE).to_owned()
}

/// The number of readiness gates whose condition is true, and of all gates: `1/2`.
pub(super) fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    // If there are several conditions of a type, the first one is used.
    let mut conditions = BTreeMap::new();
    for condition in list(pod, "/status/conditions") {
        conditions.entry(text(condition, "/type")).or_insert(text(condition, "/status"));
    }
    let open = gates.iter().filter(|gate| conditions.get(text(gate, "/conditionType")) == Some(&"True"));
    format!("{}/{}", open.count(), gates.len())
}

/// The summary of a pod.
struct Summary {
    ready: usize,
    containers: usize,
    status: String,
    restarts: Restarts,
}

/// The number of restarts and the time of the last one.
#[derive(Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count = self.count.saturating_add(number(container, "/restartCount"));
        self.last = self.last.max(age::time(container, "/lastState/terminated/finishedAt"));
    }
}

impl Summary {
    fn of(pod: &Value) -> Self {
        let phase = text(pod, "/status/phase");
        let reason = filled(pod, "/status/reason").unwrap_or(phase);
        let gated = list(pod, "/status/conditions").iter().any(|condition| {
            text(condition, "/type") == "PodScheduled" && text(condition, "/reason") == "SchedulingGated"
        });
        let status = if gated { "SchedulingGated" } else { reason };
        let mut summary = Summary {
            ready: 0,
            containers: list(pod, "/spec/containers").len(),
            status: status.to_owned(),
            restarts: Restarts::default(),
        };
        let (initializing, sidecar_restarts) = summary.examine_init_containers(pod);
        if !initializing || has_condition(pod, "Initialized") {
            // From now on, restarts of other init containers do not count.
            summary.restarts = sidecar_restarts;
            summary.examine_containers(pod);
        }
        if is_terminating(pod) && text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.status);
        } else if is_terminating(pod) && !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.status);
        }
        summary
    }

    /// Examines the init containers up to the first one that blocks the initialization of the pod.
    ///
    /// That is a container that has not succeeded, or a sidecar that has not started. Returns whether there
    /// is one, and the restarts of the sidecars, which continue to run beside the containers.
    fn examine_init_containers(&mut self, pod: &Value) -> (bool, Restarts) {
        let init = list(pod, "/spec/initContainers");
        let sidecars: BTreeMap<&str, bool> = init
            .iter()
            .map(|container| (text(container, "/name"), text(container, "/restartPolicy") == "Always"))
            .collect();
        let is_sidecar = |container: &Value| sidecars.get(text(container, "/name")) == Some(&true);
        self.containers +=
            init.iter().filter(|container| text(container, "/restartPolicy") == "Always").count();
        let mut sidecar_restarts = Restarts::default();
        for (index, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.restarts.add(container);
            if is_sidecar(container) {
                sidecar_restarts.add(container);
            }
            let terminated = at(container, "/state/terminated");
            if terminated.is_some_and(|terminated| number(terminated, "/exitCode") == 0) {
                continue;
            }
            if is_sidecar(container) && flag(container, "/started") {
                self.ready += usize::from(flag(container, "/ready"));
                continue;
            }
            self.status = match (terminated, waiting_reason(container)) {
                (Some(terminated), _) => format!("Init:{}", termination_reason(terminated)),
                (None, Some(reason)) if reason != "PodInitializing" => format!("Init:{reason}"),
                _ => format!("Init:{index}/{}", init.len()),
            };
            return (true, sidecar_restarts);
        }
        (false, sidecar_restarts)
    }

    /// Examines the containers, from the last to the first.
    fn examine_containers(&mut self, pod: &Value) {
        let mut running = false;
        let mut error = None;
        for container in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            if let Some(reason) = waiting_reason(container) {
                reason.clone_into(&mut self.status);
            } else if let Some(terminated) = at(container, "/state/terminated") {
                self.status = termination_reason(terminated);
                if number(terminated, "/exitCode") != 0 {
                    error = Some(self.status.clone());
                }
            } else if flag(container, "/ready") && at(container, "/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // A pod has not completed while one of its containers runs.
        if self.status == "Completed" {
            let is_ready = list(pod, "/status/conditions")
                .iter()
                .any(|condition| text(condition, "/type") == "Ready" && text(condition, "/status") == "True");
            match (running, error) {
                (true, _) if is_ready => "Running".clone_into(&mut self.status),
                (_, Some(error)) => self.status = error,
                (true, None) => "NotReady".clone_into(&mut self.status),
                (false, None) => {}
            }
        }
    }
}

fn waiting_reason(container: &Value) -> Option<&str> {
    filled(container, "/state/waiting/reason")
}

/// Returns the reason of a termination: `OOMKilled`, `Signal:9`, `ExitCode:1`.
fn termination_reason(terminated: &Value) -> String {
    match (filled(terminated, "/reason"), number(terminated, "/signal")) {
        (Some(reason), _) => reason.to_owned(),
        (None, 0) => format!("ExitCode:{}", number(terminated, "/exitCode")),
        (None, signal) => format!("Signal:{signal}"),
    }
}
