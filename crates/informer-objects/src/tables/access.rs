//! Table cells of role bindings, certificate requests, admission policies, API services and API priority and
//! fairness.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::fields::{at, condition, entries, filled, list, number, text, texts};
use crate::text::times;

const NONE: &str = "<none>";
const UNSET: &str = "<unset>";

/// The role of a role binding, `ClusterRole/admin`.
pub(super) fn role(role_binding: &Value) -> String {
    format!("{}/{}", text(role_binding, "/roleRef/kind"), text(role_binding, "/roleRef/name"))
}

/// Three cells of a role binding: users, groups and service accounts.
pub(super) fn subjects(role_binding: &Value, _now: Timestamp) -> Vec<Value> {
    let named = |kind: &str| -> Value {
        let subjects =
            list(role_binding, "/subjects").iter().filter(|subject| text(subject, "/kind") == kind);
        let names = subjects.map(|subject| match kind {
            "ServiceAccount" => format!("{}/{}", text(subject, "/namespace"), text(subject, "/name")),
            _ => text(subject, "/name").to_owned(),
        });
        json!(names.collect::<Vec<_>>().join(", "))
    };
    vec![named("User"), named("Group"), named("ServiceAccount")]
}

/// The requested lifetime of a certificate.
pub(super) fn requested_duration(request: &Value) -> String {
    match at(request, "/spec/expirationSeconds") {
        Some(_) => times::human_duration(number(request, "/spec/expirationSeconds")),
        None => NONE.to_owned(),
    }
}

/// The status of a certificate request, `Approved,Issued`; a denial takes precedence over an approval.
pub(super) fn request_status(request: &Value) -> String {
    let has = |kind| condition(request, kind).is_some();
    let decided = match (has("Denied"), has("Approved")) {
        (true, _) => "Denied",
        (false, true) => "Approved",
        (false, false) => "Pending",
    };
    let failed = if has("Failed") { ",Failed" } else { "" };
    let issued = if filled(request, "/status/certificate").is_some() { ",Issued" } else { "" };
    format!("{decided}{failed}{issued}")
}

/// The state of a pod certificate request: its last condition of a known type, or `Pending`.
pub(super) fn pod_request_state(request: &Value) -> String {
    let conditions = list(request, "/status/conditions").iter().map(|condition| text(condition, "/type"));
    let last = conditions.rev().find(|kind| matches!(*kind, "Issued" | "Denied" | "Failed"));
    last.unwrap_or("Pending").to_owned()
}

/// The kind of the parameters of a policy.
pub(super) fn parameter_kind(policy: &Value) -> String {
    match at(policy, "/spec/paramKind") {
        Some(kind) => format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")),
        None => UNSET.to_owned(),
    }
}

/// The parameters of a policy binding.
pub(super) fn parameters(policy_binding: &Value) -> String {
    let reference = "/spec/paramRef";
    if let Some(name) = filled(policy_binding, &format!("{reference}/name")) {
        // Without a namespace, `*`: whether the parameters are namespaced is unknown here.
        return format!(
            "{}/{name}",
            filled(policy_binding, &format!("{reference}/namespace")).unwrap_or("*")
        );
    }
    at(policy_binding, &format!("{reference}/selector")).map_or_else(|| UNSET.to_owned(), go_string)
}

/// Whether the priority level of a flow schema is missing.
pub(super) fn dangling(flow: &Value) -> String {
    condition(flow, "Dangling").map_or("?", |condition| text(condition, "/status")).to_owned()
}

pub(super) fn distinguisher(flow: &Value) -> String {
    at(flow, "/spec/distinguisherMethod").map_or(NONE, |method| text(method, "/type")).to_owned()
}

/// Four cells of a priority level: shares, queues, hand size and queue length.
pub(super) fn shares(level: &Value, _now: Timestamp) -> Vec<Value> {
    let number_in = |pointer: &str, name: &str| match at(level, pointer) {
        Some(object) => json!(number(object, name)),
        None => json!(NONE),
    };
    let queuing = "/spec/limited/limitResponse/queuing";
    vec![
        number_in("/spec/limited", "/nominalConcurrencyShares"),
        number_in(queuing, "/queues"),
        number_in(queuing, "/handSize"),
        number_in(queuing, "/queueLengthLimit"),
    ]
}

/// Whether the aggregator reaches the service of an API.
pub(super) fn available(api_service: &Value) -> String {
    let Some(condition) = condition(api_service, "Available") else { return "Unknown".to_owned() };
    match (text(condition, "/status"), filled(condition, "/reason")) {
        (status, Some(reason)) if status != "True" => format!("{status} ({reason})"),
        (status, _) => status.to_owned(),
    }
}

/// The service that serves an API.
pub(super) fn served_by(api_service: &Value) -> String {
    match at(api_service, "/spec/service") {
        Some(service) => format!("{}/{}", text(service, "/namespace"), text(service, "/name")),
        None => "Local".to_owned(),
    }
}

/// Returns a selector in the form of the `String` method generated for Go.
fn go_string(selector: &Value) -> String {
    let labels: Vec<String> = entries(selector, "/matchLabels")
        .map(|(key, value)| format!("{key}: {},", value.as_str().unwrap_or_default()))
        .collect();
    let expression = |expression: &Value| {
        let (key, operator) = (text(expression, "/key"), text(expression, "/operator"));
        let values = texts(expression, "/values").join(" ");
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    };
    let expressions: Vec<String> = list(selector, "/matchExpressions").iter().map(expression).collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},\
         MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.concat(),
        expressions.concat()
    )
}
