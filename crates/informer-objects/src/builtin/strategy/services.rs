//! Fields that the server sets in services: IP families and allocated values.
//!
//! The cluster has one range of IPv4 addresses. The caller allocates addresses and ports; [`Wanted`] lists
//! those that a service needs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::super::value::{at, flag, lacks, list, list_mut, number, object_in, text};
use super::fields;

/// The values that must be allocated for a service before it is stored.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Whether an address is needed for `spec.clusterIP` and `spec.clusterIPs`.
    pub cluster_ip: bool,
    /// The indexes in `spec.ports` that need a `nodePort`.
    pub node_ports: Vec<usize>,
    /// Whether a port is needed for `spec.healthCheckNodePort`.
    pub health_check_node_port: bool,
}

impl Wanted {
    /// Returns the values that a service needs.
    pub fn by(service: &Value) -> Self {
        let spec = at(service, "spec").unwrap_or(&Value::Null);
        let allocates_node_ports = has_node_ports(spec)
            && (text(spec, "type") == "NodePort" || flag(spec, "allocateLoadBalancerNodePorts"));
        let ports = list(spec, "ports").iter().enumerate();
        let node_ports = ports
            .filter(|(_, port)| allocates_node_ports && number(port, "nodePort").unwrap_or_default() == 0);
        Wanted {
            cluster_ip: has_cluster_ip(spec) && text(spec, "clusterIP").is_empty(),
            node_ports: node_ports.map(|(index, _)| index).collect(),
            health_check_node_port: has_health_check(spec)
                && number(spec, "healthCheckNodePort").unwrap_or_default() == 0,
        }
    }
}

pub(super) fn prepare_create(service: &mut Value) {
    set_cluster_ips(service);
    set_ip_families(service);
    drop_internal_traffic_policy(service);
}

pub(super) fn prepare_update(old: &Value, new: &mut Value) {
    keep_allocated(old, new);
    drop_obsolete_fields(old, new);
    set_cluster_ips(new);
    set_ip_families(new);
    drop_internal_traffic_policy(new);
}

/// Removes the internal traffic policy of an `ExternalName` service.
fn drop_internal_traffic_policy(service: &mut Value) {
    let spec = object_in(fields(service), "spec");
    if spec.get("type").is_some_and(|kind| kind == "ExternalName") {
        spec.remove("internalTrafficPolicy");
    }
}

/// Sets missing `clusterIPs` to a list with `clusterIP`.
fn set_cluster_ips(service: &mut Value) {
    let spec = object_in(fields(service), "spec");
    if lacks(spec, "clusterIPs")
        && let Some(address) = spec.get("clusterIP").cloned()
    {
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
}

/// Sets missing IP families and their policy as kube-apiserver does in a cluster with IPv4 only.
///
/// That is IPv4 only, except for a headless service without a selector: the cluster allocates nothing for it,
/// so both families are set.
fn set_ip_families(service: &mut Value) {
    let spec = object_in(fields(service), "spec");
    let spec_value = Value::Object(spec.clone());
    if !has_cluster_ip(&spec_value) {
        return;
    }
    let headless = text(&spec_value, "clusterIP") == "None";
    let (policy, families) = if headless && lacks(spec, "selector") && !spec.contains_key("ipFamilyPolicy") {
        ("RequireDualStack", json!(["IPv4", "IPv6"]))
    } else {
        ("SingleStack", json!(["IPv4"]))
    };
    super::super::value::set_if_empty(spec, "ipFamilyPolicy", policy);
    super::super::value::set_if_empty(spec, "ipFamilies", families);
}

/// Keeps allocated values that a client omits.
fn keep_allocated(old: &Value, new: &mut Value) {
    let (before, after) =
        (at(old, "spec").unwrap_or(&Value::Null), at(new, "spec").cloned().unwrap_or_default());
    let spec = object_in(fields(new), "spec");
    let mut keep = |field: &str| {
        if lacks(spec, field)
            && let Some(value) = before.get(field)
        {
            spec.insert(field.to_owned(), value.clone());
        }
    };
    if has_cluster_ip(before) && has_cluster_ip(&after) {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            keep(field);
        }
    }
    if has_health_check(before) && has_health_check(&after) {
        keep("healthCheckNodePort");
    }
    // A change of `clusterIP` also changes `clusterIPs`.
    if has_cluster_ip(before)
        && has_cluster_ip(&after)
        && spec.get("clusterIP") != before.get("clusterIP")
        && spec.get("clusterIPs") == before.get("clusterIPs")
        && let Some(address) = spec.get("clusterIP").cloned()
    {
        spec.insert("clusterIPs".to_owned(), json!([address]));
    }
    if has_node_ports(before) && has_node_ports(&after) {
        keep_node_ports(before, new);
    }
}

fn keep_node_ports(before: &Value, new: &mut Value) {
    let ports = list(new, "spec.ports").iter();
    let taken: BTreeSet<i64> = ports.filter_map(|port| number(port, "nodePort")).collect();
    // Reversed, so that the first of several equal ports stays in the map.
    let ports = list(before, "ports").iter().rev();
    let node_ports: BTreeMap<(Option<i64>, &str), i64> = ports
        .filter_map(|port| Some(((number(port, "port"), text(port, "protocol")), number(port, "nodePort")?)))
        .collect();
    for port in list_mut(new, "spec.ports") {
        if number(port, "nodePort").unwrap_or_default() != 0 {
            continue;
        }
        let node_port = node_ports.get(&(number(port, "port"), text(port, "protocol"))).copied();
        if let Some(node_port) = node_port.filter(|node_port| !taken.contains(node_port)) {
            fields(port).insert("nodePort".to_owned(), node_port.into());
        }
    }
}

/// Removes fields that the new type of the service does not have, unless the client changed them.
///
/// Also clears the load balancer status if the service is not a load balancer.
fn drop_obsolete_fields(old: &Value, new: &mut Value) {
    let (before, after) =
        (at(old, "spec").unwrap_or(&Value::Null), at(new, "spec").cloned().unwrap_or_default());
    let same = |field: &str| before.get(field) == after.get(field);
    let mut obsolete = Vec::new();
    if has_cluster_ip(before) && !has_cluster_ip(&after) {
        if same("clusterIP") && same("clusterIPs") {
            obsolete.extend(["clusterIP", "clusterIPs"]);
        }
        obsolete.extend(["ipFamilies", "ipFamilyPolicy"].into_iter().filter(|field| same(field)));
    }
    if has_health_check(before) && !has_health_check(&after) && same("healthCheckNodePort") {
        obsolete.push("healthCheckNodePort");
    }
    if text(before, "type") == "LoadBalancer" && text(&after, "type") != "LoadBalancer" {
        let fields = ["allocateLoadBalancerNodePorts", "loadBalancerClass"];
        obsolete.extend(fields.into_iter().filter(|field| same(field)));
    }
    if is_external(before) && !is_external(&after) && same("externalTrafficPolicy") {
        obsolete.push("externalTrafficPolicy");
    }
    let spec = object_in(fields(new), "spec");
    for field in obsolete {
        spec.remove(field);
    }
    if has_node_ports(before) && !has_node_ports(&after) {
        let numbers = |spec: &Value| -> Vec<Option<i64>> {
            list(spec, "ports").iter().map(|port| number(port, "nodePort")).collect()
        };
        if numbers(before) == numbers(&after) {
            for port in list_mut(new, "spec.ports") {
                fields(port).remove("nodePort");
            }
        }
    }
    if text(&after, "type") != "LoadBalancer" {
        object_in(fields(new), "status").insert("loadBalancer".to_owned(), json!({}));
    }
}

fn has_cluster_ip(spec: &Value) -> bool {
    text(spec, "type") != "ExternalName"
}

fn has_node_ports(spec: &Value) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn has_health_check(spec: &Value) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Whether the service is reachable from outside the cluster.
fn is_external(spec: &Value) -> bool {
    has_node_ports(spec) || (text(spec, "type") == "ClusterIP" && !list(spec, "externalIPs").is_empty())
}
