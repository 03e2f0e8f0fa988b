//! Table cells of services, endpoints, ingresses and IP addresses.

use std::collections::BTreeSet;

use serde_json::Value;

use super::cell::{MAX_SHOWN, shortened_or_unset};
use super::fields::{at, filled, given, list, number, text, texts};

const NONE: &str = "<none>";

pub(super) fn cluster_address(service: &Value) -> String {
    given(service, "/spec/clusterIPs/0")
        .or_else(|| filled(service, "/spec/clusterIP"))
        .unwrap_or(NONE)
        .to_owned()
}

/// The addresses at which a service is reachable from outside.
pub(super) fn external_address(service: &Value) -> String {
    let external = texts(service, "/spec/externalIPs").join(",");
    match text(service, "/spec/type") {
        "ClusterIP" | "NodePort" if external.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => external,
        "LoadBalancer" => match (load_balancer(service), external) {
            (balancer, external) if balancer.is_empty() && external.is_empty() => "<pending>".to_owned(),
            (balancer, external) if balancer.is_empty() => external,
            (balancer, external) if external.is_empty() => balancer,
            (balancer, external) => format!("{balancer},{external}"),
        },
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        _ => "<unknown>".to_owned(),
    }
}

/// The ports of a service, `80/TCP,443:30443/TCP`.
pub(super) fn service_ports(service: &Value) -> String {
    let ports = list(service, "/spec/ports").iter().map(|port| {
        let (port_number, protocol) = (number(port, "/port"), text(port, "/protocol"));
        match number(port, "/nodePort") {
            node @ 1.. => format!("{port_number}:{node}/{protocol}"),
            _ => format!("{port_number}/{protocol}"),
        }
    });
    let ports: Vec<String> = ports.collect();
    if ports.is_empty() { NONE.to_owned() } else { ports.join(",") }
}

/// The addresses of a load balancer, sorted.
pub(super) fn load_balancer(object: &Value) -> String {
    let points = list(object, "/status/loadBalancer/ingress").iter();
    let points: BTreeSet<&str> =
        points.filter_map(|point| filled(point, "/ip").or_else(|| filled(point, "/hostname"))).collect();
    points.into_iter().collect::<Vec<_>>().join(",")
}

/// Every address with every port of its subset, up to the maximum, and the number of those not shown.
pub(super) fn endpoints(endpoints: &Value) -> String {
    let subsets = list(endpoints, "/subsets");
    if subsets.is_empty() {
        return NONE.to_owned();
    }
    let mut shown = Vec::new();
    let mut count: usize = 0;
    for subset in subsets {
        let addresses = list(subset, "/addresses");
        let ports = list(subset, "/ports");
        let with_port =
            |port: Option<i64>| addresses.iter().map(move |address| host_port(text(address, "/ip"), port));
        if ports.is_empty() {
            shown.extend(with_port(None).take(MAX_SHOWN - shown.len()));
        }
        for port in ports {
            shown.extend(with_port(Some(number(port, "/port"))).take(MAX_SHOWN - shown.len()));
        }
        count = count.saturating_add(addresses.len().saturating_mul(ports.len().max(1)));
    }
    let joined = shown.join(",");
    if count > MAX_SHOWN { format!("{joined} + {} more...", count - MAX_SHOWN) } else { joined }
}

pub(super) fn slice_ports(slice: &Value) -> String {
    let ports = list(slice, "/ports").iter().map(|port| match at(port, "/port") {
        Some(_) => number(port, "/port").to_string(),
        None => given(port, "/name").unwrap_or("*").to_owned(),
    });
    shortened_or_unset(&ports.collect::<Vec<_>>())
}

pub(super) fn slice_endpoints(slice: &Value) -> String {
    let endpoints = list(slice, "/endpoints").iter();
    shortened_or_unset(&endpoints.flat_map(|endpoint| texts(endpoint, "/addresses")).collect::<Vec<_>>())
}

/// The hosts of an ingress, at most three.
///
/// If rules follow the third host, the number of rules minus three is shown, too. As in kube-apiserver, this
/// includes rules without a host.
pub(super) fn hosts(ingress: &Value) -> String {
    let rules = list(ingress, "/spec/rules");
    let mut hosts = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        hosts.extend(filled(rule, "/host"));
        if hosts.len() == MAX_SHOWN && index + 1 < rules.len() {
            return format!("{} + {} more...", hosts.join(","), rules.len() - MAX_SHOWN);
        }
    }
    if hosts.is_empty() { "*".to_owned() } else { hosts.join(",") }
}

pub(super) fn ingress_ports(ingress: &Value) -> String {
    if list(ingress, "/spec/tls").is_empty() { "80" } else { "80, 443" }.to_owned()
}

/// The name, and whether it is the default ingress class.
pub(super) fn class_name(class: &Value) -> String {
    super::storage::named_default(class, &["ingressclass.kubernetes.io/is-default-class"])
}

/// The parameters of an ingress class, `Kind.group/name`.
pub(super) fn class_parameters(class: &Value) -> String {
    let Some(parameters) = at(class, "/spec/parameters") else { return NONE.to_owned() };
    let (kind, name) = (text(parameters, "/kind"), text(parameters, "/name"));
    match given(parameters, "/apiGroup") {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

/// The owner of an IP address, `services/default/kubernetes`.
pub(super) fn parent(address: &Value) -> String {
    let Some(parent) = at(address, "/spec/parentRef") else { return NONE.to_owned() };
    let resource = match filled(parent, "/group") {
        Some(group) => format!("{}.{group}", text(parent, "/resource")),
        None => text(parent, "/resource").to_owned(),
    };
    let namespace = filled(parent, "/namespace").map(|namespace| format!("/{namespace}")).unwrap_or_default();
    format!("{}{namespace}/{}", resource.to_lowercase(), text(parent, "/name"))
}

fn host_port(host: &str, port: Option<i64>) -> String {
    match port {
        None => host.to_owned(),
        Some(port) if host.contains(':') => format!("[{host}]:{port}"),
        Some(port) => format!("{host}:{port}"),
    }
}
