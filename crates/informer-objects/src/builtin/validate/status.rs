//! Validation of statuses. The status of kinds that [`is_known`] does not list is not checked.

use serde_json::Value;

use super::meta::{self, immutable, non_negative};
use super::report::{Position, Report};
use super::services::ip;
use crate::status::StatusCause;
use crate::text::formats;

/// Numbers that must not be negative, by kind, in the order of kube-apiserver.
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

/// A count, its upper bound, and the name of the upper bound in messages.
type UpperBound = (&'static str, &'static str, &'static str);

/// Replica counts that must not exceed others.
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
    ("apps", "ReplicaSet", REPLICA_BOUNDS),
    ("", "ReplicationController", REPLICA_BOUNDS),
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

const REPLICA_BOUNDS: &[UpperBound] = &[
    ("fullyLabeledReplicas", "replicas", "status.replicas"),
    ("readyReplicas", "replicas", "status.replicas"),
    ("availableReplicas", "replicas", "status.replicas"),
    ("availableReplicas", "readyReplicas", "readyReplicas"),
];

/// Types of pod conditions that Kubernetes itself sets; only other types are checked.
const POD_CONDITIONS: &[&str] = &["PodScheduled", "Ready", "Initialized"];

/// Whether this module validates the status of a kind.
pub(super) fn is_known(group: &str, kind: &str) -> bool {
    COUNTS.iter().any(|row| (row.0, row.1) == (group, kind))
        || matches!(
            (group, kind),
            ("", "Pod" | "Service" | "PersistentVolume") | ("networking.k8s.io", "Ingress")
        )
}

pub(super) fn update(group: &str, kind: &str, old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    meta::check_update(old, new, report);
    let (before, after) = (old.at("status"), new.at("status"));
    for field in COUNTS.iter().filter(|row| (row.0, row.1) == (group, kind)).flat_map(|row| row.2) {
        non_negative(&after.at(field), report);
    }
    for (field, bound, bound_name) in
        UPPER_BOUNDS.iter().filter(|row| (row.0, row.1) == (group, kind)).flat_map(|row| row.2)
    {
        if after.at(field).number() > after.at(bound).number() {
            report.invalid(&after.at(field), &format!("cannot be greater than {bound_name}"));
        }
    }
    let collisions = after.at("collisionCount");
    if collisions.number() < before.at("collisionCount").number() {
        report.invalid_value(&collisions, &collisions.number().to_string(), "cannot be decremented");
    }
    match (group, kind) {
        ("", "Pod") => pod(&before, &after, report),
        ("", "Service") => {
            let position = after.at("loadBalancer.ingress");
            if new.at("spec.type").text() != "LoadBalancer" && !position.is_empty() {
                report.forbidden(&position, "may only be used when `spec.type` is 'LoadBalancer'");
            } else {
                let checks_ip_mode = true;
                load_balancer(&after, checks_ip_mode, report);
            }
        }
        ("networking.k8s.io", "Ingress") => {
            let checks_ip_mode = false;
            load_balancer(&after, checks_ip_mode, report);
        }
        ("batch", "Job") => job(old, new, report),
        _ => {}
    }
}

fn pod(before: &Position<'_>, after: &Position<'_>, report: &mut Report) {
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
    let old_addresses = before.each("podIPs");
    for address in after.each("podIPs") {
        let position = Position { value: address.at("ip").value, path: address.path.clone() };
        if !old_addresses.iter().any(|old_address| old_address.at("ip").value == position.value) {
            ip(&position, report);
        }
    }
}

/// Checks the addresses of a load balancer.
fn load_balancer(status: &Position<'_>, checks_ip_mode: bool, report: &mut Report) {
    for ingress in status.each("loadBalancer.ingress") {
        let (address, mode, host) = (ingress.at("ip"), ingress.at("ipMode"), ingress.at("hostname"));
        if !address.is_empty() {
            ip(&address, report);
        }
        match (address.is_empty(), mode.is_set()) {
            _ if !checks_ip_mode => {}
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

/// Checks that a job finishes only once, with a completion time and consistent conditions.
///
/// Like kube-apiserver, tolerates most errors in fields that the update does not change.
fn job(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let change = JobChange { before: old.at("status"), after: new.at("status") };
    change.check_times(report);
    change.check_end(new, report);
    change.check_unchanged(report);
}

/// The status of a job before and after an update.
struct JobChange<'a> {
    before: Position<'a>,
    after: Position<'a>,
}

impl JobChange<'_> {
    /// Whether a condition was true before.
    fn had(&self, kind: &str) -> bool {
        is_true(&self.before, kind)
    }

    /// Whether a condition is true after the update.
    fn has(&self, kind: &str) -> bool {
        is_true(&self.after, kind)
    }

    fn toggled(&self, kind: &str) -> bool {
        self.had(kind) != self.has(kind)
    }

    fn changed(&self, field: &str) -> bool {
        self.before.at(field).value != self.after.at(field).value
    }

    fn finished(&self) -> bool {
        self.has("Complete") || self.has("Failed")
    }

    fn finish_toggled(&self) -> bool {
        (self.had("Complete") || self.had("Failed")) != self.finished()
    }

    /// Adds a cause for the conditions, without their value.
    fn invalid_conditions(&self, report: &mut Report, why: &str) {
        let message = format!("Invalid value: {why}");
        report.causes.push(StatusCause::new("FieldValueInvalid", &self.after.at("conditions").path, message));
    }

    fn check_times(&self, report: &mut Report) {
        let (end, start) = (self.after.at("completionTime"), self.after.at("startTime"));
        for failure in ["Failed", "FailureTarget"] {
            let both = self.has("Complete") && self.has(failure);
            if (self.toggled("Complete") || self.toggled(failure)) && both {
                self.invalid_conditions(
                    report,
                    &format!("cannot set Complete=True and {failure}=true conditions"),
                );
            }
        }
        if self.toggled("Complete") || self.changed("completionTime") {
            if end.is_set() && !self.has("Complete") {
                report.invalid(&end, "cannot set completionTime when there is no Complete=True condition");
            }
            if !end.is_set() && self.has("Complete") {
                report.required(&end, "completionTime is required for Complete jobs");
            }
        }
        let times_changed = self.changed("startTime") || self.changed("completionTime");
        if times_changed && end.is_set() && is_before(&end, &start) {
            report.invalid(&end, "must be equal to or after `startTime`");
        }
    }

    /// Checks the conditions and numbers of pods of a finished job.
    fn check_end(&self, new: &Position<'_>, report: &mut Report) {
        let number = |field: &str| self.after.at(field).number();
        for (kind, prerequisite, field) in
            [("Failed", "FailureTarget", Some("failedIndexes")), ("Complete", "SuccessCriteriaMet", None)]
        {
            let is_affected = self.toggled(kind)
                || field.map_or_else(|| self.toggled(prerequisite), |field| self.changed(field));
            if is_affected && self.has(kind) && !self.has(prerequisite) {
                self.invalid_conditions(
                    report,
                    &format!("cannot set {kind}=True condition without the {prerequisite}=true condition"),
                );
            }
        }
        let affects_finished =
            |field: &str| (self.finish_toggled() || self.changed(field)) && self.finished();
        if affects_finished("active") && number("active") > 0 {
            report.invalid(&self.after.at("active"), "active>0 is invalid for finished job");
        }
        let never_starts = new.at("spec.suspend").value == true && new.at("spec.completions").value == 0;
        let start = self.after.at("startTime");
        if affects_finished("startTime") && !never_starts && !start.is_set() {
            report.required(&start, "startTime is required for finished job");
        }
        if affects_finished("terminating") && number("terminating") > 0 {
            report.invalid(&self.after.at("terminating"), "terminating>0 is invalid for finished job");
        }
        if (self.changed("ready") || self.changed("active")) && number("ready") > number("active") {
            report.invalid(&self.after.at("ready"), "cannot set more ready pods than active");
        }
        for kind in ["Failed", "FailureTarget"] {
            if self.has("SuccessCriteriaMet") && self.has(kind) {
                self.invalid_conditions(
                    report,
                    &format!("cannot set SuccessCriteriaMet=True and {kind}=true conditions"),
                );
            }
        }
    }

    /// Checks that terminal conditions and counters do not revert.
    fn check_unchanged(&self, report: &mut Report) {
        for kind in ["Failed", "Complete", "FailureTarget"] {
            if self.had(kind) && !self.has(kind) {
                self.invalid_conditions(
                    report,
                    &format!("cannot disable the terminal {kind}=True condition"),
                );
            }
        }
        let (end, failed) = (self.after.at("completionTime"), self.after.at("failed"));
        if failed.number() < self.before.at("failed").number() {
            report.invalid_value(&failed, &failed.number().to_string(), "cannot decrease the failed counter");
        }
        if end.is_set() && self.before.at("completionTime").is_set() && self.changed("completionTime") {
            report.invalid(&end, "field is immutable");
        }
        if self.had("SuccessCriteriaMet") && !self.has("SuccessCriteriaMet") {
            self.invalid_conditions(report, "cannot disable the SuccessCriteriaMet=True condition");
        }
    }
}

/// Whether a status has a condition with status `True`.
fn is_true(status: &Position<'_>, kind: &str) -> bool {
    let is_true_condition = |condition: &Position<'_>| {
        condition.at("type").text() == kind && condition.at("status").text() == "True"
    };
    status.each("conditions").iter().any(is_true_condition)
}

/// Whether a time precedes another; the texts have one format, so they can be compared.
fn is_before(one: &Position<'_>, other: &Position<'_>) -> bool {
    matches!((one.value, other.value), (Value::String(one), Value::String(other)) if one < other)
}
