//! What is wrong with a new status. Kinds that are not here take any.

use serde_json::Value;

use super::meta::{self, immutable, non_negative};
use super::report::{Place, Report};
use super::services::ip;
use crate::model::Cause;
use crate::text::formats;

/// Numbers that are not negative, by kind, in the order in which a server looks at them.
const COUNTS: &[(&str, &str, &[&str])] = &[
    (
        "apps",
        "Deployment",
        &[
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ],
    ),
    (
        "apps",
        "ReplicaSet",
        &[
            "replicas",
            "fullyLabeledReplicas",
            "readyReplicas",
            "availableReplicas",
            "observedGeneration",
            "terminatingReplicas",
        ],
    ),
    (
        "",
        "ReplicationController",
        &["replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration"],
    ),
    (
        "apps",
        "StatefulSet",
        &[
            "replicas",
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
            "observedGeneration",
            "collisionCount",
        ],
    ),
    (
        "apps",
        "DaemonSet",
        &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ],
    ),
    ("batch", "Job", &["active", "succeeded", "failed", "ready", "terminating"]),
    (
        "policy",
        "PodDisruptionBudget",
        &["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"],
    ),
];

/// A count, the one it cannot be greater than, and how that is called.
type Most = (&'static str, &'static str, &'static str);

/// Replicas of which there cannot be more than of others.
const AT_MOST: &[(&str, &str, &[Most])] = &[
    (
        "apps",
        "Deployment",
        &[
            ("updatedReplicas", "replicas", "status.replicas"),
            ("readyReplicas", "replicas", "status.replicas"),
            ("availableReplicas", "replicas", "status.replicas"),
            ("availableReplicas", "readyReplicas", "readyReplicas"),
        ],
    ),
    ("apps", "ReplicaSet", LABELED),
    ("", "ReplicationController", LABELED),
    (
        "apps",
        "StatefulSet",
        &[
            ("readyReplicas", "replicas", "status.replicas"),
            ("currentReplicas", "replicas", "status.replicas"),
            ("updatedReplicas", "replicas", "status.replicas"),
            ("availableReplicas", "replicas", "status.replicas"),
            ("availableReplicas", "readyReplicas", "status.readyReplicas"),
        ],
    ),
];

const LABELED: &[Most] = &[
    ("fullyLabeledReplicas", "replicas", "status.replicas"),
    ("readyReplicas", "replicas", "status.replicas"),
    ("availableReplicas", "replicas", "status.replicas"),
    ("availableReplicas", "readyReplicas", "readyReplicas"),
];

/// Conditions of pods that the server knows.
const POD_CONDITIONS: &[&str] = &["PodScheduled", "Ready", "Initialized"];

/// Whether this room knows what the status of a kind may be.
pub(super) fn is_known(group: &str, kind: &str) -> bool {
    COUNTS.iter().any(|row| (row.0, row.1) == (group, kind))
        || matches!(
            (group, kind),
            ("", "Pod" | "Service" | "PersistentVolume") | ("networking.k8s.io", "Ingress")
        )
}

pub(super) fn update(group: &str, kind: &str, old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    meta::check_update(old, new, report);
    let (before, after) = (old.at("status"), new.at("status"));
    for field in COUNTS.iter().filter(|row| (row.0, row.1) == (group, kind)).flat_map(|row| row.2) {
        non_negative(&after.at(field), report);
    }
    for (field, other, called) in
        AT_MOST.iter().filter(|row| (row.0, row.1) == (group, kind)).flat_map(|row| row.2)
    {
        if after.at(field).number() > after.at(other).number() {
            report.invalid(&after.at(field), &format!("cannot be greater than {called}"));
        }
    }
    let collisions = after.at("collisionCount");
    if collisions.number() < before.at("collisionCount").number() {
        report.invalid_value(&collisions, &collisions.number().to_string(), "cannot be decremented");
    }
    match (group, kind) {
        ("", "Pod") => pod(&before, &after, report),
        ("", "Service") => {
            let place = after.at("loadBalancer.ingress");
            if new.at("spec.type").text() != "LoadBalancer" && !place.is_empty() {
                report.forbidden(&place, "may only be used when `spec.type` is 'LoadBalancer'");
            } else {
                balancer(&after, true, report);
            }
        }
        ("networking.k8s.io", "Ingress") => balancer(&after, false, report),
        ("batch", "Job") => job(old, new, report),
        _ => {}
    }
}

fn pod(before: &Place<'_>, after: &Place<'_>, report: &mut Report) {
    for condition in after.each("conditions") {
        let kind = condition.at("type").text();
        if !POD_CONDITIONS.contains(&kind) {
            report.invalid_each(&condition.at("Type"), kind, formats::qualified_name(kind));
        }
    }
    if after.at("observedGeneration").number() < 0 {
        report.invalid(&after.at("observedGeneration"), "must be a non-negative integer");
    }
    immutable(&before.at("qosClass"), &after.at("qosClass"), report);
    let had = before.each("podIPs");
    for address in after.each("podIPs") {
        let place = Place { value: address.at("ip").value, path: address.path.clone() };
        if !had.iter().any(|had| had.at("ip").value == place.value) {
            ip(&place, report);
        }
    }
}

/// The addresses under which a balancer is reached.
fn balancer(status: &Place<'_>, modes: bool, report: &mut Report) {
    for ingress in status.each("loadBalancer.ingress") {
        let (address, mode, host) = (ingress.at("ip"), ingress.at("ipMode"), ingress.at("hostname"));
        if !address.is_empty() {
            ip(&address, report);
        }
        match (address.is_empty(), mode.is_set()) {
            _ if !modes => {}
            (false, false) => report.required(&mode, "must be specified when `ip` is set"),
            (true, true) => report.forbidden(&mode, "may not be specified when `ip` is not set"),
            (false, true) if !["Proxy", "VIP"].contains(&mode.text()) => {
                report.unsupported(&mode, &["Proxy", "VIP"]);
            }
            _ => {}
        }
        if !host.is_empty() {
            report.invalid_each(&host, host.text(), formats::dns_subdomain(host.text()));
            if host.text().parse::<std::net::IpAddr>().is_ok() {
                report.invalid(&host, "must be a DNS name, not an IP address");
            }
        }
    }
}

/// A job ends once, and says when and how. What was wrong before may stay so.
fn job(old: &Place<'_>, new: &Place<'_>, report: &mut Report) {
    let (before, after) = (old.at("status"), new.at("status"));
    let is = |status: &Place<'_>, kind: &str| {
        status
            .each("conditions")
            .iter()
            .any(|condition| condition.at("type").text() == kind && condition.at("status").text() == "True")
    };
    let (was, now) = (|kind: &str| is(&before, kind), |kind: &str| is(&after, kind));
    let turned = |kind: &str| was(kind) != now(kind);
    let changed = |field: &str| before.at(field).value != after.at(field).value;
    let finished = now("Complete") || now("Failed");
    let finishing = (was("Complete") || was("Failed")) != finished;
    let conditions = |report: &mut Report, why: &str| {
        // The value is left out.
        let message = format!("Invalid value: {why}");
        report.causes.push(Cause::new("FieldValueInvalid", &after.at("conditions").path, message));
    };
    let (end, start) = (after.at("completionTime"), after.at("startTime"));
    if (turned("Complete") || turned("Failed")) && now("Complete") && now("Failed") {
        conditions(report, "cannot set Complete=True and Failed=true conditions");
    }
    if (turned("Complete") || turned("FailureTarget")) && now("Complete") && now("FailureTarget") {
        conditions(report, "cannot set Complete=True and FailureTarget=true conditions");
    }
    if turned("Complete") || changed("completionTime") {
        if end.is_set() && !now("Complete") {
            report.invalid(&end, "cannot set completionTime when there is no Complete=True condition");
        }
        if !end.is_set() && now("Complete") {
            report.required(&end, "completionTime is required for Complete jobs");
        }
    }
    if (changed("startTime") || changed("completionTime")) && end.is_set() && is_before(&end, &start) {
        report.invalid(&end, "must be equal to or after `startTime`");
    }
    if (turned("Failed") || changed("failedIndexes")) && now("Failed") && !now("FailureTarget") {
        conditions(report, "cannot set Failed=True condition without the FailureTarget=true condition");
    }
    if (turned("Complete") || turned("SuccessCriteriaMet")) && now("Complete") && !now("SuccessCriteriaMet") {
        conditions(
            report,
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
    }
    if (finishing || changed("active")) && finished && after.at("active").number() > 0 {
        report.invalid(&after.at("active"), "active>0 is invalid for finished job");
    }
    let idle = new.at("spec.suspend").value == true && new.at("spec.completions").value == 0;
    if (finishing || changed("startTime")) && !idle && finished && !start.is_set() {
        report.required(&start, "startTime is required for finished job");
    }
    if (finishing || changed("terminating")) && finished && after.at("terminating").number() > 0 {
        report.invalid(&after.at("terminating"), "terminating>0 is invalid for finished job");
    }
    if (changed("ready") || changed("active")) && after.at("ready").number() > after.at("active").number() {
        report.invalid(&after.at("ready"), "cannot set more ready pods than active");
    }
    for kind in ["Failed", "FailureTarget"] {
        if now("SuccessCriteriaMet") && now(kind) {
            conditions(report, &format!("cannot set SuccessCriteriaMet=True and {kind}=true conditions"));
        }
    }
    for kind in ["Failed", "Complete", "FailureTarget"] {
        if was(kind) && !now(kind) {
            conditions(report, &format!("cannot disable the terminal {kind}=True condition"));
        }
    }
    if after.at("failed").number() < before.at("failed").number() {
        let value = after.at("failed").number().to_string();
        report.invalid_value(&after.at("failed"), &value, "cannot decrease the failed counter");
    }
    if end.is_set() && before.at("completionTime").is_set() && changed("completionTime") {
        report.invalid(&end, "field is immutable");
    }
    if was("SuccessCriteriaMet") && !now("SuccessCriteriaMet") {
        conditions(report, "cannot disable the SuccessCriteriaMet=True condition");
    }
}

/// Times are texts of one form, so that they compare as such.
fn is_before(one: &Place<'_>, other: &Place<'_>) -> bool {
    matches!((one.value, other.value), (Value::String(one), Value::String(other)) if one < other)
}
