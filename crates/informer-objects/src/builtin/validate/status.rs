//! What is wrong with a new status. Kinds that are not here take any.

use serde_json::Value;

use super::meta::{self, immutable, non_negative};
use super::report::{Place, Report};
use super::services::ip;
use crate::status::StatusCause;
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
type UpperBound = (&'static str, &'static str, &'static str);

/// Replicas of which there cannot be more than of others.
const UPPER_BOUNDS: &[(&str, &str, &[UpperBound])] = &[
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

const LABELED: &[UpperBound] = &[
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
        UPPER_BOUNDS.iter().filter(|row| (row.0, row.1) == (group, kind)).flat_map(|row| row.2)
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
    let change = JobChange { before: old.at("status"), after: new.at("status") };
    change.check_times(report);
    change.check_end(new, report);
    change.check_kept(report);
}

/// The status of a job before and after.
struct JobChange<'a> {
    before: Place<'a>,
    after: Place<'a>,
}

impl JobChange<'_> {
    fn was(&self, kind: &str) -> bool {
        is_true(&self.before, kind)
    }

    fn now(&self, kind: &str) -> bool {
        is_true(&self.after, kind)
    }

    fn turned(&self, kind: &str) -> bool {
        self.was(kind) != self.now(kind)
    }

    fn changed(&self, field: &str) -> bool {
        self.before.at(field).value != self.after.at(field).value
    }

    fn finished(&self) -> bool {
        self.now("Complete") || self.now("Failed")
    }

    fn finishing(&self) -> bool {
        (self.was("Complete") || self.was("Failed")) != self.finished()
    }

    /// Refuses the conditions; their value is left out.
    fn refuse(&self, report: &mut Report, why: &str) {
        let message = format!("Invalid value: {why}");
        report.causes.push(StatusCause::new("FieldValueInvalid", &self.after.at("conditions").path, message));
    }

    fn check_times(&self, report: &mut Report) {
        let (end, start) = (self.after.at("completionTime"), self.after.at("startTime"));
        for other in ["Failed", "FailureTarget"] {
            let both = self.now("Complete") && self.now(other);
            if (self.turned("Complete") || self.turned(other)) && both {
                self.refuse(report, &format!("cannot set Complete=True and {other}=true conditions"));
            }
        }
        if self.turned("Complete") || self.changed("completionTime") {
            if end.is_set() && !self.now("Complete") {
                report.invalid(&end, "cannot set completionTime when there is no Complete=True condition");
            }
            if !end.is_set() && self.now("Complete") {
                report.required(&end, "completionTime is required for Complete jobs");
            }
        }
        let moved = self.changed("startTime") || self.changed("completionTime");
        if moved && end.is_set() && is_before(&end, &start) {
            report.invalid(&end, "must be equal to or after `startTime`");
        }
    }

    fn check_end(&self, new: &Place<'_>, report: &mut Report) {
        let number = |field: &str| self.after.at(field).number();
        for (kind, with, field) in
            [("Failed", "FailureTarget", Some("failedIndexes")), ("Complete", "SuccessCriteriaMet", None)]
        {
            let asked =
                self.turned(kind) || field.map_or_else(|| self.turned(with), |field| self.changed(field));
            if asked && self.now(kind) && !self.now(with) {
                self.refuse(
                    report,
                    &format!("cannot set {kind}=True condition without the {with}=true condition"),
                );
            }
        }
        let over = |field: &str| (self.finishing() || self.changed(field)) && self.finished();
        if over("active") && number("active") > 0 {
            report.invalid(&self.after.at("active"), "active>0 is invalid for finished job");
        }
        let idle = new.at("spec.suspend").value == true && new.at("spec.completions").value == 0;
        let start = self.after.at("startTime");
        if over("startTime") && !idle && !start.is_set() {
            report.required(&start, "startTime is required for finished job");
        }
        if over("terminating") && number("terminating") > 0 {
            report.invalid(&self.after.at("terminating"), "terminating>0 is invalid for finished job");
        }
        if (self.changed("ready") || self.changed("active")) && number("ready") > number("active") {
            report.invalid(&self.after.at("ready"), "cannot set more ready pods than active");
        }
        for kind in ["Failed", "FailureTarget"] {
            if self.now("SuccessCriteriaMet") && self.now(kind) {
                self.refuse(
                    report,
                    &format!("cannot set SuccessCriteriaMet=True and {kind}=true conditions"),
                );
            }
        }
    }

    /// What was said stays said.
    fn check_kept(&self, report: &mut Report) {
        for kind in ["Failed", "Complete", "FailureTarget"] {
            if self.was(kind) && !self.now(kind) {
                self.refuse(report, &format!("cannot disable the terminal {kind}=True condition"));
            }
        }
        let (end, failed) = (self.after.at("completionTime"), self.after.at("failed"));
        if failed.number() < self.before.at("failed").number() {
            report.invalid_value(&failed, &failed.number().to_string(), "cannot decrease the failed counter");
        }
        if end.is_set() && self.before.at("completionTime").is_set() && self.changed("completionTime") {
            report.invalid(&end, "field is immutable");
        }
        if self.was("SuccessCriteriaMet") && !self.now("SuccessCriteriaMet") {
            self.refuse(report, "cannot disable the SuccessCriteriaMet=True condition");
        }
    }
}

/// Whether a status has a condition, and it holds.
fn is_true(status: &Place<'_>, kind: &str) -> bool {
    let holds = |condition: &Place<'_>| {
        condition.at("type").text() == kind && condition.at("status").text() == "True"
    };
    status.each("conditions").iter().any(holds)
}

/// Times are texts of one form, so that they compare as such.
fn is_before(one: &Place<'_>, other: &Place<'_>) -> bool {
    matches!((one.value, other.value), (Value::String(one), Value::String(other)) if one < other)
}
