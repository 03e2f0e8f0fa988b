//! Status and restarts of a pod, by the rules of `kubectl get pods`.

use super::columns::{items, text};
use serde_json::Value;

/// Returns the status: the phase, or the reason of a container that is not running, or that of the pod.
pub(super) fn status(pod: &Value) -> String {
    let pod_text = |path| pod.pointer(path).and_then(text);
    let phase = pod_text("/status/phase").unwrap_or_else(|| "Pending".to_owned());
    let reason = pod_text("/status/reason");
    if pod.pointer("/metadata/deletionTimestamp").is_some_and(Value::is_string) {
        if reason.as_deref() == Some("NodeLost") {
            return "Unknown".to_owned();
        }
        if !matches!(phase.as_str(), "Succeeded" | "Failed") {
            return "Terminating".to_owned();
        }
    }
    let init = init_status(pod);
    let is_initializing = init.is_some() && !has_condition(pod, "Initialized");
    let containers = || if is_initializing { None } else { containers_status(pod) };
    containers().or(init).or_else(|| gated(pod)).or(reason).unwrap_or(phase)
}

/// Returns the number of restarts of the containers or, until they start, of the init containers.
pub(super) fn restarts(pod: &Value) -> u64 {
    let is_initializing = init_status(pod).is_some() && !has_condition(pod, "Initialized");
    let counted = |one: &&Value| is_initializing || is_sidecar(pod, one);
    let init = items(pod, "/status/initContainerStatuses").iter().filter(counted);
    let containers = items(pod, "/status/containerStatuses").iter().filter(|_| !is_initializing);
    init.chain(containers).filter_map(|one| one["restartCount"].as_u64()).fold(0, u64::saturating_add)
}

/// Returns the numbers of ready and of all containers, including init containers that keep running.
pub(super) fn ready(pod: &Value) -> (usize, usize) {
    let sidecars = items(pod, "/spec/initContainers").iter().filter(|one| one["restartPolicy"] == "Always");
    let wanted = items(pod, "/spec/containers").len() + sidecars.count();
    let init = items(pod, "/status/initContainerStatuses").iter().filter(|one| is_sidecar(pod, one));
    let containers = items(pod, "/status/containerStatuses").iter();
    (init.chain(containers).filter(|one| one["ready"] == true).count(), wanted)
}

/// Returns the reason of the first container that is not running. A pod with completed and running containers
/// is running.
fn containers_status(pod: &Value) -> Option<String> {
    let containers = items(pod, "/status/containerStatuses");
    let reason = containers.iter().find_map(|one| waiting(one).or_else(|| terminated(one)))?;
    let is_running = |one: &Value| one["ready"] == true && one["state"]["running"].is_object();
    if reason == "Completed" && containers.iter().any(is_running) {
        return Some(if has_condition(pod, "Ready") { "Running" } else { "NotReady" }.to_owned());
    }
    Some(reason)
}

/// Returns the state of the first init container that is not done: `Init:1/2`, `Init:Error`.
fn init_status(pod: &Value) -> Option<String> {
    let is_done = |one: &Value| {
        one.pointer("/state/terminated/exitCode").and_then(Value::as_i64) == Some(0)
            || (is_sidecar(pod, one) && one["started"] == true)
    };
    let statuses = items(pod, "/status/initContainerStatuses");
    let (index, status) = statuses.iter().enumerate().find(|(_, one)| !is_done(one))?;
    let reason = terminated(status).or_else(|| waiting(status).filter(|reason| reason != "PodInitializing"));
    Some(match reason {
        Some(reason) => format!("Init:{reason}"),
        None => format!("Init:{index}/{}", items(pod, "/spec/initContainers").len()),
    })
}

fn waiting(container: &Value) -> Option<String> {
    text(container.pointer("/state/waiting/reason")?)
}

fn terminated(container: &Value) -> Option<String> {
    let state = container.pointer("/state/terminated").filter(|state| state.is_object())?;
    let number = |field: &str| state.get(field).and_then(Value::as_i64).unwrap_or(0);
    Some(match (state.get("reason").and_then(text), number("signal")) {
        (Some(reason), _) => reason,
        (None, 0) => format!("ExitCode:{}", number("exitCode")),
        (None, signal) => format!("Signal:{signal}"),
    })
}

fn gated(pod: &Value) -> Option<String> {
    let gated = "SchedulingGated";
    let conditions = items(pod, "/status/conditions").iter();
    let mut scheduled = conditions.filter(|one| one["type"] == "PodScheduled");
    scheduled.any(|one| one["reason"] == gated).then(|| gated.to_owned())
}

fn has_condition(pod: &Value, kind: &str) -> bool {
    items(pod, "/status/conditions").iter().any(|one| one["type"] == kind && one["status"] == "True")
}

/// Whether the status belongs to an init container that keeps running.
fn is_sidecar(pod: &Value, status: &Value) -> bool {
    let mut containers = items(pod, "/spec/initContainers").iter();
    containers.any(|one| one["name"] == status["name"] && one["restartPolicy"] == "Always")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[track_caller]
    #[expect(clippy::needless_pass_by_value, reason = "cases read better without references")]
    fn check(pod: Value, expected: &str) {
        let (ready, wanted) = ready(&pod);
        assert_eq!(format!("{} {ready}/{wanted} {}", status(&pod), restarts(&pod)), expected);
    }

    /// Regression: a succeeded pod was shown as `Succeeded`, which kubectl shows as `Completed`; the reason of its
    /// containers was ignored. The test data had no terminated container.
    #[test]
    fn succeeded_pod_is_completed() {
        let done = json!({"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        check(json!({"status": {"phase": "Succeeded", "containerStatuses": [done]}}), "Completed 0/0 0");
        let deleted = json!({"deletionTimestamp": "2024-01-01T00:00:00Z"});
        check(
            json!({"metadata": deleted, "status": {"phase": "Succeeded", "containerStatuses": [done]}}),
            "Completed 0/0 0",
        );
        check(json!({"metadata": deleted, "status": {"phase": "Running"}}), "Terminating 0/0 0");
        check(json!({"metadata": deleted, "status": {"reason": "NodeLost"}}), "Unknown 0/0 0");
    }

    #[test]
    fn completed_container_beside_a_running_one_does_not_complete_the_pod() {
        let containers = json!([
            {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
            {"name": "b", "ready": true, "restartCount": 2, "state": {"running": {}}},
        ]);
        check(json!({"status": {"phase": "Running", "containerStatuses": containers}}), "NotReady 1/0 2");
        let ready = json!([{"type": "Ready", "status": "True"}]);
        check(
            json!({"status": {"phase": "Running", "containerStatuses": containers, "conditions": ready}}),
            "Running 1/0 2",
        );
    }

    #[test]
    fn exit_without_reason_shows_signal_or_code() {
        let exited =
            |state: Value| json!({"status": {"containerStatuses": [{"state": {"terminated": state}}]}});
        check(exited(json!({"exitCode": 3})), "ExitCode:3 0/0 0");
        check(exited(json!({"exitCode": 137, "signal": 9})), "Signal:9 0/0 0");
    }

    #[test]
    fn init_containers_are_shown_until_they_are_done() {
        let spec = json!({"containers": [{"name": "app"}], "initContainers": [{"name": "a"}, {"name": "b"}]});
        let done = json!({"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
        let pod = |second: Value| json!({"spec": spec, "status": {"phase": "Pending", "initContainerStatuses": [done, second]}});
        check(pod(json!({"name": "b", "restartCount": 4, "state": {"running": {}}})), "Init:1/2 0/1 4");
        check(
            pod(json!({"name": "b", "state": {"waiting": {"reason": "PodInitializing"}}})),
            "Init:1/2 0/1 0",
        );
        check(
            pod(json!({"name": "b", "state": {"waiting": {"reason": "CrashLoopBackOff"}}})),
            "Init:CrashLoopBackOff 0/1 0",
        );
        check(pod(json!({"name": "b", "state": {"terminated": {"exitCode": 2}}})), "Init:ExitCode:2 0/1 0");
    }

    #[test]
    fn sidecar_counts_as_container() {
        let spec = json!({"containers": [{"name": "app"}], "initContainers": [{"name": "proxy", "restartPolicy": "Always"}]});
        let proxy = json!({"name": "proxy", "ready": true, "started": true, "restartCount": 1, "state": {"running": {}}});
        let app = json!({"name": "app", "ready": true, "restartCount": 1, "state": {"running": {}}});
        let status =
            json!({"phase": "Running", "initContainerStatuses": [proxy], "containerStatuses": [app]});
        check(json!({"spec": spec, "status": status}), "Running 2/2 2");
    }

    #[test]
    fn pod_that_waits_for_a_gate_is_gated() {
        let conditions = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
        check(json!({"status": {"phase": "Pending", "conditions": conditions}}), "SchedulingGated 0/0 0");
        check(json!({}), "Pending 0/0 0");
    }
}
