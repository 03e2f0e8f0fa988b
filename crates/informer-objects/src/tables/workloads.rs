//! Table cells of workloads, quotas, disruption budgets, pod groups and storage migrations.

use jiff::Timestamp;
use serde_json::Value;

use super::age;
use super::fields::{at, entries, filled, flag, given, has_condition, is_terminating, list, number, text};
use crate::text::times;

const NONE: &str = "<none>";

/// The conditions that determine the status of a job: the first one that is true.
///
/// The status `Terminating` ranks after these and before those of [`JOB_AFTER_TERMINATING`].
const JOB_BEFORE_TERMINATING: &[&str] = &["Complete", "Failed"];
const JOB_AFTER_TERMINATING: &[&str] = &["Suspended", "FailureTarget", "SuccessCriteriaMet"];

pub(super) fn job_status(job: &Value) -> String {
    let first = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| has_condition(job, kind));
    let terminating = || is_terminating(job).then_some("Terminating");
    let status = first(JOB_BEFORE_TERMINATING).or_else(terminating).or_else(|| first(JOB_AFTER_TERMINATING));
    status.unwrap_or("Running").to_owned()
}

/// The number of succeeded pods, and of required ones: `1/3`, `1/1 of 4`.
pub(super) fn job_completions(job: &Value) -> String {
    let succeeded = number(job, "/status/succeeded");
    match (at(job, "/spec/completions"), number(job, "/spec/parallelism")) {
        (Some(_), _) => format!("{succeeded}/{}", number(job, "/spec/completions")),
        (None, parallel @ 2..) => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    }
}

/// The duration of a job, up to now while it runs.
pub(super) fn job_duration(job: &Value, now: Timestamp) -> String {
    let Some(start) = age::time(job, "/status/startTime") else { return String::new() };
    times::human_duration(times::between(start, age::time(job, "/status/completionTime").unwrap_or(now)))
}

pub(super) fn suspended(cron_job: &Value) -> String {
    match at(cron_job, "/spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    }
    .to_owned()
}

/// The controller of a revision, `statefulset.apps/web`.
pub(super) fn controller(revision: &Value) -> String {
    let mut owners = list(revision, "/metadata/ownerReferences").iter();
    let Some(owner) = owners.find(|owner| flag(owner, "/controller")) else {
        return NONE.to_owned();
    };
    let (kind, name) = (text(owner, "/kind"), text(owner, "/name"));
    match text(owner, "/apiVersion").split_once('/') {
        Some((group, _)) => format!("{}/{name}", format!("{kind}.{group}").to_lowercase()),
        None if kind.is_empty() => name.to_owned(),
        None => format!("{}/{name}", kind.to_lowercase()),
    }
}

/// The minimum number of available pods of a disruption budget.
pub(super) fn min_available(budget: &Value) -> String {
    number_or_percent(budget, "/spec/minAvailable")
}

pub(super) fn max_unavailable(budget: &Value) -> String {
    number_or_percent(budget, "/spec/maxUnavailable")
}

/// The used and granted quantities, except limits.
pub(super) fn quota_requests(quota: &Value) -> String {
    quota_amounts(quota, false)
}

pub(super) fn quota_limits(quota: &Value) -> String {
    quota_amounts(quota, true)
}

pub(super) fn group_policy(group: &Value) -> String {
    if at(group, "/spec/schedulingPolicy/gang").is_some() { "Gang" } else { "Basic" }.to_owned()
}

pub(super) fn group_workload(group: &Value) -> String {
    match at(group, "/spec/podGroupTemplateRef") {
        Some(reference) => text(reference, "/workload/workloadName").to_owned(),
        None => NONE.to_owned(),
    }
}

pub(super) fn group_status(group: &Value) -> String {
    // If there are several conditions of a type, the last one is used.
    let last = |kind: &str| {
        list(group, "/status/conditions").iter().rev().find(|condition| text(condition, "/type") == kind)
    };
    if let Some(disrupted) = last("DisruptionTarget") {
        return text(disrupted, "/reason").to_owned();
    }
    match last("PodGroupScheduled").map(|condition| text(condition, "/status")) {
        Some("True") => "Scheduled",
        Some(_) => "Unschedulable",
        None => "Pending",
    }
    .to_owned()
}

/// The resource whose storage is migrated, `deployments.apps`.
pub(super) fn migrated(migration: &Value) -> String {
    let resource = text(migration, "/spec/resource/resource");
    match filled(migration, "/spec/resource/group") {
        Some(group) => format!("{resource}.{group}"),
        None => resource.to_owned(),
    }
}

/// The last condition of a known type that is true, or `Unknown`.
pub(super) fn migration_status(migration: &Value) -> String {
    let conditions = list(migration, "/status/conditions").iter();
    let true_ones = conditions.filter(|condition| text(condition, "/status") == "True");
    let known = true_ones.map(|condition| text(condition, "/type"));
    let last = known.rev().find(|kind| matches!(*kind, "Running" | "Failed" | "Succeeded"));
    last.unwrap_or("Unknown").to_owned()
}

/// Returns `1`, `50%` or `N/A`.
fn number_or_percent(object: &Value, pointer: &str) -> String {
    match at(object, pointer) {
        Some(Value::String(percent)) => percent.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => "N/A".to_owned(),
    }
}

/// Returns the quantities of limits, or those of all other resources.
fn quota_amounts(quota: &Value, limits: bool) -> String {
    let used = |name: &str| {
        let used = quota.pointer("/status/used").and_then(|used| used.get(name)).and_then(Value::as_str);
        used.unwrap_or("0").to_owned()
    };
    let amounts: Vec<String> = entries(quota, "/status/hard")
        .filter(|(name, _)| name.starts_with("limits.") == limits)
        .map(|(name, hard)| format!("{name}: {}/{}", used(name), given(hard, "").unwrap_or("0")))
        .collect();
    amounts.join(", ")
}
