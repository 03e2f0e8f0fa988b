//! Validation of workloads: deployments, sets, jobs.

use std::collections::BTreeSet;

use super::meta::{immutable, non_negative, selects};
use super::report::{Position, Report, shown};
use super::{meta, pods};
use crate::text::formats;

const MISMATCH: &str = "`selector` does not match template `labels`";

pub(super) fn deployment(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    non_negative(&spec.at("replicas"), report);
    selector(&spec, "deployment", report);
    replicated_template(&spec, "ReplicaSet", report);
    let strategy = spec.at("strategy");
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" => {
            if rolling.is_set() {
                report.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => rolling_update(&rolling, report),
        _ => report.unsupported(&strategy, &["Recreate", "RollingUpdate"]),
    }
    for field in ["minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds"] {
        non_negative(&spec.at(field), report);
    }
    let deadline = spec.at("progressDeadlineSeconds");
    if deadline.is_set() && deadline.number() <= spec.at("minReadySeconds").number() {
        report.invalid(&deadline, "must be greater than minReadySeconds");
    }
}

pub(super) fn replica_set(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    non_negative(&spec.at("replicas"), report);
    non_negative(&spec.at("minReadySeconds"), report);
    // kube-apiserver's message names deployments.
    selector(&spec, "deployment", report);
    replicated_template(&spec, "ReplicaSet", report);
}

pub(super) fn replication_controller(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    non_negative(&spec.at("minReadySeconds"), report);
    let selector = spec.at("selector");
    if selector.is_empty() {
        report.required(&selector, "");
    }
    non_negative(&spec.at("replicas"), report);
    let template = spec.at("template");
    if !template.is_set() {
        report.required(&template, "");
        return;
    }
    let labels = template.at("metadata.labels");
    if !selects(&serde_json::json!({"matchLabels": selector.value}), labels.value) {
        report.invalid(&labels, MISMATCH);
    }
    pods::template(&template, report);
    check_restart_policy(&template, "ReplicationController", report);
}

pub(super) fn daemon_set(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    let selected = spec.at("selector");
    if !selected.is_set() {
        report.required(&selected, "");
    }
    meta::selector(&selected, report);
    let labels = spec.at("template.metadata.labels");
    if !selects(selected.value, labels.value) {
        report.invalid(&labels, MISMATCH);
    }
    if selected.is_set() && selected.is_empty() {
        report.invalid(&selected, "empty selector is invalid for daemonset");
    }
    pods::template(&spec.at("template"), report);
    check_restart_policy(&spec.at("template"), "DaemonSet", report);
    non_negative(&spec.at("minReadySeconds"), report);
    let strategy = spec.at("updateStrategy");
    match strategy.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => daemon_rolling_update(&strategy.at("rollingUpdate"), report),
        _ => report.unsupported(&strategy, &["RollingUpdate", "OnDelete"]),
    }
    non_negative(&spec.at("revisionHistoryLimit"), report);
}

pub(super) fn stateful_set(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    let policy = spec.at("podManagementPolicy");
    if !["OrderedReady", "Parallel"].contains(&policy.text()) {
        report.invalid_text(&policy, policy.text(), "must be 'OrderedReady' or 'Parallel'");
    }
    let strategy = spec.at("updateStrategy");
    match strategy.at("type").text() {
        "OnDelete" => {
            if strategy.at("rollingUpdate").is_set() {
                report.invalid(
                    &strategy.at("rollingUpdate"),
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => non_negative(&strategy.at("rollingUpdate.partition"), report),
        _ => report.invalid(&strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
    for field in ["whenDeleted", "whenScaled"] {
        let position = spec.at("persistentVolumeClaimRetentionPolicy").at(field);
        if !["Retain", "Delete"].contains(&position.text()) {
            report.unsupported(&position, &["Retain", "Delete"]);
        }
    }
    for claim in spec.each("volumeClaimTemplates") {
        super::storage::claim_spec(&claim.at("spec"), report);
    }
    for field in ["replicas", "minReadySeconds", "ordinals.start"] {
        non_negative(&spec.at(field), report);
    }
    let service = spec.at("serviceName");
    if !service.is_empty() {
        report.invalid_each(&service, service.text(), formats::dns_label(service.text()));
    }
    selector(&spec, "statefulset", report);
    let mut pod_template = spec.at("template").value.clone();
    complete_template(&spec, &mut pod_template);
    let template = Position { value: &pod_template, path: spec.at("template").path };
    let labels = template.at("metadata.labels");
    if !selects(spec.at("selector").value, labels.value) {
        report.invalid(&labels, MISMATCH);
    }
    pods::template(&template, report);
    check_restart_policy(&template, "StatefulSet", report);
}

/// Checks the immutable fields of a stateful set.
pub(super) fn stateful_set_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let immutable_fields = |set: &Position<'_>| {
        let mut spec = set.at("spec").value.as_object().cloned().unwrap_or_default();
        for field in [
            "replicas",
            "template",
            "updateStrategy",
            "minReadySeconds",
            "ordinals",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
        ] {
            spec.remove(field);
        }
        spec
    };
    if immutable_fields(old) != immutable_fields(new) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        report.forbidden(&new.at("spec"), why);
    }
}

pub(super) fn job(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    job_spec(&spec, report);
    let selected = spec.at("selector");
    if selected.is_set() {
        meta::selector(&selected, report);
    } else {
        report.required(&selected, "");
    }
    let labels = spec.at("template.metadata.labels");
    if !selects(selected.value, labels.value) {
        report.invalid(&labels, MISMATCH);
    }
}

pub(super) fn job_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let (old, new) = (old.at("spec"), new.at("spec"));
    let indexed = new.at("completionMode").text() == "Indexed";
    // An indexed job is scaled by changing completions and parallelism together.
    let scaled = indexed && new.at("completions").value == new.at("parallelism").value;
    if !scaled {
        immutable(&old.at("completions"), &new.at("completions"), report);
    }
    let suspended = old.at("suspend").value == true;
    for field in [
        "selector",
        "template",
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        if field != "template" || !suspended {
            immutable(&old.at(field), &new.at(field), report);
        }
    }
}

pub(super) fn cron_job(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    let schedule = spec.at("schedule");
    if schedule.is_empty() {
        report.required(&schedule, "");
    } else {
        super::cron::check(&schedule, report);
    }
    let deadline = spec.at("startingDeadlineSeconds");
    non_negative(&deadline, report);
    super::containers::one_of(&spec.at("concurrencyPolicy"), &["Allow", "Forbid", "Replace"], report);
    for field in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        non_negative(&spec.at(field), report);
    }
    job_spec(&spec.at("jobTemplate.spec"), report);
    let name = object.at("metadata.name");
    if name.text().len() > 52 {
        report.invalid(&name, "must be no more than 52 characters");
    }
}

fn job_spec(spec: &Position<'_>, report: &mut Report) {
    for field in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        non_negative(&spec.at(field), report);
    }
    if spec.at("maxFailedIndexes").is_set() && !spec.at("backoffLimitPerIndex").is_set() {
        report.required(&spec.at("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    let mode = spec.at("completionMode");
    match mode.text() {
        "Indexed" => {
            if !spec.at("completions").is_set() {
                report.required(&spec.at("completions"), "when completion mode is Indexed");
            }
        }
        "" | "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if spec.at(field).is_set() {
                    report.invalid(&spec.at(field), "requires indexed completion mode");
                }
            }
        }
        _ => report.unsupported(&mode, &["NonIndexed", "Indexed"]),
    }
    let template = spec.at("template");
    pods::template(&template, report);
    let policy = template.at("spec.restartPolicy");
    match policy.text() {
        "" | "Always" => report.required(&policy, r#"valid values: "OnFailure", "Never""#),
        "OnFailure" if spec.at("podFailurePolicy").is_set() => {
            report.invalid(&policy, r#"only "Never" is supported when podFailurePolicy is specified"#);
        }
        "OnFailure" | "Never" => {}
        _ => report.unsupported(&policy, &["OnFailure", "Never"]),
    }
}

fn selector(spec: &Position<'_>, kind: &str, report: &mut Report) {
    let position = spec.at("selector");
    if !position.is_set() {
        report.required(&position, "");
        return;
    }
    meta::selector(&position, report);
    if position.at("matchLabels").is_empty() && position.at("matchExpressions").is_empty() {
        report.invalid(&position, &format!("empty selector is invalid for {kind}"));
    }
}

fn replicated_template(spec: &Position<'_>, kind: &str, report: &mut Report) {
    let template = spec.at("template");
    let labels = template.at("metadata.labels");
    if !selects(spec.at("selector").value, labels.value) {
        report.invalid(&labels, MISMATCH);
    }
    pods::template(&template, report);
    check_restart_policy(&template, kind, report);
}

fn check_restart_policy(template: &Position<'_>, kind: &str, report: &mut Report) {
    let policy = template.at("spec.restartPolicy");
    if policy.text() != "Always" {
        report.unsupported(&policy, &["Always"]);
    }
    if template.at("spec.activeDeadlineSeconds").is_set() {
        let why = format!("activeDeadlineSeconds in {kind} is not Supported");
        report.forbidden(&template.at("spec.activeDeadlineSeconds"), &why);
    }
}

fn rolling_update(rolling: &Position<'_>, report: &mut Report) {
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    count_or_percent(&unavailable, report);
    count_or_percent(&surge, report);
    if count(&unavailable) == 0 && count(&surge) == 0 {
        report.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
    }
    at_most_100_percent(&unavailable, report);
}

fn daemon_rolling_update(rolling: &Position<'_>, report: &mut Report) {
    if !rolling.is_set() {
        report.required(rolling, "");
        return;
    }
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    count_or_percent(&unavailable, report);
    count_or_percent(&surge, report);
    at_most_100_percent(&unavailable, report);
    at_most_100_percent(&surge, report);
    match (count(&unavailable) != 0, count(&surge) != 0) {
        (true, true) => report.invalid(&surge, "may not be set when maxUnavailable is non-zero"),
        (false, false) => report.required(&unavailable, "cannot be 0 when maxSurge is 0"),
        _ => {}
    }
}

/// Checks a number that must not be negative, or a percentage.
pub(super) fn count_or_percent(position: &Position<'_>, report: &mut Report) {
    match position.value.as_str() {
        Some(text) => report.invalid_each(position, text, formats::percent(text)),
        None => non_negative(position, report),
    }
}

pub(super) fn at_most_100_percent(position: &Position<'_>, report: &mut Report) {
    if position.value.is_string() && formats::percent(position.text()).is_empty() && count(position) > 100 {
        report.invalid_value(position, &shown(position.value), "must not be greater than 100%");
    }
}

/// Returns the number, or the number before `%`.
fn count(position: &Position<'_>) -> i64 {
    match position.value.as_str() {
        Some(text) => text.trim_end_matches('%').parse().unwrap_or_default(),
        None => position.number(),
    }
}

/// Changes the template of a stateful set as its controller does for each pod.
///
/// Adds a volume for each claim, and removes host name and subdomain, which the controller sets.
fn complete_template(spec: &Position<'_>, template: &mut serde_json::Value) {
    let claims: BTreeSet<String> = spec
        .each("volumeClaimTemplates")
        .iter()
        .map(|claim| claim.at("metadata.name").text().to_owned())
        .collect();
    let Some(pod) = template.get_mut("spec").and_then(serde_json::Value::as_object_mut) else { return };
    pod.remove("hostname");
    pod.remove("subdomain");
    if claims.is_empty() {
        return;
    }
    let existing = pod.get("volumes").and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
    let other_volumes = existing.into_iter().filter(|volume| {
        !volume.get("name").and_then(serde_json::Value::as_str).is_some_and(|name| claims.contains(name))
    });
    let claimed = claims
        .iter()
        .map(|name| serde_json::json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let volumes: Vec<serde_json::Value> = claimed.chain(other_volumes).collect();
    pod.insert("volumes".to_owned(), volumes.into());
}
