//! What is shown of pods: which of their containers are ready, what keeps them from running, and how often they restarted.
//!
//! The status is a summary: the phase, unless the pod says a reason; then what an init container waits or failed for; then what a
//! container waits or ended for; and leaving beats it all.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age;
use super::fields::{at, filled, flag, has_condition, is_leaving, list, number, text};
use crate::text::times;

const NONE: &str = "<none>";

/// Ready, status and restarts.
pub(super) fn state(pod: &Value, now: Timestamp) -> Vec<Value> {
    let summary = Summary::of(pod);
    let restarts = match summary.restarts.last {
        Some(last) if summary.restarts.count != 0 => {
            format!("{} ({} ago)", summary.restarts.count, times::words(times::between(last, now)))
        }
        _ => summary.restarts.count.to_string(),
    };
    vec![json!(format!("{}/{}", summary.ready, summary.containers)), json!(summary.status), json!(restarts)]
}

/// The first address.
pub(super) fn address(pod: &Value) -> String {
    let address = filled(pod, "/status/podIP").or_else(|| filled(pod, "/status/podIPs/0/ip"));
    address.unwrap_or(NONE).to_owned()
}

/// How many of the conditions that the pod waits for are true.
pub(super) fn readiness_gates(pod: &Value) -> String {
    let gates = list(pod, "/spec/readinessGates");
    if gates.is_empty() {
        return NONE.to_owned();
    }
    // The first condition of a type is the one that counts.
    let mut conditions = BTreeMap::new();
    for condition in list(pod, "/status/conditions") {
        conditions.entry(text(condition, "/type")).or_insert(text(condition, "/status"));
    }
    let open = gates.iter().filter(|gate| conditions.get(text(gate, "/conditionType")) == Some(&"True"));
    format!("{}/{}", open.count(), gates.len())
}

/// A pod in short.
struct Summary {
    ready: usize,
    containers: usize,
    status: String,
    restarts: Restarts,
}

/// How often containers were restarted, and when the last of them was.
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
        let (initializing, of_lasting) = summary.initialize(pod);
        if !initializing || has_condition(pod, "Initialized") {
            summary.restarts = of_lasting;
            summary.run(pod);
        }
        if is_leaving(pod) && text(pod, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut summary.status);
        } else if is_leaving(pod) && !matches!(phase, "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut summary.status);
        }
        summary
    }

    /// Looks at the init containers up to the first that is not done: whether there is one, and the restarts of those that go on to run
    /// beside the containers.
    fn initialize(&mut self, pod: &Value) -> (bool, Restarts) {
        let init = list(pod, "/spec/initContainers");
        let lasting: BTreeMap<&str, bool> = init
            .iter()
            .map(|container| (text(container, "/name"), text(container, "/restartPolicy") == "Always"))
            .collect();
        let lasts = |container: &Value| lasting.get(text(container, "/name")) == Some(&true);
        self.containers +=
            init.iter().filter(|container| text(container, "/restartPolicy") == "Always").count();
        let mut of_lasting = Restarts::default();
        for (place, container) in list(pod, "/status/initContainerStatuses").iter().enumerate() {
            self.restarts.add(container);
            if lasts(container) {
                of_lasting.add(container);
            }
            let terminated = at(container, "/state/terminated");
            if terminated.is_some_and(|terminated| number(terminated, "/exitCode") == 0) {
                continue;
            }
            if lasts(container) && flag(container, "/started") {
                self.ready += usize::from(flag(container, "/ready"));
                continue;
            }
            self.status = match (terminated, waits_for(container)) {
                (Some(terminated), _) => format!("Init:{}", ended_by(terminated)),
                (None, Some(reason)) if reason != "PodInitializing" => format!("Init:{reason}"),
                _ => format!("Init:{place}/{}", init.len()),
            };
            return (true, of_lasting);
        }
        (false, of_lasting)
    }

    /// Looks at the containers, from the last to the first.
    fn run(&mut self, pod: &Value) {
        let mut running = false;
        let mut error = None;
        for container in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            if let Some(reason) = waits_for(container) {
                reason.clone_into(&mut self.status);
            } else if let Some(terminated) = at(container, "/state/terminated") {
                self.status = ended_by(terminated);
                if number(terminated, "/exitCode") != 0 {
                    error = Some(self.status.clone());
                }
            } else if flag(container, "/ready") && at(container, "/state/running").is_some() {
                running = true;
                self.ready += 1;
            }
        }
        // A pod is not done while one of its containers runs.
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

fn waits_for(container: &Value) -> Option<&str> {
    filled(container, "/state/waiting/reason")
}

/// `OOMKilled`, `Signal:9`, `ExitCode:1`.
fn ended_by(terminated: &Value) -> String {
    match (filled(terminated, "/reason"), number(terminated, "/signal")) {
        (Some(reason), _) => reason.to_owned(),
        (None, 0) => format!("ExitCode:{}", number(terminated, "/exitCode")),
        (None, signal) => format!("Signal:{signal}"),
    }
}
