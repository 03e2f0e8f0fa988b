//! Validation of services, endpoints and endpoint slices.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::containers::{one_of, port_number, port_or_name};
use super::meta;
use super::report::{Position, Report};
use crate::text::formats;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const NOT_AN_IP: &str = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";

pub(super) fn service(object: &Position<'_>, report: &mut Report) {
    let spec = object.at("spec");
    let headless = spec.each("clusterIPs").first().is_some_and(|first| first.text() == "None");
    let kind = spec.at("type").text();
    if spec.at("ports").is_empty() && !headless && kind != "ExternalName" {
        report.required(&spec.at("ports"), "");
    }
    match kind {
        "LoadBalancer" | "NodePort" => {
            if let Some(first) = spec.each("clusterIPs").first().filter(|_| headless) {
                report.invalid(first, &format!("may not be set to 'None' for {kind} services"));
            }
        }
        "ExternalName" => external_name(&spec, report),
        _ => {}
    }
    ports(&spec, report);
    meta::labels(&spec.at("selector"), report);
    one_of(&spec.at("sessionAffinity"), &["ClientIP", "None"], report);
    let timeout = spec.at("sessionAffinityConfig.clientIP.timeoutSeconds");
    if timeout.is_set() && !(1..=86400).contains(&timeout.number()) {
        report.invalid(&timeout, "must be greater than 0 and less than 86400");
    }
    if kind != "ExternalName" {
        cluster_ips(&spec, report);
    }
    for address in spec.each("externalIPs") {
        ip(&address, report);
    }
    one_of(&spec.at("type"), &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"], report);
    port_conflicts(&spec, kind, report);
    let ranges = spec.at("loadBalancerSourceRanges");
    if !ranges.is_empty() && kind != "LoadBalancer" {
        // kube-apiserver writes the name of the field like this.
        let position = spec.at("LoadBalancerSourceRanges");
        report.forbidden(&position, "may only be used when `type` is 'LoadBalancer'");
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if spec.at(field).is_set() && kind != "LoadBalancer" {
            report.forbidden(&spec.at(field), "may only be used when `type` is 'LoadBalancer'");
        }
    }
    traffic(&spec, kind, report);
    if report.causes.is_empty() && kind != "ExternalName" && !(headless && spec.at("selector").is_empty()) {
        single_stack(&spec, report);
    }
}

/// Checks that only IPv4 is used: the cluster has addresses of one family.
fn single_stack(spec: &Position<'_>, report: &mut Report) {
    let policy = spec.at("ipFamilyPolicy");
    if policy.text() == "RequireDualStack" {
        report.invalid(&policy, "this cluster is not configured for dual-stack services");
    }
    for family in spec.each("ipFamilies").iter().filter(|family| family.text() != "IPv4") {
        report.invalid(family, "not configured on this cluster");
    }
}

pub(super) fn service_update(old: &Position<'_>, new: &Position<'_>, report: &mut Report) {
    let is_external_name = |service: &Position<'_>| service.at("spec.type").text() == "ExternalName";
    let is_load_balancer = |service: &Position<'_>| service.at("spec.type").text() == "LoadBalancer";
    let (old_class, new_class) = (old.at("spec.loadBalancerClass"), new.at("spec.loadBalancerClass"));
    if is_load_balancer(old) && is_load_balancer(new) && old_class.value != new_class.value {
        report.invalid(&new_class, "may not change once set");
    }
    let (before, after) = (old.each("spec.clusterIPs"), new.each("spec.clusterIPs"));
    let headless = |ips: &[Position<'_>]| ips.first().is_some_and(|first| first.text() == "None");
    if is_external_name(old) || is_external_name(new) || (headless(&before) && headless(&after)) {
        return;
    }
    let list = new.at("spec.clusterIPs");
    // kube-apiserver shows the whole list for each entry.
    let first = Position { value: list.value, path: "spec.clusterIPs[0]".to_owned() };
    if after.is_empty() && !before.is_empty() {
        report.invalid(&first, "primary clusterIP can not be unset");
    }
    // If the number of addresses changes, only the first one must stay.
    let compared = if before.len() == after.len() { before.len() } else { 1 };
    for (index, (before, after)) in before.iter().zip(&after).enumerate().take(compared) {
        if before.text() != after.text() {
            let position = Position { value: list.value, path: format!("spec.clusterIPs[{index}]") };
            report.invalid(&position, "may not change once set");
        }
    }
}

pub(super) fn endpoints(object: &Position<'_>, report: &mut Report) {
    for subset in object.each("subsets") {
        if subset.at("addresses").is_empty() && subset.at("notReadyAddresses").is_empty() {
            report.required(&subset, "must specify `addresses` or `notReadyAddresses`");
        }
        let addresses = [subset.each("addresses"), subset.each("notReadyAddresses")].concat();
        for address in &addresses {
            ip(&address.at("ip"), report);
        }
        let ports = subset.each("ports");
        for port in &ports {
            let name = port.at("name");
            if !name.is_empty() {
                report.invalid_each(&name, name.text(), formats::dns_label(name.text()));
            } else if ports.len() > 1 {
                report.required(&name, "");
            }
            port_number(&port.at("port"), report);
            one_of(&port.at("protocol"), PROTOCOLS, report);
        }
    }
}

pub(super) fn endpoint_slice(object: &Position<'_>, report: &mut Report) {
    one_of(&object.at("addressType"), &["FQDN", "IPv4", "IPv6"], report);
    let mut names = BTreeSet::new();
    for port in object.each("ports") {
        let name = port.at("name");
        if !name.is_empty() {
            report.invalid_each(&name, name.text(), formats::dns_label(name.text()));
        }
        if !names.insert(name.text()) {
            report.duplicate(&name);
        }
        one_of(&port.at("protocol"), PROTOCOLS, report);
    }
    for endpoint in object.each("endpoints") {
        if endpoint.at("addresses").is_empty() {
            report.required(&endpoint.at("addresses"), "must contain at least 1 address");
        }
        for address in endpoint.each("addresses") {
            let kind = object.at("addressType").text();
            if kind == "FQDN" {
                continue;
            }
            match address.text().parse::<IpAddr>() {
                Err(_) => report.invalid(&address, NOT_AN_IP),
                Ok(parsed) if parsed.is_ipv4() != (kind == "IPv4") => {
                    let list = endpoint.at("addresses");
                    report.invalid_text(&list, address.text(), &format!("must be an {kind} address"));
                }
                Ok(_) => {}
            }
        }
    }
}

fn external_name(spec: &Position<'_>, report: &mut Report) {
    for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if !spec.at(field).is_empty() {
            report.forbidden(&spec.at(field), "may not be set for ExternalName services");
        }
    }
    let position = spec.at("externalName");
    let name = position.text().strip_suffix('.').unwrap_or(position.text());
    if name.is_empty() {
        report.required(&position, "");
    } else {
        report.invalid_each(&position, name, formats::dns_subdomain(name));
    }
}

fn ports(spec: &Position<'_>, report: &mut Report) {
    let all = spec.each("ports");
    let mut names = BTreeSet::new();
    for port in &all {
        let name = port.at("name");
        if !name.is_empty() {
            report.invalid_each(&name, name.text(), formats::dns_label(name.text()));
            if !names.insert(name.text()) {
                report.duplicate(&name);
            }
        } else if all.len() > 1 {
            report.required(&name, "");
        }
        port_number(&port.at("port"), report);
        one_of(&port.at("protocol"), PROTOCOLS, report);
        port_or_name(&port.at("targetPort"), report);
        let protocol = port.at("appProtocol");
        if protocol.is_set() {
            report.invalid_each(&protocol, protocol.text(), formats::qualified_name(protocol.text()));
        }
    }
}

fn cluster_ips(spec: &Position<'_>, report: &mut Report) {
    let (cluster_ip, list) = (spec.at("clusterIP"), spec.at("clusterIPs"));
    let all = spec.each("clusterIPs");
    match (cluster_ip.text(), all.first()) {
        ("", None) => {}
        ("", Some(_)) => report.invalid(&list, "must be empty when `clusterIP` is not specified"),
        (_, None) => report.required(&list, ""),
        (text, Some(first)) if text != first.text() => {
            report.invalid(&list, "first value must match `clusterIP`");
        }
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for family in spec.each("ipFamilies") {
        if !["IPv4", "IPv6"].contains(&family.text()) {
            report.unsupported(&family, &["IPv4", "IPv6"]);
        }
        if !seen.insert(family.text()) {
            report.duplicate(&family);
        }
    }
    let policy = spec.at("ipFamilyPolicy");
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    if policy.is_set() && !policies.contains(&policy.text()) {
        report.unsupported(&policy, &policies);
    }
    for (index, address) in all.iter().enumerate() {
        if index == 0 && address.text() == "None" {
            if all.len() > 1 {
                report.invalid(&list, "'None' must be the first and only value");
            }
            continue;
        }
        ip(address, report);
    }
    if all.len() > 2 {
        report.invalid(&list, "may only hold up to 2 values");
    }
}

fn port_conflicts(spec: &Position<'_>, kind: &str, report: &mut Report) {
    let all = spec.each("ports");
    let (mut node_ports, mut service_ports) = (BTreeSet::new(), BTreeSet::new());
    if kind == "ClusterIP" {
        for node_port in all.iter().map(|port| port.at("nodePort")).filter(|port| port.number() != 0) {
            report.forbidden(&node_port, "may not be used when `type` is 'ClusterIP'");
        }
    }
    for port in &all {
        let node_port = port.at("nodePort");
        if node_port.number() != 0 && !node_ports.insert((port.at("protocol").text(), node_port.number())) {
            report.duplicate(&node_port);
        }
    }
    for port in &all {
        let (protocol, number) = (port.at("protocol").text(), port.at("port").number());
        if !service_ports.insert((protocol, number)) {
            // kube-apiserver shows its Go struct, with protocol and port only.
            let value = format!(
                r#"Duplicate value: {{"Name":"","Protocol":"{protocol}","AppProtocol":null,"Port":{number},"TargetPort":0,"NodePort":0}}"#
            );
            report.causes.push(crate::status::StatusCause::new("FieldValueDuplicate", &port.path, value));
        }
    }
}

fn traffic(spec: &Position<'_>, kind: &str, report: &mut Report) {
    let is_external = matches!(kind, "NodePort" | "LoadBalancer")
        || (kind == "ClusterIP" && !spec.at("externalIPs").is_empty());
    let external = spec.at("externalTrafficPolicy");
    if is_external {
        one_of(&external, &["Cluster", "Local"], report);
    } else if !external.is_empty() {
        report.invalid(&external, "may only be set for externally-accessible services");
    }
    let health_check_port = spec.at("healthCheckNodePort");
    if health_check_port.number() != 0 && !(kind == "LoadBalancer" && external.text() == "Local") {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        report.invalid(&health_check_port, why);
    }
    let internal = spec.at("internalTrafficPolicy");
    if matches!(kind, "NodePort" | "LoadBalancer" | "ClusterIP") && !internal.is_set() {
        report.required(&internal, "");
    }
    if internal.is_set() && !["Cluster", "Local"].contains(&internal.text()) {
        report.unsupported(&internal, &["Cluster", "Local"]);
    }
}

pub(super) fn ip(position: &Position<'_>, report: &mut Report) {
    if position.text().parse::<IpAddr>().is_err() {
        report.invalid(position, NOT_AN_IP);
    }
}
