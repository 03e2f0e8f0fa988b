//! Table cells of nodes and component statuses.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::age::UNKNOWN;
use super::fields::{entries, filled, flag, list, text};

const NONE: &str = "<none>";

/// The status of a node, `Ready,SchedulingDisabled`.
pub(super) fn status(node: &Value) -> String {
    // If there are several conditions of a type, the last one is used.
    let conditions = list(node, "/status/conditions").iter();
    let ready = conditions.rev().find(|condition| text(condition, "/type") == "Ready");
    let status = match ready.map(|condition| text(condition, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let disabled = if flag(node, "/spec/unschedulable") { ",SchedulingDisabled" } else { "" };
    format!("{status}{disabled}")
}

/// The roles in the labels of a node.
pub(super) fn roles(node: &Value) -> String {
    let roles: BTreeSet<&str> = entries(node, "/metadata/labels")
        .filter_map(|(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) => Some(role),
            None if key == "kubernetes.io/role" => value.as_str(),
            None => None,
        })
        .filter(|role| !role.is_empty())
        .collect();
    if roles.is_empty() { NONE.to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

pub(super) fn internal_address(node: &Value) -> String {
    address(node, "InternalIP")
}

pub(super) fn external_address(node: &Value) -> String {
    address(node, "ExternalIP")
}

/// The kernel version with the architecture.
pub(super) fn kernel(node: &Value) -> String {
    let kernel = filled(node, "/status/nodeInfo/kernelVersion").unwrap_or(UNKNOWN);
    match filled(node, "/status/nodeInfo/architecture") {
        Some(architecture) => format!("{kernel} ({architecture})"),
        None => kernel.to_owned(),
    }
}

/// Three cells: status, message and error of a component.
pub(super) fn component(component: &Value, _now: Timestamp) -> Vec<Value> {
    let mut conditions = list(component, "/conditions").iter();
    let healthy = conditions.find(|condition| text(condition, "/type") == "Healthy");
    let status = match healthy.map(|condition| text(condition, "/status")) {
        Some("True") => "Healthy",
        Some(_) => "Unhealthy",
        None => "Unknown",
    };
    let field = |pointer| healthy.map_or("", |condition| text(condition, pointer));
    vec![json!(status), json!(field("/message")), json!(field("/error"))]
}

fn address(node: &Value, kind: &str) -> String {
    let mut addresses = list(node, "/status/addresses").iter();
    let first = addresses.find(|address| text(address, "/type") == kind);
    first.map_or(NONE, |address| text(address, "/address")).to_owned()
}
